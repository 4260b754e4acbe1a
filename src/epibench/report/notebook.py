"""Results in a notebook: a compact table of the headline metrics, and a drawing of any metric or curve."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from markupsafe import Markup

from epibench.errors import InputError
from epibench.report.curve_figures import calibration_figures, reliability_together, sparsification_figures
from epibench.report.entries import Entry, metric_names, scored_entries, several_members
from epibench.report.figure_files import comparable_kinds, metric_drawing
from epibench.report.figures import kl_chart
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
from epibench.report.tables import metric_part, metric_table
from epibench.results import RunResults, ScoreResults

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

Groups = dict[str, list[Entry]]  # by the name of the domain


def html(results: RunResults | ScoreResults) -> Markup:
    """The headline metrics of every method on every domain over M, in the colours of the notebook."""
    tables = []
    if isinstance(results, RunResults):
        run = read_runs([results])[0]
        title = f"{PROBLEMS.get(results.problem, results.problem)}: {run.name}"
        if entries := kl_entries(methods_of([run]), VIEWS[0]):
            tables.append(metric_table(VIEWS[0].name, [metric_part("kl", entries)], several_members(entries)))
    else:
        title = f"{len(results.files)} scored {'file' if len(results.files) == 1 else 'files'}"
    labels = _labels(results)
    for name, entries in groups_of(results).items():
        parts = [metric_part(metric, entries) for metric in headline_names(entries)]
        tables.append(metric_table(labels.get(name, name), parts, several_members(entries)))
    about = f"convention {results.convention}"
    return fragment("notebook.html", title=title, about=about, tables=tables, note=NOTE, left=LEFT, right=RIGHT)


def _labels(results: RunResults | ScoreResults) -> dict[str, str]:
    domains = domains_of(read_runs([results])) if isinstance(results, RunResults) else []
    return {domain.name: f"{domain.label} ({domain.role})" for domain in domains}


def groups_of(results: RunResults | ScoreResults) -> Groups:
    """Every method on each domain, or the scored files that can be compared."""
    if isinstance(results, ScoreResults):
        groups: Groups = {}
        for entries in comparable_kinds(scored_entries(results)):
            name = entries[0].domain or "no domain given"
            groups[name if name not in groups else f"{name}, {entries[0].kind} {entries[0].unit}".strip()] = entries
        return groups
    methods = methods_of(read_runs([results]))
    names = dict.fromkeys(name for method in methods for name in results.summary.get(method.name, {}))
    return {name: entries for name in names if (entries := entries_on(methods, name))}


def plot(
    results: RunResults | ScoreResults, name: str, domain: str | None = None, members: int | None = None
) -> Drawing:
    """A metric over M, the KL, or a curve at an M, of every method."""
    if name == "kl":
        return _kl(results)
    groups = groups_of(results)
    entries = _chosen(groups, domain)
    where = domain or next(iter(groups))
    label = _labels(results).get(where, where) if isinstance(results, RunResults) else entries[0].domain
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


def _chosen(groups: Groups, domain: str | None) -> list[Entry]:
    """The entries on a domain, which must be named where results have several."""
    if not groups:
        raise InputError("plot(): there are no metrics on any domain")
    if domain is None and len(groups) == 1:
        return next(iter(groups.values()))
    if domain not in groups:
        what = "say on which domain" if domain is None else f"domain '{domain}' is unknown"
        raise InputError(f"plot(): {what}; there are {', '.join(groups)}")
    return groups[domain]


def _kl(results: RunResults | ScoreResults) -> Drawing:
    methods = methods_of(read_runs([results])) if isinstance(results, RunResults) else []
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
