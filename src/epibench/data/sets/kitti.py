"""KITTI depth completion (Uhrig et al. 2017): real images, LiDAR scans, and semi-dense depth from 11 scans."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

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

Split = Literal["selection", "val", "train"]

CROP = (352, 1216)
PER_METRE = 256
CAMERAS = ("image_02", "image_03")
SELECTION = ("depth_selection/val_selection_cropped", "val_selection_cropped")
DRIVE = re.compile(r"(\d{4}_\d\d_\d\d_drive_\d{4}_sync)")
NUMBER = re.compile(r"(\d{10})\.png")


@dataclass(frozen=True, slots=True)
class KittiFrame:
    """The files of a frame; as text, because to make 280,000 paths takes seconds."""

    frame_id: str
    image: str
    sparse_depth: str
    target: str


class KittiDepth(Dataset[Batch]):
    """Image and sparse depth → depth in metres, valid where it is known, of both cameras.

    selection: the 1,000 frames that were selected from val, on which papers report. crop: height and width of the
    bottom centre that is used, None for all. raw_root: where the images of KITTI raw are, for train and val; by default
    root, or `raw` in it. Files are opened when a frame is asked for.
    """

    def __init__(
        self,
        root: Path | str,
        split: Split = "selection",
        crop: tuple[int, int] | None = CROP,
        raw_root: Path | str | None = None,
    ):
        if split not in get_args(Split):
            raise InputError(f"KITTI split '{split}' is unknown; there are {', '.join(get_args(Split))}")
        self.root, self.split, self.crop = Path(root), split, check_crop(crop)
        if not self.root.is_dir():
            raise InputError(f"{root}: folder is missing; give the one that KITTI depth completion was unpacked into")
        raw_roots = (self.root, self.root / "raw") if raw_root is None else (Path(raw_root),)
        self.frames = selected_frames(self.root) if split == "selection" else drives(self.root / split, raw_roots)

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, index: int) -> Batch:
        frame = self.frames[check_index(index, len(self), f"KITTI {self.split}")]
        image = read_image(frame.image)
        sparse, target = read_depth(frame.sparse_depth, PER_METRE), read_depth(frame.target, PER_METRE)
        window = bottom_centre({frame.image: image, frame.sparse_depth: sparse, frame.target: target}, self.crop)
        image, sparse, target = (picture[window].contiguous() for picture in (image, sparse, target))
        return Batch({"image": image, "sparse_depth": sparse[None]}, target, target > 0)

    def frame_id(self, index: int) -> str:
        """`DRIVE/image_02/NUMBER`."""
        return self.frames[check_index(index, len(self), f"KITTI {self.split}")].frame_id


def selected_frames(root: Path) -> list[KittiFrame]:
    """The frames in `val_selection_cropped/{image,velodyne_raw,groundtruth_depth}`."""
    remedy = f"unpack data_depth_selection.zip into {root}"
    folder = next((root / place for place in SELECTION if (root / place).is_dir()), root / SELECTION[0])
    kinds = ("image", "velodyne_raw", "groundtruth_depth")
    names = [re.compile(rf"{DRIVE.pattern}_{kind}_(\d{{10}})_(image_0[23])\.png") for kind in kinds]
    listings = [list_files(folder / kind, name, remedy) for kind, name in zip(kinds, names, strict=True)]
    for files in listings:
        for partners, kind in zip(listings, kinds, strict=True):
            check_partners(files, partners, folder / kind, remedy)
    if not listings[0]:
        raise InputError(f"{folder / kinds[0]}: no DRIVE_image_NUMBER_CAMERA.png is there; {remedy}")
    return [
        KittiFrame("/".join((key[0], key[2], key[1])), *(files[key] for files in listings))
        for key in sorted(listings[0])
    ]


def drives(folder: Path, raw_roots: tuple[Path, ...]) -> list[KittiFrame]:
    """The frames of all drives in `train` or `val`, with images from the first place that has the drive."""
    remedy = f"unpack data_depth_velodyne.zip and data_depth_annotated.zip into {folder.parent}"
    frames = []
    for (drive,) in sorted(list_files(folder, DRIVE, remedy)):
        below = f"{drive[:10]}/{drive}"
        raw = next((place / below for place in raw_roots if (place / below).is_dir()), raw_roots[0] / below)
        for camera in CAMERAS:
            depth = [folder / drive / "proj_depth" / kind / camera for kind in ("velodyne_raw", "groundtruth")]
            if any(place.is_dir() for place in depth):
                frames += camera_frames(f"{drive}/{camera}", raw / camera / "data", depth[0], depth[1], remedy)
    if not frames:
        raise InputError(f"{folder}: no DRIVE/proj_depth/{{velodyne_raw,groundtruth}}/CAMERA is there; {remedy}")
    return frames


def camera_frames(name: str, images: Path, sparse: Path, target: Path, remedy: str) -> list[KittiFrame]:
    """The frames of one camera in one drive; images that have no depth, as the first and last of each, are left out."""
    image_remedy = f"get {name.split('/')[0]} of KITTI raw (synced+rectified), and give raw_root if it is elsewhere"
    sparse_files, target_files = list_files(sparse, NUMBER, remedy), list_files(target, NUMBER, remedy)
    check_partners(sparse_files, target_files, target, remedy)
    check_partners(target_files, sparse_files, sparse, remedy)
    image_files = list_files(images, NUMBER, image_remedy)
    check_partners(target_files, image_files, images, image_remedy)
    return [
        KittiFrame(f"{name}/{key[0]}", image_files[key], sparse_files[key], target_files[key])
        for key in sorted(target_files)
    ]
