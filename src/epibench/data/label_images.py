"""Images with label images: how a label file is read, and data sets that are lists of such pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from epibench.data.batch import Batch
from epibench.data.images import bottom_centre, check_crop, check_index, load_picture, read_image
from epibench.data.labels import IGNORE, ClassTable
from epibench.data.loading import Samples
from epibench.errors import InputError

GREY, RGB = 0, 2
COLOUR_TYPES = {GREY: "grey", RGB: "RGB", 3: "palette colours", 4: "grey with transparency", 6: "RGB with transparency"}


class LabelledSamples(Samples, Protocol):
    """A data set for segmentation: its targets are numbers of these classes."""

    @property
    def classes(self) -> ClassTable:
        """What the targets stand for."""

    def frame_id(self, index: int) -> str:
        """What a frame is called."""


def read_labels(path: Path | str, classes: ClassTable) -> Tensor:
    """A label image, 8-bit PNG, as classes with IGNORE where none is counted, (height, width) int64.

    Grey for a table of numbers, RGB for one of colours; anything else might hold other numbers than it seems to.
    """
    picture = load_picture(path, ("PNG", "JPEG"))
    wanted = RGB if classes.in_colour else GREY
    remedy = f"save it as 8-bit {COLOUR_TYPES[wanted]} PNG"
    if picture.format != "PNG":
        raise InputError(f"{path}: is JPEG, which changes values; give label images as PNG")
    bits, colour_type = _header(path)
    if colour_type == 3 and wanted == GREY:
        remedy = "save its indices, if they are the values of the class table, as 8-bit grey PNG"
    if {colour_type, wanted} == {GREY, RGB}:
        asks = "colours" if classes.in_colour else "numbers"
        remedy = f"class table '{classes.name}' has {asks}: give the table of these files, or {remedy}"
    if colour_type != wanted or bits != 8:
        depth = f"{bits}-bit " if colour_type in (GREY, RGB) else ""
        found = COLOUR_TYPES.get(colour_type, "another kind")
        raise InputError(f"{path}: is in {depth}{found}, not in 8-bit {COLOUR_TYPES[wanted]}; {remedy}")
    return classes.decode(np.asarray(picture), path)


def _header(path: Path | str) -> tuple[int, int]:
    """Bits per channel and colour type of a PNG file: Pillow scales 2 and 4 bits up, and 16 bits of RGB down."""
    with open(path, "rb") as file:
        start = file.read(26)
    return start[24], start[25]


@dataclass(frozen=True, slots=True)
class LabelledFrame:
    """The files of a frame."""

    frame_id: str
    image: str
    label: str


class LabelledImages(Dataset[Batch]):
    """Image → classes, valid where one is counted (255 elsewhere); files are opened when a frame is asked for.

    crop: height and width of the bottom centre that is used, None for all.
    """

    def __init__(
        self, name: str, frames: Sequence[LabelledFrame], classes: ClassTable, crop: tuple[int, int] | None = None
    ):
        self.name, self.frames, self.classes, self.crop = name, frames, classes, check_crop(crop)

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, index: int) -> Batch:
        frame = self.frames[check_index(index, len(self), self.name)]
        image, target = read_image(frame.image), self.read_target(frame)
        window = bottom_centre({frame.image: image, frame.label: target}, self.crop)
        image, target = image[window].contiguous(), target[window].contiguous()
        return Batch({"image": image}, target, target != IGNORE)

    def read_target(self, frame: LabelledFrame) -> Tensor:
        """The classes of a frame."""
        return read_labels(frame.label, self.classes)

    def frame_id(self, index: int) -> str:
        """What a frame is called."""
        return self.frames[check_index(index, len(self), self.name)].frame_id


def resized(target: Tensor, size: tuple[int, int]) -> Tensor:
    """Classes at another size: each pixel has that of the nearest one."""
    rows, columns = (
        ((torch.arange(new, dtype=torch.float64) + 0.5) * old / new).long()
        for old, new in zip(target.shape, size, strict=True)
    )
    return target[rows][:, columns]
