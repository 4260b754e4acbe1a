"""Cityscapes (Cordts et al. 2016): street scenes of 50 cities with fine annotations of 19 classes."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal, get_args

from epibench.data.images import Listing, check_partners, list_files
from epibench.data.label_images import LabelledFrame, LabelledImages
from epibench.data.labels import CITYSCAPES_LABEL_IDS, CITYSCAPES_TRAIN_IDS
from epibench.errors import InputError

Split = Literal["train", "val"]
Labels = Literal["auto", "labelIds", "labelTrainIds"]

TABLES = {"labelIds": CITYSCAPES_LABEL_IDS, "labelTrainIds": CITYSCAPES_TRAIN_IDS}
FRAME = r"(.+_\d{6}_\d{6})"
CITY = re.compile(r"([^.].*)")
IMAGE = re.compile(rf"{FRAME}_leftImg8bit\.png")


class Cityscapes(LabelledImages):
    """Image → 19 train ids, valid where there is one (255 elsewhere).

    labels: which of the label images are read; auto takes labelIds, the official ones, where they are there. Both give
    the same classes. crop: height and width of the bottom centre that is used, None for all.
    """

    def __init__(
        self,
        root: Path | str,
        split: Split = "val",
        labels: Labels = "auto",
        crop: tuple[int, int] | None = None,
    ):
        if str(split) == "test":
            raise InputError("Cityscapes test has no public labels; use val")
        if split not in get_args(Split):
            raise InputError(f"Cityscapes split '{split}' is unknown; there are {', '.join(get_args(Split))}")
        if labels not in get_args(Labels):
            raise InputError(f"Cityscapes labels '{labels}' are unknown; there are {', '.join(get_args(Labels))}")
        self.root, self.split = Path(root), split
        if not self.root.is_dir():
            raise InputError(f"{root}: folder is missing; give the one that Cityscapes was unpacked into")
        images, annotations = (part(self.root, name) / split for name in ("leftImg8bit", "gtFine"))
        image_files = frames_of(images, IMAGE, f"unpack leftImg8bit_trainvaltest.zip into {root}")
        if not image_files:
            raise InputError(
                f"{images}: no CITY/…_leftImg8bit.png is there; unpack leftImg8bit_trainvaltest.zip into {root}"
            )
        kind, label_files = label_files_of(annotations, labels, f"unpack gtFine_trainvaltest.zip into {root}")
        remedy = f"unpack gtFine_trainvaltest.zip and leftImg8bit_trainvaltest.zip into {root}, completely"
        check_partners(image_files, label_files, annotations, remedy)
        check_partners(label_files, image_files, images, remedy)
        frames = [LabelledFrame("/".join(key), image_files[key], label_files[key]) for key in sorted(image_files)]
        super().__init__(f"Cityscapes {split}", frames, TABLES[kind], crop)


def part(root: Path, name: str) -> Path:
    """`leftImg8bit` in the folder, or in the one that its archive is called after."""
    beside = root / f"{name}_trainvaltest" / name
    return beside if not (root / name).is_dir() and beside.is_dir() else root / name


def frames_of(folder: Path, name: re.Pattern[str], remedy: str) -> Listing:
    """Files of all cities by (city, frame)."""
    found: Listing = {}
    for (city,), place in list_files(folder, CITY, remedy).items():
        if os.path.isdir(place):
            found |= {(city, *key): path for key, path in list_files(place, name, remedy).items()}
    return found


def label_files_of(folder: Path, labels: str, remedy: str) -> tuple[str, Listing]:
    """The kind of label images that is used, and those."""
    kinds = list(TABLES) if labels == "auto" else [labels]
    for kind in kinds:
        if found := frames_of(folder, re.compile(rf"{FRAME}_gtFine_{kind}\.png"), remedy):
            return kind, found
    names = " or ".join(f"CITY/…_gtFine_{kind}.png" for kind in kinds)
    raise InputError(f"{folder}: no {names} is there; {remedy}")
