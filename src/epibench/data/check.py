"""What a folder with a real data set holds: frames of each split, a few of them opened, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from epibench.data.sets.kitti import CROP, KittiDepth
from epibench.data.sets.kitti import Split as KittiSplit
from epibench.data.sets.virtual_kitti import CAMERAS, SPLITS, VARIANTS, Split, Version, VirtualKitti
from epibench.errors import InputError

DepthData = KittiDepth | VirtualKitti

# Where to get it, in words: such addresses change.
SOURCES = {
    "kitti": "KITTI depth completion: www.cvlibs.net/datasets/kitti, Depth Prediction/Completion page",
    "virtual_kitti": "Virtual KITTI: Naver Labs Europe",
}

# Frames of each split as it was published; papers differ about KITTI's train, some 86,000.
KITTI_FRAMES: dict[KittiSplit, int | None] = {"selection": 1000, "val": 6852, "train": None}
VIRTUAL_KITTI_FRAMES: dict[Split, int] = {"train": 18930, "val": 2330}  # of each camera


@dataclass(frozen=True)
class SampleReport:
    """What is in a frame: height and width, shares of the pixels with sparse depth and target, metres."""

    frame_id: str
    size: tuple[int, int]
    sparse_share: float
    target_share: float
    nearest: float
    farthest: float


@dataclass(frozen=True)
class SplitReport:
    """What was found of a split; published: how many frames it should have, where that is known."""

    name: str
    frames: int
    published: int | None
    samples: tuple[SampleReport, ...]
    problems: tuple[str, ...]


def check_root(name: str, root: Path, raw_root: Path | None = None) -> list[SplitReport]:
    """All splits of a data set, also those of which nothing is there."""
    if name not in SOURCES:
        raise InputError(f"data set '{name}' is unknown; there are {', '.join(SOURCES)}")
    if not root.is_dir():
        raise InputError(f"{root}: folder is missing; give the one that {name} was unpacked into ({SOURCES[name]})")
    return check_kitti(root, raw_root) if name == "kitti" else check_virtual_kitti(root)


def check_kitti(root: Path, raw_root: Path | None = None) -> list[SplitReport]:
    """The three splits of KITTI depth completion."""
    reports = []
    for split in get_args(KittiSplit):
        try:
            dataset = KittiDepth(root, split, crop=None, raw_root=raw_root)
        except InputError as error:
            reports.append(SplitReport(split, 0, KITTI_FRAMES[split], (), (str(error),)))
            continue
        samples, problems = open_samples([(dataset, index) for index in range(len(dataset))])
        problems += [
            f"{sample.frame_id}: smaller than the usual crop {CROP[0]}×{CROP[1]}; use crop=None, or a smaller one"
            for sample in samples
            if sample.size[0] < CROP[0] or sample.size[1] < CROP[1]
        ]
        reports.append(SplitReport(split, len(dataset), KITTI_FRAMES[split], tuple(samples), tuple(problems)))
    return reports


def check_virtual_kitti(root: Path) -> list[SplitReport]:
    """Both splits of the versions that are there; what is missing of one video does not hide the others."""
    present: list[Version] = []
    if any(root.glob("vkitti_1.3.1_*")):
        present.append("1.3.1")
    if any(root.glob("Scene[0-9][0-9]")):
        present.append("2")
    if not present:
        raise InputError(f"{root}: no vkitti_1.3.1_rgb or Scene01; unpack it there ({SOURCES['virtual_kitti']})")
    return [check_videos(root, version, split) for version in present for split in SPLITS]


def check_videos(root: Path, version: Version, split: Split) -> SplitReport:
    """One split of Virtual KITTI, world by world and variant by variant."""
    videos, missing = [], []
    for world in SPLITS[split]:
        for variant in VARIANTS:
            try:
                videos.append(VirtualKitti(root, version=version, worlds=[world], variants=[variant]))
            except InputError as error:
                missing.append(str(error))
    frames = [(video, index) for video in videos for index in range(len(video))]
    samples, broken = open_samples(frames)
    published = VIRTUAL_KITTI_FRAMES[split] * (1 if version == "1.3.1" else len(CAMERAS))
    return SplitReport(f"{version} {split}", len(frames), published, tuple(samples), tuple(broken + missing))


def open_samples(frames: Sequence[tuple[DepthData, int]]) -> tuple[list[SampleReport], list[str]]:
    """What is in the first, the middle and the last frame, and what is wrong with those that cannot be opened."""
    samples, problems = [], []
    for place in sorted({0, len(frames) // 2, len(frames) - 1}) if frames else ():
        try:
            samples.append(describe(*frames[place]))
        except InputError as error:
            problems.append(str(error))
    return samples, problems


def describe(dataset: DepthData, index: int) -> SampleReport:
    """What is in a frame; depths are those of the target, NaN if it has none."""
    batch = dataset[index]
    depths = batch.target[batch.valid]
    height, width = batch.target.shape
    known = depths.numel() > 0
    return SampleReport(
        frame_id=dataset.frame_id(index),
        size=(height, width),
        sparse_share=(batch.inputs["sparse_depth"] > 0).double().mean().item(),
        target_share=batch.valid.double().mean().item(),
        nearest=depths.min().item() if known else float("nan"),
        farthest=depths.max().item() if known else float("nan"),
    )
