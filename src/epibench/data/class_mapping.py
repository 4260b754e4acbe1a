"""Common classes of a model and of data with other classes.

A mapping is a table of pairs (class of the model, class of the domain). Common classes are its connected components:
one class on one side and several on the other become one. Classes without a partner are left out: their targets do not
count, and probabilities are conditional on a common class.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from epibench.data.batch import Batch, LabelledSamples, SamplesView
from epibench.data.cityscapes_classes import CITYSCAPES_TRAIN_IDS
from epibench.data.classes import IGNORE, ClassTable, Colour, Pairs, table_of_names
from epibench.data.sets.camvid import CAMVID_IDS, CITYSCAPES_TO_CAMVID
from epibench.errors import InputError, some_of

Component = tuple[set[int], set[int]]  # classes of the model, classes of the domain

MAPPINGS: dict[tuple[str, str], Pairs] = {
    ("cityscapes", "camvid"): CITYSCAPES_TO_CAMVID,
    ("camvid", "cityscapes"): tuple((camvid, cityscapes) for cityscapes, camvid in CITYSCAPES_TO_CAMVID),
}
KNOWN_NAMES = {table.names: table.name for table in (CITYSCAPES_TRAIN_IDS, CAMVID_IDS)}


@dataclass(frozen=True)
class CommonClasses:
    """Classes that a model and a domain have in common.

    Args:
        names: Names of the common classes.
        colours: Colours of the common classes.
        groups: For each common class, the classes of the model whose probabilities are added.
        targets: For each class of the domain, its common class or IGNORE.
        identity: Whether model and domain have exactly these classes.
        about: Text about the origin of the pairs and the omitted classes.
    """

    names: tuple[str, ...]
    colours: tuple[Colour, ...]
    groups: tuple[tuple[int, ...], ...]
    targets: tuple[int, ...]
    identity: bool
    about: str

    @property
    def classes(self) -> ClassTable:
        """The common classes as a table."""
        return table_of_names(self.names, "common", self.colours)


def common_classes(
    model: ClassTable, domain: ClassTable, pairs: Iterable[tuple[str, str]] | None = None
) -> CommonClasses:
    """Return the common classes by pairs (class of the model, class of the domain).

    Without pairs, the built-in table for both is used; without such a table, classes of equal names are pairs.
    """
    pairs, origin = (tuple(pairs), "by the given mapping") if pairs is not None else known_pairs(model, domain)
    for pair in pairs:
        for name, table, side in zip(pair, (model, domain), ("the model", "the domain"), strict=True):
            if name not in table.names:
                nearest = difflib.get_close_matches(name, table.names, 1, 0.0)[0]
                raise InputError(
                    f"mapping {pair[0]} → {pair[1]}: {side} has no class '{name}'; the nearest is '{nearest}' (a pair "
                    f"is a class of the model, then one of the domain)"
                )
    if not pairs:
        raise InputError(f"the mapping from '{model.name}' to '{domain.name}' has no pair; give at least one")
    components = _components([(model.names.index(first), domain.names.index(second)) for first, second in pairs])
    groups = tuple(tuple(sorted(of_model)) for of_model, _ in components)
    targets = tuple(
        next((number for number, (_, of_domain) in enumerate(components) if each in of_domain), IGNORE)
        for each in range(domain.num_classes)
    )
    return CommonClasses(
        *_names_and_colours(components, model, domain),
        groups,
        targets,
        groups == tuple((number,) for number in range(model.num_classes)) and targets == tuple(range(len(groups))),
        _about(origin, components, model, domain),
    )


def known_pairs(model: ClassTable, domain: ClassTable) -> tuple[Pairs, str]:
    """Return the built-in pairs of both tables, or classes of equal names, and a text about their origin."""
    names = KNOWN_NAMES.get(model.names, ""), KNOWN_NAMES.get(domain.names, "")
    if names in MAPPINGS:
        return MAPPINGS[names], f"by the built-in table {' → '.join(names)}"
    shared = tuple((name, name) for name in model.names if name in domain.names)
    if not shared:
        raise InputError(
            f"classes of the model ({some_of(model.names, 4)}) and of the domain ({some_of(domain.names, 4)}) share no "
            f"name, and no table between them is built in; give the domain a mapping, as [[model class, class], …]"
        )
    return shared, "by equal names"


class Relabelled(SamplesView):
    """Samples with common classes as targets."""

    def __init__(self, samples: LabelledSamples, common: CommonClasses):
        super().__init__(samples)
        self.common, self.classes = common, common.classes
        self.numbers = torch.full((IGNORE + 1,), IGNORE)
        self.numbers[: len(common.targets)] = torch.tensor(common.targets)

    def __getitem__(self, index: int) -> Batch:
        batch = self.samples[index]
        target = self.numbers[batch.target.where(batch.valid, IGNORE)]
        return Batch(batch.inputs, target, target != IGNORE)


def _components(pairs: Sequence[tuple[int, int]]) -> list[Component]:
    """Return connected components, in the order of the model's classes."""
    components: list[Component] = []
    for of_model, of_domain in pairs:
        touched = [each for each in components if of_model in each[0] or of_domain in each[1]]
        merged = {of_model}.union(*(each[0] for each in touched)), {of_domain}.union(*(each[1] for each in touched))
        components = [each for each in components if each not in touched] + [merged]
    return sorted(components, key=lambda component: min(component[0]))


def _names_and_colours(
    components: Sequence[Component], model: ClassTable, domain: ClassTable
) -> tuple[tuple[str, ...], tuple[Colour, ...]]:
    """Return the domain's name of a single class, otherwise the model's name, or joined names of several classes."""
    names: list[str] = []
    colours = []
    for of_model, of_domain in components:
        several = "+".join(domain.names[each] for each in sorted(of_domain))
        models = len(of_domain) > 1 and len(of_model) == 1
        name = model.names[min(of_model)] if models else several
        if name in names:  # one side has this name for other things than the other side
            name = "+".join([*(model.names[each] for each in sorted(of_model)), several])
        names.append(name)
        colours.append(model.colours[min(of_model)] if models else domain.colours[min(of_domain)])
    return tuple(names), tuple(colours)


def _about(origin: str, components: Sequence[Component], model: ClassTable, domain: ClassTable) -> str:
    """Return a text like `11 common classes by …; left out: …`."""
    left = []
    for table, side, index in ((model, "the model", 0), (domain, "the domain", 1)):
        used = set[int]().union(*(component[index] for component in components))
        names = [name for number, name in enumerate(table.names) if number not in used]
        if names:
            left.append(f"{', '.join(names)} of {side}")
    common = "1 common class" if len(components) == 1 else f"{len(components)} common classes"
    return f"{common} {origin}" + (f"; left out: {'; '.join(left)}" if left else "")
