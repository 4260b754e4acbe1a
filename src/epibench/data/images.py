"""Frames in files: which ones a folder holds, 8-bit images, 16-bit depth, and the part of them that is used."""

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
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import numpy as np
from PIL import Image, UnidentifiedImageError

from epibench.data.batch import Batch, check_index
from epibench.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

# What Pillow raises for damaged files.
DAMAGE = (
    OSError,
    SyntaxError,
    ValueError,
    IndexError,
    TypeError,
    EOFError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)

# Files by what the groups of a pattern find in their names.
Listing = dict[tuple[str, ...], str]
Window = tuple[EllipsisType, slice, slice]


class Frame(Protocol):
    """The files of a frame, as text, because to make 280,000 paths takes seconds; and what the frame is called."""

    @property
    def frame_id(self) -> str:
        """Its name, the same wherever the files lie."""


AnyFrame = TypeVar("AnyFrame", bound=Frame)


class Frames(Generic[AnyFrame]):
    """A data set of frames whose files are opened when a frame is asked for.

    crop: height and width of the bottom centre that is used, None for all.
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
        """What a frame is called."""
        return self.frames[check_index(index, len(self), self.name)].frame_id


@dataclass(frozen=True, slots=True)
class DepthFrame:
    """The files of a frame with sparse depth and depth."""

    frame_id: str
    image: str
    sparse_depth: str
    target: str


class DepthImages(Frames[DepthFrame]):
    """Image and sparse depth → depth in metres, valid where it is known; files hold depth times per_metre."""

    def __init__(self, name: str, frames: Sequence[DepthFrame], per_metre: int, crop: tuple[int, int] | None = None):
        super().__init__(name, frames, crop)
        self.per_metre = per_metre

    def read(self, frame: DepthFrame) -> Batch:
        """Image, sparse depth and depth."""
        image = read_image(frame.image)
        sparse, target = (read_depth(path, self.per_metre) for path in (frame.sparse_depth, frame.target))
        window = bottom_centre({frame.image: image, frame.sparse_depth: sparse, frame.target: target}, self.crop)
        image, sparse, target = (picture[window].contiguous() for picture in (image, sparse, target))
        return Batch({"image": image, "sparse_depth": sparse[None]}, target, target > 0)


def read_image(path: Path | str) -> Tensor:
    """An 8-bit PNG or JPEG file as RGB, (3, height, width) uint8; grey becomes three equal channels."""
    import torch

    picture = load_picture(path, ("PNG", "JPEG"))
    if picture.mode.startswith(("I", "F")):  # converting them would clip at 255
        raise InputError(f"{path}: has more than 8 bits per channel, as depth has; give an 8-bit image")
    colours = np.asarray(picture.convert("RGB"))
    return torch.from_numpy(np.array(colours.transpose(2, 0, 1), order="C"))


def read_depth(path: Path | str, per_metre: int) -> Tensor:
    """A 16-bit grey PNG file in metres, value / per_metre, (height, width) float32; 0: none."""
    import torch

    picture = load_picture(path, ("PNG",))
    if not picture.mode.startswith("I"):  # "I;16", or "I" in older versions of Pillow
        raise InputError(f"{path}: is no 16-bit grey PNG (Pillow's mode {picture.mode}); give the official depth file")
    return torch.from_numpy(np.array(picture, dtype=np.float32)).div_(per_metre)


def load_picture(path: Path | str, formats: tuple[str, ...], decode: bool = True) -> Image.Image:
    """A picture in a file; not decoded, only its size and kind are known."""
    try:
        with Image.open(path, formats=formats) as picture:
            if decode:
                picture.load()
            return picture
    except UnidentifiedImageError:
        problem = f"is no {' or '.join(formats)} file"
    except DAMAGE as error:
        if isinstance(error, OSError) and error.errno is not None:
            problem = f"cannot be read ({error.strerror})"
        else:
            problem = f"is broken or truncated ({error})"
    raise InputError(f"{path}: {problem}; unpack or download it again") from None


def list_files(folder: Path | str, name: re.Pattern[str], remedy: str) -> Listing:
    """Files whose whole names match, in no order; none is opened. remedy: what to do if there is no such folder."""
    try:
        with os.scandir(folder) as entries:
            return {match.groups(): entry.path for entry in entries if (match := name.fullmatch(entry.name))}
    except OSError as error:
        problem = "folder is missing" if isinstance(error, FileNotFoundError) else f"no folder ({error.strerror})"
        raise InputError(f"{folder}: {problem}; {remedy}") from None


def check_partners(files: Listing, partners: Listing, folder: Path | str, remedy: str) -> None:
    """Every file has its partner in the folder."""
    alone = sorted(files.keys() - partners.keys())
    if alone:
        more = f" (and {len(alone) - 1} more)" if len(alone) > 1 else ""
        raise InputError(f"{files[alone[0]]}{more}: what belongs to it is missing in {folder}; {remedy}")


def check_crop(crop: Iterable[int] | None) -> tuple[int, int] | None:
    """Height and width, both whole and positive; None: as the files are."""
    if crop is None:
        return None
    try:
        height, width = (operator.index(side) for side in crop)
    except (TypeError, ValueError):
        height = width = 0
    if min(height, width) < 1:
        raise InputError(f"crop {crop}: give height and width in pixels, as (352, 1216), or None")
    return height, width


def bottom_centre(pictures: Mapping[str, Tensor], crop: tuple[int, int] | None) -> Window:
    """Where the bottom centre of a frame lies; its pictures, by file, (…, height, width), must have one size.

    With an odd number of columns to spare, one more is cut on the right.
    """
    (first, (height, width)), *others = [(path, tuple(picture.shape[-2:])) for path, picture in pictures.items()]
    for path, size in others:
        if size != (height, width):
            raise InputError(
                f"{path}: is {size[0]}×{size[1]}, but {first} is {height}×{width}; give files of one frame"
            )
    if crop is None:
        return ..., slice(None), slice(None)
    if height < crop[0] or width < crop[1]:
        wanted = f"{crop[0]}×{crop[1]}"
        raise InputError(f"{first}: is {height}×{width}, smaller than the crop {wanted}; give a smaller crop, or None")
    left = (width - crop[1]) // 2
    return ..., slice(height - crop[0], height), slice(left, left + crop[1])
