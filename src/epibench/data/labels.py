"""The classes of Cityscapes: 19 train ids with names, colours and the ids of the official label images."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

IGNORE = 255


class StreetClass(NamedTuple):
    """A class that is trained on. label_id: its number in `*_labelIds.png`."""

    name: str
    label_id: int
    colour: tuple[int, int, int]


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
