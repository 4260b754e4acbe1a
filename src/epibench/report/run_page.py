"""The page of results: one HTML file for runs, evaluations and stored predictions together."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from epibench.files import write_text
from epibench.published import PublishedCell, compare, grounds_of, totals, warnings_of
from epibench.report.cost_section import cost_table
from epibench.report.curve_figures import curve_switch
from epibench.report.dense_section import dense_section, metric_section
from epibench.report.entries import title_with_unit
from epibench.report.figures import kl_chart, published_figure
from epibench.report.numbers import MISSING, count, duration, listed, m_equals, significant
from epibench.report.page import Option, Switch, render
from epibench.report.pictures.toy import probability_bar, toy_book
from epibench.report.published_tables import published_table
from epibench.report.runs import (
    CONVENTIONS,
    DIRECTIONS,
    REGIONS,
    VIEWS,
    Problem,
    Run,
    RunMethod,
    View,
    by_problem,
    convergence_of,
    distinct_references,
    domains_of,
    entries_on,
    headline_names,
    kl_entries,
    methods_of,
    older_runs,
    problem_title,
    read_runs,
)
from epibench.report.table import Block, Cell, Column, Name, Row, Table
from epibench.report.tables import kl_table
from epibench.report.verdicts import kl_verdict
from epibench.results import Results

REGION_TITLES = {"inside": "Inside the training region", "outside": "Outside the training region"}
FIRST_METRICS = {
    "gaussian": ("nll", "auce", "ause", "rmse"),
    "categorical": ("nll", "ece", "ause", "accuracy"),
    "ranking": ("ause", "rmse", "accuracy"),
}
SWITCHES = [
    Switch(name, legend, [Option(key, text, key == next(iter(texts))) for key, text in texts.items()])
    for name, legend, texts in (
        ("convention", "Convention", CONVENTIONS),
        ("direction", "Direction", DIRECTIONS),
        ("region", "Over the", REGIONS),
    )
]


def write_run_page(results: Sequence[Results], path: Path, names: Sequence[str] = ()) -> Path:
    """Write the page of some results, and return its path.

    names: what distinguishes runs of one recipe, e.g. their folders; by default numbers.
    """
    write_text(path, render_run_page(results, names))
    return path


def render_run_page(results: Sequence[Results], names: Sequence[str] = ()) -> str:
    """The whole page as text."""
    runs = read_runs(results, names)
    sections = [_section(f"problem{number}", problem) for number, problem in enumerate(by_problem(runs))]
    given = all("models" in run.results.recipe for run in runs)
    stored = all(run.stored for run in runs)
    names = list(dict.fromkeys(name for run in runs for name in (run.methods if stored else [run.name])))
    return render(
        "run.html",
        ["page.css", "run.css", *(["dense.css"] if any(section["dense"] for section in sections) else [])],
        title=listed(names) if len(names) <= 3 else f"{len(names)} {'methods' if stored else 'runs'}",
        command="epibench score" if stored else "epibench evaluate" if given else "epibench run",
        facts=_facts(runs) if len({id(run.results) for run in runs}) == 1 else [],
        sections=sections,
        runs=[(run, [*_flattened(run.results.recipe)]) for run in {id(run.results): run for run in runs}.values()],
        conventions=sorted({run.results.convention for run in runs}, reverse=True),
        colour_bar=probability_bar() if any(run.kind == "categorical" for run in runs) else "",
    )


def _section(identity: str, problem: Problem) -> dict[str, Any]:
    runs, methods, dense_domains = problem.runs, problem.methods, domains_of(problem.runs)
    domains: list[dict[str, Any]] = []
    for region, title in REGION_TITLES.items() if not dense_domains else ():
        if entries := entries_on(methods, region):
            switch = curve_switch(entries)
            one_run = len({method.run.name for method in methods}) == 1
            part = metric_section(title, entries, switch.options if one_run else [], FIRST_METRICS[entries[0].kind])
            domains.append({**part, "id": f"{identity}-region{len(domains)}", "switch": switch})
    books = [
        toy_book(run, [method for method in methods if method.run is run], f"{identity}-pictures{i}")
        for i, run in enumerate(runs)
    ]
    dense, has_kl = dense_section(problem, identity), bool(kl_entries(methods, VIEWS[0]))
    references = []
    for run in distinct_references(runs):
        reference = run.results.reference
        references.append((run, reference, [*_floors(run)], [*_flattened(reference.about if reference else {})]))
    notes = ((note, method.label) for method in methods if not method.run.stored for note in method.facts.notes)
    return {
        "id": identity,
        "title": problem_title(runs[0].problem),
        "kind": runs[0].kind,
        "runs": [run.name for run in runs if run.name != run.problem],
        "entries": methods,
        "switches": SWITCHES,
        "views": [_view(methods, view) for view in VIEWS] if has_kl else [],
        "nothing": "" if has_kl or dense else nothing_to_show(runs),
        "dense": dense,
        "warnings": _comparison_warnings(runs),
        "convergence": convergence_of(runs),
        "failed": failures(runs),
        "pictures": [book for book in books if book],
        "published": published_section(runs, methods),
        "domains": domains,
        "regions": list(REGIONS.values()),
        "references": references if methods and not dense_domains else [],
        "costs": [] if all(run.stored for run in runs) else cost_table(methods),
        "notes": [(listed(labels), note) for note, labels in _grouped(notes).items()],
        "stored": [
            (method, score)
            for method in methods
            for score in (method.run.scores if method.run.stored else ())
            if score.method == method.name
        ],
        "evaluations": [table for run in runs for table in _evaluations(run, len(runs) > 1)],
    }


def failures(runs: Sequence[Run]) -> list[str]:
    """Sentences on methods that failed."""
    return [
        f"{facts.label if (facts := run.results.methods.get(name)) else name} failed: {reason}"
        for run in runs
        for name, reason in run.results.failed.items()
    ]


def nothing_to_show(runs: Sequence[Run]) -> str:
    """The reason for a page without numbers."""
    if all(run.results.failed and not set(run.methods) - set(run.results.failed) for run in runs):
        return "No method was finished, so there are no numbers."
    if domains_of(runs):
        return "No method was scored on any domain."
    return "There is no KL, as there was no reference to compare with."


def _view(methods: Sequence[RunMethod], view: View) -> dict[str, Any]:
    entries = kl_entries(methods, view)
    return {
        "key": view.key,
        "name": view.name,
        "chosen": view == VIEWS[0],
        "chart": kl_chart(entries, view, distinct_floors(methods, view)),
        "verdict": kl_verdict(entries),
        "table": kl_table(view.name, entries, "noise floor"),
    }


def distinct_floors(methods: Sequence[RunMethod], view: View) -> list[tuple[float, str]]:
    """The noise floors of runs, each once with its name; names of runs are added if floors differ."""
    runs: dict[float, str] = {}
    for method in methods:
        if floor := method.run.floor(view):
            runs.setdefault(floor, method.run.name)
    return [
        (floor, f"noise floor {significant(floor, 2)}" + (f" ({name})" if len(runs) > 1 else ""))
        for floor, name in runs.items()
    ]


def _comparison_warnings(runs: Sequence[Run]) -> list[str]:
    """Reasons against comparing runs of a problem."""
    warnings, trained, stored = [], [run for run in runs if not run.stored], [run for run in runs if run.stored]
    if stored and trained:
        scored = listed([run.name for run in stored])
        warnings.append(f"{scored}: predictions from elsewhere; what their methods were trained on is not known here.")
    for run in stored:
        for name, domain in run.domains.items():
            scores = [score for score in run.scores if score.domain == name]
            numbers = sorted({count(score.pixels.valid) for score in scores})
            if len(numbers) > 1:
                warnings.append(
                    f"The files on {domain.label} were scored on different numbers of valid {scores[0].counted} "
                    f"({', '.join(numbers)}): check that they hold the same targets before comparing them."
                )
    training = set()
    for run in (run for run in trained if "models" not in run.results.recipe):  # the data of given models are unknown
        data = run.results.recipe.get("data")
        images = isinstance(data, dict) and "train" in data  # toy problems train on all of their data
        training.add(str(data["train"] if data and images else [data, run.results.recipe.get("train")]))
    if len(training) > 1:
        warnings.append(
            "The runs were trained on different data: part of every difference between them is due to that."
        )
    if len({run.results.reference.path if run.results.reference else None for run in runs}) > 1:
        warnings.append("The runs were compared with different references: their KLs do not share one scale.")
    if len({run.results.convention for run in runs}) > 1:
        warnings.append("The runs follow different conventions: values of one metric do not share one scale.")
    return warnings


def _floors(run: Run) -> Iterator[tuple[str, list[str]]]:
    """The known noise floors of a run in every convention and direction, over both regions."""
    for views in zip(VIEWS[::2], VIEWS[1::2], strict=True):
        values = [run.floor(view) for view in views]
        if any(value is not None for value in values):
            yield views[0].name.replace(f", {REGIONS['grid']}", ""), [significant(value, 2) for value in values]


def _evaluations(run: Run, named: bool) -> Iterator[Table]:
    """A table for each headline metric of a run with older evaluations: the newest beside the others."""
    evaluations = [run, *older_runs([run])]
    if len(evaluations) == 1:
        return
    of_each = [{method.name: method for method in methods_of([one])} for one in evaluations]
    methods = {name: next(one[name] for one in of_each if name in one) for of_one in of_each for name in of_one}
    columns = [Column(Name(label), points=True) for label in ("newest", *(one.evaluation for one in evaluations[1:]))]
    lines = []
    for domain, method in itertools.product(domains_of(evaluations), methods.values()):
        found = [of_one[method.name].on(domain.name) if method.name in of_one else None for of_one in of_each]
        lines.append((domain, method, [entry if entry and entry.members else None for entry in found]))
    everywhere = [entry for _, _, entries in lines for entry in entries if entry]
    for metric in headline_names(everywhere):
        blocks: dict[str, Block] = {}
        for domain, method, entries in lines:
            sizes, cells = {entry.members[-1] for entry in entries if entry}, []
            for entry in entries:
                m = entry.members[-1] if entry else 0
                note = m_equals(m) if m and len(sizes) > 1 else ""
                cells.append(Cell(*entry.texts(metric, m), note=note) if entry else Cell(MISSING))
            row = Row(Name(method.label, method.index), cells, m_equals(min(sizes)) if len(sizes) == 1 else "")
            block = blocks.get(domain.name, Block(Name(domain.label)))
            blocks |= {domain.name: replace(block, rows=[*block.rows, row])} if sizes else {}
        title = title_with_unit(metric, everywhere) + (f", {run.name}" if named else "")
        yield Table(title, columns, [*blocks.values()])


def _facts(runs: Sequence[Run]) -> list[tuple[str, str]]:
    results = runs[0].results
    recipe, scores = results.recipe, [score for run in runs for score in run.scores if run.stored]
    settings = recipe.get("stored") or recipe
    facts = {
        "Methods": listed([method.label for run in runs for method in methods_of([run])]),
        "Valid": listed(sorted({f"{count(score.pixels.valid)} {score.counted}" for score in scores})),
        "M": ", ".join(str(m) for m in settings.get("members") or []),
        "Draws": f"up to {settings['draws']} per M" if scores and settings.get("draws") else "",
        "Seed": str(settings.get("seed", "")),
        "Time": duration(results.seconds) if results.seconds else "",
        "Device": results.device,
        "Made": results.created[:10],
        "Evaluated on": " · ".join(domain.label for domain in domains_of(runs)),
        "Convention": results.convention if scores or results.convention != "pooled" else "",
    }
    return [(name, value) for name, value in facts.items() if value]


def _flattened(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Settings as dotted keys with short texts, without empty groups."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flattened(value, f"{above}{key}.")
            continue
        words = {None: "none", True: "yes", False: "no"}
        texts = [
            words[one] if one is None or isinstance(one, bool) else f"{one:.6g}" if isinstance(one, float) else str(one)
            for one in (value if isinstance(value, list) else [value])
        ]
        yield f"{above}{key}", ", ".join(texts) or ("none" if isinstance(value, list) else "")


def published_section(runs: Sequence[Run], methods: Sequence[RunMethod]) -> dict[str, Any] | None:
    """Counts, caveats and every published cell; None if nothing like these runs was published.

    A block has the cells of a method by one metric, if any has a value of ours. The metric of KLs has no name.
    """
    compared = {run.name: compare(run.results) for run in runs}
    blocks: list[dict[str, Any]] = []
    for method in methods:
        by_metric: dict[str, list[PublishedCell]] = {}
        for cell in compared[method.run.name]:
            if cell.method == method.name:
                by_metric.setdefault("" if cell.row.is_kl else cell.row.metric, []).append(cell)
        for metric, cells in by_metric.items():
            if any(cell.mean is not None for cell in cells):
                series = ", ".join(dict.fromkeys(cell.row.series.strip("*") for cell in cells))
                head = Block(Name(method.label, method.index), metric, f"published as “{series}”")
                blocks.append({"entry": method, "metric": metric, "cells": cells, "head": head})
    if not blocks:
        return None
    having = [run for run in runs if compared[run.name]]

    def remarks(of: Callable[[Results], list[str]]) -> list[str]:
        """Remarks on runs, with the names of the runs unless all share a remark."""
        names = _grouped((text, run.name) for run in having for text in of(run.results))
        return [text if len(some) == len(having) else f"{listed(some)}: {text}" for text, some in names.items()]

    return {
        "totals": totals(cell for cells in compared.values() for cell in cells),
        "warnings": remarks(warnings_of),
        "grounds": remarks(grounds_of),
        "figures": [published_figure(block["entry"], block["cells"], block["metric"]) for block in blocks],
        "blocks": blocks,
        "table": published_table(
            [(block["head"], [cell for cell in block["cells"] if cell.mean is not None]) for block in blocks]
        ),
    }


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for text, name in pairs:
        names.setdefault(text, []).append(name)
    return names
