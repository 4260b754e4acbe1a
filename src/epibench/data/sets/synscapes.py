"""Synscapes (Wrenninge, Unger 2018): 25,000 rendered street scenes, annotated as Cityscapes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from epibench.data.cityscapes_classes import CITYSCAPES_LABEL_IDS
from epibench.data.classes import ClassTable
from epibench.data.images import (
    LabelledFrame,
    LabelledImages,
    check_partners,
    list_files,
    load_picture,
    read_labels,
    resized,
)
from epibench.data.source import CheckedSplit, LabelledSource
from epibench.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

Images = Literal["rgb-2k", "rgb"]

NUMBER = re.compile(r"(\d+)\.png")


class SynscapesSource(LabelledSource):
    """Synscapes with Cityscapes' classes: a random selection of num_train scenes, and of num_val others.

    images: rgb-2k has 1024×2048 pixels, rgb 720×1440 as the label images, which are scaled up for rgb-2k.
    """

    name: ClassVar[str] = "Synscapes"
    where: ClassVar[str] = "Synscapes: synscapes.on.liu.se, of Linköping University"
    table: ClassVar[ClassTable] = CITYSCAPES_LABEL_IDS

    kind: Literal["synscapes"] = "synscapes"
    root: str = "synscapes"
    split: Literal["train", "val", "all"] = "train"
    num_train: int = Field(2975, ge=1)
    num_val: int = Field(500, ge=1)
    seed: int = Field(0, ge=0)
    images: Images = "rgb-2k"

    def read(self) -> ScaledLabels:
        """The frames."""
        every = all_frames(self.folder, self.images)
        frames = every if self.split == "all" else self.selection(every)
        return ScaledLabels(f"Synscapes {self.split}", frames, CITYSCAPES_LABEL_IDS, self.crop)

    def selection(self, frames: list[LabelledFrame]) -> list[LabelledFrame]:
        """So many scenes at random, none of train in val."""
        import torch

        from epibench import randomness

        if self.num_train + self.num_val > len(frames):
            raise InputError(
                f"{self.root}: has {len(frames):,} scenes, not {self.num_train:,} for training and {self.num_val:,} "
                f"others for validation; give smaller num_train and num_val"
            )
        key = randomness.key(self.seed, "synscapes", "selection")
        order = randomness.permutations(torch.tensor([key]), 0, len(frames))[0].tolist()
        chosen = order[: self.num_train] if self.split == "train" else order[-self.num_val :]
        return [frames[index] for index in sorted(chosen)]

    @classmethod
    def splits(cls, **options: Any) -> Iterator[CheckedSplit]:
        """All scenes, with large images, or with those that are there."""
        base = base_folder(Path(options["root"]))
        only_small = (base / "rgb").is_dir() and not (base / "rgb-2k").is_dir()
        source = cls(split="all", images="rgb" if only_small else "rgb-2k", **options)
        yield CheckedSplit("all", cls.task, 25000, [source.read])


class ScaledLabels(LabelledImages):
    """Images whose label images may be smaller."""

    def read_target(self, frame: LabelledFrame) -> Tensor:
        """The classes of a frame at the size of its image."""
        target = read_labels(frame.label, self.classes)
        width, height = load_picture(frame.image, ("PNG",), decode=False).size
        scaled = target.shape[0] * width == target.shape[1] * height
        return resized(target, (height, width)) if scaled else target  # another shape is a mismatch


def base_folder(root: Path) -> Path:
    """`img` in the folder, or in `Synscapes` below it."""
    below = root / "Synscapes" / "img"
    return below if below.is_dir() and not (root / "img").is_dir() else root / "img"


def all_frames(root: Path, images: Images) -> list[LabelledFrame]:
    """All scenes with image and label, by their numbers; of rgb-2k, some of those published have no image."""
    base = base_folder(root)
    other = "rgb" if images == "rgb-2k" else "rgb-2k"
    remedy = f"unpack Synscapes into {root}"
    if (base / other).is_dir() and not (base / images).is_dir():
        remedy += f", or give images={other}"
    image_files = list_files(base / images, NUMBER, remedy)
    label_files = list_files(base / "class", NUMBER, f"unpack Synscapes into {root}")
    if not image_files:
        raise InputError(f"{base / images}: no NUMBER.png is there; {remedy}")
    check_partners(image_files, label_files, base / "class", f"unpack Synscapes into {root}, completely")
    keys = sorted(image_files, key=lambda key: (int(key[0]), key))
    return [LabelledFrame(key[0], image_files[key], label_files[key]) for key in keys]
