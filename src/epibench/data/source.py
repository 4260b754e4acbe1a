"""Where the images of a domain come from, as options of a recipe: what the data sets in `sets/` have in common.

A data set is one file there: a class that derives from `DepthSource` or `LabelledSource`.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from epibench.data.batch import Samples, first_samples
from epibench.data.classes import ClassTable, Pairs
from epibench.errors import InputError

Task = Literal["depth", "segmentation"]
Size = tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]]
TARGETS: dict[Task, str] = {"depth": "depth and no classes", "segmentation": "classes and no depth"}
FOLDERS = ("root", "raw_root")  # options that say where files lie, and nothing of what is in them


@dataclass(frozen=True)
class Folders:
    """root: below which data sets lie; cache: where scenes that are drawn are kept."""

    root: Path | None
    cache: Path

    def find(self, folder: str, key: str) -> Path:
        """A folder below the root, or one that is given in full; key: the setting that names it."""
        path = Path(folder).expanduser()
        if path.is_absolute():
            return path
        if self.root is None and path.is_dir():
            return path
        if self.root is None:
            raise InputError(f"where is the data? Give --set data.root=DIR, which holds '{folder}', or --set {key}=DIR")
        return self.root / path


def default_cache() -> Path:
    """$EPIBENCH_CACHE, or `epibench` in the user's folder for such files, or a temporary one where there is no home."""
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
    """A split for `data check`. published: how many frames it should have, where that is known; crop: the usual one.

    parts: each opens a part of it, so that what is missing of one does not hide the others.
    """

    name: str
    task: Task
    published: int | None
    parts: Sequence[Callable[[], Samples]]
    crop: Size | None = None


class Source(BaseModel):
    """The options of a data set in a recipe.

    checked: whether `data check` can open it; where: to get it, in words, as addresses change; None: nothing to get.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    checked: ClassVar[bool] = True
    where: ClassVar[str | None] = None

    if TYPE_CHECKING:
        kind: str

        @property
        def version(self) -> str:
            """Changes when the same options give other samples."""

    @property
    def label(self) -> str:
        """What to call it on a page."""
        raise NotImplementedError

    @property
    def origin(self) -> object:
        """What is the same for data of one distribution: a domain with that of the training data is not shifted."""
        return self.kind

    @property
    def shift(self) -> float | None:
        """How far it is from clean street scenes, from 0 to 5, where it is on that scale."""
        return None

    def open(self, task: Task, folders: Folders, key: str) -> Samples:
        """The samples; key: the setting that names this data set."""
        raise NotImplementedError

    @classmethod
    def splits(cls, **options: Any) -> Iterator[CheckedSplit]:
        """What `data check` opens, with these options."""
        raise NotImplementedError


class FramesSource(Source):
    """Frames in files. root: their folder; num_images: only so many of the first.

    name: what to call it on a page; published: the number of frames of each split, None where papers differ.
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
        """What to call it on a page."""
        return self.name

    @property
    def folder(self) -> Path:
        """The root, which must be there."""
        path = Path(self.root)
        if not path.is_dir():
            raise InputError(f"{path}: folder is missing; give the one that {self.name} was unpacked into")
        return path

    def read(self) -> Samples:
        """All frames, from folders that are given in full."""
        raise NotImplementedError

    def open(self, task: Task, folders: Folders, key: str) -> Samples:
        """The frames, of folders below those of the recipe."""
        if task != self.task:
            raise InputError(f"'{self.kind}' has {TARGETS[self.task]}: it cannot be used for {task}")
        given = {name: folder for name in FOLDERS if (folder := getattr(self, name, None)) is not None}
        full = {name: str(folders.find(folder, f"{key}.{name}")) for name, folder in given.items()}
        return first_samples(self.model_copy(update=full).read(), self.num_images)

    @classmethod
    def splits(cls, **options: Any) -> Iterator[CheckedSplit]:
        """The published splits, uncropped."""
        for split, published in cls.published.items():
            source = cls.model_validate({"split": split, "crop": None, **options})
            yield CheckedSplit(split, cls.task, published, [source.read], cls.model_fields["crop"].default)


class DepthSource(FramesSource):
    """Frames with sparse depth and depth."""

    task: ClassVar[Task] = "depth"


class LabelledSource(FramesSource):
    """Frames with classes. mapping: for networks with other classes (see docs/data.md)."""

    task: ClassVar[Task] = "segmentation"
    table: ClassVar[ClassTable]

    mapping: Pairs | None = None

    @property
    def version(self) -> str:
        """Changes when the same files give other targets."""
        return f"1-{self.table.digest}"
