"""The part of a page on problems with domains: findings, shift, members, curves, classes, pictures, cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from epibench.report.chart import Chart
from epibench.report.class_section import class_section, class_tables
from epibench.report.cost_section import cost_section
from epibench.report.curve_figures import curve_parts, curve_switch
from epibench.report.entries import Entry, counted_in, metric_names, overlap_warnings, title_with_unit
from epibench.report.equivalent_section import equivalent_section
from epibench.report.figures import LARGE, SMALL, metric_figure, severity_figures, shift_figure, training_figures
from epibench.report.metric_info import HEADLINES
from epibench.report.numbers import m_equals
from epibench.report.page import Option, Switch
from epibench.report.pictures.dense import ClassPanels, DepthPanels
from epibench.report.runs import EvalDomain, Problem, Run, RunMethod, domains_of
from epibench.report.table import Block, Column, Name, Table
from epibench.report.tables import metric_tables
from epibench.report.verdicts import confidence_sentence, finding, member_gains, shift_costs, verdict

SCALES = Switch("scale", "Scales", [Option("common", "common to all domains", True), Option("own", "each its own")])
MAX_IMAGES = 4
PANELS: dict[str, type[DepthPanels | ClassPanels]] = {"gaussian": DepthPanels, "categorical": ClassPanels}


def dense_section(problem: Problem, identity: str) -> dict[str, Any] | None:
    """All parts for the runs of one problem; None without a scored domain.

    Parts on domains are pairs: on the training domain and the hardest shift, and on other domains.
    """
    runs, methods, entries, everywhere = problem.runs, problem.methods, problem.entries, problem.everywhere
    if not problem.domains:
        return None
    names, halves, switch = problem.headlines, (problem.first, problem.others), curve_switch(everywhere)
    sections, choices = {}, switch.options if len(runs) == 1 else []
    for domain in problem.domains:
        part = metric_section(domain.label, entries[domain.name], choices, HEADLINES[everywhere[0].kind])
        sections[domain.name] = {**part, "domain": domain, "classes": class_tables(entries[domain.name])}
    books = [
        book
        for number, run in enumerate(runs)
        for book in picture_books(run, methods, [*problem.first, *problem.others], f"{identity}-pictures{number}")
    ]
    gains = [(domain.title, member_gains(entries[domain.name], names)) for domain in problem.first]
    return {
        "counted": counted_in(everywhere),
        "findings": [[_finding(domain, entries[domain.name], names) for domain in half] for half in halves],
        "shift": shift_table(problem),
        "gains": Table(
            "Effect of ensemble size",
            [Column(Name(title_with_unit(name, entries[problem.domains[0].name]))) for name in names],
            [Block(Name(title), rows=rows) for title, rows in gains if rows],
        ),
        "overlaps": overlap_warnings(everywhere),
        "scales": SCALES,
        "layers": over_members(problem, *halves),
        "severity": severity_figures(problem),
        "against": [against_training(problem, half) for half in halves],
        "equivalents": equivalent_section(methods, *halves),
        "domains": list(sections.values()),
        "classes": class_section(*([(domain, entries[domain.name]) for domain in half] for half in halves)),
        "curve_switch": switch,
        "curves": [[sections[domain.name] for domain in half if sections[domain.name]["curves"]] for half in halves],
        "books": [[book for book in books if book["domain"] in half] for half in halves],
        "cost": cost_section(methods, *halves, problem.qualities),
        "training": training_figures(methods),
        "warnings": _warnings(runs, problem.domains, problem.first),
    }


def _finding(domain: EvalDomain, entries: Sequence[Entry], names: Sequence[str]) -> dict[str, Any]:
    verdicts = [verdict(name, entries) for name in names]
    return {
        "domain": domain,
        "counted": counted_in(entries),
        "sentence": finding(verdicts),
        "cards": [one.card for one in verdicts],
        "confidence": [(entry, text) for entry in entries if (text := confidence_sentence(entry))],
    }


def shift_table(problem: Problem) -> dict[str, Any] | None:
    """The effect of the hardest shift on each headline metric; None if either domain is missing."""
    if len(first := problem.first) < 2:
        return None
    inside, outside = (problem.entries[domain.name] for domain in first)
    rows = shift_costs(inside, outside, problem.headlines)
    titles = [title_with_unit(name, problem.entries[problem.domains[0].name]) for name in problem.headlines]
    table = Table("Effect of the shift", [Column(Name(title)) for title in titles], [Block(rows=rows)])
    return {"title": f"{first[0].label} → {first[1].label}", "table": table} if rows else None


def against_training(problem: Problem, domains: Sequence[EvalDomain]) -> list[tuple[EvalDomain, list[Chart]]]:
    """A chart for each metric: every method on each shifted domain against the training domain, if that is known."""
    inside, found = problem.first[0], []
    for outside in domains if inside.role == "in-domain" else ():
        if outside.shifted:
            pairs = [(method.on(inside.name), method.on(outside.name)) for method in problem.methods]
            charts = [shift_figure(name, inside, outside, pairs) for name in problem.qualities]
            found.append((outside, [chart for chart in charts if chart]))
    return found


def _warnings(runs: Sequence[Run], domains: Sequence[EvalDomain], first: Sequence[EvalDomain]) -> list[str]:
    """Different data under one name, different classes before and after the shift, and notes on data."""
    warnings, classes, notes = [], [], []
    stored = any(run.stored for run in runs)  # then only the number of targets is known
    for domain in domains:
        data = set()
        for run in runs:
            if own := next((one for one in domains_of([run]) if one.name == domain.name), None):
                source = (run.results.recipe.get("data") or {}).get("domains", {}).get(domain.name)
                version = run.results.data_versions.get(domain.name)
                data.add(str([None if stored else [source, version], own.num_pixels]))
        if len(data) > 1:
            warnings.append(
                f"What is called {domain.name} is not the same data in all runs: their numbers there "
                "cannot be compared."
            )
    for run in runs:
        names = [(run.domains[d.name].class_names or []) if d.name in run.domains else [] for d in first]
        if len(first) > 1 and names[0] != names[1]:
            classes.append(
                f"{first[1].label} is scored on {len(names[1])} classes of its own, {first[0].label} on "
                f"{len(names[0])}: part of every difference between the two is due to that."
            )
        notes += [f"Training data: {note}" for note in run.results.training_notes]
        notes += [f"{facts.label}: {note}" for facts in run.domains.values() for note in facts.notes]
    return list(dict.fromkeys([*warnings, *classes, *notes]))


def metric_section(
    title: str, entries: Sequence[Entry], choices: Sequence[Option], main: Sequence[str]
) -> dict[str, Any]:
    """Figures and tables of some entries.

    choices: the M of curves; none for several runs, as their curves would hide one another.
    """
    names = metric_names(entries)
    return {
        "title": title,
        "main_figures": [metric_figure(name, entries, SMALL) for name in main if name in names],
        "more_figures": [metric_figure(name, entries, SMALL) for name in names if name not in main],
        "curves": curve_parts(entries, choices),
        "tables": metric_tables(entries),
    }


def over_members(problem: Problem, first: Sequence[EvalDomain], others: Sequence[EvalDomain]) -> list[dict[str, Any]]:
    """Headline metrics over M on common scales, and on the scales of each domain if there are several."""
    entries, everywhere, names = problem.entries, problem.everywhere, problem.headlines
    ranges: dict[str, list[float]] = {}
    for name in names:  # point estimates may lie far off
        several = [entry for entry in everywhere if len(entry.members) > 1] or everywhere
        stats = [entry.stat(name, m) for entry in several for m in entry.members]
        ends = [stat.mean + sign * (stat.std or 0.0) for stat in stats if stat.mean is not None for sign in (-1, 1)]
        ranges[name] = [min(ends), max(ends)] if ends else []
    layers = []
    for option in SCALES.options if len(entries) > 1 else SCALES.options[:1]:
        scales: Mapping[str, Sequence[float]] = ranges if option.key == "common" else {}
        rows = {}
        for domain in (*first, *others):
            charts = [metric_figure(name, entries[domain.name], LARGE, scales.get(name, ())) for name in names]
            # The page explains each metric once.
            charts = charts if domain is first[0] else [replace(chart, meaning="") for chart in charts]
            rows[domain.name] = {"domain": domain, "figures": charts}
        shown, rest = ([rows[domain.name] for domain in half] for half in (first, others))
        layers.append({"option": option, "first": shown, "others": rest})
    return layers


def picture_books(
    run: Run, methods: Sequence[RunMethod], domains: Sequence[EvalDomain], identity: str
) -> list[dict[str, Any]]:
    """The pictures of a run on each domain, on common scales."""
    if run.kind not in PANELS:
        return []
    shown = {domain.name: run.pictures(domain.name)[:MAX_IMAGES] for domain in domains if domain.name in run.domains}
    panels = PANELS[run.kind](run, [picture for of_domain in shown.values() for picture in of_domain])
    own = [method for method in methods if method.run is run]
    books = []
    for number, domain in enumerate(domains):
        layers: list[dict[str, Any]] = []
        for i, picture in enumerate(shown.get(domain.name, [])):
            members = ", ".join(m_equals(m) for m in sorted({one.M for one in picture.methods.values()}))
            caption = f"{domain.label}, image {picture.image}{f', predictions at {members}' if members else ''}"
            option = Option(str(i), str(picture.image), i == 0)
            layers.append({"option": option, "caption": caption, "rows": list(panels.rows(picture, own, domain))})
        if layers:
            switch = Switch("image", "Image", [layer["option"] for layer in layers])
            book = {"identity": f"{identity}-{number}", "domain": domain, "run": run}
            books.append({**book, "switch": switch, "layers": layers})
    return books
