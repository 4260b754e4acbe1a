"""The data of a dense run: what is trained on, and the domains, each in the classes that it is scored in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from epibench.data.class_mapping import Relabelled, common_classes
from epibench.data.label_images import LabelledSamples
from epibench.data.labels import ClassTable
from epibench.data.loading import Samples
from epibench.data.street import StreetDataset
from epibench.errors import InputError
from epibench.execution.reporter import Reporter
from epibench.execution.street_cache import draw_missing
from epibench.recipes.dense import DenseRecipe
from epibench.recipes.sources import Source

Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class DomainData:
    """A domain to evaluate on.

    classes: those that it is scored in; groups: of the classes that networks predict, for each of those, None where
    they are the same.
    """

    samples: Samples
    classes: ClassTable | None = None
    groups: Groups | None = None


@dataclass(frozen=True)
class DenseData:
    """What is trained on, with its classes, if it has any, and the domains by name."""

    train: Samples
    classes: ClassTable | None
    domains: Mapping[str, DomainData]

    @property
    def num_classes(self) -> int | None:
        """How many classes networks predict."""
        return None if self.classes is None else self.classes.num_classes


def open_data(recipe: DenseRecipe, reporter: Reporter | None = None) -> DenseData:
    """Everything that a recipe names; with a reporter, scenes that are not there yet are drawn."""

    def opened(source: Source, key: str) -> Samples:
        samples = source.open(recipe.task, recipe.data.places, key)
        if reporter is not None and isinstance(samples, StreetDataset):
            draw_missing(key, samples, reporter)
        return samples

    train = opened(recipe.data.train, "data.train")
    classes = classes_of(train) if recipe.likelihood == "categorical" else None
    domains = {}
    for name, source in recipe.data.domains.items():
        key = f"data.domains.{name}"
        samples = opened(source, key)
        domains[name] = DomainData(samples) if classes is None else in_common(samples, classes, source, key)
    return DenseData(train, classes, domains)


def classes_of(samples: Samples) -> ClassTable:
    """The classes of a data set."""
    classes = getattr(samples, "classes", None)
    if not isinstance(classes, ClassTable):
        raise InputError(f"{type(samples).__name__}: a data set with classes has an attribute `classes`, a ClassTable")
    return classes


def in_common(samples: Samples, model: ClassTable, source: Source, key: str) -> DomainData:
    """A domain in the classes that it shares with what networks predict."""
    own = classes_of(samples)
    try:
        common = common_classes(model, own, getattr(source, "mapping", None))
    except InputError as error:
        raise InputError(f"{key}.mapping: {error}") from None
    if common.identity:
        return DomainData(samples, own)
    relabelled = Relabelled(cast(LabelledSamples, samples), common)
    return DomainData(relabelled, relabelled.classes, common.groups)
