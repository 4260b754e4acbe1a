"""Frames in files: lists of files, 8-bit images, 16-bit depth, label images, and crops."""

from __future__ import annotations

import operator
import os
import re
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

import numpy as np
from PIL import Image, UnidentifiedImageError

from epibench.data.batch import Batch, check_index
from epibench.data.classes import IGNORE, ClassTable
from epibench.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

# Exceptions of Pillow for damaged files.
DAMAGE = (
    *(OSError, SyntaxError, ValueError, IndexError, TypeError, EOFError),
    *(struct.error, zlib.error, Image.DecompressionBombError),
)
IMAGES = (".png", ".jpg", ".jpeg")
LABELS = (".png",)
GREY, RGB = 0, 2
COLOUR_TYPES = {GREY: "grey", RGB: "RGB", 3: "palette colours", 4: "grey with transparency", 6: "RGB with transparency"}

ScaleRule = Literal["centre", "opencv"]  # rules for changing the size of images and labels

# Files by the groups of a pattern in their names.
Listing = dict[tuple[str, ...], str]


@dataclass(frozen=True, slots=True)
class Frame:
    """The files of a frame, as text, and its name.

    Paths are text because 280,000 `Path` objects take seconds.
    """

    frame_id: str


AnyFrame = TypeVar("AnyFrame", bound=Frame)


class Frames(Generic[AnyFrame]):
    """A data set of frames. The files of a frame are opened on request.

    Args:
        name: Name of the data set.
        frames: Frames.
        crop: Height and width of the bottom centre that is used; None for all.
    """

    def __init__(self, name: str, frames: Sequence[AnyFrame], crop: tuple[int, int] | None = None):
        self.name, self.frames, self.crop = name, frames, check_crop(crop)

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, index: int) -> Batch:
        return self.read(self.frames[check_index(index, len(self), self.name)])

    def read(self, frame: AnyFrame) -> Batch:
        """Open the files of a frame."""
        raise NotImplementedError

    def frame_id(self, index: int) -> str:
        """Return the name of a frame."""
        return self.frames[check_index(index, len(self), self.name)].frame_id


@dataclass(frozen=True, slots=True)
class DepthFrame(Frame):
    """The files of a frame with sparse depth and depth."""

    image: str
    sparse_depth: str
    target: str


class DepthImages(Frames[DepthFrame]):
    """Image and sparse depth → depth in metres. Files hold depth times `per_metre`; 0 is invalid."""

    def __init__(self, name: str, frames: Sequence[DepthFrame], per_metre: int, crop: tuple[int, int] | None = None):
        super().__init__(name, frames, crop)
        self.per_metre = per_metre

    def read(self, frame: DepthFrame) -> Batch:
        """Read image, sparse depth and depth."""
        image = read_image(frame.image)
        sparse, target = (read_depth(path, self.per_metre) for path in (frame.sparse_depth, frame.target))
        window = bottom_centre({frame.image: image, frame.sparse_depth: sparse, frame.target: target}, self.crop)
        image, sparse, target = (picture[window].contiguous() for picture in (image, sparse, target))
        return Batch({"image": image, "sparse_depth": sparse[None]}, target, target > 0)


@dataclass(frozen=True, slots=True)
class LabelledFrame(Frame):
    """The files of a frame with classes."""

    image: str
    label: str


class LabelledImages(Frames[LabelledFrame]):
    """Image → classes. Uncounted pixels are 255 and invalid."""

    def __init__(
        self, name: str, frames: Sequence[LabelledFrame], classes: ClassTable, crop: tuple[int, int] | None = None
    ):
        super().__init__(name, frames, crop)
        self.classes = classes

    def read(self, frame: LabelledFrame) -> Batch:
        """Read the image and its classes."""
        image, target = read_image(frame.image), self.read_target(frame)
        window = bottom_centre({frame.image: image, frame.label: target}, self.crop)
        target = target[window].contiguous()
        return Batch({"image": image[window].contiguous()}, target, target != IGNORE)

    def read_target(self, frame: LabelledFrame) -> Tensor:
        """Read the classes of a frame."""
        return read_labels(frame.label, self.classes)


def read_image(path: Path | str) -> Tensor:
    """Read an 8-bit PNG or JPEG file as RGB, (3, height, width) uint8. Grey becomes three equal channels."""
    import torch

    picture = load_picture(path, ("PNG", "JPEG"))
    if picture.mode.startswith(("I", "F")):  # converting them would clip at 255
        raise InputError(f"{path}: has more than 8 bits per channel, as depth has; give an 8-bit image")
    colours = np.asarray(picture.convert("RGB"))
    return torch.from_numpy(np.array(colours.transpose(2, 0, 1), order="C"))


def read_depth(path: Path | str, per_metre: int) -> Tensor:
    """Read a 16-bit grey PNG file in metres, value / per_metre, (height, width) float32; 0: none."""
    import torch

    picture = load_picture(path, ("PNG",))
    if not picture.mode.startswith("I"):  # "I;16", or "I" in older versions of Pillow
        raise InputError(f"{path}: is no 16-bit grey PNG (Pillow's mode {picture.mode}); give the official depth file")
    return torch.from_numpy(np.array(picture, dtype=np.float32)).div_(per_metre)


def read_labels(path: Path | str, classes: ClassTable) -> Tensor:
    """Read a label image, 8-bit PNG, as classes, (height, width) int64; IGNORE for uncounted pixels.

    A table of numbers needs grey, a table of colours RGB. Other formats may change values, and are refused.
    """
    picture = load_picture(path, ("PNG", "JPEG"))
    wanted = RGB if classes.in_colour else GREY
    remedy = f"save it as 8-bit {COLOUR_TYPES[wanted]} PNG"
    if picture.format != "PNG":
        raise InputError(f"{path}: is JPEG, which changes values; give label images as PNG")
    with open(path, "rb") as file:  # Pillow scales 2 and 4 bits up, and 16 bits of RGB down
        bits, colour_type = file.read(26)[24:]
    if colour_type == 3 and wanted == GREY:
        remedy = "save its indices, if they are the values of the class table, as 8-bit grey PNG"
    if {colour_type, wanted} == {GREY, RGB}:
        asks = "colours" if classes.in_colour else "numbers"
        remedy = f"class table '{classes.name}' has {asks}: give the table of these files, or {remedy}"
    if colour_type != wanted or bits != 8:
        depth = f"{bits}-bit " if colour_type in (GREY, RGB) else ""
        kind = COLOUR_TYPES.get(colour_type, "another kind")
        raise InputError(f"{path}: is in {depth}{kind}, not in 8-bit {COLOUR_TYPES[wanted]}; {remedy}")
    return classes.decode(np.asarray(picture), path)


def resized(target: Tensor, size: tuple[int, int], rule: ScaleRule = "centre") -> Tensor:
    """Return classes at another size, from the nearest pixels or by OpenCV's rule."""
    import torch

    from epibench.data.opencv import nearest

    rows, columns = (
        nearest(old, new, new / old)
        if rule == "opencv"
        else ((torch.arange(new, dtype=torch.float64) + 0.5) * old / new).long()
        for old, new in zip(target.shape, size, strict=True)
    )
    return target[rows][:, columns]


def load_picture(path: Path | str, formats: tuple[str, ...], decode: bool = True) -> Image.Image:
    """Open a picture. Without `decode`, only its size and format are known."""
    try:
        with Image.open(path, formats=formats) as picture:
            if decode:
                picture.load()
            return picture
    except UnidentifiedImageError:
        problem = f"is no {' or '.join(formats)} file"
    except DAMAGE as error:
        problem = f"is broken or truncated ({error})"
        if isinstance(error, OSError) and error.errno is not None:
            problem = f"cannot be read ({error.strerror})"
    raise InputError(f"{path}: {problem}; unpack or download it again") from None


def list_files(folder: Path | str, name: re.Pattern[str], remedy: str) -> Listing:
    """Return files whose whole names match, in no order, without opening them.

    Args:
        folder: Folder of the files.
        name: Pattern of their names.
        remedy: Fix in the message about a missing folder.
    """
    try:
        with os.scandir(folder) as entries:
            return {match.groups(): entry.path for entry in entries if (match := name.fullmatch(entry.name))}
    except OSError as error:
        problem = "folder is missing" if isinstance(error, FileNotFoundError) else f"no folder ({error.strerror})"
        raise InputError(f"{folder}: {problem}; {remedy}") from None


def check_partners(files: Listing, partners: Listing, folder: Path | str, remedy: str) -> None:
    """Raise an InputError if a file has no partner in the folder."""
    alone = sorted(files.keys() - partners.keys())
    if alone:
        more = f" (and {len(alone) - 1} more)" if len(alone) > 1 else ""
        raise InputError(f"{files[alone[0]]}{more}: what belongs to it is missing in {folder}; {remedy}")


def paired(
    image_files: Listing, label_files: Listing, images: Path, labels: Path, missing_label: str, missing_image: str
) -> list[LabelledFrame]:
    """Return every image with its label, in the order of names. The last two arguments are fixes in messages."""
    check_partners(image_files, label_files, labels, missing_label)
    check_partners(label_files, image_files, images, missing_image)
    return [LabelledFrame("/".join(key), image_files[key], label_files[key]) for key in sorted(image_files)]


def matched(
    images: Path, labels: Path, image_suffix: str = "", label_suffix: str = "", remedy: str | None = None
) -> list[LabelledFrame]:
    """Match images and label images of two folders by name, including subfolders.

    `remedy` is the fix in the message about an empty folder.
    """
    together = images.resolve() == labels.resolve()
    if together and image_suffix == label_suffix:
        raise InputError(
            f"{images}: holds images and label images; give label_suffix, as _L for 0001_L.png, or two folders"
        )
    remedies = [remedy or f"give the folder of the {kind}" for kind in ("images", "label images")]
    image_files = named(images, IMAGES, image_suffix, remedies[0])
    label_files = named(labels, LABELS, label_suffix, remedies[1])
    if together and len(label_suffix) > len(image_suffix):  # a label file is not an image
        image_files = _without(image_files, label_files)
    elif together:
        label_files = _without(label_files, image_files)
    for files, folder, endings, suffix in (  # neither may be empty
        (image_files, images, IMAGES, image_suffix),
        (label_files, labels, LABELS, label_suffix),
    ):
        if not files:
            names = " or ".join(f"…{suffix}{ending}" for ending in endings)
            raise InputError(f"{folder}: no {names} is there; {remedies[files is label_files]}")
    missing_label = _partner_remedy(image_files, label_files, "label")
    missing_image = _partner_remedy(label_files, image_files, "image")
    return paired(image_files, label_files, images, labels, missing_label, missing_image)


def named(folder: Path, endings: Sequence[str], suffix: str, remedy: str) -> Listing:
    """Return files by their paths below the folder, without suffix and ending. Hidden files are left out."""
    if not folder.is_dir():
        raise InputError(f"{folder}: folder is missing; {remedy}")
    files: Listing = {}
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = os.path.join(parent, name)
            stem, ending = os.path.splitext(path)
            if name.startswith(".") or ending.lower() not in endings or not stem.endswith(suffix):
                continue
            key = (os.path.relpath(stem, folder).replace(os.sep, "/").removesuffix(suffix),)
            if key in files:
                raise InputError(f"{path}: {files[key]} has the same name; remove one of them, or give suffixes")
            files[key] = path
    return files


def _without(files: Listing, others: Listing) -> Listing:
    paths = set(others.values())
    return {key: path for key, path in files.items() if path not in paths}


def _partner_remedy(files: Listing, partners: Listing, kind: str) -> str:
    """Return the fix for a missing partner.

    If only the ends of names differ, it names the suffix option.
    """
    first = min(files)[0]
    ends = {name.removeprefix(first) for (name,) in partners if name != first and name.startswith(first)}
    if len(ends) == 1 and not files.keys() & partners.keys():
        return f"{kind}s seem to end in '{ends.pop()}': give that as {kind}_suffix"
    return f"add the {kind}, or remove it; names must be equal up to image_suffix and label_suffix"


def check_crop(crop: Iterable[int] | None) -> tuple[int, int] | None:
    """Return height and width as positive integers; None: no crop."""
    if crop is None:
        return None
    try:
        height, width = (operator.index(side) for side in crop)
    except (TypeError, ValueError):
        height = width = 0
    if min(height, width) < 1:
        raise InputError(f"crop {crop}: give height and width in pixels, as (352, 1216), or None")
    return height, width


def bottom_centre(pictures: Mapping[str, Tensor], crop: tuple[int, int] | None) -> tuple[EllipsisType, slice, slice]:
    """Return the slices of a frame's bottom centre. Its pictures by file, (…, height, width), must have one size.

    With an odd number of spare columns, one more is cut on the right.
    """
    (first, (height, width)), *others = [(path, tuple(picture.shape[-2:])) for path, picture in pictures.items()]
    for path, size in others:
        if size != (height, width):
            sizes = f"is {size[0]}×{size[1]}, but {first} is {height}×{width}"
            raise InputError(f"{path}: {sizes}; give files of one frame")
    if crop is None:
        return ..., slice(None), slice(None)
    if height < crop[0] or width < crop[1]:
        wanted = f"{crop[0]}×{crop[1]}"
        raise InputError(f"{first}: is {height}×{width}, smaller than the crop {wanted}; give a smaller crop, or None")
    left = (width - crop[1]) // 2
    return ..., slice(height - crop[0], height), slice(left, left + crop[1])
