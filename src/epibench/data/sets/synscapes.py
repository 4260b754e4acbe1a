"""Synscapes (Wrenninge, Unger 2018): 25,000 rendered street scenes, annotated as Cityscapes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor

from epibench import randomness
from epibench.data.images import check_partners, list_files, load_picture
from epibench.data.label_images import LabelledFrame, LabelledImages, read_labels, resized
from epibench.data.labels import CITYSCAPES_LABEL_IDS
from epibench.errors import InputError

Split = Literal["train", "val", "all"]
Images = Literal["rgb-2k", "rgb"]

NUMBER = re.compile(r"(\d+)\.png")


class Synscapes(LabelledImages):
    """Image → 19 train ids, valid where there is one (255 elsewhere).

    A random selection of num_train scenes, and of num_val others, that the seed decides. images: rgb-2k has 1024×2048
    pixels, rgb 720×1440 as the label images, which are scaled up for rgb-2k.
    """

    def __init__(
        self,
        root: Path | str,
        split: Split = "train",
        num_train: int = 2975,
        num_val: int = 500,
        seed: int = 0,
        images: Images = "rgb-2k",
        crop: tuple[int, int] | None = None,
    ):
        for given, known, name in ((split, Split, "split"), (images, Images, "images")):
            if given not in get_args(known):
                raise InputError(f"Synscapes {name} '{given}' is unknown; there are {', '.join(get_args(known))}")
        self.root, self.split = Path(root), split
        if not self.root.is_dir():
            raise InputError(f"{root}: folder is missing; give the one that Synscapes was unpacked into")
        frames = frames_of(self.root, images)
        if split != "all":
            frames = selection(frames, split, num_train, num_val, seed, self.root)
        super().__init__(f"Synscapes {split}", frames, CITYSCAPES_LABEL_IDS, crop)

    def read_target(self, frame: LabelledFrame) -> Tensor:
        """The classes of a frame at the size of its image."""
        target = read_labels(frame.label, self.classes)
        width, height = load_size(frame.image)
        scaled = target.shape[0] * width == target.shape[1] * height
        return resized(target, (height, width)) if scaled else target  # of another shape: a mismatch that is told


def load_size(path: str) -> tuple[int, int]:
    """Width and height of a picture."""
    return load_picture(path, ("PNG",), decode=False).size


def folder_of(root: Path) -> Path:
    """`img` in the folder, or in `Synscapes` below it."""
    return next((place for place in (root, root / "Synscapes") if (place / "img").is_dir()), root) / "img"


def frames_of(root: Path, images: Images) -> list[LabelledFrame]:
    """All scenes with image and label, by their numbers; of rgb-2k, some of those published have no image."""
    base = folder_of(root)
    other = next(each for each in get_args(Images) if each != images)
    remedy = f"unpack Synscapes into {root}"
    if (base / other).is_dir() and not (base / images).is_dir():
        remedy += f", or give images={other}"
    image_files = list_files(base / images, NUMBER, remedy)
    label_files = list_files(base / "class", NUMBER, f"unpack Synscapes into {root}")
    if not image_files:
        raise InputError(f"{base / images}: no NUMBER.png is there; {remedy}")
    check_partners(image_files, label_files, base / "class", f"unpack Synscapes into {root}, completely")
    return [
        LabelledFrame(key[0], image_files[key], label_files[key])
        for key in sorted(image_files, key=lambda key: (int(key[0]), key))
    ]


def selection(
    frames: list[LabelledFrame], split: Split, num_train: int, num_val: int, seed: int, root: Path
) -> list[LabelledFrame]:
    """So many scenes at random, none of train in val."""
    if min(num_train, num_val) < 1 or num_train + num_val > len(frames):
        raise InputError(
            f"{root}: has {len(frames):,} scenes, not {num_train:,} for training and {num_val:,} others for "
            f"validation; give smaller num_train and num_val, of at least 1"
        )
    key = randomness.key(seed, "synscapes", "selection")
    order = randomness.permutations(torch.tensor([key]), 0, len(frames))[0].tolist()
    chosen = order[:num_train] if split == "train" else order[-num_val:]
    return [frames[index] for index in sorted(chosen)]
