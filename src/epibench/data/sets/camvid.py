"""CamVid (Brostow et al. 2009): street scenes of Cambridge, with 11 classes as SegNet's authors have merged them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, get_args

from epibench.data.images import check_partners, list_files
from epibench.data.label_images import LabelledFrame, LabelledImages
from epibench.data.labels import CAMVID_COLOURS, CAMVID_IDS, ClassTable
from epibench.data.sets.folder import matched
from epibench.errors import InputError

Split = Literal["train", "val", "test", "all"]

SPLITS = ("train", "val", "test")
STILLS, LABELLED = "701_StillsRaw_full", "LabeledApproved_full"
STILL = re.compile(r"([^.].*)\.(?:png|jpg|jpeg)")
LABEL = re.compile(r"([^.].*)_L\.png")
SEQUENCE = re.compile(r"(0001TP|0006R0|0016E5|Seq05VD)_f?(\d+)")


class CamVid(LabelledImages):
    """Image → 11 classes, valid where there is one (255 elsewhere).

    From SegNet's layout (`train`, `trainannot`, …: numbers, 360×480) or the original one (`701_StillsRaw_full`,
    `LabeledApproved_full`: colours, 720×960), whose frames are split as SegNet's are. all: every split that is there.
    """

    def __init__(self, root: Path | str, split: Split = "val", crop: tuple[int, int] | None = None):
        if split not in get_args(Split):
            raise InputError(f"CamVid split '{split}' is unknown; there are {', '.join(get_args(Split))}")
        self.root, self.split = Path(root), split
        if not self.root.is_dir():
            raise InputError(f"{root}: folder is missing; give the one that CamVid was unpacked into")
        original = (self.root / STILLS).is_dir() or (self.root / LABELLED).is_dir()
        frames = original_frames(self.root, split) if original else segnet_frames(self.root, split)
        classes: ClassTable = CAMVID_COLOURS if original else CAMVID_IDS
        super().__init__(f"CamVid {split}", frames, classes, crop)


def segnet_frames(root: Path, split: Split) -> list[LabelledFrame]:
    """The frames of `SPLIT` with `SPLITannot`."""
    present = [each for each in SPLITS if (root / each).is_dir()] if split == "all" else [split]
    if not present or not any((root / each).is_dir() for each in (*SPLITS, *(f"{name}annot" for name in SPLITS))):
        raise InputError(f"{root}: neither train, trainannot, … nor {STILLS}, {LABELLED} is there; unpack CamVid there")
    remedy = f"copy {' and '.join(f'{each}, {each}annot' for each in present)} of SegNet's CamVid into {root}"
    return [frame for each in present for frame in matched(root / each, root / f"{each}annot", remedy=remedy)]


def original_frames(root: Path, split: Split) -> list[LabelledFrame]:
    """The frames of a split among all 701."""
    images, labels = root / STILLS, root / LABELLED
    remedies = [f"unpack {name}.zip into {root}" for name in (STILLS, LABELLED)]
    image_files, label_files = list_files(images, STILL, remedies[0]), list_files(labels, LABEL, remedies[1])
    if not image_files:
        raise InputError(f"{images}: no image is there; {remedies[0]}")
    check_partners(image_files, label_files, labels, remedies[1])
    check_partners(label_files, image_files, images, remedies[0])
    frames = [LabelledFrame(key[0], image_files[key], label_files[key]) for key in sorted(image_files)]
    chosen = [frame for frame in frames if split in ("all", segnet_split(frame.frame_id))]
    if not chosen:
        raise InputError(f"{images}: has no frame of {split} (told by their names, as 0001TP_006690); use split all")
    return chosen


def segnet_split(frame_id: str) -> str | None:
    """The split of SegNet's authors, by sequence and number: 367, 101 and 233 frames; None for an unknown name.

    Of 0001TP the first half is for training, the second for testing; of 0016E5 the dense stretch is for validation.
    """
    match = SEQUENCE.fullmatch(frame_id)
    if match is None:
        return None
    sequence, number = match[1], int(match[2])
    if sequence == "0016E5" and 7959 <= number <= 8159:
        return "val"
    return "test" if sequence == "Seq05VD" or (sequence == "0001TP" and number > 8520) else "train"
