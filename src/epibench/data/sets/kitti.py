"""KITTI depth completion (Uhrig et al. 2017): real images, LiDAR scans, and semi-dense depth from 11 scans."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

from epibench.data.images import DepthFrame, DepthImages, check_partners, list_files
from epibench.data.source import DepthSource, Size
from epibench.errors import InputError

PER_METRE = 256
CAMERAS = ("image_02", "image_03")
SELECTION = ("depth_selection/val_selection_cropped", "val_selection_cropped")
DRIVE = re.compile(r"(\d{4}_\d\d_\d\d_drive_\d{4}_sync)")
NUMBER = re.compile(r"(\d{10})\.png")


class KittiSource(DepthSource):
    """KITTI depth completion, both cameras.

    Args:
        raw_root: Folder of KITTI raw, if it is neither root nor `raw` in root.
        split: `selection` is the 1,000 frames selected from val, on which papers report.
    """

    name: ClassVar[str] = "KITTI"
    where: ClassVar[str] = "KITTI depth completion: www.cvlibs.net/datasets/kitti, Depth Prediction/Completion page"
    published: ClassVar[Mapping[str, int | None]] = {"selection": 1000, "val": 6852, "train": None}  # some 86,000

    kind: Literal["kitti"] = "kitti"
    root: str = "kitti"
    raw_root: str | None = None
    split: Literal["selection", "val", "train"] = "selection"
    crop: Size | None = (352, 1216)

    @property
    def version(self) -> str:
        """The version, which never changes."""
        return "1"

    def read(self) -> DepthImages:
        """Return the frames."""
        root = self.folder
        raw_roots = (root, root / "raw") if self.raw_root is None else (Path(self.raw_root),)
        frames = selected_frames(root) if self.split == "selection" else drive_frames(root / self.split, raw_roots)
        return DepthImages(f"KITTI {self.split}", frames, PER_METRE, self.crop)


def selected_frames(root: Path) -> list[DepthFrame]:
    """Return the frames in `val_selection_cropped/{image,velodyne_raw,groundtruth_depth}`."""
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
        DepthFrame("/".join((key[0], key[2], key[1])), *(files[key] for files in listings))
        for key in sorted(listings[0])
    ]


def drive_frames(folder: Path, raw_roots: tuple[Path, ...]) -> list[DepthFrame]:
    """Return the frames of all drives in `train` or `val`. Images are from the first root that has the drive."""
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


def camera_frames(name: str, images: Path, sparse: Path, target: Path, remedy: str) -> list[DepthFrame]:
    """Return the frames of one camera in one drive.

    Images without depth, e.g. the first and last of each drive, are left out.
    """
    image_remedy = f"get {name.split('/')[0]} of KITTI raw (synced+rectified), and give raw_root if it is elsewhere"
    sparse_files, target_files = list_files(sparse, NUMBER, remedy), list_files(target, NUMBER, remedy)
    check_partners(sparse_files, target_files, target, remedy)
    check_partners(target_files, sparse_files, sparse, remedy)
    image_files = list_files(images, NUMBER, image_remedy)
    check_partners(target_files, image_files, images, image_remedy)
    return [
        DepthFrame(f"{name}/{key[0]}", image_files[key], sparse_files[key], target_files[key])
        for key in sorted(target_files)
    ]
