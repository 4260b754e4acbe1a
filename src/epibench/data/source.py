"""Sources of images as options of a recipe: the base of the data sets in `sets/`.

A data set is one file in `sets/`: a class that derives from `DepthSource` or `LabelledSource`. `check_split` reports
the frames of each split, opens some of them, and names missing files.
"""

from __future__ import annotations

import math
import os
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from epibench.data.batch import Batch, Samples, first_samples, notes_on
from epibench.data.classes import ClassTable, Pairs
from epibench.errors import ArgumentError, InputError
from epibench.plans import evenly_spaced

Task = Literal["depth", "segmentation"]
Size = tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]]
FOLDERS = ("root", "raw_root")  # options that name the places of files, and nothing about their content


@dataclass(frozen=True)
class Folders:
    """Folders of data. `root`: of data sets; `cache`: of rendered scenes."""

    root: Path | None
    cache: Path

    def find(self, folder: str, key: str) -> Path:
        """Return a folder below the root, or an absolute one. `key` is its setting."""
        path = Path(folder).expanduser()
        if path.is_absolute():
            return path
        if self.root is None and path.is_dir():
            return path
        if self.root is None:
            raise InputError(f"where is the data? Give --set data.root=DIR, which holds '{folder}', or --set {key}=DIR")
        return self.root / path


def default_cache() -> Path:
    """Return $EPIBENCH_CACHE, or `epibench` in the user's cache folder, or a temporary folder without a home."""
    given = os.environ.get("EPIBENCH_CACHE")
    path = Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "epibench"
    try:
        return path.expanduser()
    except RuntimeError:  # neither $HOME nor an entry of this user in the system's list
        folder = Path(tempfile.gettempdir()) / f"epibench-{os.getuid()}"
        warnings.warn(f"no home folder: scenes are kept in {folder}; $EPIBENCH_CACHE names another", stacklevel=2)
        return folder


@dataclass(frozen=True)
class CheckedSplit:
    """A split for `data check`.

    Args:
        name: Name of the split.
        task: Task of its data set.
        published: Published number of frames, if known.
        parts: Functions that each open a part, so that missing files of one part do not hide other parts.
        crop: Usual crop.
    """

    name: str
    task: Task
    published: int | None
    parts: Sequence[Callable[[], Samples]]
    crop: Size | None = None


class Source(BaseModel):
    """The options of a data set in a recipe.

    checked: whether `data check` can open it; where: its origin as a text; None: nothing to get.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    checked: ClassVar[bool] = True
    where: ClassVar[str | None] = None

    if TYPE_CHECKING:
        kind: str

        @property
        def version(self) -> str:
            """A version that changes when the same options give other samples."""

    @property
    def label(self) -> str:
        """The name on pages."""
        raise NotImplementedError

    @property
    def origin(self) -> object:
        """Equal for data of one distribution: a domain with the origin of the training data is not shifted."""
        return self.kind

    @property
    def class_table(self) -> ClassTable | None:
        """The classes, if they are known without files."""
        return None

    @property
    def num_published(self) -> int | None:
        """The published number of frames, if known."""
        return None

    @property
    def shift(self) -> float | None:
        """The severity of the shift from clean street scenes, from 0 to 5; None outside of this scale."""
        return None

    def open(self, task: Task, folders: Folders, key: str) -> Samples:
        """Open the samples. `key` is the setting of this data set."""
        raise NotImplementedError

    @classmethod
    def splits(cls, **options: Any) -> Iterator[CheckedSplit]:
        """Yield the splits that `data check` opens, with these options."""
        raise NotImplementedError


class FramesSource(Source):
    """Frames in files. root: their folder; num_images: only the first frames.

    `name` is the name on pages. `published` has the number of frames of each split, None if papers differ.

    Args:
        root: Folder of the files.
        crop: Height and width of the bottom centre that is used; None for all.
        num_images: Number of first frames that are used; None for all.
    """

    name: ClassVar[str]
    published: ClassVar[Mapping[str, int | None]] = {}
    task: ClassVar[Task]

    kind: str
    root: str
    crop: Size | None = None
    num_images: int | None = Field(None, ge=1)

    @property
    def label(self) -> str:
        """The name on pages."""
        return self.name

    @property
    def num_published(self) -> int | None:
        """The number of published frames of its split, at most `num_images`."""
        published = self.published.get(getattr(self, "split", ""))
        return published if published is None or self.num_images is None else min(published, self.num_images)

    @property
    def folder(self) -> Path:
        """The root; raises an InputError if it is missing."""
        path = Path(self.root)
        if not path.is_dir():
            raise InputError(f"{path}: folder is missing; give the one that {self.name} was unpacked into")
        return path

    def read(self) -> Samples:
        """Return all frames. Folders are complete paths."""
        raise NotImplementedError

    def open(self, task: Task, folders: Folders, key: str) -> Samples:
        """The frames; folders are relative to the folders of the recipe."""
        if task != self.task:
            targets = "depth and no classes" if self.task == "depth" else "classes and no depth"
            raise InputError(f"'{self.kind}' has {targets}: it cannot be used for {task}")
        given = {name: folder for name in FOLDERS if (folder := getattr(self, name, None)) is not None}
        full = {name: str(folders.find(folder, f"{key}.{name}")) for name, folder in given.items()}
        return first_samples(self.model_copy(update=full).read(), self.num_images)

    @classmethod
    def splits(cls, **options: Any) -> Iterator[CheckedSplit]:
        """Yield the published splits, uncropped."""
        for split, published in cls.published.items():
            source = cls.model_validate({"split": split, "crop": None, **options})
            yield CheckedSplit(split, cls.task, published, [source.read], cls.model_fields["crop"].default)


class DepthSource(FramesSource):
    """Frames with sparse depth and depth."""

    task: ClassVar[Task] = "depth"


class LabelledSource(FramesSource):
    """Frames with classes. `mapping`: pairs of classes for networks with other classes (docs/data.md)."""

    task: ClassVar[Task] = "segmentation"
    table: ClassVar[ClassTable]

    mapping: Pairs | None = None

    @property
    def class_table(self) -> ClassTable | None:
        """The classes."""
        return self.table

    @property
    def version(self) -> str:
        """A version that changes when the same files give other targets."""
        return f"1-{self.table.digest}"


Frame = tuple[Any, int]  # a data set, and the index of a frame
Follow = Callable[[Sequence[Frame], str], Iterable[Frame]]  # shows the progress


@dataclass(frozen=True)
class DepthFrame:
    """Facts about a frame: height and width, shares of pixels with sparse depth and target, range in metres."""

    frame_id: str
    size: tuple[int, int]
    sparse_share: float
    target_share: float
    nearest: float
    farthest: float


@dataclass(frozen=True)
class LabelledFrames:
    """Facts about several frames: number of opened frames, sizes, and pixels of each class."""

    classes: ClassTable
    opened: int
    sizes: tuple[tuple[int, int], ...]
    pixels: tuple[int, ...]
    not_counted: int


@dataclass(frozen=True)
class SplitReport:
    """The state of a split on disk.

    Args:
        name: Name of the split.
        frames: Number of frames.
        published: Published number of frames, if known.
        content: Facts about the opened frames.
        problems: Problems with their fixes.
        notes: Notes of its data sets.
    """

    name: str
    frames: int
    published: int | None
    content: tuple[DepthFrame, ...] | LabelledFrames | None
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()


def check_options(name: str, source: type[Source], given: Mapping[str, str]) -> None:
    """Refuse options that a data set does not have, and name missing ones."""
    for option, value in given.items():
        if option not in source.model_fields:
            raise ArgumentError(f"{option} {value}: {name} has no such option; leave it out")
    root = given.get("root")
    if source.where is not None and root is None:
        raise ArgumentError(f"root is missing; give the folder that {name} was unpacked into ({source.where})")
    if root is not None and not Path(root).is_dir():
        hint = "" if source.where is None else f"; give the one that {name} was unpacked into ({source.where})"
        raise InputError(f"{root}: folder is missing{hint}")
    try:
        source.model_validate(given)
    except ValidationError as error:
        raise ArgumentError(f"{error.errors()[0]['loc'][0]} is missing; {name} needs it") from None


def check_split(split: CheckedSplit, every: bool, follow: Follow) -> SplitReport:
    """Open evenly spaced frames, or all, and report problems."""
    frames: list[Frame] = []
    missing: list[str] = []
    notes: list[str] = []
    for part in split.parts:
        try:
            samples = part()
            frames += [(samples, index) for index in range(len(samples))]
            notes += notes_on(samples)
        except InputError as error:
            missing.append(str(error))
    number = len(frames) if every else 3 if split.task == "depth" else 12
    chosen = [frames[index] for index in evenly_spaced(len(frames), min(len(frames), number))]
    problems: list[str] = []
    opened = readable(follow(chosen, split.name), problems)
    content: tuple[DepthFrame, ...] | LabelledFrames | None
    if split.task == "segmentation":
        content = describe_classes(opened, chosen[0][0].classes) if chosen else None
    else:
        content = tuple(describe_depth(samples.frame_id(index), batch) for (samples, index), batch in opened)
        height, width = split.crop or (0, 0)
        remedy = f"smaller than the usual crop {height}×{width}; use crop=None, or a smaller one"
        small = [frame for frame in content if frame.size[0] < height or frame.size[1] < width]
        problems += [f"{frame.frame_id}: {remedy}" for frame in small]
    told = tuple(dict.fromkeys((*problems, *missing)))  # parts may have the same problem
    return SplitReport(split.name, len(frames), split.published, content or None, told, tuple(notes))


def readable(frames: Iterable[Frame], problems: list[str]) -> Iterator[tuple[Frame, Batch]]:
    """The readable frames with their content; errors of other frames go into `problems`."""
    for samples, index in frames:
        try:
            yield (samples, index), samples[index]
        except InputError as error:
            problems.append(str(error))


def describe_depth(frame_id: str, batch: Batch) -> DepthFrame:
    """The content of a frame; depths come from the target, NaN if it has none."""
    depths, (height, width) = batch.target[batch.valid], batch.target.shape
    sparse, target = ((known > 0).double().mean().item() for known in (batch.inputs["sparse_depth"], batch.valid))
    nearest, farthest = (each.item() for each in depths.aminmax()) if depths.numel() else (math.nan, math.nan)
    return DepthFrame(frame_id, (height, width), sparse, target, nearest, farthest)


def describe_classes(opened: Iterable[tuple[Frame, Batch]], classes: ClassTable) -> LabelledFrames | None:
    """Return facts about these frames; None without frames."""
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
