"""The data of a run on images: what is trained on, and the domains, each in the classes that it is scored in."""

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

    classes: those that it is scored in; class_groups: for each of them the predicted classes that it stands for, None
    where they are the same.
    """

    samples: Samples
    classes: ClassTable | None = None
    class_groups: tuple[tuple[int, ...], ...] | None = None
    about: str | None = None  # what is common, and what is left out

    @property
    def num_classes(self) -> int | None:
        """How many classes it is scored in; None: it has none."""
        return None if self.classes is None else self.classes.num_classes


@dataclass(frozen=True)
class ImageData:
    """Everything that a recipe names, each data set opened when it is asked for; no scene is drawn yet."""

    TRAIN: ClassVar[str] = "data.train"
    DOMAIN: ClassVar[str] = "data.domains."

    recipe: DenseRecipe
    _opened: dict[str, Samples] = field(default_factory=dict)

    @property
    def sources(self) -> dict[str, Source]:
        """Where the data comes from, by the settings that say so."""
        data = self.recipe.data
        return {self.TRAIN: data.train, **{f"{self.DOMAIN}{name}": source for name, source in data.domains.items()}}

    def samples(self, key: str) -> Samples:
        """A data set as it is, by the setting that names it."""
        if key not in self._opened:
            self._opened[key] = self.sources[key].open(self.recipe.task, self.recipe.data.folders, key)
        return self._opened[key]

    @property
    def train(self) -> Samples:
        """What is trained on."""
        return self.samples(self.TRAIN)

    @cached_property
    def classes(self) -> ClassTable | None:
        """The classes that networks predict, if any; those that its options name where training data is missing."""
        if self.recipe.likelihood != "categorical":
            return None
        try:
            return classes_of(self.train)
        except InputError:
            if (named := self.recipe.data.train.class_table) is None:
                raise
            return named

    def domain(self, name: str) -> DomainData:
        """A domain, in the classes that it is scored in."""
        key = f"{self.DOMAIN}{name}"
        samples = self.samples(key)
        if self.classes is None:
            return DomainData(samples)
        return in_common(samples, self.classes, getattr(self.sources[key], "mapping", None), f"{key}.mapping")

    @cached_property
    def domains(self) -> Mapping[str, DomainData]:
        """All domains by name."""
        return {name: self.domain(name) for name in self.recipe.data.domains}

    @property
    def num_classes(self) -> int | None:
        """How many classes networks predict."""
        return None if self.classes is None else self.classes.num_classes


@dataclass(frozen=True)
class DrawnScenes(Dataset["int | Failure"]):
    """Drawing a scene keeps it; only its number comes back."""

    scenes: StreetDataset

    def __getitem__(self, index: int) -> int | Failure:
        try:
            self.scenes.frame(index)
        except InputError as error:
            return Failure(str(error))
        return index


def draw_scenes(data: ImageData, keys: Iterable[str], reporter: Reporter) -> None:
    """Draw the street scenes of some data sets that are not in the cache; keys: the settings that name them."""
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
    """The classes of a data set."""
    classes = getattr(samples, "classes", None)
    if not isinstance(classes, ClassTable):
        raise InputError(f"{type(samples).__name__}: a data set with classes has an attribute `classes`, a ClassTable")
    return classes


def in_common(samples: Samples, model: ClassTable, mapping: Pairs | None, name: str) -> DomainData:
    """A domain in the classes that it shares with what networks predict. name: what complaints begin with."""
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
