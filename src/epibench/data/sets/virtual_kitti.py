"""Virtual KITTI (Gaidon et al. 2016; version 2: Cabon et al. 2020): rendered streets with exact depth."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from epibench.data.batch import Batch
from epibench.data.images import Frame, Frames, bottom_centre, check_partners, list_files, read_depth, read_image
from epibench.data.source import CheckedSplit, DepthSource
from epibench.data.virtual_kitti_videos import SPLITS, VARIANTS, Split
from epibench.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

Version = Literal["1.3.1", "2"]

PER_METRE = 100
MAX_DEPTH = 80.0
PUBLISHED: dict[Split, int] = {"train": 18930, "val": 2330}  # frames of each camera
CAMERAS = ("Camera_0", "Camera_1")  # in version 2
# Patterns of image and depth files, and their archives.
FILES = {
    "1.3.1": (r"(\d{5})\.png", r"(\d{5})\.png", "vkitti_1.3.1_rgb.tar and vkitti_1.3.1_depthgt.tar"),
    "2": (r"rgb_(\d{5})\.jpg", r"depth_(\d{5})\.png", "vkitti_2.0.3_rgb.tar and vkitti_2.0.3_depth.tar"),
}


class VirtualKittiSource(DepthSource):
    """Virtual KITTI, 1.3.1 or 2. `val` is world 0002, `train` the other worlds.

    Args:
        sparse_share: Share of the valid pixels that are sparse points.
    """

    name: ClassVar[str] = "Virtual KITTI"
    where: ClassVar[str] = "Virtual KITTI: Naver Labs Europe"

    kind: Literal["virtual_kitti"] = "virtual_kitti"
    root: str = "virtual_kitti"
    split: Split = "train"
    version: Version = "1.3.1"
    sparse_share: float = Field(0.05, gt=0, le=1)
    seed: int = Field(0, ge=0)

    @property
    def num_published(self) -> int | None:
        """The published number of frames in the split, with both cameras in version 2, at most `num_images`."""
        frames = PUBLISHED[self.split] * (1 if self.version == "1.3.1" else len(CAMERAS))
        return frames if self.num_images is None else min(frames, self.num_images)

    def read(self, worlds: Sequence[str] = (), variants: Sequence[str] = VARIANTS) -> VirtualKitti:
        """Return the frames. `worlds`: by default the split's worlds."""
        videos = [(world, variant) for world in worlds or SPLITS[self.split] for variant in variants]
        frames = [frame for video in videos for frame in video_frames(self.folder, self.version, *video)]
        return VirtualKitti(frames, self.sparse_share, self.seed, self.crop)

    @classmethod
    def splits(cls, **options: Any) -> Iterator[CheckedSplit]:
        """Yield both splits of the existing versions, video by video."""
        names = {"1.3.1": "vkitti_1.3.1_*", "2": "Scene[0-9][0-9]"}
        present = [version for version, name in names.items() if any(Path(options["root"]).glob(name))]
        if not present:
            raise InputError(f"{options['root']}: no vkitti_1.3.1_rgb or Scene01; unpack it there ({cls.where})")
        for version in present:
            source = cls.model_validate({"version": version, **options})
            for split, worlds in SPLITS.items():
                videos = [partial(source.read, [world], [variant]) for world in worlds for variant in VARIANTS]
                frames = PUBLISHED[split] * (1 if version == "1.3.1" else len(CAMERAS))
                yield CheckedSplit(f"{version} {split}", cls.task, frames, videos)


@dataclass(frozen=True, slots=True)
class VirtualKittiFrame(Frame):
    """The files of WORLD/VARIANT/NUMBER; in version 2 of SceneNN/VARIANT/Camera_N/NUMBER."""

    image: str
    depth: str


class VirtualKitti(Frames[VirtualKittiFrame]):
    """Image and sparse depth → depth in metres, valid up to 80 m.

    Sparse points are a share of the valid pixels, chosen uniformly as a function of (seed, frame) alone. They are the
    same for any worker, order and crop. The published runs chose new points at each visit.
    """

    def __init__(
        self, frames: list[VirtualKittiFrame], sparse_share: float, seed: int, crop: tuple[int, int] | None = None
    ):
        super().__init__("Virtual KITTI", frames, crop)
        self.sparse_share, self.seed = sparse_share, seed

    def read(self, frame: VirtualKittiFrame) -> Batch:
        """Read image, sparse depth and depth."""
        from epibench.randomness import key

        image, depth = read_image(frame.image), read_depth(frame.depth, PER_METRE)
        window = bottom_centre({frame.image: image, frame.depth: depth}, self.crop)
        target = depth.where(depth <= MAX_DEPTH, 0.0)
        # Chosen before the crop, so that the crop does not change the points.
        sparse = sparse_depth(target, self.sparse_share, key(self.seed, "virtual_kitti", frame.frame_id))
        image, sparse, target = (picture[window].contiguous() for picture in (image, sparse, target))
        return Batch({"image": image, "sparse_depth": sparse[None]}, target, target > 0)


def sparse_depth(depth: Tensor, share: float, seed: int) -> Tensor:
    """Keep a share of the pixels with depth, rounded to whole pixels, (height, width) float32; 0 elsewhere."""
    import torch

    pixels = np.flatnonzero(depth.numpy())
    chosen = torch.from_numpy(np.random.default_rng(seed % 2**64).permutation(pixels)[: round(share * len(pixels))])
    sparse = torch.zeros_like(depth)
    sparse.view(-1)[chosen] = depth.view(-1)[chosen]
    return sparse


def video_frames(root: Path, version: Version, world: str, variant: str) -> list[VirtualKittiFrame]:
    """Return the frames of one world in one variant, of both cameras in version 2."""
    image_name, depth_name, archives = FILES[version]
    remedy = f"unpack {archives} into {root}"
    frames = []
    for name, images, depths in video_folders(root, version, world, variant):
        image_files = list_files(images, re.compile(image_name), remedy)
        depth_files = list_files(depths, re.compile(depth_name), remedy)
        check_partners(image_files, depth_files, depths, remedy)
        check_partners(depth_files, image_files, images, remedy)
        if not image_files:
            raise InputError(f"{images}: no frames are there; {remedy}")
        frames += [VirtualKittiFrame(f"{name}/{k[0]}", image_files[k], depth_files[k]) for k in sorted(image_files)]
    return frames


def video_folders(root: Path, version: Version, world: str, variant: str) -> list[tuple[str, Path, Path]]:
    """Return the name, the image folder and the depth folder of each camera."""
    if version == "1.3.1":
        below = f"{world}/{variant}"
        return [(below, root / "vkitti_1.3.1_rgb" / below, root / "vkitti_1.3.1_depthgt" / below)]
    below = f"Scene{world[2:]}/{variant}"
    frames = root / below / "frames"
    return [(f"{below}/{camera}", frames / "rgb" / camera, frames / "depth" / camera) for camera in CAMERAS]
