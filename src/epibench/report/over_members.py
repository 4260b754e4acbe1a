"""Headline metrics over M on several domains, as small multiples on common scales or each on its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from epibench.report.domains import Domain, entries_on
from epibench.report.entries import Entry
from epibench.report.figures import LARGE, Figure, metric_figure
from epibench.report.runs import Method
from epibench.report.switches import Option, Switch

SCALES = Switch("scale", "Scales", [Option("common", "common to all domains", True), Option("own", "each its own")])


@dataclass(frozen=True)
class DomainRow:
    """The charts of one domain, a metric each."""

    domain: Domain
    figures: list[Figure]


@dataclass(frozen=True)
class ScaleLayer:
    """All charts in one choice of scales: those that are seen at first, and the others."""

    option: Option
    first: list[DomainRow]
    others: list[DomainRow]


def over_members(
    first: Sequence[Domain], others: Sequence[Domain], methods: Sequence[Method], names: Sequence[str]
) -> list[ScaleLayer]:
    """Charts of domains that methods were scored on, for each choice of scales; of one domain there is one choice."""
    entries = {domain.name: entries_on(methods, domain.name) for domain in (*first, *others)}
    ranges = {name: _range(name, [entry for found in entries.values() for entry in found]) for name in names}
    layers = []
    for option in SCALES.options if len(entries) > 1 else SCALES.options[:1]:
        common: Mapping[str, Sequence[float]] = ranges if option.key == "common" else {}
        rows = [
            [_row(domain, entries[domain.name], names, common, domain is first[0]) for domain in domains]
            for domains in (first, others)
        ]
        layers.append(ScaleLayer(option, *rows))
    return layers


def _row(
    domain: Domain, entries: Sequence[Entry], names: Sequence[str], common: Mapping[str, Sequence[float]], explain: bool
) -> DomainRow:
    """A chart for each metric that any entry has; what the metrics mean is said once."""
    having = [name for name in names if any(name in entry.metrics for entry in entries)]
    figures = [metric_figure(name, entries, LARGE, common.get(name, ())) for name in having]
    return DomainRow(domain, figures if explain else [replace(figure, meaning="") for figure in figures])


def _range(name: str, entries: Sequence[Entry]) -> list[float]:
    """The ends of all bands of entries with several M, where there are any: point estimates may lie far off."""
    several = [entry for entry in entries if len(entry.members) > 1] or list(entries)
    stats = [entry.stat(name, m) for entry in several for m in entry.members]
    ends = [s.mean + sign * (s.std or 0.0) for s in stats if s.mean is not None for sign in (-1, 1)]
    return [min(ends), max(ends)] if ends else []
