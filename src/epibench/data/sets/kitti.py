"""KITTI depth completion (Uhrig et al. 2017): real images, LiDAR scans, and semi-dense depth from 11 scans."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, get_args

from epibench.data.batch import Batch
from epibench.data.images import (
    Frames,
    bottom_centre,
    check_choice,
    check_folder,
    check_partners,
    list_files,
    read_depth,
    read_image,
)
from epibench.data.source import DepthSource, Size
from epibench.errors import InputError

Split = Literal["selection", "val", "train"]

CROP = (352, 1216)
PER_METRE = 256
CAMERAS = ("image_02", "image_03")
SELECTION = ("depth_selection/val_selection_cropped", "val_selection_cropped")
DRIVE = re.compile(r"(\d{4}_\d\d_\d\d_drive_\d{4}_sync)")
NUMBER = re.compile(r"(\d{10})\.png")


class KittiSource(DepthSource):
    """KITTI depth completion; raw_root: where KITTI raw lies, if apart."""

    name: ClassVar[str] = "KITTI"
    where: ClassVar[str] = "KITTI depth completion: www.cvlibs.net/datasets/kitti, Depth Prediction/Completion page"
    published: ClassVar[Mapping[str, int | None]] = {"selection": 1000, "val": 6852, "train": None}  # some 86,000

    kind: Literal["kitti"] = "kitti"
    root: str = "kitti"
    raw_root: str | None = None
    split: Split = "selection"
    crop: Size | None = CROP

    @property
    def version(self) -> str:
        """There is one."""
        return "1"

    def read(self) -> KittiDepth:
        """The frames."""
        return KittiDepth(self.root, self.split, self.crop, self.raw_root)


@dataclass(frozen=True, slots=True)
class KittiFrame:
    """The files of a frame."""

    frame_id: str  # DRIVE/image_02/NUMBER
    image: str
    sparse_depth: str
    target: str


class KittiDepth(Frames[KittiFrame]):
    """Image and sparse depth → depth in metres, valid where it is known, of both cameras.

    selection: the 1,000 frames that were selected from val, on which papers report. crop: height and width of the
    bottom centre that is used, None for all. raw_root: where the images of KITTI raw are, for train and val; by default
    root, or `raw` in it.
    """

    def __init__(
        self,
        root: Path | str,
        split: Split = "selection",
        crop: tuple[int, int] | None = CROP,
        raw_root: Path | str | None = None,
    ):
        check_choice("KITTI split", split, get_args(Split))
        self.root, self.split = check_folder(root, "KITTI depth completion"), split
        raw_roots = (self.root, self.root / "raw") if raw_root is None else (Path(raw_root),)
        frames = selected_frames(self.root) if split == "selection" else drive_frames(self.root / split, raw_roots)
        super().__init__(f"KITTI {split}", frames, crop)

    def read(self, frame: KittiFrame) -> Batch:
        """Image, sparse depth and depth."""
        image = read_image(frame.image)
        sparse, target = read_depth(frame.sparse_depth, PER_METRE), read_depth(frame.target, PER_METRE)
        window = bottom_centre({frame.image: image, frame.sparse_depth: sparse, frame.target: target}, self.crop)
        image, sparse, target = (picture[window].contiguous() for picture in (image, sparse, target))
        return Batch({"image": image, "sparse_depth": sparse[None]}, target, target > 0)


def selected_frames(root: Path) -> list[KittiFrame]:
    """The frames in `val_selection_cropped/{image,velodyne_raw,groundtruth_depth}`."""
    remedy = f"unpack data_depth_selection.zip into {root}"
    folder = next((root / below for below in SELECTION if (root / below).is_dir()), root / SELECTION[0])
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


def drive_frames(folder: Path, raw_roots: tuple[Path, ...]) -> list[KittiFrame]:
    """The frames of all drives in `train` or `val`, with images from the first root that has the drive."""
    remedy = f"unpack data_depth_velodyne.zip and data_depth_annotated.zip into {folder.parent}"
    frames = []
    for (drive,) in sorted(list_files(folder, DRIVE, remedy)):
        below = f"{drive[:10]}/{drive}"
        raw = next((root / below for root in raw_roots if (root / below).is_dir()), raw_roots[0] / below)
        for camera in CAMERAS:
            sparse, target = (folder / drive / "proj_depth" / kind / camera for kind in ("velodyne_raw", "groundtruth"))
            if sparse.is_dir() or target.is_dir():
                frames += camera_frames(f"{drive}/{camera}", raw / camera / "data", sparse, target, remedy)
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
