"""Synscapes (Wrenninge, Unger 2018): 25,000 rendered street scenes with Cityscapes' annotations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, model_validator

from epibench.data.cityscapes_classes import CITYSCAPES_LABEL_IDS
from epibench.data.classes import ClassTable
from epibench.data.images import (
    LabelledFrame,
    LabelledImages,
    ScaleRule,
    check_partners,
    list_files,
    load_picture,
    read_labels,
    resized,
)
from epibench.data.source import CheckedSplit, LabelledSource
from epibench.errors import InputError
from epibench.files import fingerprint

if TYPE_CHECKING:
    from torch import Tensor

Images = Literal["rgb-2k", "rgb"]

PUBLISHED, RANDOM = "published", "random"
ID = re.compile(r"[0-9]{1,9}")
MAX_NAMED = 5
MAX_ABSENT = 26  # the authors lacked 26 of all 25,000 images, and give no ids
NUMBER = re.compile(r"(\d+)\.png")


class SynscapesSource(LabelledSource):
    """Synscapes with Cityscapes' classes.

    Args:
        selection: `published`: the paper's scenes, 2,975 for training and 500 for validation. `random`: num_train
            scenes and num_val other scenes, chosen by the seed. A text file with the number of a scene on each line:
            these scenes in this order, for any split.
        images: rgb-2k has 1024×2048 pixels; rgb has 720×1440, as the label images.
        scale_rule: Rule that enlarges labels for rgb-2k: nearest `centre`, or OpenCV's rule.
        absent: Published scenes without image or label, at most 26, are left out (`skip`), or replaced by the first
            scene of the list as in the published code (`replace`).
    """

    name: ClassVar[str] = "Synscapes"
    where: ClassVar[str] = "Synscapes: synscapes.on.liu.se, of Linköping University"
    table: ClassVar[ClassTable] = CITYSCAPES_LABEL_IDS

    kind: Literal["synscapes"] = "synscapes"
    root: str = "synscapes"
    split: Literal["train", "val", "all"] = "train"
    selection: str = Field(PUBLISHED, min_length=1)
    num_train: int = Field(2975, ge=1)
    num_val: int = Field(500, ge=1)
    seed: int = Field(0, ge=0)
    images: Images = "rgb-2k"
    absent: Literal["skip", "replace"] = "skip"
    scale_rule: ScaleRule = "centre"

    @model_validator(mode="after")
    def _of_random(self) -> SynscapesSource:
        """Raise an error for options that have no effect."""
        for name in ("num_train", "num_val", "seed"):
            if self.selection != RANDOM and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name}: decides nothing but a random selection; give selection={RANDOM}, too")
        return self

    @property
    def version(self) -> str:
        """A version that changes with the class table, or with the numbers in the selection's file."""
        listed = self.selection not in (PUBLISHED, RANDOM)
        return super().version + (f"-{fingerprint(read_ids(Path(self.selection)))}" if listed else "")

    def read(self) -> ScaledLabels:
        """Return the frames, with a note on absent scenes; raise an InputError if too many are absent."""
        if (ids := self.ids()) is None:
            frames = all_frames(self.folder, self.images)
            return self.samples(frames if self.split == "all" else self.at_random(frames))
        present = self.present(ids)
        notes = self.check_absent([number for number in ids if number not in present], ids)
        stand_in = present.get(ids[0]) if self.absent == "replace" else None
        frames = [frame for number in ids if (frame := present.get(number, stand_in)) is not None]
        return self.samples(frames, notes)

    def samples(self, frames: list[LabelledFrame], notes: Sequence[str] = ()) -> ScaledLabels:
        """Return a data set of these frames."""
        name = f"Synscapes {self.split}"
        return ScaledLabels(name, frames, CITYSCAPES_LABEL_IDS, self.crop, self.scale_rule, notes)

    def ids(self) -> list[int] | None:
        """Return the numbers of the selected scenes; None without a list."""
        if self.selection == PUBLISHED:
            return None if self.split == "all" else published_ids(self.split)
        return None if self.selection == RANDOM else read_ids(Path(self.selection))

    def present(self, ids: list[int]) -> dict[int, LabelledFrame]:
        """Return selected scenes that have image and label by number, in the order of the list."""
        frames = {int(frame.frame_id): frame for frame in all_frames(self.folder, self.images, complete=False)}
        return {number: frames[number] for number in ids if number in frames}

    def check_absent(self, absent: list[int], ids: list[int]) -> list[str]:
        """Return a note on absent scenes; raise an InputError if too many are absent."""
        if not absent:
            return []
        of = "that the paper's authors selected" if self.selection == PUBLISHED else f"of {self.selection}"
        remedy = f"complete the download, or give selection={RANDOM}"
        if len(absent) > (MAX_ABSENT if self.selection == PUBLISHED else 0):
            first = ", ".join(map(str, absent[:MAX_NAMED])) + (" …" if len(absent) > MAX_NAMED else "")
            raise InputError(
                f"{self.root}: {len(absent):,} of the {len(ids):,} scenes {of} are missing ({first}); {remedy}"
            )
        replaced = self.absent == "replace"
        if replaced and ids[0] in absent:
            raise InputError(
                f"{self.root}: scene {ids[0]} is missing, the first {of}, which replaces absent scenes; {remedy}, or "
                f"absent=skip"
            )
        done = f"each replaced by scene {ids[0]}" if replaced else "left out"
        return [f"{len(absent)} absent of the {len(ids):,} scenes {of}, {done}: {', '.join(map(str, absent))}."]

    def at_random(self, frames: list[LabelledFrame]) -> list[LabelledFrame]:
        """Return random scenes of the split. Train and val have no scene in common."""
        import torch

        from epibench import randomness

        if self.num_train + self.num_val > len(frames):
            raise InputError(
                f"{self.root}: has {len(frames):,} scenes, not {self.num_train:,} for training and {self.num_val:,} "
                f"others for validation; give smaller num_train and num_val"
            )
        key = randomness.key(self.seed, "synscapes", "selection")
        order = randomness.permutations(torch.tensor([key]), 0, len(frames))[0].tolist()
        numbers = order[: self.num_train] if self.split == "train" else order[-self.num_val :]
        return [frames[index] for index in sorted(numbers)]

    @classmethod
    def splits(cls, **options: Any) -> Iterator[CheckedSplit]:
        """Yield all scenes, and the scenes of the published selection, in the size that exists."""
        base = base_folder(Path(options["root"]))
        only_small = (base / "rgb").is_dir() and not (base / "rgb-2k").is_dir()
        images: Images = "rgb" if only_small else "rgb-2k"
        yield CheckedSplit("all", cls.task, 25000, [cls(split="all", images=images, **options).read])
        for split in ("train", "val"):
            source = cls(split=split, images=images, **options)
            parts = [source.listed, source.noted]
            yield CheckedSplit(f"published {split}", cls.task, len(published_ids(split)), parts)

    def listed(self) -> ScaledLabels:
        """Return existing scenes of the selection, for `data check`."""
        return self.samples(list(self.present(self.ids() or []).values()))

    def noted(self) -> ScaledLabels:
        """Return no frame, but the notes on absent scenes, for `data check`."""
        return self.samples([], self.read().notes)


@cache
def published_ids(split: Literal["train", "val"]) -> list[int]:
    """Return the numbers of the scenes in the paper's selection."""
    with resources.as_file(resources.files(__package__) / f"synscapes_{split}_ids.txt") as path:
        return read_ids(path)


def read_ids(path: Path) -> list[int]:
    """Return the numbers in a text file, one on each line, without repetition."""
    remedy = f"give selection={PUBLISHED}, {RANDOM}, or a text file with the number of a scene on each line"
    try:
        lines = path.expanduser().read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such selection of Synscapes; {remedy}") from None
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: the home folder of a user does not exist
        raise InputError(f"{path}: cannot be read ({error}); {remedy}") from None
    ids: dict[int, int] = {}  # the line of each number
    for line, text in enumerate(map(str.strip, lines), 1):
        if text and not ID.fullmatch(text):
            raise InputError(f"{path}, line {line}: '{text[:20]}' is no number of a scene; {remedy}")
        if text and ids.setdefault(int(text), line) != line:
            raise InputError(f"{path}, line {line}: scene {int(text)} stands in line {ids[int(text)]} already")
    if not ids:
        raise InputError(f"{path}: holds no number of a scene; {remedy}")
    return list(ids)


class ScaledLabels(LabelledImages):
    """Images whose label images may be smaller. `notes`: sentences for results and pages."""

    def __init__(
        self,
        name: str,
        frames: Sequence[LabelledFrame],
        classes: ClassTable,
        crop: tuple[int, int] | None,
        scale_rule: ScaleRule,
        notes: Sequence[str] = (),
    ):
        super().__init__(name, frames, classes, crop)
        self.scale_rule, self.notes = scale_rule, tuple(notes)

    def read_target(self, frame: LabelledFrame) -> Tensor:
        """Return the classes of a frame at the size of its image."""
        target = read_labels(frame.label, self.classes)
        width, height = load_picture(frame.image, ("PNG",), decode=False).size
        scaled = target.shape[0] * width == target.shape[1] * height
        return resized(target, (height, width), self.scale_rule) if scaled else target  # another shape fails later


def base_folder(root: Path) -> Path:
    """Return `img` in the folder, or in `Synscapes` below it."""
    below = root / "Synscapes" / "img"
    return below if below.is_dir() and not (root / "img").is_dir() else root / "img"


def all_frames(root: Path, images: Images, complete: bool = True) -> list[LabelledFrame]:
    """Return all scenes with image and label, by number.

    With `complete`, an image without its label is an InputError.
    """
    base = base_folder(root)
    other = "rgb" if images == "rgb-2k" else "rgb-2k"
    remedy = f"unpack Synscapes into {root}"
    if (base / other).is_dir() and not (base / images).is_dir():
        remedy += f", or give images={other}"
    image_files = list_files(base / images, NUMBER, remedy)
    label_files = list_files(base / "class", NUMBER, f"unpack Synscapes into {root}")
    if not image_files:
        raise InputError(f"{base / images}: no NUMBER.png is there; {remedy}")
    if complete:
        check_partners(image_files, label_files, base / "class", f"unpack Synscapes into {root}, completely")
    keys = sorted(image_files.keys() & label_files.keys(), key=lambda key: (int(key[0]), key))
    return [LabelledFrame(key[0], image_files[key], label_files[key]) for key in keys]
