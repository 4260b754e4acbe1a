"""The page of `epibench run`: one HTML file that needs nothing else, made from the results of one run or several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from epibench.files import write_text
from epibench.report.dense_section import dense_section
from epibench.report.domains import domains_of
from epibench.report.kl_figures import kl_chart, kl_table, view_name
from epibench.report.kl_verdicts import verdict
from epibench.report.numbers import MISSING, count, duration, significant
from epibench.report.page import listed, render
from epibench.report.pictures import Pictures, pictures_of
from epibench.report.probability_map import colour_bar
from epibench.report.published_section import published_section
from epibench.report.run_metrics import metric_sections
from epibench.report.runs import (
    PROBLEMS,
    REGIONS,
    SWITCHES,
    VIEWS,
    Method,
    Run,
    View,
    by_problem,
    methods_of,
    read_runs,
)
from epibench.report.switches import switch_rules


def write_run_page(results: Sequence[dict[str, Any]], path: Path, names: Sequence[str] = ()) -> Path:
    """Writes the page of one run, or the page that compares several, in one step; returns its path.

    names: what tells runs of the same recipe apart, such as their folders; numbers if not given.
    """
    write_text(path, render_run_page(results, names))
    return path


def render_run_page(results: Sequence[dict[str, Any]], names: Sequence[str] = ()) -> str:
    """The whole page as text."""
    runs = read_runs(results, names)
    sections = [_section(number, group) for number, group in enumerate(by_problem(runs))]
    return render(
        "run.html",
        ["page.css", "run.css", *(["dense.css"] if any(section["dense"] for section in sections) else [])],
        [rule for section in sections for rule in section["rules"]],
        title=listed([run.name for run in runs]) if len(runs) <= 3 else f"{len(runs)} runs",
        facts=_facts(runs[0]) if len(runs) == 1 else [],
        sections=sections,
        runs=[_run_facts(run) for run in runs],
        colour_bar=colour_bar() if any(run.kind == "categorical" for run in runs) else "",
    )


def _section(number: int, runs: Sequence[Run]) -> dict[str, Any]:
    """Everything the page shows about one problem."""
    identity, methods = f"problem{number}", methods_of(runs)
    pictures, dense = _pictures(runs, methods, identity), dense_section(runs, methods, identity)
    has_kl = any(method.members(VIEWS[0]) for method in methods)
    rules = [*(switch_rules(f"{identity}-kl", SWITCHES) if has_kl else []), *(dense["rules"] if dense else [])]
    for one in pictures:
        rules += switch_rules(one.identity, [one.switch])
    return {
        "id": identity,
        "title": PROBLEMS.get(runs[0].problem, runs[0].problem),
        "kind": runs[0].kind,
        "runs": [run.name for run in runs if run.name != run.problem],
        "entries": methods,
        "switches": SWITCHES,
        "views": [_view(methods, view) for view in VIEWS] if has_kl else [],
        "lacks_reference": not has_kl and not dense,
        "dense": dense,
        "warnings": _comparison_warnings(runs),
        "failed": _failed(runs, methods),
        "pictures": pictures,
        "published": published_section(runs, methods),
        "domains": [] if dense else metric_sections(methods),
        "references": [] if dense else [_reference(run) for run in _distinct_references(runs)],
        "methods": [_method_facts(method) for method in methods],
        "notes": _notes(methods),
        "rules": rules,
    }


def _pictures(runs: Sequence[Run], methods: Sequence[Method], identity: str) -> list[Pictures]:
    found = [
        pictures_of(run, [method for method in methods if method.run is run], f"{identity}-pictures{number}")
        for number, run in enumerate(runs)
    ]
    return [one for one in found if one is not None]


def _view(methods: Sequence[Method], view: View) -> dict[str, Any]:
    return {
        "key": view.key,
        "name": view_name(view),
        "chosen": view == VIEWS[0],
        "chart": kl_chart(methods, view),
        "verdict": verdict(methods, view),
        "table": kl_table(methods, view),
    }


def _trained_on(run: Run) -> str:
    """The training data of a run: of problems with images, beside the domains; of toy problems, all the data."""
    data = run.part("recipe").get("data")
    if isinstance(data, dict) and "train" in data:
        return str(data["train"])
    return str([data, run.part("recipe").get("train")])


def _comparison_warnings(runs: Sequence[Run]) -> list[str]:
    """What speaks against comparing runs of a problem."""
    warnings = []
    if len({_trained_on(run) for run in runs}) > 1:
        warnings.append(
            "The runs were trained on different data: part of every difference between them is due to that."
        )
    if len({str(run.part("reference").get("path")) for run in runs}) > 1:
        warnings.append("The runs were compared with different references: their KLs do not share one scale.")
    return warnings


def _distinct_references(runs: Sequence[Run]) -> list[Run]:
    """Of the runs that share a reference, the first."""
    return list({str(run.part("reference")): run for run in reversed(runs)}.values())[::-1]


def _reference(run: Run) -> dict[str, Any]:
    reference = run.part("reference")
    about = reference.get("about") if isinstance(reference.get("about"), dict) else {}
    return {
        "run": run.name,
        "path": str(reference.get("path") or ""),
        "floors": _floor_rows(run),
        "regions": list(REGIONS.values()),
        "command": str((about or {}).get("command") or ""),
        "about": [(key, value) for key, value in flattened(about or {}) if key != "command"],
        "notes": [str(note) for note in reference.get("notes") or []],
    }


def _floor_rows(run: Run) -> list[tuple[str, list[str]]]:
    """The noise floor in every convention and direction, over both regions; empty where none is known."""
    rows = []
    for view in VIEWS:
        if view.region != next(iter(REGIONS)):
            continue
        floors = [run.floor(View(view.convention, view.direction, region)) for region in REGIONS]
        if any(floor is not None for floor in floors):
            name = view_name(view).replace(f", {REGIONS[view.region]}", "")
            rows.append((name, [significant(floor, 2) for floor in floors]))
    return rows


def _method_facts(method: Method) -> dict[str, Any]:
    about, cost = method.about, method.run.part("cost").get(method.name) or {}
    return {
        "entry": method,
        "pool": count(about.get("num_members")),
        "networks": count(about.get("num_networks")),
        "plan": str(about.get("plan") or MISSING),
        "parameters": count(cost.get("parameters")),
        "train": duration(cost.get("train_seconds")),
        "predict": duration(cost.get("predict_seconds")),
    }


def _failed(runs: Sequence[Run], methods: Sequence[Method]) -> list[str]:
    """What could not be run, and why."""
    labels = {(method.run.name, method.name): method.label for method in methods}
    return [
        f"{labels.get((run.name, name), name)} failed: {reason}"
        for run in runs
        for name, reason in run.part("failed").items()
    ]


def _notes(methods: Sequence[Method]) -> list[tuple[str, str]]:
    """What runs note on their methods, with the names of all that share a note."""
    labels: dict[str, list[str]] = {}
    for method in methods:
        for note in method.about.get("notes") or []:
            labels.setdefault(str(note), []).append(method.label)
    return [(listed(names), note) for note, names in labels.items()]


def _facts(run: Run) -> list[tuple[str, str]]:
    """What stands below the title of a page about one run."""
    recipe = run.part("recipe")
    labels = [method.label for method in methods_of([run])]
    members = [str(m) for m in recipe.get("members") or []]
    facts = [
        ("Methods", listed(labels)),
        ("M", ", ".join(members)),
        ("Seed", str(recipe.get("seed", ""))),
        ("Time", duration(run.results.get("seconds")).replace(MISSING, "")),
        ("Device", str(run.results.get("device") or "")),
        ("Made", str(run.results.get("created") or "")[:10]),
        ("Evaluated on", " · ".join(domain.label for domain in domains_of([run]))),
    ]
    return [(name, value) for name, value in facts if value]


def _run_facts(run: Run) -> dict[str, Any]:
    """All settings and versions of a run."""
    versions = [(key, run.results.get(key)) for key in ("epibench", "commit", "torch", "python", "device", "created")]
    versions.append(("time", duration(run.results.get("seconds"))))
    return {
        "name": run.name,
        "versions": [(key, str(value)) for key, value in versions if value and value != MISSING],
        "settings": list(flattened(run.part("recipe"))),
    }


def flattened(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Settings as dotted keys with their values as text; empty groups are left out."""
    for key, value in tree.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping):
            yield from flattened(value, f"{name}.")
        elif isinstance(value, list):
            yield name, ", ".join(_plain(item) for item in value) or "none"
        else:
            yield name, _plain(value)


def _plain(value: Any) -> str:
    """A value as text: numbers short, truth and nothing as words."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return f"{value:.6g}" if isinstance(value, float) else str(value)
