"""What folders with images and label images hold: frames of each split, some of them opened, and their classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from epibench.data.label_images import LabelledImages
from epibench.data.labels import ClassTable
from epibench.data.sets.camvid import CamVid
from epibench.data.sets.cityscapes import Cityscapes
from epibench.data.sets.folder import Folder
from epibench.data.sets.synscapes import Synscapes, folder_of
from epibench.errors import InputError

NUM_OPENED = 12

# Where to get it, in words: such addresses change.
SOURCES = {
    "cityscapes": "Cityscapes: www.cityscapes-dataset.com, with an account: leftImg8bit_trainvaltest.zip and "
    "gtFine_trainvaltest.zip",
    "synscapes": "Synscapes: synscapes.on.liu.se, of Linköping University",
    "camvid": "CamVid: mi.eng.cam.ac.uk/research/projects/VideoRec/CamVid, the original files; or SegNet's, from the "
    "tutorial of its authors",
}

# Frames of each split as it was published.
PUBLISHED: dict[str, dict[str, int]] = {
    "cityscapes": {"train": 2975, "val": 500},
    "synscapes": {"all": 25000},
    "camvid": {"train": 367, "val": 101, "test": 233},
}
Watch = Callable[[Sequence[int], str], Iterable[int]]  # shows how far one is


@dataclass(frozen=True)
class LabelledReport:
    """What was found of a split. opened: frames that were; sizes: (height, width) of those; pixels: of each class."""

    name: str
    frames: int
    published: int | None
    opened: int
    sizes: tuple[tuple[int, int], ...]
    pixels: tuple[int, ...]
    not_counted: int
    classes: ClassTable | None
    problems: tuple[str, ...]


def check_labelled(name: str, root: Path, every: bool, watch: Watch) -> list[LabelledReport]:
    """All splits of a data set, also those of which nothing is there. every: open all frames, not only some."""
    if not root.is_dir():
        raise InputError(f"{root}: folder is missing; give the one that {name} was unpacked into ({SOURCES[name]})")
    reports = []
    for split, published in PUBLISHED[name].items():
        try:
            dataset = OPENED[name](root, split)
        except InputError as error:
            reports.append(LabelledReport(split, 0, published, 0, (), (), 0, None, (str(error),)))
            continue
        reports.append(describe(dataset, split, published, every, watch))
    return reports


def open_synscapes(root: Path, split: Literal["all"]) -> Synscapes:
    """The scenes with large images, or with those that are there."""
    base = folder_of(root)
    only_small = (base / "rgb").is_dir() and not (base / "rgb-2k").is_dir()
    return Synscapes(root, split, images="rgb" if only_small else "rgb-2k")


OPENED: dict[str, Callable[..., LabelledImages]] = {
    "cityscapes": Cityscapes,
    "synscapes": open_synscapes,
    "camvid": CamVid,
}


def check_folder(dataset: Folder, every: bool, watch: Watch) -> LabelledReport:
    """What is in two folders of one's own."""
    return describe(dataset, dataset.name, None, every, watch)


def describe(dataset: LabelledImages, name: str, published: int | None, every: bool, watch: Watch) -> LabelledReport:
    """Open frames, evenly spread or all, and count; a frame that cannot be opened is a problem that is told."""
    pixels = torch.zeros(dataset.classes.num_classes, dtype=torch.int64)
    sizes: dict[tuple[int, int], None] = {}
    not_counted, problems, opened = 0, [], 0
    for index in watch(list(spread(len(dataset), len(dataset) if every else NUM_OPENED)), name):
        try:
            batch = dataset[index]
        except InputError as error:
            problems.append(str(error))
            continue
        opened += 1
        sizes[batch.target.shape[0], batch.target.shape[1]] = None
        pixels += torch.bincount(batch.target[batch.valid], minlength=len(pixels))
        not_counted += int((~batch.valid).sum())
    return LabelledReport(
        name,
        len(dataset),
        published,
        opened,
        tuple(sorted(sizes)),
        tuple(pixels.tolist()),
        not_counted,
        dataset.classes,
        tuple(problems),
    )


def spread(length: int, number: int) -> Iterator[int]:
    """So many numbers from the first to the last."""
    count = min(length, number)
    return (0 if count == 1 else place * (length - 1) // (count - 1) for place in range(count))
