"""Where the images of a domain come from, as options of a recipe."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from epibench.data.class_files import find_classes
from epibench.data.class_mapping import Pairs
from epibench.data.first_samples import first_samples
from epibench.data.labels import CAMVID_IDS, CITYSCAPES_LABEL_IDS
from epibench.data.loading import Samples
from epibench.data.sets.camvid import CamVid
from epibench.data.sets.cityscapes import Cityscapes
from epibench.data.sets.folder import Folder
from epibench.data.sets.kitti import KittiDepth
from epibench.data.sets.own import OwnSource
from epibench.data.sets.synscapes import Synscapes
from epibench.data.sets.virtual_kitti import VirtualKitti
from epibench.errors import InputError
from epibench.recipes.experiment import Options
from epibench.street import StreetDataset, make_domain
from epibench.street.domains import FACTORS, MAX_SEVERITY, Domain
from epibench.street.frames import VERSION

EXACT = frozenset({"target"})  # without its shift the target is exact and complete: what is asked is the same
Task = Literal["depth", "segmentation"]
Size = tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]]

# Words in a path that say nothing of where images come from.
PARTS = frozenset(
    {"train", "training", "val", "valid", "validation", "test", "testing", "image", "images", "img", "rgb"}
)


@dataclass(frozen=True)
class Places:
    """Where data sets lie, and where scenes that are drawn are kept."""

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
    """$EPIBENCH_CACHE, or `epibench` in the user's folder for such files."""
    if given := os.environ.get("EPIBENCH_CACHE"):
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "epibench"


class StreetSource(Options):
    """Scenes of the embedded street world; without: factors of the shift that stay as in clean.

    mapping: for networks with other classes than Cityscapes' (see docs/data.md).
    """

    kind: Literal["street"] = "street"
    domain: str = "clean"
    severity: float | None = Field(None, ge=0, le=MAX_SEVERITY)
    without: tuple[str, ...] = ()
    num_images: int = Field(64, ge=1, le=10**7)
    seed: int = Field(0, ge=0)
    size: Size = (128, 256)
    mapping: Pairs | None = None

    @property
    def world(self) -> Domain:
        """The levels of all factors."""
        return make_domain(self.domain, self.severity).without(*self.without)

    @property
    def label(self) -> str:
        """What to call it on a page."""
        severity = "" if self.severity is None else f", severity {self.severity:g}"
        kept = ", ".join(factor for factor in self.without if factor not in EXACT)
        return f"street, {self.domain}{severity}" + (f", without {kept}" if kept else "")

    @property
    def version(self) -> str:
        """Changes when the same options give other scenes."""
        return str(VERSION)

    @property
    def origin(self) -> object:
        """What is the same for data of one distribution."""
        world = self.world
        return Domain() if world == world.without(*FACTORS) else world

    @property
    def shift(self) -> float | None:
        """How far it is from clean, from 0 to 5, where it is on that scale."""
        if not EXACT.issuperset(self.without) or self.domain not in ("clean", "wild"):
            return None
        return 0.0 if self.domain == "clean" else MAX_SEVERITY if self.severity is None else self.severity

    def open(self, task: Task, places: Places, key: str) -> Samples:
        """The scenes, kept on disk once they are drawn."""
        return StreetDataset(task, self.world, self.num_images, self.seed, self.size, cache=places.cache)


class FramesSource(Options):
    """Frames in files. root: their folder; num_images: only so many of the first."""

    name: ClassVar[str]

    kind: str
    root: str
    crop: Size | None = None
    num_images: int | None = Field(None, ge=1)

    @property
    def label(self) -> str:
        """What to call it on a page."""
        return self.name

    @property
    def origin(self) -> object:
        """What is the same for data of one distribution."""
        return self.kind

    @property
    def shift(self) -> float | None:
        """It is on no scale."""
        return None


class KittiSource(FramesSource):
    """KITTI depth completion; raw_root: where KITTI raw lies, if apart."""

    name: ClassVar[str] = "KITTI"

    kind: Literal["kitti"] = "kitti"
    root: str = "kitti"
    raw_root: str | None = None
    split: Literal["selection", "val", "train"] = "selection"
    crop: Size | None = (352, 1216)

    @property
    def version(self) -> str:
        """There is one."""
        return "1"

    def open(self, task: Task, places: Places, key: str) -> Samples:
        """The frames."""
        only_depth(task, self.kind)
        raw = None if self.raw_root is None else places.find(self.raw_root, f"{key}.raw_root")
        return first_samples(
            KittiDepth(places.find(self.root, f"{key}.root"), self.split, self.crop, raw), self.num_images
        )


class VirtualKittiSource(FramesSource):
    """Virtual KITTI, 1.3.1 or 2; sparse_share: of the known pixels."""

    name: ClassVar[str] = "Virtual KITTI"

    kind: Literal["virtual_kitti"] = "virtual_kitti"
    root: str = "virtual_kitti"
    split: Literal["train", "val"] = "train"
    version: Literal["1.3.1", "2"] = "1.3.1"
    sparse_share: float = Field(0.05, gt=0, le=1)
    seed: int = Field(0, ge=0)

    def open(self, task: Task, places: Places, key: str) -> Samples:
        """The frames."""
        only_depth(task, self.kind)
        found = VirtualKitti(
            places.find(self.root, f"{key}.root"),
            self.split,
            self.version,
            sparse_share=self.sparse_share,
            crop=self.crop,
            seed=self.seed,
        )
        return first_samples(found, self.num_images)


class LabelledSource(FramesSource):
    """Frames with classes. mapping: for networks with other classes (see docs/data.md)."""

    mapping: Pairs | None = None


class CityscapesSource(LabelledSource):
    """Cityscapes, the 19 classes of its fine annotations."""

    name: ClassVar[str] = "Cityscapes"

    kind: Literal["cityscapes"] = "cityscapes"
    root: str = "cityscapes"
    split: Literal["train", "val"] = "val"
    labels: Literal["auto", "labelIds", "labelTrainIds"] = "auto"

    @property
    def version(self) -> str:
        """Changes when the same files give other targets."""
        return f"1-{CITYSCAPES_LABEL_IDS.digest}"

    def open(self, task: Task, places: Places, key: str) -> Samples:
        """The frames."""
        only_classes(task, self.kind)
        return first_samples(
            Cityscapes(places.find(self.root, f"{key}.root"), self.split, self.labels, self.crop), self.num_images
        )


class SynscapesSource(LabelledSource):
    """Synscapes, a random selection for training and one for validation, with Cityscapes' classes."""

    name: ClassVar[str] = "Synscapes"

    kind: Literal["synscapes"] = "synscapes"
    root: str = "synscapes"
    split: Literal["train", "val", "all"] = "train"
    num_train: int = Field(2975, ge=1)
    num_val: int = Field(500, ge=1)
    seed: int = Field(0, ge=0)
    images: Literal["rgb-2k", "rgb"] = "rgb-2k"

    @property
    def version(self) -> str:
        """Changes when the same files give other targets."""
        return f"1-{CITYSCAPES_LABEL_IDS.digest}"

    def open(self, task: Task, places: Places, key: str) -> Samples:
        """The frames."""
        only_classes(task, self.kind)
        found = Synscapes(
            places.find(self.root, f"{key}.root"),
            self.split,
            self.num_train,
            self.num_val,
            self.seed,
            self.images,
            self.crop,
        )
        return first_samples(found, self.num_images)


class CamVidSource(LabelledSource):
    """CamVid with 11 classes, in SegNet's layout or the original one."""

    name: ClassVar[str] = "CamVid"

    kind: Literal["camvid"] = "camvid"
    root: str = "camvid"
    split: Literal["train", "val", "test", "all"] = "val"

    @property
    def version(self) -> str:
        """Changes when the same files give other targets."""
        return f"1-{CAMVID_IDS.digest}"

    def open(self, task: Task, places: Places, key: str) -> Samples:
        """The frames."""
        only_classes(task, self.kind)
        return first_samples(CamVid(places.find(self.root, f"{key}.root"), self.split, self.crop), self.num_images)


class FolderSource(LabelledSource):
    """Images and label images of one's own, in two folders below the root.

    classes: the name of a built-in table, a CSV file, or the names of classes 0, 1, …; title: what to call it on a
    page; distribution: a word for where the images come from: with that of the training data, a domain is not shifted.
    By default it is their path without words as `train`, `val` and `images`.
    """

    kind: Literal["folder"] = "folder"
    root: str = "."
    images: str = "images"
    labels: str = "labels"
    classes: str | tuple[str, ...]
    image_suffix: str = ""
    label_suffix: str = ""
    title: str | None = None
    distribution: str | None = None

    @property
    def label(self) -> str:
        """What to call it on a page."""
        path = origin_path(self.root, self.images)
        return self.title or self.distribution or path.rpartition("/")[2] or "folder"

    @property
    def origin(self) -> object:
        """What is the same for data of one distribution."""
        return "folder", self.distribution or origin_path(self.root, self.images)

    @property
    def version(self) -> str:
        """Changes when the class table does."""
        return f"1-{find_classes(self.classes).digest}"

    def open(self, task: Task, places: Places, key: str) -> Samples:
        """The frames."""
        only_classes(task, self.kind)
        root = places.find(self.root, f"{key}.root")
        found = Folder(
            root / Path(self.images).expanduser(),
            root / Path(self.labels).expanduser(),
            find_classes(self.classes),
            self.image_suffix,
            self.label_suffix,
            self.crop,
        )
        return first_samples(found, self.num_images)


def origin_path(root: str, images: str) -> str:
    """The path of images without what tells splits and kinds of files apart."""
    parts = Path(os.path.normpath(Path(root).expanduser() / Path(images).expanduser())).parts
    return "/".join(part for part in parts if part.lower() not in PARTS and part != "/")


Source = Annotated[
    StreetSource
    | KittiSource
    | VirtualKittiSource
    | CityscapesSource
    | SynscapesSource
    | CamVidSource
    | FolderSource
    | OwnSource,
    Field(discriminator="kind"),
]


def only_depth(task: Task, name: str) -> None:
    """Refuse a task that a data set has no targets for."""
    if task != "depth":
        raise InputError(f"'{name}' has depth and no classes: it cannot be used for {task}")


def only_classes(task: Task, name: str) -> None:
    """Refuse a task that a data set has no targets for."""
    if task != "segmentation":
        raise InputError(f"'{name}' has classes and no {task}: it cannot be used for that")
