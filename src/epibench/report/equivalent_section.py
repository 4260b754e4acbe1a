"""Methods counted in ensemble members: which ensemble, by which metrics, and the tables of it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from epibench.metrics.info import Better
from epibench.report.entries import Entry
from epibench.report.equivalent import EnsembleCurve, Equivalent, Scores, equivalents
from epibench.report.metric_info import HEADLINES, metric_info, sort_key
from epibench.report.page import Option, Switch
from epibench.report.runs import EvalDomain, RunMethod, entries_on
from epibench.report.table import Block, Cell, Name, Row, Table
from epibench.report.tables import member_columns

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
    for draw in entry.score.draws:
        value = draw.metrics.get(name)
        if draw.M in draws and value is not None and not isinstance(value, list):
            draws[draw.M].append(sort_key(better, value))
    return Scores(means, draws, entry.score.pool)


def equivalent_names(entries: Sequence[Entry]) -> list[str]:
    """The metrics that methods are counted by: proper scores first, then the headline ones."""
    present = {name for entry in entries for metrics in entry.score.summary.values() for name in metrics}
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


def equivalent_table(title: str, parts: Sequence[tuple[Block, Equivalents]]) -> Table:
    """How many ensemble members every method is worth, with the interval, over M; a block for each part."""
    members = sorted({m for _, found in parts for _, by_size in found for m in by_size})
    blocks = []
    for block, found in parts:
        rows = []
        for entry, by_size in found:
            worth = [by_size.get(m) for m in members]
            cells = [Cell(one.text, f"({one.interval})" if one.interval else "") if one else Cell() for one in worth]
            rows.append(Row(Name(entry.label, entry.index), cells))
        blocks.append(replace(block, rows=rows))
    return Table(title, member_columns(members), blocks)


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
        title, tables = f"In ensemble members, by {metric_info(name).title}", []
        for domains in (first, others):
            found = [(Block(Name(d.label), d.role), equivalents_on(d.name, methods, name)) for d in domains]
            found = [(block, of_domain) for block, of_domain in found if of_domain]
            tables.append(equivalent_table(title, found) if found else None)
        shown, rest = tables
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
