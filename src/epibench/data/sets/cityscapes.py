"""Cityscapes (Cordts et al. 2016): street scenes of 50 cities with fine annotations of 19 classes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

from epibench.data.cityscapes_classes import CITYSCAPES_LABEL_IDS, CITYSCAPES_TRAIN_IDS
from epibench.data.classes import ClassTable
from epibench.data.images import LabelledImages, Listing, list_files, paired
from epibench.data.source import LabelledSource
from epibench.errors import InputError

TABLES = {"labelIds": CITYSCAPES_LABEL_IDS, "labelTrainIds": CITYSCAPES_TRAIN_IDS}
FRAME = r"(.+_\d{6}_\d{6})"
CITY = re.compile(r"([^.].*)")
IMAGE = re.compile(rf"{FRAME}_leftImg8bit\.png")


class CityscapesSource(LabelledSource):
    """Cityscapes with the 19 classes of its fine annotations; test has no public labels.

    Args:
        labels: Kind of label images; `auto` takes the official labelIds if they exist. Both kinds give the same
    classes.
    """

    name: ClassVar[str] = "Cityscapes"
    where: ClassVar[str] = (
        "Cityscapes: www.cityscapes-dataset.com, with an account: leftImg8bit_trainvaltest.zip and "
        "gtFine_trainvaltest.zip"
    )
    published: ClassVar[Mapping[str, int | None]] = {"train": 2975, "val": 500}
    table: ClassVar[ClassTable] = CITYSCAPES_LABEL_IDS

    kind: Literal["cityscapes"] = "cityscapes"
    root: str = "cityscapes"
    split: Literal["train", "val"] = "val"
    labels: Literal["auto", "labelIds", "labelTrainIds"] = "auto"

    def read(self) -> LabelledImages:
        """Return the frames."""
        root = self.folder
        images, annotations = (unpacked(root, name) / self.split for name in ("leftImg8bit", "gtFine"))
        remedy = f"unpack leftImg8bit_trainvaltest.zip into {root}"
        image_files = city_files(images, IMAGE, remedy)
        if not image_files:
            raise InputError(f"{images}: no CITY/…_leftImg8bit.png is there; {remedy}")
        kind, label_files = label_files_of(annotations, self.labels, f"unpack gtFine_trainvaltest.zip into {root}")
        remedy = f"unpack gtFine_trainvaltest.zip and leftImg8bit_trainvaltest.zip into {root}, completely"
        frames = paired(image_files, label_files, images, annotations, remedy, remedy)
        return LabelledImages(f"Cityscapes {self.split}", frames, TABLES[kind], self.crop)


def unpacked(root: Path, name: str) -> Path:
    """Return `leftImg8bit` in the folder, or in a folder named after its archive."""
    beside = root / f"{name}_trainvaltest" / name
    return beside if not (root / name).is_dir() and beside.is_dir() else root / name


def city_files(folder: Path, name: re.Pattern[str], remedy: str) -> Listing:
    """Return files of all cities by (city, frame)."""
    files: Listing = {}
    for (city,), path in list_files(folder, CITY, remedy).items():
        if os.path.isdir(path):
            files |= {(city, *key): file for key, file in list_files(path, name, remedy).items()}
    return files


def label_files_of(folder: Path, labels: str, remedy: str) -> tuple[str, Listing]:
    """Return the kind of label images that is used, and their files."""
    kinds = list(TABLES) if labels == "auto" else [labels]
    for kind in kinds:
        if files := city_files(folder, re.compile(rf"{FRAME}_gtFine_{kind}\.png"), remedy):
            return kind, files
    names = " or ".join(f"CITY/…_gtFine_{kind}.png" for kind in kinds)
    raise InputError(f"{folder}: no {names} is there; {remedy}")
