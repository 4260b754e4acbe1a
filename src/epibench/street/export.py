"""Street scenes as folders in the official layouts of Cityscapes and KITTI depth completion."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np
from PIL import Image

from epibench.data.cityscapes_classes import colours, label_ids
from epibench.errors import InputError
from epibench.street.arrays import Array
from epibench.street.dataset import StreetDataset
from epibench.street.files import UNFINISHED, replacing, writing_to
from epibench.street.frames import VERSION, Frame

CITY = "street"
DATE, DRIVE = "2011_09_26", "2011_09_26_drive_9999_sync"  # a drive that KITTI does not have
DEPTH_SCALE = 256
SETTINGS = ".epibench-street.json"  # which scenes a folder holds, so that an interrupted export can go on

# What each file of a scene holds, by its path in the folder: a picture, or text.
Files = Mapping[str, Callable[[Frame], "Array | str"]]


def cityscapes_files(index: int, split: str) -> Files:
    """leftImg8bit/SPLIT/street/…_leftImg8bit.png, gtFine/SPLIT/street/…_gtFine_{labelIds,labelTrainIds,color}.png."""
    stem = f"{CITY}_{index:06d}_000019"
    labels = f"gtFine/{split}/{CITY}/{stem}_gtFine"
    return {
        f"leftImg8bit/{split}/{CITY}/{stem}_leftImg8bit.png": lambda frame: frame.image,
        f"{labels}_labelIds.png": lambda frame: label_ids()[frame.labels],
        f"{labels}_labelTrainIds.png": lambda frame: frame.labels,
        f"{labels}_color.png": lambda frame: colours()[frame.labels],
    }


def kitti_files(index: int, split: str) -> Files:
    """The drive as in the full data set, and as in `depth_selection/val_selection_cropped`.

    Depth is 16 bit, metres · 256, 0: none.
    """
    number = f"{index:010d}"
    projected, chosen = f"{split}/{DRIVE}/proj_depth", "depth_selection/val_selection_cropped"
    return {
        f"{DATE}/{DRIVE}/image_02/data/{number}.png": lambda frame: frame.image,
        f"{projected}/velodyne_raw/image_02/{number}.png": lambda frame: depth_bits(frame.sparse_depth),
        f"{projected}/groundtruth/image_02/{number}.png": lambda frame: depth_bits(frame.target_depth),
        f"{chosen}/image/{DRIVE}_image_{number}_image_02.png": lambda frame: frame.image,
        f"{chosen}/velodyne_raw/{DRIVE}_velodyne_raw_{number}_image_02.png": lambda frame: depth_bits(
            frame.sparse_depth
        ),
        f"{chosen}/groundtruth_depth/{DRIVE}_groundtruth_depth_{number}_image_02.png": lambda frame: depth_bits(
            frame.target_depth
        ),
        f"{chosen}/intrinsics/{DRIVE}_image_{number}_image_02.txt": lambda frame: (
            " ".join(f"{value:.6f}" for value in frame.camera.matrix.ravel()) + "\n"
        ),
    }


LAYOUTS: dict[str, Callable[[int, str], Files]] = {"cityscapes": cityscapes_files, "kitti": kitti_files}


def export(dataset: StreetDataset, layout: str, out: Path, split: str = "val") -> Iterator[int]:
    """Write all scenes into a new or empty folder; yields the number of each that is written.

    If the folder holds a part of the same export, which was interrupted, it goes on where that ended.
    """
    if layout not in LAYOUTS:
        raise InputError(f"layout '{layout}' is unknown; there are {', '.join(LAYOUTS)}")
    files_of = LAYOUTS[layout]
    settings = [VERSION, asdict(dataset.domain), dataset.seed, dataset.size, dataset.first, layout, split]
    text = json.dumps(settings, sort_keys=True) + "\n"
    with writing_to(str(out)):
        _check_folder(out, {path for index in range(len(dataset)) for path in files_of(index, split)}, text)
        with replacing(out / SETTINGS) as stream:
            stream.write(text.encode())
    return (_written(dataset, index, out, files_of(index, split)) for index in range(len(dataset)))


def _check_folder(out: Path, expected: set[str], settings: str) -> None:
    """Refuse a folder with anything that this export would not write; remove what an interrupted one left."""
    if not out.is_dir():
        if out.exists():
            raise InputError(f"{out}: there is something already that is no folder; give a new or empty folder")
        return
    found = sorted(path for path in out.rglob("*") if not path.is_dir())
    left = [path for path in found if path.name.startswith(".") and path.name.endswith(UNFINISHED)]
    present = [name for path in found if path not in left and (name := path.relative_to(out).as_posix()) != SETTINGS]
    foreign = [name for name in present if name not in expected]
    if foreign:
        raise InputError(f"{out}: there is something already, as '{foreign[0]}'; give a new or empty folder")
    mine = (out / SETTINGS).is_file() and (out / SETTINGS).read_bytes() == settings.encode()
    if present and not mine:
        raise InputError(f"{out}: there is something already, scenes of another export; give a new or empty folder")
    for path in left:
        path.unlink(missing_ok=True)


def _written(dataset: StreetDataset, index: int, out: Path, files: Files) -> int:
    if all((out / path).is_file() for path in files):
        return index
    frame = dataset.frame(index)
    with writing_to(str(out)):
        for path, content in files.items():
            save(content(frame), out / path)
    return index


def depth_bits(depth: Array) -> Array:
    """Metres · 256, rounded, uint16."""
    return np.round(depth.astype(np.float64) * DEPTH_SCALE).astype(np.uint16)


def save(content: Array | str, path: Path) -> None:
    """Write text, or a PNG: 16-bit greyscale for uint16."""
    with replacing(path) as stream:
        if isinstance(content, str):
            stream.write(content.encode("ascii"))
        else:
            Image.fromarray(content).save(stream, "PNG")
