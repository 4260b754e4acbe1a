"""Virtual KITTI (Gaidon et al. 2016; version 2: Cabon et al. 2020): rendered streets with exact depth."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from epibench.data.batch import Batch
from epibench.data.images import (
    bottom_centre,
    check_crop,
    check_index,
    check_partners,
    list_files,
    read_depth,
    read_image,
)
from epibench.errors import InputError
from epibench.randomness import key

Split = Literal["train", "val"]
Version = Literal["1.3.1", "2"]

PER_METRE = 100
WORLDS = ("0001", "0002", "0006", "0018", "0020")
SPLITS: dict[Split, tuple[str, ...]] = {"train": ("0001", "0006", "0018", "0020"), "val": ("0002",)}
VARIANTS = (
    "15-deg-left",
    "15-deg-right",
    "30-deg-left",
    "30-deg-right",
    "clone",
    "fog",
    "morning",
    "overcast",
    "rain",
    "sunset",
)
CAMERAS = ("Camera_0", "Camera_1")  # in version 2
# Names of images and of depth, and what they are unpacked from.
NAMES = {
    "1.3.1": (re.compile(r"(\d{5})\.png"), re.compile(r"(\d{5})\.png")),
    "2": (re.compile(r"rgb_(\d{5})\.jpg"), re.compile(r"depth_(\d{5})\.png")),
}
ARCHIVES = {
    "1.3.1": "vkitti_1.3.1_rgb.tar and vkitti_1.3.1_depthgt.tar",
    "2": "vkitti_2.0.3_rgb.tar and vkitti_2.0.3_depth.tar",
}


@dataclass(frozen=True, slots=True)
class VirtualKittiFrame:
    """The files of a frame, as text."""

    frame_id: str
    image: str
    depth: str


class VirtualKitti(Dataset[Batch]):
    """Image and sparse depth → depth in metres, valid up to max_depth.

    split: val is world 0002, train the others; `worlds`, where given, says it instead. Sparse depth is sparse_share of
    the valid pixels, drawn uniformly as a function of (seed, frame) alone: the same for any worker, order and crop.
    Another seed draws anew; the published runs drew anew each time. crop: height and width of the bottom centre that is
    used, as of KITTI; None for all. Files are opened when a frame is asked for.
    """

    def __init__(
        self,
        root: Path | str,
        split: Split = "train",
        version: Version = "1.3.1",
        worlds: Sequence[str] | None = None,
        variants: Sequence[str] = VARIANTS,
        sparse_share: float = 0.05,
        max_depth: float = 80.0,
        crop: tuple[int, int] | None = None,
        seed: int = 0,
    ):
        if not 0 < sparse_share <= 1:
            raise InputError(f"sparse_share {sparse_share}: give a share of the valid pixels, above 0 and at most 1")
        if not (max_depth > 0 and math.isfinite(max_depth)):
            raise InputError(f"max_depth {max_depth}: give metres, above 0")
        _known("version", [version], get_args(Version))
        _known("split", [split], get_args(Split))
        self.version, self.split = version, split
        self.worlds = _known("world", SPLITS[split] if worlds is None else worlds, WORLDS)
        self.variants = _known("variant", variants, VARIANTS)
        self.root, self.crop, self.seed = Path(root), check_crop(crop), operator.index(seed)
        self.sparse_share, self.max_depth = sparse_share, max_depth
        if not self.root.is_dir():
            raise InputError(f"{root}: folder is missing; give the one that Virtual KITTI was unpacked into")
        self.frames = [
            frame
            for world in self.worlds
            for variant in self.variants
            for frame in video_frames(self.root, self.version, world, variant)
        ]

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, index: int) -> Batch:
        frame = self.frames[check_index(index, len(self), "Virtual KITTI")]
        image, depth = read_image(frame.image), read_depth(frame.depth, PER_METRE)
        window = bottom_centre({frame.image: image, frame.depth: depth}, self.crop)
        target = torch.where(depth <= self.max_depth, depth, 0.0)
        # Drawn before it is cut, so that the crop does not change it.
        sparse = sparse_depth(target, self.sparse_share, key(self.seed, "virtual_kitti", frame.frame_id))
        image, sparse, target = (picture[window].contiguous() for picture in (image, sparse, target))
        return Batch({"image": image, "sparse_depth": sparse[None]}, target, target > 0)

    def frame_id(self, index: int) -> str:
        """`WORLD/VARIANT/NUMBER`, in version 2 `SceneNN/VARIANT/Camera_N/NUMBER`."""
        return self.frames[check_index(index, len(self), "Virtual KITTI")].frame_id


def sparse_depth(depth: Tensor, share: float, seed: int) -> Tensor:
    """That share of the pixels with depth, rounded to whole pixels; 0 elsewhere; (height, width) float32."""
    places = np.flatnonzero(depth.numpy())
    chosen = torch.from_numpy(np.random.default_rng(seed % 2**64).permutation(places)[: round(share * len(places))])
    sparse = torch.zeros_like(depth)
    sparse.view(-1)[chosen] = depth.view(-1)[chosen]
    return sparse


def video_frames(root: Path, version: Version, world: str, variant: str) -> list[VirtualKittiFrame]:
    """The frames of one world in one variant, of both cameras in version 2."""
    remedy = f"unpack {ARCHIVES[version]} into {root}"
    frames = []
    for name, images, depths in video_folders(root, version, world, variant):
        image_name, depth_name = NAMES[version]
        image_files, depth_files = list_files(images, image_name, remedy), list_files(depths, depth_name, remedy)
        check_partners(image_files, depth_files, depths, remedy)
        check_partners(depth_files, image_files, images, remedy)
        if not image_files:
            raise InputError(f"{images}: no frames are there; {remedy}")
        frames += [VirtualKittiFrame(f"{name}/{k[0]}", image_files[k], depth_files[k]) for k in sorted(image_files)]
    return frames


def video_folders(root: Path, version: Version, world: str, variant: str) -> list[tuple[str, Path, Path]]:
    """The name, the folder of the images and that of the depth of each camera."""
    if version == "1.3.1":
        below = f"{world}/{variant}"
        return [(below, root / "vkitti_1.3.1_rgb" / below, root / "vkitti_1.3.1_depthgt" / below)]
    below = f"Scene{world[2:]}/{variant}"
    frames = root / below / "frames"
    return [
        (f"{below}/{camera}", frames / "rgb" / camera, frames / "depth" / camera) for camera in ("Camera_0", "Camera_1")
    ]


def _known(what: str, given: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """All that is given, once each and in the order of the data set."""
    given = (given,) if isinstance(given, str) else tuple(given)
    unknown = [name for name in given if name not in known]
    if unknown or not given:
        problem = f"'{unknown[0]}' is unknown" if unknown else "is missing"
        raise InputError(f"Virtual KITTI {what} {problem}; there are {', '.join(known)}")
    return tuple(name for name in known if name in given)
