"""The page of results: one HTML file that needs no other, for runs, evaluations and stored predictions together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from epibench.files import write_text
from epibench.published import PublishedCell, compare, grounds_of, totals, warnings_of
from epibench.report.cost_section import cost_table
from epibench.report.curve_figures import curve_switch
from epibench.report.dense_section import dense_section, metric_section
from epibench.report.entries import title_with_unit
from epibench.report.figures import kl_chart, published_figure
from epibench.report.numbers import (
    MISSING,
    count,
    duration,
    listed,
    m_equals,
    significant,
)
from epibench.report.page import render, switch_rules
from epibench.report.pictures.toy import probability_bar, toy_book
from epibench.report.published_tables import published_table
from epibench.report.runs import (
    REGIONS,
    SWITCHES,
    VIEWS,
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
STANDINGS = {
    "rank": "Rank",
    "value": "KL ± std",
    "error": "Standard error",
    "floors": "In noise floors",
    "gap": "Behind the closest by",
    "gap_errors": "in standard errors",
    "gap_floors": "in noise floors",
    "gain_up_to": "Gain up to M",
}
FIRST_METRICS = {
    "gaussian": ("nll", "auce", "ause", "rmse"),
    "categorical": ("nll", "ece", "ause", "accuracy"),
    "ranking": ("ause", "rmse", "accuracy"),
}


def write_run_page(results: Sequence[Results], path: Path, names: Sequence[str] = ()) -> Path:
    """Writes the page of one run, or the page that compares several, in one step; returns its path.

    names: what tells runs of the same recipe apart, such as their folders; numbers if not given.
    """
    write_text(path, render_run_page(results, names))
    return path


def render_run_page(results: Sequence[Results], names: Sequence[str] = ()) -> str:
    """The whole page as text."""
    runs = read_runs(results, names)
    sections = [_section(number, group) for number, group in enumerate(by_problem(runs))]
    given = all("models" in run.results.recipe for run in runs)  # and nothing was trained
    stored = all(run.stored for run in runs)
    names = list(dict.fromkeys(name for run in runs for name in (run.methods if stored else [run.name])))
    return render(
        "run.html",
        ["page.css", "run.css", *(["dense.css"] if any(section["dense"] for section in sections) else [])],
        [rule for section in sections for rule in section["rules"]],
        title=listed(names) if len(names) <= 3 else f"{len(names)} {'methods' if stored else 'runs'}",
        command="epibench score" if stored else "epibench evaluate" if given else "epibench run",
        facts=_facts(runs) if len({id(run.results) for run in runs}) == 1 else [],
        sections=sections,
        runs=[_run_facts(run) for run in {id(run.results): run for run in runs}.values()],
        conventions=sorted({run.results.convention for run in runs}, reverse=True),
        colour_bar=probability_bar() if any(run.kind == "categorical" for run in runs) else "",
    )


def _section(number: int, runs: Sequence[Run]) -> dict[str, Any]:
    """Everything the page shows about one problem."""
    identity, methods = f"problem{number}", methods_of(runs)
    own = {run.name: [method for method in methods if method.run is run] for run in runs}
    books = [toy_book(run, own[run.name], f"{identity}-pictures{i}") for i, run in enumerate(runs)]
    pictures = [book for book in books if book is not None]
    dense = dense_section(runs, methods, identity)
    domains = domains_of(runs)
    has_kl = bool(kl_entries(methods, VIEWS[0]))
    regions = [] if domains else _test_data(methods, identity)
    rules = [*(switch_rules(f"{identity}-kl", SWITCHES) if has_kl else []), *(dense["rules"] if dense else [])]
    for region in regions:
        rules += switch_rules(region["id"], [region["switch"]]) if region["curves"] else []
    for book in pictures:
        rules += switch_rules(book["identity"], [book["switch"]])
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
        "pictures": pictures,
        "published": published_section(runs, methods),
        "domains": regions,
        "references": [_reference(run) for run in distinct_references(runs)] if methods and not domains else [],
        "costs": [] if all(run.stored for run in runs) else cost_table(methods),
        "notes": _notes(methods),
        "stored": _stored(methods),
        "evaluations": _evaluations(runs),
        "rules": rules,
    }


def failures(runs: Sequence[Run]) -> list[str]:
    """What could not be run, and why."""
    return [
        f"{facts.label if (facts := run.results.methods.get(name)) else name} failed: {reason}"
        for run in runs
        for name, reason in run.results.failed.items()
    ]


def nothing_to_show(runs: Sequence[Run]) -> str:
    """The reason why a page has no answer, e.g. that every method failed."""
    if all(run.results.failed and not set(run.methods) - set(run.results.failed) for run in runs):
        return "No method was finished, so there are no numbers."
    if domains_of(runs):
        return "No method was scored on any domain."
    return "There is no KL, as there was no reference to compare with."


def _view(methods: Sequence[RunMethod], view: View) -> dict[str, Any]:
    entries, columns = kl_entries(methods, view), [Column(Name(title)) for title in STANDINGS.values()]
    found = kl_verdict(entries)
    standings = [
        Row(Name(one["entry"].label, one["entry"].index), [Cell(one[key]) for key in STANDINGS], one["verdict"])
        for one in found["standings"]
    ]
    return {
        "key": view.key,
        "name": view.name,
        "chosen": view == VIEWS[0],
        "chart": kl_chart(entries, view, distinct_floors(methods, view)),
        "verdict": found,
        "standings": Table("Ranks", columns, [Block(rows=standings)], found["where"]) if standings else None,
        "table": kl_table(view.name, entries, "noise floor"),
    }


def distinct_floors(methods: Sequence[RunMethod], view: View) -> list[tuple[float, str]]:
    """The noise floors of the runs, each once, with its name; runs are named where they differ."""
    runs: dict[float, str] = {}
    for method in methods:
        floor = method.run.floor(view)
        if floor:
            runs.setdefault(floor, method.run.name)
    several = len(runs) > 1
    return [
        (floor, f"noise floor {significant(floor, 2)}{f' ({name})' if several else ''}") for floor, name in runs.items()
    ]


def _test_data(methods: Sequence[RunMethod], identity: str) -> list[dict[str, Any]]:
    """Figures and tables for each region of a toy problem that any method was tested on."""
    regions = {name: entries for name in REGION_TITLES if (entries := entries_on(methods, name))}
    one_run = len({method.run.name for method in methods}) == 1
    sections = []
    for number, (name, entries) in enumerate(regions.items()):
        title, switch = REGION_TITLES.get(name, f"On {name}"), curve_switch(entries)
        choices = switch.options if one_run else []
        section = metric_section(title, entries, choices, FIRST_METRICS[entries[0].kind])
        sections.append({**section, "id": f"{identity}-region{number}", "switch": switch})
    return sections


def _comparison_warnings(runs: Sequence[Run]) -> list[str]:
    """What speaks against comparing runs of a problem."""
    warnings = []
    if any(run.stored for run in runs) and not all(run.stored for run in runs):
        scored = listed([run.name for run in runs if run.stored])
        warnings.append(f"{scored}: predictions from elsewhere; what their methods were trained on is not known here.")
    warnings += [warning for run in runs if run.stored for warning in _pixel_warnings(run)]
    if len({_trained_on(run) for run in runs if not run.stored}) > 1:
        warnings.append(
            "The runs were trained on different data: part of every difference between them is due to that."
        )
    if len({run.results.reference.path if run.results.reference else None for run in runs}) > 1:
        warnings.append("The runs were compared with different references: their KLs do not share one scale.")
    if len({run.results.convention for run in runs}) > 1:
        warnings.append("The runs follow different conventions: values of one metric do not share one scale.")
    return warnings


def _pixel_warnings(run: Run) -> list[str]:
    """That stored predictions on one domain were scored on different numbers of targets."""
    warnings = []
    for domain in run.domains.values():
        scores = [score for score in run.scores if run.domains[score.domain] is domain]
        numbers = sorted({count(score.pixels.valid) for score in scores})
        if len(numbers) > 1:
            warnings.append(
                f"The files on {domain.label} were scored on different numbers of valid {scores[0].counted} "
                f"({', '.join(numbers)}): check that they hold the same targets before comparing them."
            )
    return warnings


def _trained_on(run: Run) -> str:
    """The training data of a run: of problems with images, beside the domains; of toy problems, all the data."""
    data = run.results.recipe.get("data")
    if isinstance(data, dict) and "train" in data:
        return str(data["train"])
    return str([data, run.results.recipe.get("train")])


def _reference(run: Run) -> dict[str, Any]:
    reference = run.results.reference
    about = reference.about if reference else {}
    return {
        "run": run.name,
        "path": (reference.path if reference else "") or "",
        "floors": _floor_rows(run),
        "regions": list(REGIONS.values()),
        "command": str(about.get("command") or ""),
        "about": [(key, value) for key, value in flattened(about) if key != "command"],
        "notes": reference.notes if reference else [],
    }


def _floor_rows(run: Run) -> list[tuple[str, list[str]]]:
    """The noise floor in every convention and direction, over both regions; empty where none is known."""
    rows = []
    first = next(iter(REGIONS))
    for view in VIEWS:
        floors = [run.floor(View(view.convention, view.direction, region)) for region in REGIONS]
        if view.region == first and any(floor is not None for floor in floors):
            name = view.name.replace(f", {REGIONS[first]}", "")
            rows.append((name, [significant(floor, 2) for floor in floors]))
    return rows


def _notes(methods: Sequence[RunMethod]) -> list[tuple[str, str]]:
    """What runs note on their methods, with the names of all that share a note."""
    labels: dict[str, list[str]] = {}
    for method in methods:
        for note in () if method.run.stored else method.facts.notes:
            labels.setdefault(note, []).append(method.label)
    return [(listed(names), note) for note, names in labels.items()]


def _stored(methods: Sequence[RunMethod]) -> list[dict[str, Any]]:
    """The files of stored predictions: path, members, pixels, uncertainty and notes of each."""
    files = []
    pairs = [(one, score) for one in methods if one.run.stored for score in one.run.scores if score.method == one.name]
    for method, score in pairs:
        sizes, pixels, pool = sorted(score.summary), score.pixels, score.pool
        shown = sizes if len(sizes) <= 8 else [*sizes[:3], "…", f"{sizes[-1]} ({len(sizes)} sizes)"]
        dropped = {"masked": pixels.masked, "with the ignored label": pixels.ignored, "skipped": pixels.skipped}
        facts = [
            method.run.domains[score.domain].label,
            f"{count(pool.num_members)} members" + (f" in {count(pool.num_groups)} groups" if pool.num_groups else ""),
            f"M = {', '.join(map(str, shown))}",
            f"draws: {pool.plan}",
            f"{count(pixels.valid)} valid {score.counted}",
            *(f"{count(number)} {words}" for words, number in dropped.items() if number),
            f"uncertainty: {score.settings.get('uncertainty')}",
        ]
        files.append({"entry": method, "path": score.source, "facts": facts, "notes": score.notes})
    return files


def _evaluations(runs: Sequence[Run]) -> list[Table]:
    """A table for each run with older evaluations and each headline metric: the newest beside the others."""
    tables = []
    for run in runs:
        evaluations = [run, *older_runs([run])]
        by_evaluation = [{method.name: method for method in methods_of([one])} for one in evaluations]
        methods = {name: method for found in by_evaluation for name, method in found.items()} | by_evaluation[0]
        domains = domains_of(evaluations) if len(evaluations) > 1 else []
        entries = {
            (name, domain.name): [found[name].on(domain.name) if name in found else None for found in by_evaluation]
            for domain in domains
            for name in methods
        }
        everywhere = [entry for of_row in entries.values() for entry in of_row if entry and entry.members]
        labels = ["newest", *(one.evaluation for one in evaluations[1:])]
        for metric in headline_names(everywhere):
            blocks = []
            for domain in domains:
                rows = []
                for name, method in methods.items():
                    of_row = [entry if entry and entry.members else None for entry in entries[name, domain.name]]
                    sizes = {entry.members[-1] for entry in of_row if entry}
                    cells = []
                    for entry in of_row:
                        note = m_equals(entry.members[-1]) if entry and len(sizes) > 1 else ""
                        cells.append(
                            Cell(*entry.texts(metric, entry.members[-1]), note=note) if entry else Cell(MISSING)
                        )
                    remark = m_equals(min(sizes)) if len(sizes) == 1 else ""
                    rows += [Row(Name(method.label, method.index), cells, remark)] if sizes else []
                blocks += [Block(Name(domain.label), rows=rows)] if rows else []
            title = title_with_unit(metric, everywhere) + (f", {run.name}" if len(runs) > 1 else "")
            tables.append(Table(title, [Column(Name(label), points=True) for label in labels], blocks))
    return tables


def _facts(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """What stands below the title of a page about one file of results."""
    results = runs[0].results
    recipe, scores = results.recipe, [score for run in runs for score in run.scores if run.stored]
    settings = recipe.get("stored") or recipe
    targets = sorted({f"{count(score.pixels.valid)} {score.counted}" for score in scores})
    facts = [
        ("Methods", listed([method.label for run in runs for method in methods_of([run])])),
        ("Valid", listed(targets)),
        ("M", ", ".join(str(m) for m in settings.get("members") or [])),
        ("Draws", f"up to {settings['draws']} per M" if scores and settings.get("draws") else ""),
        ("Seed", str(settings.get("seed", ""))),
        ("Time", duration(results.seconds) if results.seconds else ""),
        ("Device", results.device),
        ("Made", results.created[:10]),
        ("Evaluated on", " · ".join(domain.label for domain in domains_of(runs))),
        ("Convention", results.convention if scores or results.convention != "pooled" else ""),
    ]
    return [(name, value) for name, value in facts if value]


def _run_facts(run: Run) -> dict[str, Any]:
    """All settings and versions of a run."""
    versions = [
        (key, getattr(run.results, key)) for key in ("epibench", "commit", "torch", "python", "device", "created")
    ]
    versions.append(("time", duration(run.results.seconds) if run.results.seconds else ""))
    return {
        "name": run.name,
        "versions": [(key, value) for key, value in versions if value],
        "settings": list(flattened(run.results.recipe)),
    }


def flattened(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Settings as dotted keys with their values as text; empty groups are left out."""
    for key, value in tree.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping):
            yield from flattened(value, f"{name}.")
        elif isinstance(value, list):
            yield name, ", ".join(plain(item) for item in value) or "none"
        else:
            yield name, plain(value)


def plain(value: Any) -> str:
    """A setting as text: numbers short, truth and nothing as words."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def published_section(runs: Sequence[Run], methods: Sequence[RunMethod]) -> dict[str, Any] | None:
    """Counts, caveats and every published cell; None where the paper shows nothing like these runs."""
    compared = {run.name: compare(run.results) for run in runs}
    blocks = [block for method in methods for block in _published_blocks(method, compared[method.run.name])]
    rows = [(block["head"], [cell for cell in block["cells"] if cell.mean is not None]) for block in blocks]
    if not blocks:
        return None
    having = [run for run in runs if compared[run.name]]
    return {
        "totals": totals(cell for cells in compared.values() for cell in cells),
        "warnings": _said_of(warnings_of, having),
        "grounds": _said_of(grounds_of, having),
        "figures": [published_figure(block["entry"], block["cells"], block["metric"]) for block in blocks],
        "blocks": blocks,
        "table": published_table(rows),
    }


def _published_blocks(method: RunMethod, cells: Sequence[PublishedCell]) -> list[dict[str, Any]]:
    """A method's cells by metric, where ours has any value; KLs go without the name of their metric."""
    by_metric: dict[str, list[PublishedCell]] = {}
    for cell in cells:
        if cell.method == method.name:
            by_metric.setdefault("" if cell.row.is_kl else cell.row.metric, []).append(cell)
    blocks = []
    for metric, of_metric in by_metric.items():
        if any(cell.mean is not None for cell in of_metric):
            series = ", ".join(dict.fromkeys(cell.row.series.strip("*") for cell in of_metric))
            head = Block(Name(method.label, method.index), metric, f"published as “{series}”")
            blocks.append({"entry": method, "metric": metric, "cells": of_metric, "head": head})
    return blocks


def _said_of(say: Callable[[Results], list[str]], runs: Sequence[Run]) -> list[str]:
    """The remarks on runs, with the names of the runs where not all share a remark."""
    names: dict[str, list[str]] = {}
    for run in runs:
        for text in say(run.results):
            names.setdefault(text, []).append(run.name)
    return [text if len(of_text) == len(runs) else f"{listed(of_text)}: {text}" for text, of_text in names.items()]
