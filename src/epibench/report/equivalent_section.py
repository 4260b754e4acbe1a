"""Methods counted in ensemble members: which ensemble, by which metrics, and the tables of it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from epibench.report.entries import Entry
from epibench.report.equivalent import Equivalent, Scores, equivalents
from epibench.report.metric_info import HEADLINES, metric_info, sort_key
from epibench.report.page import Option, Switch
from epibench.report.runs import EvalDomain, RunMethod, entries_on
from epibench.report.tables import TableCell

REFERENCE = "ensemble"
PROPER_SCORES = ("nll", "brier", "crps")  # the first that there is comes first


def scores_of(entry: Entry, name: str) -> Scores:
    """The scores of an entry by a metric that is better lower or higher, turned so that lower is better."""
    better = metric_info(name).better
    means = {m: sort_key(better, mean) for m in entry.members if (mean := entry.mean(name, m)) is not None}
    draws: dict[int, list[float]] = {m: [] for m in means}
    for draw in entry.draws:
        value = draw.metrics.get(name)
        if draw.M in draws and value is not None and not isinstance(value, list):
            draws[draw.M].append(sort_key(better, value))
    return Scores(means, draws, entry.pool)


def equivalent_names(entries: Sequence[Entry]) -> list[str]:
    """The metrics that methods are counted by: proper scores first, then the headline ones."""
    present = {name for entry in entries for name in entry.metrics}
    names = dict.fromkeys((*PROPER_SCORES, *HEADLINES.get(entries[0].kind, ()))) if entries else {}
    return [name for name in names if name in present and metric_info(name).better in ("lower", "higher")]


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
    found = []
    for method in methods:
        ensemble = ensembles.get(method.run.name)
        if ensemble is None or method is ensemble:
            continue
        curve, entry = scores_of(ensemble.on(domain), name), method.on(domain)
        scores = scores_of(entry, name)
        if len(curve.sizes) > 1 and scores.sizes:
            found.append((entry, equivalents(curve, scores, method.name)))
    return found


def equivalent_rows(found: Equivalents, columns: Sequence[int]) -> list[dict[str, Any]]:
    """Each method's number of ensemble members with its interval, as rows of a table over M."""
    rows = []
    for entry, by_size in found:
        cells = [_equivalent_cell(by_size.get(m)) for m in columns]
        rows.append({"entry": entry, "cells": cells, "aside": "", "only": ""})
    return rows


def _equivalent_cell(found: Equivalent | None) -> TableCell:
    return (
        TableCell("", "") if found is None else TableCell(found.text, f"({found.interval})" if found.interval else "")
    )


def equivalent_table(name: str, domain: EvalDomain, methods: Sequence[RunMethod]) -> dict[str, Any] | None:
    """How many ensemble members every method is worth on a domain by a metric, over M; None where there are none."""
    found = equivalents_on(domain.name, methods, name)
    columns = sorted({m for _, by_size in found for m in by_size})
    rows = equivalent_rows(found, columns)
    if not rows:
        return None
    width = max(len(cell.spread) for row in rows for cell in row["cells"])
    block = {"title": domain.label, "better": domain.role, "meaning": "", "rows": rows}
    return {"title": domain.label, "columns": columns, "spread_width": width, "blocks": [block]}


def equivalent_section(
    methods: Sequence[RunMethod], first: Sequence[EvalDomain], others: Sequence[EvalDomain]
) -> dict[str, Any] | None:
    """The deep-ensemble equivalent by each metric, of which one is chosen; None where there is one method alone.

    missing: the runs whose methods cannot be counted so, as they have no ensemble.
    """
    if len(methods) < 2:
        return None
    names = equivalent_names([entry for domain in first for entry in entries_on(methods, domain.name)])
    layers: list[dict[str, Any]] = []
    for name in names:
        shown, rest = (
            [table for domain in domains if (table := equivalent_table(name, domain, methods))]
            for domains in (first, others)
        )
        if shown or rest:
            option = Option(name, metric_info(name).title, not layers)
            layers.append({"option": option, "shown": shown, "others": rest})
    ensembles = ensembles_of(methods)
    missing = list(dict.fromkeys(method.run.name for method in methods if method.run.name not in ensembles))
    switch = Switch("metric", "By", [layer["option"] for layer in layers])
    return {"switch": switch, "layers": layers, "missing": missing}
