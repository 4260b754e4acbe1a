"""What is there of a data set: the frames of each split, some of them opened, and what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from epibench.data.batch import Batch
from epibench.data.classes import ClassTable
from epibench.data.source import CheckedSplit, Task
from epibench.errors import InputError

NUM_OPENED: dict[Task, int] = {"depth": 3, "segmentation": 12}

Frame = tuple[Any, int]  # a data set, and the number of a frame in it
Watch = Callable[[Sequence[Frame], str], Iterable[Frame]]  # shows how far one is


@dataclass(frozen=True)
class DepthFrame:
    """What is in a frame: height and width, shares of the pixels with sparse depth and target, metres."""

    frame_id: str
    size: tuple[int, int]
    sparse_share: float
    target_share: float
    nearest: float
    farthest: float


@dataclass(frozen=True)
class LabelledFrames:
    """What is in several frames: how many were opened, their heights and widths, and the pixels of each class."""

    classes: ClassTable
    opened: int
    sizes: tuple[tuple[int, int], ...]
    pixels: tuple[int, ...]
    not_counted: int


@dataclass(frozen=True)
class SplitReport:
    """What is there of a split. published: how many frames it should have; content: of what was opened."""

    name: str
    frames: int
    published: int | None
    content: tuple[DepthFrame, ...] | LabelledFrames | None
    problems: tuple[str, ...]


def check_split(split: CheckedSplit, every: bool, watch: Watch) -> SplitReport:
    """Open frames, evenly spread or every one; what cannot be opened is among the problems."""
    frames: list[Frame] = []
    missing: list[str] = []
    for part in split.parts:
        try:
            samples = part()
            frames += [(samples, index) for index in range(len(samples))]
        except InputError as error:
            missing.append(str(error))
    chosen = [frames[index] for index in spread(len(frames), len(frames) if every else NUM_OPENED[split.task])]
    problems: list[str] = []
    opened = readable(watch(chosen, split.name), problems)
    content: tuple[DepthFrame, ...] | LabelledFrames | None
    if split.task == "segmentation":
        content = describe_classes(opened, chosen[0][0].classes) if chosen else None
    else:
        content = tuple(describe_depth(samples.frame_id(index), batch) for (samples, index), batch in opened)
        problems += [
            f"{frame.frame_id}: smaller than the usual crop {split.crop[0]}×{split.crop[1]}; use crop=None, or a "
            f"smaller one"
            for frame in content
            if split.crop is not None and (frame.size[0] < split.crop[0] or frame.size[1] < split.crop[1])
        ]
    return SplitReport(split.name, len(frames), split.published, content or None, (*problems, *missing))


def spread(length: int, number: int) -> Iterator[int]:
    """So many numbers from the first to the last."""
    count = min(length, number)
    return (0 if count == 1 else step * (length - 1) // (count - 1) for step in range(count))


def readable(frames: Iterable[Frame], problems: list[str]) -> Iterator[tuple[Frame, Batch]]:
    """The frames that can be opened, each with what it holds; what is wrong with the others is put into `problems`."""
    for samples, index in frames:
        try:
            yield (samples, index), samples[index]
        except InputError as error:
            problems.append(str(error))


def describe_depth(frame_id: str, batch: Batch) -> DepthFrame:
    """What is in a frame; depths are those of the target, NaN if it has none."""
    depths = batch.target[batch.valid]
    height, width = batch.target.shape
    known = depths.numel() > 0
    return DepthFrame(
        frame_id=frame_id,
        size=(height, width),
        sparse_share=(batch.inputs["sparse_depth"] > 0).double().mean().item(),
        target_share=batch.valid.double().mean().item(),
        nearest=depths.min().item() if known else float("nan"),
        farthest=depths.max().item() if known else float("nan"),
    )


def describe_classes(opened: Iterable[tuple[Frame, Batch]], classes: ClassTable) -> LabelledFrames | None:
    """What is in these frames, None if there are none."""
    sizes: Counter[tuple[int, int]] = Counter()
    pixels, not_counted = [0] * classes.num_classes, 0
    for _, batch in opened:
        height, width = batch.target.shape
        sizes[height, width] += 1
        not_counted += int((~batch.valid).sum())
        counts = batch.target[batch.valid].bincount(minlength=len(pixels)).tolist()
        pixels = [before + more for before, more in zip(pixels, counts, strict=True)]
    if not sizes:
        return None
    return LabelledFrames(classes, sizes.total(), tuple(sorted(sizes)), tuple(pixels), not_counted)
