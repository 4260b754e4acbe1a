"""The 19 classes of Cityscapes, which Synscapes and street scenes also have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from epibench.data.classes import IGNORE, ClassTable, Colour


class CityscapesClass(NamedTuple):
    """A class for training. `label_id` is its number in `*_labelIds.png`."""

    name: str
    label_id: int
    colour: Colour


CITYSCAPES = tuple(
    CityscapesClass(*each)
    for each in (
        *(("road", 7, (128, 64, 128)), ("sidewalk", 8, (244, 35, 232)), ("building", 11, (70, 70, 70))),
        *(("wall", 12, (102, 102, 156)), ("fence", 13, (190, 153, 153)), ("pole", 17, (153, 153, 153))),
        *(("traffic light", 19, (250, 170, 30)), ("traffic sign", 20, (220, 220, 0))),
        *(("vegetation", 21, (107, 142, 35)), ("terrain", 22, (152, 251, 152)), ("sky", 23, (70, 130, 180))),
        *(("person", 24, (220, 20, 60)), ("rider", 25, (255, 0, 0)), ("car", 26, (0, 0, 142))),
        *(("truck", 27, (0, 0, 70)), ("bus", 28, (0, 60, 100)), ("train", 31, (0, 80, 100))),
        *(("motorcycle", 32, (0, 0, 230)), ("bicycle", 33, (119, 11, 32))),
    )
)
TRAIN_IDS = {each.name: train_id for train_id, each in enumerate(CITYSCAPES)}
STATIC_LABEL_ID = 4  # label id `static`, for pixels without a train id
NUM_LABEL_IDS = 34  # label ids, of which some have train ids; −1, a licence plate, is 255 in a file


def _table(values: Iterable[tuple[int, int]]) -> ClassTable:
    names, colours = zip(*((each.name, each.colour) for each in CITYSCAPES), strict=True)
    return ClassTable("cityscapes", names, colours, tuple(values))


CITYSCAPES_TRAIN_IDS = _table([*((number, number) for number in range(len(CITYSCAPES))), (IGNORE, IGNORE)])
CITYSCAPES_LABEL_IDS = _table(
    (
        dict.fromkeys((*range(NUM_LABEL_IDS), IGNORE), IGNORE)
        | {each.label_id: number for number, each in enumerate(CITYSCAPES)}
    ).items()
)


def colours() -> npt.NDArray[np.uint8]:
    """Return the official colour of every train id, (256, 3); black for other values."""
    table = np.zeros((256, 3), np.uint8)
    table[: len(CITYSCAPES)] = [each.colour for each in CITYSCAPES]
    return table


def label_ids() -> npt.NDArray[np.uint8]:
    """Return the official label id of every train id, (256,); `static` for other values."""
    table = np.full(256, STATIC_LABEL_ID, np.uint8)
    table[: len(CITYSCAPES)] = [each.label_id for each in CITYSCAPES]
    return table
