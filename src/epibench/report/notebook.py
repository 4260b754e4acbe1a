"""Results in a notebook: a compact table of the headline metrics, and a chart of any metric or curve."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from epibench.errors import InputError
from epibench.report.chart import Chart
from epibench.report.charts.matplotlib import draw_chart
from epibench.report.curve_figures import calibration_figures, reliability_together, sparsification_figures
from epibench.report.entries import Entry, all_members, metric_names, several_members
from epibench.report.figure_files import at_m, titled
from epibench.report.figures import LARGE, kl_chart, metric_figure
from epibench.report.numbers import listed
from epibench.report.page import Option, fragment
from epibench.report.run_page import distinct_floors
from epibench.report.runs import (
    VIEWS,
    domains_of,
    entries_on,
    headline_names,
    kl_entries,
    methods_of,
    problem_title,
    read_runs,
)
from epibench.report.tables import metric_part, metric_table
from epibench.results import Results

LEFT = "text-align: left; white-space: nowrap; padding: 0.1em 0.8em 0.1em 0"
RIGHT = "text-align: right; white-space: nowrap; padding: 0.1em 0 0.1em 0.8em"
NOTE = (
    "Mean ± std over draws. Bold: leads by at least one standard error. ≈: the leaders cannot be told apart. "
    "°: draws share most of their members."
)
CURVES = {  # by name: what draws them
    "coverage": calibration_figures,
    "reliability": reliability_together,
    "sparsification_error": sparsification_figures,
}
LARGEST = Option("largest", "", True)

Groups = dict[str, tuple[str, list[Entry]]]  # label and entries by the name of the domain


def html(results: Results) -> Markup:
    """The headline metrics of every method on every domain over M, in the colours of the notebook."""
    runs, tables = read_runs([results]), []
    if entries := kl_entries(methods_of(runs), VIEWS[0]):
        tables.append(metric_table(VIEWS[0].name, [metric_part("kl", entries)], several_members(entries)))
    title = listed([f"{problem_title(run.problem)}: {run.name}" for run in runs])
    for label, entries in groups_of(results).values():
        parts = [metric_part(metric, entries) for metric in headline_names(entries)]
        tables.append(metric_table(label, parts, several_members(entries)))
    about = f"convention {results.convention}"
    return fragment("notebook.html", title=title, about=about, tables=tables, note=NOTE, left=LEFT, right=RIGHT)


def groups_of(results: Results) -> Groups:
    """Label and entries of each domain; results of several kinds have a group for each kind."""
    groups: Groups = {}
    for run in read_runs([results]):
        methods, labels = methods_of([run]), {one.name: one.title for one in domains_of([run])}
        for name in run.domains:
            if (entries := entries_on(methods, name)) and headline_names(entries):
                key = name if name not in groups else f"{name}, {run.kind} {run.unit}".strip()
                groups[key] = (labels.get(name, name), entries)
    return groups


def plot(results: Results, name: str, domain: str | None = None, members: int | None = None, ax: Any = None) -> Any:
    """Draw a metric over M, the KL, or a curve at an M, of every method; returns matplotlib `Axes`."""
    where, key = "", ""
    if name == "kl":
        methods = methods_of(read_runs([results]))
        entries = kl_entries(methods, VIEWS[0])
        chart = kl_chart(entries, VIEWS[0], distinct_floors(methods, VIEWS[0])) if entries else None
        if chart is None:
            raise InputError("plot('kl'): there is no KL, as there was no reference to compare with")
    else:
        groups = groups_of(results)
        if not groups:
            raise InputError("plot(): there are no metrics on any domain")
        if domain is None and len(groups) == 1:
            (domain,) = groups
        if domain not in groups:
            what = "say on which domain" if domain is None else f"domain '{domain}' is unknown"
            raise InputError(f"plot(): {what}; there are {', '.join(groups)}")
        where, entries = groups[domain]
        if name in CURVES:
            chart, key = _curve(name, entries, members)
        else:
            chart = _metric(name, entries)
    title = f"Reliability of {chart.title}" if chart.counts else ""
    return draw_chart(chart, titled(chart, where, at_m(key)[0], title=title), key, ax, in_notebook=True)


def _curve(name: str, entries: Sequence[Entry], members: int | None) -> tuple[Chart, str]:
    scored = all_members(entries)
    if members is not None and members not in scored:
        there = listed([str(m) for m in scored])
        raise InputError(f"plot('{name}'): M = {members} was not scored; there are {there}")
    choice = LARGEST if members is None else Option(str(members), "", True)
    if charts := CURVES[name](entries, [choice]):
        return charts[0], choice.key
    there = f"; there are {listed(curves)}" if (curves := curve_names(entries)) else ""
    raise InputError(f"plot('{name}'): these results have no such curves, or only those of one method{there}")


def _metric(name: str, entries: Sequence[Entry]) -> Chart:
    if name not in (known := metric_names(entries)):
        names = [*known, *curve_names(entries)]
        nearest = difflib.get_close_matches(name, names, 1, 0.0)
        meant = f"; the nearest is '{nearest[0]}'" if nearest else ""
        raise InputError(f"plot('{name}'): there is no such metric{meant}; there are {', '.join(names)}")
    chart = metric_figure(name, entries, LARGE)
    if not chart.layers:
        raise InputError(f"plot('{name}'): no method has a finite value")
    return chart


def curve_names(entries: Sequence[Entry]) -> list[str]:
    """The curves that there are of these entries."""
    return [name for name, make in CURVES.items() if make(entries, [LARGEST])]
