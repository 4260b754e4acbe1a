"""Results in a notebook: a compact table of the headline metrics, and a drawing of any metric or curve."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from markupsafe import Markup

from epibench.errors import InputError
from epibench.report.curve_figures import calibration_figures, reliability_together, sparsification_figures
from epibench.report.entries import Entry, metric_names, several_members, title_with_unit
from epibench.report.figure_files import metric_drawing
from epibench.report.figures import kl_chart
from epibench.report.metric_info import BETTER_TEXT, metric_info
from epibench.report.numbers import listed, m_equals
from epibench.report.page import Option, fragment
from epibench.report.run_page import distinct_floors
from epibench.report.runs import (
    PROBLEMS,
    VIEWS,
    domains_of,
    entries_on,
    headline_names,
    kl_entries,
    methods_of,
    read_runs,
)
from epibench.report.standalone import Drawing, standalone
from epibench.report.tables import rows_over_members
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


def html(results: Results) -> Markup:
    """The headline metrics of every method on every domain over M, in the colours of the notebook."""
    runs, tables = read_runs([results]), []
    if entries := kl_entries(methods_of(runs), VIEWS[0]):
        tables.append(_table(VIEWS[0].name, ["kl"], entries))
    title = listed([f"{PROBLEMS.get(run.problem, run.problem)}: {run.name}" for run in runs])
    for _name, (label, entries) in groups_of(results).items():
        tables.append(_table(label, headline_names(entries), entries))
    about = f"convention {results.convention}"
    return fragment("notebook.html", title=title, about=about, tables=tables, note=NOTE, left=LEFT, right=RIGHT)


def _table(title: str, metrics: Sequence[str], entries: Sequence[Entry]) -> dict[str, object]:
    columns = several_members(entries)
    blocks = [
        {
            "title": title_with_unit(metric, entries),
            "better": BETTER_TEXT[metric_info(metric).better][:1],
            "rows": rows_over_members(metric, entries, columns),
        }
        for metric in metrics
    ]
    return {"title": title, "columns": columns, "blocks": blocks}


def groups_of(results: Results) -> dict[str, tuple[str, list[Entry]]]:
    """Label and entries of each domain; results of several kinds have a group for each kind."""
    groups: dict[str, tuple[str, list[Entry]]] = {}
    for run in read_runs([results]):
        methods, labels = methods_of([run]), {one.name: f"{one.label} ({one.role})" for one in domains_of([run])}
        for name in run.domains:
            if (entries := entries_on(methods, name)) and headline_names(entries):
                key = name if name not in groups else f"{name}, {run.kind} {run.unit}".strip()
                groups[key] = (labels.get(name, name), entries)
    return groups


def plot(results: Results, name: str, domain: str | None = None, members: int | None = None) -> Drawing:
    """A metric over M, the KL, or a curve at an M, of every method."""
    if name == "kl":
        return _kl(results)
    label, entries = _chosen(groups_of(results), domain)
    if name in CURVES:
        return _curve(name, entries, label, members)
    known = metric_names(entries)
    if name not in known:
        offered = [*known, *curve_names(entries)]
        nearest = difflib.get_close_matches(name, offered, 1, 0.0)
        meant = f"; the nearest is '{nearest[0]}'" if nearest else ""
        raise InputError(f"plot('{name}'): there is no such metric{meant}; there are {', '.join(offered)}")
    drawing = metric_drawing(name, entries, label)
    if drawing is None:
        raise InputError(f"plot('{name}'): no method has a finite value")
    return drawing


def curve_names(entries: Sequence[Entry]) -> list[str]:
    """The curves that there are of these entries."""
    return [name for name, make in CURVES.items() if make(entries, [LARGEST])]


def _chosen(groups: dict[str, tuple[str, list[Entry]]], domain: str | None) -> tuple[str, list[Entry]]:
    """Label and entries of a domain; it must be named where there are several."""
    if not groups:
        raise InputError("plot(): there are no metrics on any domain")
    if domain is None and len(groups) == 1:
        return next(iter(groups.values()))
    if domain not in groups:
        what = "say on which domain" if domain is None else f"domain '{domain}' is unknown"
        raise InputError(f"plot(): {what}; there are {', '.join(groups)}")
    return groups[domain]


def _kl(results: Results) -> Drawing:
    methods = methods_of(read_runs([results]))
    entries = kl_entries(methods, VIEWS[0])
    chart = kl_chart(entries, VIEWS[0], distinct_floors(methods, VIEWS[0])) if entries else None
    if chart is None:
        raise InputError("plot('kl'): there is no KL, as there was no reference to compare with")
    return standalone(chart, VIEWS[0].name)


def _curve(name: str, entries: Sequence[Entry], label: str, members: int | None) -> Drawing:
    scored = sorted({m for entry in entries for m in entry.members})
    if members is not None and members not in scored:
        raise InputError(f"plot('{name}'): M = {members} was not scored; there are {listed([str(m) for m in scored])}")
    choice = LARGEST if members is None else Option(str(members), "", True)
    figure = next(iter(CURVES[name](entries, [choice])), None)
    if figure is None or figure.chart is None:
        there = f"; there are {listed(curve_names(entries))}" if curve_names(entries) else ""
        raise InputError(f"plot('{name}'): these results have no such curves, or only those of one method{there}")
    at = "the largest M of each" if members is None else m_equals(members)
    return standalone(figure.chart, " · ".join(part for part in (figure.title, label, at) if part))
