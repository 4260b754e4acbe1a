"""The data of a run on images: training data, domains, and the classes of each domain."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, cast

from torch.utils.data import DataLoader, Dataset

from epibench.data.batch import LabelledSamples, Samples
from epibench.data.class_mapping import Relabelled, common_classes
from epibench.data.classes import ClassTable, Pairs
from epibench.data.loading import Failure
from epibench.data.source import Source
from epibench.errors import InputError
from epibench.progress import Reporter
from epibench.recipes.dense import DenseRecipe
from epibench.street import StreetDataset


@dataclass(frozen=True)
class DomainData:
    """A domain to evaluate on.

    Args:
        samples: Samples of the domain.
        classes: Classes in which it is scored.
        class_groups: The predicted classes that are merged into each scored class; None if both are the same.
        about: Text about common and omitted classes.
    """

    samples: Samples
    classes: ClassTable | None = None
    class_groups: tuple[tuple[int, ...], ...] | None = None
    about: str | None = None

    @property
    def num_classes(self) -> int | None:
        """The number of scored classes; None without classes."""
        return None if self.classes is None else self.classes.num_classes


@dataclass(frozen=True)
class ImageData:
    """The data sets of a recipe, each opened on first use. Missing street scenes are not rendered by that."""

    TRAIN: ClassVar[str] = "data.train"
    DOMAIN: ClassVar[str] = "data.domains."

    recipe: DenseRecipe
    _opened: dict[str, Samples] = field(default_factory=dict)

    @property
    def sources(self) -> dict[str, Source]:
        """The sources of all data sets, by their settings."""
        data = self.recipe.data
        return {self.TRAIN: data.train, **{f"{self.DOMAIN}{name}": source for name, source in data.domains.items()}}

    def samples(self, key: str) -> Samples:
        """Return a data set with its own classes. `key` is its setting."""
        if key not in self._opened:
            self._opened[key] = self.sources[key].open(self.recipe.task, self.recipe.data.folders, key)
        return self._opened[key]

    @property
    def train(self) -> Samples:
        """The training data."""
        return self.samples(self.TRAIN)

    @cached_property
    def classes(self) -> ClassTable | None:
        """The classes that networks predict, or None. If training data is missing, its settings may name them."""
        if self.recipe.likelihood != "categorical":
            return None
        try:
            return classes_of(self.train)
        except InputError:
            if (named := self.recipe.data.train.class_table) is None:
                raise
            return named

    def domain(self, name: str) -> DomainData:
        """Return a domain with the classes in which it is scored."""
        key = f"{self.DOMAIN}{name}"
        samples = self.samples(key)
        if self.classes is None:
            return DomainData(samples)
        return in_common(samples, self.classes, getattr(self.sources[key], "mapping", None), f"{key}.mapping")

    @cached_property
    def domains(self) -> Mapping[str, DomainData]:
        """The domains by name."""
        return {name: self.domain(name) for name in self.recipe.data.domains}

    @property
    def num_classes(self) -> int | None:
        """The number of classes that networks predict; None without classes."""
        return None if self.classes is None else self.classes.num_classes


@dataclass(frozen=True)
class DrawnScenes(Dataset["int | Failure"]):
    """Street scenes whose items render a scene into the cache, and return its index or a failure."""

    scenes: StreetDataset

    def __getitem__(self, index: int) -> int | Failure:
        try:
            self.scenes.frame(index)
        except InputError as error:
            return Failure(str(error))
        return index


def draw_scenes(data: ImageData, keys: Iterable[str], reporter: Reporter) -> None:
    """Render street scenes that are missing in the cache. `keys` are the settings of the data sets."""
    for key in keys:
        scenes = data.samples(key)
        if isinstance(scenes, StreetDataset) and (missing := scenes.missing()):
            workers = min(len(os.sched_getaffinity(0)), len(missing))
            with reporter.step(f"draw scenes of {key}", len(missing)) as advance:
                for drawn in DataLoader(DrawnScenes(scenes), batch_size=None, sampler=missing, num_workers=workers):
                    if isinstance(drawn, Failure):
                        raise InputError(drawn.text)
                    advance(1)


def classes_of(samples: Samples) -> ClassTable:
    """Return the classes of a data set; raise an InputError if it has none."""
    classes = getattr(samples, "classes", None)
    if not isinstance(classes, ClassTable):
        raise InputError(f"{type(samples).__name__}: a data set with classes has an attribute `classes`, a ClassTable")
    return classes


def in_common(samples: Samples, model: ClassTable, mapping: Pairs | None, name: str) -> DomainData:
    """Return a domain with the classes that it shares with the networks' predictions.

    Args:
        samples: Samples of the domain.
        model: Classes that networks predict.
        mapping: Pairs of a predicted class and a class of the domain with another name.
        name: Prefix of error messages.

    Returns:
        The domain.

    Raises:
        InputError: The classes cannot be matched, or fewer than two are common.
    """
    own = classes_of(samples)
    try:
        common = common_classes(model, own, mapping)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    if common.identity:
        return DomainData(samples, own)
    if len(common.names) < 2:
        raise InputError(f"{name}: only '{common.names[0]}' is common, so that there is nothing to tell apart")
    relabelled = Relabelled(cast(LabelledSamples, samples), common)
    return DomainData(relabelled, relabelled.classes, common.groups, common.about)
