"""Street scenes as folders in the official layouts of Cityscapes and KITTI depth completion."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from epibench.data.labels import colours, label_ids
from epibench.data.street.arrays import Array
from epibench.data.street.dataset import StreetDataset
from epibench.data.street.frames import Frame
from epibench.errors import InputError

CITY = "street"
DATE, DRIVE = "2011_09_26", "2011_09_26_drive_9999_sync"  # a drive that KITTI does not have
DEPTH_SCALE = 256


def write_cityscapes(frame: Frame, index: int, out: Path, split: str) -> None:
    """leftImg8bit/SPLIT/street/…_leftImg8bit.png, gtFine/SPLIT/street/…_gtFine_{labelIds,labelTrainIds,color}.png."""
    stem = f"{CITY}_{index:06d}_000019"
    images, labels = out / "leftImg8bit" / split / CITY, out / "gtFine" / split / CITY
    save(frame.image, images / f"{stem}_leftImg8bit.png")
    save(label_ids()[frame.labels], labels / f"{stem}_gtFine_labelIds.png")
    save(frame.labels, labels / f"{stem}_gtFine_labelTrainIds.png")
    save(colours()[frame.labels], labels / f"{stem}_gtFine_color.png")


def write_kitti(frame: Frame, index: int, out: Path, split: str) -> None:
    """The drive as in the full data set, and as in `depth_selection/val_selection_cropped`.

    Depth is 16 bit, metres · 256, 0: none.
    """
    sparse, target = depth_bits(frame.sparse_depth), depth_bits(frame.target_depth)
    number = f"{index:010d}"
    save(frame.image, out / DATE / DRIVE / "image_02" / "data" / f"{number}.png")
    projected = out / split / DRIVE / "proj_depth"
    save(sparse, projected / "velodyne_raw" / "image_02" / f"{number}.png")
    save(target, projected / "groundtruth" / "image_02" / f"{number}.png")
    chosen = out / "depth_selection" / "val_selection_cropped"
    save(frame.image, chosen / "image" / f"{DRIVE}_image_{number}_image_02.png")
    save(sparse, chosen / "velodyne_raw" / f"{DRIVE}_velodyne_raw_{number}_image_02.png")
    save(target, chosen / "groundtruth_depth" / f"{DRIVE}_groundtruth_depth_{number}_image_02.png")
    intrinsics = chosen / "intrinsics" / f"{DRIVE}_image_{number}_image_02.txt"
    intrinsics.parent.mkdir(parents=True, exist_ok=True)
    intrinsics.write_text(" ".join(f"{number:.6f}" for number in frame.camera.matrix.ravel()) + "\n", encoding="ascii")


LAYOUTS: dict[str, Callable[[Frame, int, Path, str], None]] = {"cityscapes": write_cityscapes, "kitti": write_kitti}


def export(dataset: StreetDataset, layout: str, out: Path, split: str = "val") -> Iterator[int]:
    """Write all scenes into a new or empty folder; yields the number of each that is written."""
    if layout not in LAYOUTS:
        raise InputError(f"layout '{layout}' is unknown; there are {', '.join(LAYOUTS)}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out}: there is something already; give a new or empty folder")
    return (_written(dataset, layout, index, out, split) for index in range(len(dataset)))


def _written(dataset: StreetDataset, layout: str, index: int, out: Path, split: str) -> int:
    LAYOUTS[layout](dataset.frame(index), index, out, split)
    return index


def depth_bits(depth: Array) -> Array:
    """Metres · 256, rounded, uint16."""
    return np.round(depth.astype(np.float64) * DEPTH_SCALE).astype(np.uint16)


def save(picture: Array, path: Path) -> None:
    """Write a PNG; 16-bit greyscale for uint16."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture).save(path)
