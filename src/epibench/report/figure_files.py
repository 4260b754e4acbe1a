"""Every figure of a page as a file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from epibench.report.chart import Chart
from epibench.report.charts.matplotlib import FileKind, draw_chart, file_bytes
from epibench.report.cost_section import cost_section
from epibench.report.curve_figures import LARGEST, curve_parts, curve_switch
from epibench.report.dense_section import against_training, over_members, picture_books
from epibench.report.entries import Entry, metric_names
from epibench.report.figures import LARGE, kl_chart, metric_figure, severity_figures, training_figures
from epibench.report.numbers import m_equals
from epibench.report.pictures.dense import draw_rows
from epibench.report.pictures.toy import toy_book
from epibench.report.run_page import REGION_TITLES, distinct_floors, published_section
from epibench.report.runs import (
    VIEWS,
    Problem,
    Run,
    RunMethod,
    by_problem,
    domains_of,
    entries_on,
    kl_entries,
)

LONGEST_NAME = 120
TOY_LEGENDS = {  # as on the page
    "gaussian": "mean, ± 1 and 2 std; dots are data, dashes the truth, thin lines the reference ± 2 std",
    "categorical": "probability of class 0, blue 1 to orange 0; dots are data, the circle is the true boundary",
}


@dataclass(frozen=True)
class FigureFile:
    """A figure. about: a line for the index; description: for screen readers; draw: returns axes."""

    name: str
    about: str
    description: str
    draw: Callable[[], Any]

    def content(self, kind: FileKind) -> bytes:
        """The content of the file."""
        return file_bytes(self.draw().figure, kind, self.about, self.description)


def figures_of(runs: Sequence[Run]) -> Iterator[FigureFile]:
    """Every figure of runs, with names that differ."""
    groups, seen = by_problem(runs), Counter[str]()
    for problem in groups:
        for figure in _problem_figures(problem):
            name = slug(problem.runs[0].problem if len(groups) > 1 else "", figure.name)
            seen[name] += 1
            yield replace(figure, name=name if seen[name] == 1 else f"{name}-{seen[name]}")


def slug(*parts: str) -> str:
    """Words as the name of a file: small letters, digits and hyphens."""
    words = [re.sub(r"[^a-z0-9]+", "-", part.lower().replace("=", "")).strip("-") for part in parts]
    return "-".join(word for word in words if word)[:LONGEST_NAME].strip("-")


def titled(chart: Chart, *more: str, title: str = "") -> str:
    """The title of a chart in a file: with an arrow to better values, the domain and the M."""
    arrow = f" {chart.better[0]}" if chart.better and chart.better[0] in "↓↑" and not title else ""
    return " · ".join(part for part in ((title or chart.title) + arrow, *more) if part)


def at_m(key: str) -> tuple[str, str]:
    """The M of a layer as text and as part of a file name."""
    first = key.split(" ")[0]
    if first == LARGEST:
        return "the largest M of each", "largest-m"
    return (m_equals(int(first)), f"m{first}") if first else ("", "")


def _files(chart: Chart, *name: str, about: str, where: str = "", title: str = "") -> Iterator[FigureFile]:
    for key in chart.keys:
        at, suffix = at_m(key)
        draw = partial(draw_chart, chart, titled(chart, where, at, title=title), key)
        yield FigureFile(slug(*name, suffix), f"{about}{f', at {at}' if at else ''}", chart.description, draw)


def _problem_figures(problem: Problem) -> Iterator[FigureFile]:
    runs, methods, entries_of = problem.runs, problem.methods, problem.entries
    for view in VIEWS:
        entries = kl_entries(methods, view)
        if chart := kl_chart(entries, view, distinct_floors(methods, view)) if entries else None:
            yield from _files(chart, "kl", view.direction, view.region, view.convention, about=f"{view.name}, over M")
    yield from _toy_pictures(runs, methods)
    labels = {domain.name: domain.label for domain in problem.domains}
    if not domains_of(runs):  # a toy problem has regions
        entries_of = {name: entries for name in REGION_TITLES if (entries := entries_on(methods, name))}
        labels = {name: f"{name} of the training region" for name in entries_of}
    for name, entries in entries_of.items():
        yield from _entry_figures(entries, name, labels[name], with_curves=len(runs) == 1)
    if problem.domains:
        yield from _dense_figures(problem)
    if published := published_section(runs, methods):
        for chart, block in zip(published["figures"], published["blocks"], strict=True):
            metric = block["metric"] or "kl"
            about = f"{chart.title}: ours, and as published"
            yield from _files(chart, "published", block["entry"].label, metric, about=about)


def _entry_figures(entries: Sequence[Entry], name: str, where: str, with_curves: bool) -> Iterator[FigureFile]:
    """Every metric of some entries over M, and their curves at each M: together, and of each method alone."""
    on = f", {where}" if where else ""
    for metric in metric_names(entries):
        chart = metric_figure(metric, entries, LARGE)
        yield from _files(chart, name, metric, about=f"{chart.title} over M{on}", where=where)
    parts = curve_parts(entries, curve_switch(entries).options if with_curves else [])
    for chart in parts.together:
        yield from _files(chart, name, chart.title, about=f"{chart.title}{on}", where=where)
    for chart in parts.reliability:
        title = f"Reliability of {chart.title}"
        yield from _files(chart, name, "reliability", chart.title, about=f"{title}{on}", where=where, title=title)
    for label, chart in [(row["entry"].label, chart) for row in parts.rows for chart in row["figures"]]:
        title = f"{chart.title}, {label}"
        yield from _files(chart, name, chart.title, label, about=f"{title}{on}", where=where, title=title)


def _dense_figures(problem: Problem) -> Iterator[FigureFile]:
    """Common scales, severity, cost, shifts, training and pictures, which toy problems do not have."""
    runs, methods, domains, names = problem.runs, problem.methods, problem.domains, problem.headlines
    first = problem.first[0]
    for row in over_members(problem, domains, [])[0]["first"] if len(domains) > 1 else []:
        domain = row["domain"]
        for metric, chart in zip(names, row["figures"], strict=True):
            about = f"{chart.title} over M, {domain.label}, on a scale that is common to all domains"
            yield from _files(chart, domain.name, metric, "common-scale", about=about, where=domain.label)
    for metric, chart in zip(names, severity_figures(problem), strict=False):
        about, where = f"{chart.title} over the severity of the shift", "full: at the largest M, faint: at the smallest"
        yield from _files(chart, "severity", metric, about=about, where=where)
    cost = cost_section(methods, domains, [], problem.qualities)
    for chart in cost["figures"]:
        about, where = f"{chart.title} over M", chart.meaning.rstrip(".")
        yield from _files(chart, "cost", chart.title, about=about, where=where, title=chart.title)
    for layer in cost["layers"]:
        against = layer["kind"].name.lower()
        for domain, chart in [(domain, chart) for domain, charts in layer["shown"] for chart in charts]:
            about = f"{chart.title} against {against}, {domain.label}"
            yield from _files(chart, domain.name, chart.title, "against", against, about=about, where=domain.label)
    for domain, charts in against_training(problem, domains):
        for chart in charts:
            about = f"{chart.title} on {domain.label} against {first.label}"
            yield from _files(chart, domain.name, chart.title, "against", first.name, about=about, where=domain.label)
    for chart in training_figures(methods):
        about = f"Training loss of every network of {chart.title}"
        yield from _files(chart, "training", chart.title, about=about, where="training loss")
    for run in runs:
        for book, layer in [(b, layer) for b in picture_books(run, methods, domains, "") for layer in b["layers"]]:
            name = slug("" if len(runs) == 1 else run.name, book["domain"].name, "image", layer["option"].text)
            yield FigureFile(name, layer["caption"], layer["caption"], partial(draw_rows, layer["rows"]))


def _toy_pictures(runs: Sequence[Run], methods: Sequence[RunMethod]) -> Iterator[FigureFile]:
    for run in runs:
        book = toy_book(run, [method for method in methods if method.run is run], "")
        for row, panel in [(one, panel) for one in book["groups"] for panel in one.panels] if book else []:
            title = panel.title if row.style is None else f"{row.title}, {panel.title}"
            for key in panel.chart.keys:
                example = f"example {key}" if key else ""
                name = slug("picture", "" if len(runs) == 1 else run.name, title, example)
                about = f"{title}{f', {example}' if example else ''}: {TOY_LEGENDS[run.kind or '']}"
                yield FigureFile(name, about, panel.chart.description, partial(panel.chart.draw, title, key))
