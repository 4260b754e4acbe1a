"""Methods counted in ensemble members: which ensemble, by which metrics, and the tables of it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from epibench.metrics.info import Better
from epibench.report.entries import Entry
from epibench.report.equivalent import EnsembleCurve, Equivalent, Scores, equivalents
from epibench.report.metric_info import HEADLINES, metric_info, sort_key
from epibench.report.page import Option, Switch
from epibench.report.runs import EvalDomain, RunMethod, entries_on
from epibench.report.tables import TableCell

REFERENCE = "ensemble"
PROPER_SCORES = ("nll", "brier", "crps")  # the first that there is comes first
# What metrics say of themselves as well, but only once torch is loaded, which tables need not.
BETTER: dict[str, Better] = {
    **dict.fromkeys((*PROPER_SCORES, "ause", "auce", "ece", "rmse"), "lower"),
    "miou": "higher",
}


def scores_of(entry: Entry, name: str) -> Scores:
    """The scores of an entry by a metric, turned so that lower is better."""
    better = BETTER.get(name) or metric_info(name).better
    means = {m: sort_key(better, mean) for m in entry.members if (mean := entry.mean(name, m)) is not None}
    draws: dict[int, list[float]] = {m: [] for m in means}
    for draw in entry.draws:
        value = draw.metrics.get(name)
        if draw.M in draws and value is not None and not isinstance(value, list):
            draws[draw.M].append(sort_key(better, value))
    return Scores(means, draws, entry.pool)


def equivalent_names(entries: Sequence[Entry]) -> list[str]:
    """The metrics that methods are counted by: proper scores first, then the headline ones."""
    present = {name for entry in entries for metrics in entry.summary.values() for name in metrics}
    names = (*PROPER_SCORES, *HEADLINES.get(entries[0].kind, ())) if entries else ()
    return [name for name in names if name in present]


def ensembles_of(methods: Sequence[RunMethod]) -> dict[str, RunMethod]:
    """By run, the ensemble that its methods are counted in: `ensemble`, or the only variant of it."""
    found = {}
    for run, own in itertools.groupby(methods, lambda method: method.run.name):
        ensembles = [method for method in own if method.facts.method == REFERENCE]
        named = [method for method in ensembles if method.name == REFERENCE]
        if named or len(ensembles) == 1:
            found[run] = (named or ensembles)[0]
    return found


Equivalents = list[tuple[Entry, dict[int, Equivalent]]]  # of every method but the ensembles


def equivalents_on(domain: str, methods: Sequence[RunMethod], name: str) -> Equivalents:
    """Every method on a domain, counted in members of the ensemble of its own run.

    Left out are methods of runs without an ensemble of several M, and those that have no value.
    """
    ensembles = ensembles_of(methods)
    scores = {run: scores_of(ensemble.on(domain), name) for run, ensemble in ensembles.items()}
    curves = {run: EnsembleCurve.of(each) for run, each in scores.items() if len(each.sizes) > 1}
    found = []
    for method in methods:
        curve, entry = curves.get(method.run.name), method.on(domain)
        if curve is not None and method is not ensembles[method.run.name]:
            by_size = equivalents(curve, scores_of(entry, name), method.name)
            found += [(entry, by_size)] if by_size else []
    return found


def equivalent_rows(found: Equivalents, columns: Sequence[int]) -> list[dict[str, Any]]:
    """Each method's number of ensemble members with its interval, as rows of a table over M."""
    rows = []
    for entry, by_size in found:
        cells = [_equivalent_cell(by_size.get(m)) for m in columns]
        rows.append({"entry": entry, "cells": cells, "aside": "", "only": ""})
    return rows


def _equivalent_cell(found: Equivalent | None) -> TableCell:
    if found is None:
        return TableCell("", "")
    return TableCell(found.text, f"({found.interval})" if found.interval else "")


def equivalent_table(name: str, domains: Sequence[EvalDomain], methods: Sequence[RunMethod]) -> dict[str, Any] | None:
    """How many ensemble members every method is worth by a metric, over M, a block for each domain; None if none is."""
    found = [(domain, of_domain) for domain in domains if (of_domain := equivalents_on(domain.name, methods, name))]
    if not found:
        return None
    columns = sorted({m for _, of_domain in found for _, by_size in of_domain for m in by_size})
    blocks: list[dict[str, Any]] = [
        {"title": domain.label, "better": domain.role, "meaning": "", "rows": equivalent_rows(of_domain, columns)}
        for domain, of_domain in found
    ]
    width = max(len(cell.spread) for block in blocks for row in block["rows"] for cell in row["cells"])
    title = f"In ensemble members, by {metric_info(name).title}"
    return {"title": title, "columns": columns, "spread_width": width, "blocks": blocks}


def equivalent_section(
    methods: Sequence[RunMethod], first: Sequence[EvalDomain], others: Sequence[EvalDomain]
) -> dict[str, Any] | None:
    """The deep-ensemble equivalent by each metric, of which one is chosen; None where there is one method alone.

    missing: the runs whose methods cannot be counted so, as they have no ensemble of several M.
    """
    if len(methods) < 2:
        return None
    names = equivalent_names([entry for domain in first for entry in entries_on(methods, domain.name)])
    layers: list[dict[str, Any]] = []
    for name in names:
        shown, rest = (equivalent_table(name, domains, methods) for domains in (first, others))
        if shown or rest:
            option = Option(name, metric_info(name).title, not layers)
            layers.append({"option": option, "shown": shown, "others": rest})
    having = {
        run
        for run, ensemble in ensembles_of(methods).items()
        if any(len(ensemble.on(domain.name).members) > 1 for domain in (*first, *others))
    }
    missing = list(dict.fromkeys(method.run.name for method in methods if method.run.name not in having))
    switch = Switch("metric", "By", [layer["option"] for layer in layers])
    return {"switch": switch, "layers": layers, "missing": missing}
