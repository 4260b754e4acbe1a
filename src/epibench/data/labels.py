"""What the values of label images stand for: tables of classes, and those of Cityscapes and CamVid."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from epibench.data.class_colours import Colour, class_colours
from epibench.errors import InputError

IGNORE = 255
UNKNOWN = 254  # in lookup tables: no value of the class table
MAX_CLASSES = 254
MAX_NAMED = 3

Value = int | Colour


@dataclass(frozen=True)
class ClassTable:
    """Classes with names and colours, and what each value of a label image means.

    values: (value, class or IGNORE), where a value is a number of 0 … 255 in a grey image, or a colour in an RGB one.
    """

    name: str
    names: tuple[str, ...]
    colours: tuple[Colour, ...]
    values: tuple[tuple[Value, int], ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.names) <= MAX_CLASSES:
            raise InputError(f"class table '{self.name}': has {len(self.names)} classes; give 1 to {MAX_CLASSES}")
        if len(set(self.names)) < len(self.names) or not all(self.names):
            raise InputError(f"class table '{self.name}': names must differ, and none may be empty")
        if len(self.colours) != len(self.names):
            raise InputError(f"class table '{self.name}': {len(self.names)} names, but {len(self.colours)} colours")

    @property
    def num_classes(self) -> int:
        """How many classes are counted."""
        return len(self.names)

    @property
    def in_colour(self) -> bool:
        """Whether label images are RGB."""
        return isinstance(self.values[0][0], tuple)

    @property
    def digest(self) -> str:
        """Changes when label images are decoded otherwise, or classes are called otherwise."""
        text = json.dumps([self.names, sorted(self.values, key=str)])
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def decode(self, picture: npt.NDArray[np.uint8], path: Path | str) -> Tensor:
        """Classes, IGNORE where none is counted, (height, width) int64; picture: (height, width) or (…, 3) for colours.

        path: what to call the picture in an error.
        """
        numbers = packed(picture) if self.in_colour else picture
        classes = _lookup(self.values)[numbers]
        if (classes == UNKNOWN).any():
            raise InputError(f"{path}: {self._unknown(numbers, classes == UNKNOWN)}")
        return torch.from_numpy(classes).long()

    def _unknown(self, numbers: npt.NDArray[np.integer], unknown: npt.NDArray[np.bool_]) -> str:
        """Which values are not in the table, how often, and where the first is."""
        values, counts = np.unique(numbers[unknown], return_counts=True)
        row, column = np.argwhere(unknown)[0]
        shown = ", ".join(value_text(int(value), self.in_colour) for value in values[:MAX_NAMED])
        more = f" and {len(values) - MAX_NAMED} more" if len(values) > MAX_NAMED else ""
        kind = ("colour" if self.in_colour else "value") + ("s" if len(values) > 1 else "")
        pixels = "1 pixel" if counts.sum() == 1 else f"{counts.sum():,} pixels"
        return (
            f"{kind} {shown}{more} in {pixels}, first in row {row}, column {column}: not in the class table "
            f"'{self.name}'; give the table of these files, or add the value to yours (without a name: not counted)"
        )


def packed(picture: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32]:
    """Colours as numbers of 24 bits."""
    wide = picture.astype(np.int32)
    return wide[..., 0] << 16 | wide[..., 1] << 8 | wide[..., 2]


def value_text(value: int, in_colour: bool) -> str:
    """`7`, or `128 64 0` for a packed colour."""
    return f"{value >> 16} {value >> 8 & 255} {value & 255}" if in_colour else str(value)


@lru_cache(8)
def _lookup(values: tuple[tuple[Value, int], ...]) -> npt.NDArray[np.uint8]:
    """The class of every value, UNKNOWN for those that are not in the table."""
    in_colour = isinstance(values[0][0], tuple)
    table = np.full(2**24 if in_colour else 256, UNKNOWN, np.uint8)
    for value, number in values:
        table[value if isinstance(value, int) else value[0] << 16 | value[1] << 8 | value[2]] = number
    return table


def table_of_names(names: Sequence[str], name: str = "own", colours: Sequence[Colour] | None = None) -> ClassTable:
    """Classes 0 … n − 1 with these names; 255 is not counted."""
    values = ((number, number) for number in range(len(names)))
    found = class_colours(len(names)) if colours is None else tuple(colours)
    return ClassTable(name, tuple(names), found, (*values, (IGNORE, IGNORE)))


class StreetClass(NamedTuple):
    """A class that is trained on. label_id: its number in `*_labelIds.png`."""

    name: str
    label_id: int
    colour: Colour


CITYSCAPES = (
    StreetClass("road", 7, (128, 64, 128)),
    StreetClass("sidewalk", 8, (244, 35, 232)),
    StreetClass("building", 11, (70, 70, 70)),
    StreetClass("wall", 12, (102, 102, 156)),
    StreetClass("fence", 13, (190, 153, 153)),
    StreetClass("pole", 17, (153, 153, 153)),
    StreetClass("traffic light", 19, (250, 170, 30)),
    StreetClass("traffic sign", 20, (220, 220, 0)),
    StreetClass("vegetation", 21, (107, 142, 35)),
    StreetClass("terrain", 22, (152, 251, 152)),
    StreetClass("sky", 23, (70, 130, 180)),
    StreetClass("person", 24, (220, 20, 60)),
    StreetClass("rider", 25, (255, 0, 0)),
    StreetClass("car", 26, (0, 0, 142)),
    StreetClass("truck", 27, (0, 0, 70)),
    StreetClass("bus", 28, (0, 60, 100)),
    StreetClass("train", 31, (0, 80, 100)),
    StreetClass("motorcycle", 32, (0, 0, 230)),
    StreetClass("bicycle", 33, (119, 11, 32)),
)
TRAIN_IDS = {street_class.name: train_id for train_id, street_class in enumerate(CITYSCAPES)}
STATIC_LABEL_ID = 4  # what has no train id: a thing that stands there
NUM_LABEL_IDS = 34  # of which only some are trained on; −1, a licence plate, is 255 in a file


class CamVidClass(NamedTuple):
    """One of the 11 classes that are commonly used. parts: those of the 32 original classes that it is made of."""

    name: str
    colour: Colour
    parts: Mapping[str, Colour]


CAMVID = (
    CamVidClass("sky", (128, 128, 128), {"Sky": (128, 128, 128)}),
    CamVidClass(
        "building",
        (128, 0, 0),
        {
            "Building": (128, 0, 0),
            "Archway": (192, 0, 128),
            "Bridge": (0, 128, 64),
            "Tunnel": (64, 0, 64),
            "Wall": (64, 192, 0),
        },
    ),
    CamVidClass("pole", (192, 192, 128), {"Column_Pole": (192, 192, 128), "TrafficCone": (0, 0, 64)}),
    CamVidClass(
        "road",
        (128, 64, 128),
        {"Road": (128, 64, 128), "LaneMkgsDriv": (128, 0, 192), "LaneMkgsNonDriv": (192, 0, 64)},
    ),
    CamVidClass(
        "pavement",
        (60, 40, 222),
        {"Sidewalk": (0, 0, 192), "ParkingBlock": (64, 192, 128), "RoadShoulder": (128, 128, 192)},
    ),
    CamVidClass("tree", (128, 128, 0), {"Tree": (128, 128, 0), "VegetationMisc": (192, 192, 0)}),
    CamVidClass(
        "sign",
        (192, 128, 128),
        {"SignSymbol": (192, 128, 128), "Misc_Text": (128, 128, 64), "TrafficLight": (0, 64, 64)},
    ),
    CamVidClass("fence", (64, 64, 128), {"Fence": (64, 64, 128)}),
    CamVidClass(
        "car",
        (64, 0, 128),
        {
            "Car": (64, 0, 128),
            "SUVPickupTruck": (64, 128, 192),
            "Truck_Bus": (192, 128, 192),
            "Train": (192, 64, 128),
            "OtherMoving": (128, 64, 64),
        },
    ),
    CamVidClass(
        "pedestrian",
        (64, 64, 0),
        {
            "Pedestrian": (64, 64, 0),
            "Child": (192, 128, 64),
            "CartLuggagePram": (64, 0, 192),
            "Animal": (64, 128, 64),
        },
    ),
    CamVidClass("bicyclist", (0, 128, 192), {"Bicyclist": (0, 128, 192), "MotorcycleScooter": (192, 0, 192)}),
)
CAMVID_VOID: Colour = (0, 0, 0)
SEGNET_VOID = 11


def _cityscapes(values: Iterable[tuple[Value, int]]) -> ClassTable:
    names, colours = zip(*((each.name, each.colour) for each in CITYSCAPES), strict=True)
    return ClassTable("cityscapes", names, colours, tuple(values))


def _camvid(values: Iterable[tuple[Value, int]]) -> ClassTable:
    names, colours = zip(*((each.name, each.colour) for each in CAMVID), strict=True)
    return ClassTable("camvid", names, colours, tuple(values))


CITYSCAPES_TRAIN_IDS = _cityscapes([*((number, number) for number in range(len(CITYSCAPES))), (IGNORE, IGNORE)])
CITYSCAPES_LABEL_IDS = _cityscapes(
    (
        dict.fromkeys((*range(NUM_LABEL_IDS), IGNORE), IGNORE)
        | {each.label_id: number for number, each in enumerate(CITYSCAPES)}
    ).items()
)
CAMVID_IDS = _camvid([*((number, number) for number in range(len(CAMVID))), (SEGNET_VOID, IGNORE), (IGNORE, IGNORE)])
CAMVID_COLOURS = _camvid(
    [*((part, number) for number, each in enumerate(CAMVID) for part in each.parts.values()), (CAMVID_VOID, IGNORE)]
)

# By the names that a recipe or a command gives.
CLASS_TABLES = {
    "cityscapes": CITYSCAPES_LABEL_IDS,
    "cityscapes-train-ids": CITYSCAPES_TRAIN_IDS,
    "camvid": CAMVID_IDS,
    "camvid-colours": CAMVID_COLOURS,
}


def colours() -> npt.NDArray[np.uint8]:
    """The official colour of every train id, black for the others, (256, 3)."""
    table = np.zeros((256, 3), np.uint8)
    table[: len(CITYSCAPES)] = [street_class.colour for street_class in CITYSCAPES]
    return table


def label_ids() -> npt.NDArray[np.uint8]:
    """The official label id of every train id, `static` for the others, (256,)."""
    table = np.full(256, STATIC_LABEL_ID, np.uint8)
    table[: len(CITYSCAPES)] = [street_class.label_id for street_class in CITYSCAPES]
    return table
