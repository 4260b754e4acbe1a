"""Street scenes as files: folders in the layouts of other data sets, and a sheet of pictures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import numpy as np
from PIL import Image

from epibench.data.cityscapes_classes import colours, label_ids
from epibench.data.virtual_kitti_videos import SPLITS, VARIANTS
from epibench.errors import ArgumentError, InputError
from epibench.files import replacing
from epibench.street.arrays import Array
from epibench.street.dataset import StreetDataset
from epibench.street.frames import VERSION, Frame, reason
from epibench.street.lidar import MAX_DEPTH

CITY = "street"
DATE, DRIVE = "2011_09_26", "2011_09_26_drive_9999_sync"  # a drive that KITTI does not have
DEPTH_SCALE, CENTIMETRES = 256, 100
VIDEOS = [f"{world}/{variant}" for worlds in SPLITS.values() for world in worlds for variant in VARIANTS]
SETTINGS = ".epibench-street.json"  # describes the scenes of a folder, so that an interrupted export can resume
GAP = 4
NEAREST_SHOWN = 2.0
# Near to far: warm to cold, as in most pictures of depth.
STOPS = (
    (0.64, 0.07, 0.03), (0.96, 0.45, 0.15), (0.90, 0.86, 0.22), (0.30, 0.86, 0.55), (0.16, 0.50, 0.90),
    (0.19, 0.12, 0.35),
)  # fmt: skip

# The content of each file of a scene, by its path in the folder: a picture, or text.
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
    stem, truth = f"{number}_image_02", "groundtruth_depth"
    return {
        f"{DATE}/{DRIVE}/image_02/data/{number}.png": lambda frame: frame.image,
        f"{projected}/velodyne_raw/image_02/{number}.png": lambda frame: depth_bits(frame.sparse_depth),
        f"{projected}/groundtruth/image_02/{number}.png": lambda frame: depth_bits(frame.target_depth),
        f"{chosen}/image/{DRIVE}_image_{stem}.png": lambda frame: frame.image,
        f"{chosen}/velodyne_raw/{DRIVE}_velodyne_raw_{stem}.png": lambda frame: depth_bits(frame.sparse_depth),
        f"{chosen}/{truth}/{DRIVE}_{truth}_{stem}.png": lambda frame: depth_bits(frame.target_depth),
        f"{chosen}/intrinsics/{DRIVE}_image_{stem}.txt": lambda frame: (
            " ".join(f"{value:.6f}" for value in frame.camera.matrix.ravel()) + "\n"
        ),
    }


def synscapes_files(index: int, split: str) -> Files:
    """Return img/{rgb-2k,class}/NUMBER.png, from 1. The reader chooses splits."""
    return {
        f"img/rgb-2k/{index + 1}.png": lambda frame: frame.image,
        f"img/class/{index + 1}.png": lambda frame: label_ids()[frame.labels],
    }


def virtual_kitti_files(index: int, split: str) -> Files:
    """Return vkitti_1.3.1_{rgb,depthgt}/WORLD/VARIANT/NUMBER.png.

    Each of the 50 videos gets one scene, then each gets a second one, and so on. Depth is 16 bit, metres · 100; the sky
    has the largest value.
    """
    video, number = VIDEOS[index % len(VIDEOS)], f"{index // len(VIDEOS):05d}.png"
    return {
        f"vkitti_1.3.1_rgb/{video}/{number}": lambda frame: frame.image,
        f"vkitti_1.3.1_depthgt/{video}/{number}": lambda frame: centimetres(frame.depth),
    }


LAYOUTS: dict[str, Callable[[int, str], Files]] = {
    "cityscapes": cityscapes_files,
    "kitti": kitti_files,
    "synscapes": synscapes_files,
    "virtual_kitti": virtual_kitti_files,
}


def export(dataset: StreetDataset, layout: str, out: Path, split: str = "val") -> Iterator[int]:
    """Write all scenes into a new or empty folder, and yield the number of each.

    An interrupted export of the same scenes is resumed.
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


def parse_size(text: str) -> tuple[int, int]:
    """`256x512` as height and width."""
    parts = text.lower().replace("×", "x").split("x")
    if len(parts) != 2 or not all(part.strip().isdecimal() for part in parts):
        raise ArgumentError(f"size '{text}': give height and width, as 256x512")
    return int(parts[0]), int(parts[1])


def _check_folder(out: Path, expected: set[str], settings: str) -> None:
    """Raise an InputError for a folder with other files; remove leftovers of an interrupted export."""
    if not out.is_dir():
        if out.exists():
            raise InputError(f"{out}: there is something already that is no folder; give a new or empty folder")
        return
    names = sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if not path.is_dir())
    unfinished = [name for name in names if _is_unfinished(name, expected | {SETTINGS})]
    present = [name for name in names if name not in unfinished and name != SETTINGS]
    foreign = [name for name in present if name not in expected]
    if foreign:
        raise InputError(f"{out}: there is something already, as '{foreign[0]}'; give a new or empty folder")
    mine = (out / SETTINGS).is_file() and (out / SETTINGS).read_bytes() == settings.encode()
    if present and not mine:
        raise InputError(f"{out}: there is something already, scenes of another export; give a new or empty folder")
    for name in unfinished:
        (out / name).unlink(missing_ok=True)


def _is_unfinished(name: str, expected: set[str]) -> bool:
    """Return whether a file is a leftover of an interrupted writer: `.FILE.…` beside an expected file."""
    folder, slash, file = name.rpartition("/")
    if not file.startswith("."):
        return False
    ends = [end for end, letter in enumerate(file) if letter == "." and end]
    return any(f"{folder}{slash}{file[1:end]}" in expected for end in ends)


def _written(dataset: StreetDataset, index: int, out: Path, files: Files) -> int:
    if all((out / path).is_file() for path in files):
        return index
    frame = dataset.frame(index)
    with writing_to(str(out)):
        for path, content in files.items():
            save(content(frame), out / path)
    return index


@contextmanager
def writing_to(what: str) -> Iterator[None]:
    """Turn errors of the file system into a message that names what was to be written."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{what}: cannot be written to ({reason(error)}); give another path") from None


def depth_bits(depth: Array) -> Array:
    """Metres · 256, rounded, uint16."""
    return np.round(depth.astype(np.float64) * DEPTH_SCALE).astype(np.uint16)


def centimetres(depth: Array) -> Array:
    """Return metres · 100, rounded, uint16; the largest value without depth."""
    farthest = np.iinfo(np.uint16).max
    rounded = np.minimum(np.round(depth.astype(np.float64) * CENTIMETRES), farthest)
    return np.where(depth > 0, rounded, farthest).astype(np.uint16)


def save(content: Array | str, path: Path) -> None:
    """Write text, or a PNG: 16-bit greyscale for uint16."""
    with replacing(path) as stream:
        if isinstance(content, str):
            stream.write(content.encode("ascii"))
        else:
            Image.fromarray(content).save(stream, "PNG")


def depth_colours(depth: Array) -> Array:
    """Return depth as colours, (height, width, 3) uint8.

    The scale is logarithmic, from 2 to 80 m. Pixels without depth are black.
    """
    share = np.log(np.maximum(depth, NEAREST_SHOWN) / NEAREST_SHOWN) / np.log(MAX_DEPTH / NEAREST_SHOWN)
    stops = np.linspace(0, 1, len(STOPS))
    picture = np.stack([np.interp(share, stops, [stop[part] for stop in STOPS]) for part in range(3)], -1)
    return (picture * (depth > 0)[..., None] * 255).astype(np.uint8)


def thickened(depth: Array) -> Array:
    """Enlarge single pixels to make them visible."""
    thick: Array = depth.copy()
    for here, before in ((thick[1:], depth[:-1]), (thick[:, 1:], depth[:, :-1])):
        np.copyto(here, before, where=here == 0)
    return thick


def frame_strip(frame: Frame) -> Array:
    """One frame: image, classes, exact depth, sparse depth, target."""
    depths = (frame.depth, thickened(frame.sparse_depth), frame.target_depth)
    tiles = [frame.image, colours()[frame.labels], *map(depth_colours, depths)]
    gap = np.full((frame.image.shape[0], GAP, 3), 255, np.uint8)
    return np.concatenate([part for tile in tiles for part in (tile, gap)][:-1], 1)


def make_sheet(frames: Iterable[Frame]) -> Image.Image:
    """All frames below each other."""
    strips = [frame_strip(frame) for frame in frames]
    gap = np.full((GAP, strips[0].shape[1], 3), 255, np.uint8)
    return Image.fromarray(np.concatenate([part for strip in strips for part in (strip, gap)][:-1]))
