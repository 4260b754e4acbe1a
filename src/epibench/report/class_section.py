"""What the page shows class by class: which classes suffer under a shift, by each metric that classes have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from epibench.report.class_shift import ShiftTable, shift_table
from epibench.report.class_tables import per_class_names
from epibench.report.domains import Domain, entries_on
from epibench.report.metric_info import BETTER_TEXT, metric_info
from epibench.report.runs import Method
from epibench.report.switches import Option, Switch


@dataclass(frozen=True)
class ClassLayer:
    """All tables of one metric: that of the hardest shift, and those of other domains."""

    option: Option
    title: str
    better: str
    meaning: str
    shown: list[ShiftTable]
    others: list[ShiftTable]


@dataclass(frozen=True)
class ClassSection:
    """A layer for each metric, to switch between."""

    switch: Switch
    layers: list[ClassLayer]


def class_section(first: Sequence[Domain], others: Sequence[Domain], methods: Sequence[Method]) -> ClassSection | None:
    """Classes of the hardest shift beside the domain trained for; None where no metric has values for classes.

    first: the domain that methods were trained for and the hardest shift, or one of them.
    """
    entries = {domain.name: entries_on(methods, domain.name) for domain in (*first, *others)}
    names = per_class_names([entry for found in entries.values() for entry in found])
    inside = next((domain for domain in first if not domain.shifted), None)
    before = (inside, entries[inside.name]) if inside else None
    layers: list[ClassLayer] = []
    for name in names:
        # The domain trained for is one side of every table, so it needs none of its own but where it is alone.
        shown, *rest = (
            shift_table(name, before if domain.shifted else None, (domain, entries[domain.name]))
            for domain in (first[-1], *others)
        )
        info = metric_info(name)
        title = info.title.removesuffix(" per class")
        option = Option(str(len(layers)), title, not layers)
        layer = ClassLayer(
            option,
            title,
            BETTER_TEXT[info.better],
            info.meaning,
            [] if shown is None else [shown],
            [table for table in rest if table is not None],
        )
        if layer.shown or layer.others:
            layers.append(layer)
    if not layers:
        return None
    return ClassSection(Switch("metric", "Metric", [layer.option for layer in layers]), layers)
