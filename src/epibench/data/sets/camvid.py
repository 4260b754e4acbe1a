"""CamVid (Brostow et al. 2009): street scenes of Cambridge, with SegNet's 11 merged classes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

from epibench.data.classes import IGNORE, ClassTable, Colour, Pairs, Value
from epibench.data.images import LabelledFrame, LabelledImages, list_files, matched, paired
from epibench.data.source import LabelledSource
from epibench.errors import InputError

Split = Literal["train", "val", "test", "all"]

SPLITS = ("train", "val", "test")
STILLS, LABELLED = "701_StillsRaw_full", "LabeledApproved_full"
STILL = re.compile(r"([^.].*)\.(?:png|jpg|jpeg)")
LABEL = re.compile(r"([^.].*)_L\.png")
SEQUENCE = re.compile(r"(0001TP|0006R0|0016E5|Seq05VD)_f?(\d+)")


class CamVidClass(NamedTuple):
    """One of the 11 common classes. `parts` are the original classes that it merges."""

    name: str
    colour: Colour
    parts: Mapping[str, Colour]


# Name, colour, parts.
CLASSES = """
sky | 128 128 128 | Sky 128 128 128
building | 128 0 0 | Building 128 0 0, Archway 192 0 128, Bridge 0 128 64, Tunnel 64 0 64, Wall 64 192 0
pole | 192 192 128 | Column_Pole 192 192 128, TrafficCone 0 0 64
road | 128 64 128 | Road 128 64 128, LaneMkgsDriv 128 0 192, LaneMkgsNonDriv 192 0 64
pavement | 60 40 222 | Sidewalk 0 0 192, ParkingBlock 64 192 128, RoadShoulder 128 128 192
tree | 128 128 0 | Tree 128 128 0, VegetationMisc 192 192 0
sign | 192 128 128 | SignSymbol 192 128 128, Misc_Text 128 128 64, TrafficLight 0 64 64
fence | 64 64 128 | Fence 64 64 128
car | 64 0 128 | Car 64 0 128, SUVPickupTruck 64 128 192, Truck_Bus 192 128 192, Train 192 64 128, OtherMoving 128 64 64
pedestrian | 64 64 0 | Pedestrian 64 64 0, Child 192 128 64, CartLuggagePram 64 0 192, Animal 64 128 64
bicyclist | 0 128 192 | Bicyclist 0 128 192, MotorcycleScooter 192 0 192
"""


def _class(row: str) -> CamVidClass:
    name, colour, parts = row.split(" | ")
    named = (part.split(" ", 1) for part in parts.split(", "))
    return CamVidClass(name, _colour(colour), {part: _colour(numbers) for part, numbers in named})


def _colour(numbers: str) -> Colour:
    red, green, blue = map(int, numbers.split())
    return red, green, blue


CAMVID = tuple(_class(row) for row in CLASSES.strip().splitlines())


def _table(values: Iterable[tuple[Value, int]]) -> ClassTable:
    names, colours = zip(*((each.name, each.colour) for each in CAMVID), strict=True)
    return ClassTable("camvid", names, colours, tuple(values))


# Void is 11 in SegNet's version, and black in the original.
CAMVID_IDS = _table([*((number, number) for number in range(len(CAMVID))), (len(CAMVID), IGNORE), (IGNORE, IGNORE)])
CAMVID_COLOURS = _table(
    [*((part, number) for number, each in enumerate(CAMVID) for part in each.parts.values()), ((0, 0, 0), IGNORE)]
)

# CamVid's building includes walls, its tree all plants, its sign traffic lights, its car all larger vehicles, and its
# bicyclist the bicycle below: see CAMVID.
CITYSCAPES_TO_CAMVID: Pairs = (
    *(("sky", "sky"), ("building", "building"), ("wall", "building"), ("pole", "pole"), ("road", "road")),
    *(("sidewalk", "pavement"), ("vegetation", "tree"), ("terrain", "tree"), ("traffic sign", "sign")),
    *(("traffic light", "sign"), ("fence", "fence"), ("car", "car"), ("truck", "car"), ("bus", "car")),
    *(("train", "car"), ("person", "pedestrian"), ("rider", "bicyclist")),
    *(("bicycle", "bicyclist"), ("motorcycle", "bicyclist")),
)


class CamVidSource(LabelledSource):
    """CamVid with 11 classes. The split `all` has every existing split.

    It reads SegNet's layout (`train`, `trainannot`, …: numbers, 360×480) or the original one (`701_StillsRaw_full`,
    `LabeledApproved_full`: colours, 720×960), whose frames are split as in SegNet's version.
    """

    name: ClassVar[str] = "CamVid"
    where: ClassVar[str] = (
        "CamVid: mi.eng.cam.ac.uk/research/projects/VideoRec/CamVid, the original files; or SegNet's, from the "
        "tutorial of its authors"
    )
    published: ClassVar[Mapping[str, int | None]] = {"train": 367, "val": 101, "test": 233}
    table: ClassVar[ClassTable] = CAMVID_IDS

    kind: Literal["camvid"] = "camvid"
    root: str = "camvid"
    split: Split = "val"

    def read(self) -> LabelledImages:
        """Return the frames."""
        root = self.folder
        original = (root / STILLS).is_dir() or (root / LABELLED).is_dir()
        frames = original_frames(root, self.split) if original else segnet_frames(root, self.split)
        return LabelledImages(f"CamVid {self.split}", frames, CAMVID_COLOURS if original else CAMVID_IDS, self.crop)


def segnet_frames(root: Path, split: Split) -> list[LabelledFrame]:
    """Return the frames of `SPLIT` with `SPLITannot`."""
    present = [each for each in SPLITS if (root / each).is_dir()] if split == "all" else [split]
    if not present or not any((root / each).is_dir() for each in (*SPLITS, *(f"{name}annot" for name in SPLITS))):
        raise InputError(f"{root}: neither train, trainannot, … nor {STILLS}, {LABELLED} is there; unpack CamVid there")
    remedy = f"copy {' and '.join(f'{each}, {each}annot' for each in present)} of SegNet's CamVid into {root}"
    return [frame for each in present for frame in matched(root / each, root / f"{each}annot", remedy=remedy)]


def original_frames(root: Path, split: Split) -> list[LabelledFrame]:
    """Return the frames of a split among all 701."""
    images, labels = root / STILLS, root / LABELLED
    remedies = [f"unpack {name}.zip into {root}" for name in (STILLS, LABELLED)]
    image_files, label_files = list_files(images, STILL, remedies[0]), list_files(labels, LABEL, remedies[1])
    if not image_files:
        raise InputError(f"{images}: no image is there; {remedies[0]}")
    frames = paired(image_files, label_files, images, labels, remedies[1], remedies[0])
    chosen = [frame for frame in frames if split in ("all", segnet_split(frame.frame_id))]
    if not chosen:
        raise InputError(f"{images}: has no frame of {split} (by names as 0001TP_006690); use split all")
    return chosen


def segnet_split(frame_id: str) -> str | None:
    """Return SegNet's split of a frame, by sequence and number; None for an unknown name.

    The splits have 367, 101 and 233 frames. The first half of 0001TP is for training, the second for tests. The densely
    labelled part of 0016E5 is for validation.
    """
    match = SEQUENCE.fullmatch(frame_id)
    if match is None:
        return None
    sequence, number = match[1], int(match[2])
    if sequence == "0016E5" and 7959 <= number <= 8159:
        return "val"
    return "test" if sequence == "Seq05VD" or (sequence == "0001TP" and number > 8520) else "train"
