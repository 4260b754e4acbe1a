"""The page of `epibench score`: one HTML file that needs nothing else, made from the results alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from epibench.files import write_text
from epibench.report.class_section import class_tables
from epibench.report.curve_figures import curve_parts, curve_switch
from epibench.report.dense_section import dense_section, picture_books
from epibench.report.entries import (
    Entry,
    all_members,
    comparable,
    counted_in,
    metric_names,
    overlap_warnings,
    scored_entries,
    title_with_unit,
)
from epibench.report.figures import LARGE, SMALL, metric_figure
from epibench.report.numbers import count, listed
from epibench.report.page import render, switch_rules
from epibench.report.run_page import plain
from epibench.report.runs import Run, domains_of, headline_names, methods_of, read_runs
from epibench.report.scored import as_runs
from epibench.report.tables import gain_table, metric_tables
from epibench.report.verdicts import cards, confidence_sentence, member_gains
from epibench.results import FileResults, ScoreResults

KIND_TITLES = {"gaussian": "Regression", "categorical": "Classification", "ranking": "Ranking alone"}
PIXEL_WORDS = (("masked", "masked"), ("ignored", "with the ignored label"), ("skipped", "skipped as invalid"))


def write_score_page(results: ScoreResults, folder: Path) -> Path:
    """Writes `folder/score.html` in one step and returns its path."""
    path = folder / "score.html"
    write_text(path, render_score_page(results))
    return path


def render_score_page(results: ScoreResults) -> str:
    """The whole page as text."""
    entries = scored_entries(results)
    kinds = list(dict.fromkeys(entry.kind for entry in entries))
    runs = read_runs(as_runs(results))
    sections = [
        _section(number, [entry for entry in entries if entry.kind == kind])
        | _as_dense(f"kind{number}", [run for run in runs if run.results.kind == kind], results.in_domain)
        for number, kind in enumerate(kinds)
    ]
    more_styles = ["run.css", "dense.css"] if any(section["dense"] or section["books"] for section in sections) else []
    return render(
        "score.html",
        ["page.css", *more_styles],
        [
            rule
            for section in sections
            for rule in (*switch_rules(section["id"], [section["switch"]]), *section["rules"])
        ],
        header=_header(results, entries),
        sections=sections,
    )


def _header(results: ScoreResults, entries: Sequence[Entry]) -> dict[str, Any]:
    settings = {key: plain(value) for key, value in results.settings.items()}
    methods = list(dict.fromkeys(file.method or Path(file.path).stem for file in results.files))
    return {
        "title": listed(methods) if len(methods) <= 3 else f"{len(results.files)} files",
        "domain": listed(list(dict.fromkeys(file.domain for file in results.files if file.domain))),
        "convention": results.convention,
        "epibench": results.epibench,
        "draws": settings.get("draws", ""),
        "seed": settings.get("seed", ""),
        "plans": listed(list(dict.fromkeys(file.plan for file in results.files))),
        "counted": counted_in(entries),
        "pixels": listed(sorted({count(file.pixels.valid) for file in results.files})),
        "settings": settings,
    }


def _section(number: int, entries: Sequence[Entry]) -> dict[str, Any]:
    """Everything the page shows about one kind of predictions."""
    kind, names, switch = entries[0].kind, metric_names(entries), curve_switch(entries)
    headlines, overlaps = headline_names(entries), overlap_warnings(entries)
    several = len(all_members(entries)) > 1
    files = [_file_facts(entry, entry.file) for entry in entries if entry.file]
    return {
        "id": f"kind{number}",
        "kind": kind,
        "counted": counted_in(entries),
        "title": KIND_TITLES[kind],
        "files": files,
        "entries": entries,
        "groups": [
            {"title": _group_title(group), "cards": cards(headlines, group)} for group in _ranked_groups(entries)
        ],
        "several_members": several,
        "gains": gain_table(
            "What more members bought",
            [title_with_unit(name, entries) for name in headlines],
            [("", member_gains(entries, headlines))],
        ),
        "confidence": [(entry, text) for entry in entries if (text := confidence_sentence(entry))],
        "main_figures": [metric_figure(name, entries, LARGE) for name in headlines] if several else [],
        "more_figures": [metric_figure(name, entries, SMALL) for name in names if name not in headlines],
        "switch": switch,
        "curves": curve_parts(entries, switch.options),
        "tables": metric_tables(entries),
        "classes": class_tables(entries),
        "num_notes": len(overlaps) + sum(len(file["notes"]) for file in files),
        "overlaps": overlaps,
        "warnings": _comparison_warnings(entries),
    }


def _as_dense(identity: str, runs: Sequence[Run], in_domain: str | None) -> dict[str, Any]:
    """In-domain against shifted as on the page of a run, where it is known which is which; pictures, if any."""
    methods = methods_of(runs)
    dense = dense_section(runs, methods, identity) if in_domain is not None else None
    if dense is not None:  # it warns itself, and ranks by domain anyway
        books = [*dense["books"], *dense["other_books"]]
        return {"dense": dense, "rules": dense["rules"], "warnings": [], "books": books}
    books = [
        book
        for number, run in enumerate(runs)
        for book in picture_books(run, methods, domains_of([run]), f"{identity}-pictures{number}")
    ]
    rules = [rule for book in books for rule in switch_rules(book["identity"], [book["switch"]])]
    return {"dense": None, "rules": rules, "books": books}


def _ranked_groups(entries: Sequence[Entry]) -> list[Sequence[Entry]]:
    """Groups to rank within; files that all differ in domain are shown side by side, without a rank."""
    groups = comparable(entries)
    if all(len(group) == 1 for group in groups) and len({entry.unit for entry in entries}) == 1:
        return [entries]
    return list(groups)


def _group_title(entries: Sequence[Entry]) -> str:
    unit = f"in {entries[0].unit}" if entries[0].unit else ""
    return " ".join(part for part in (entries[0].domain, unit) if part) or "no domain given"


def _file_facts(entry: Entry, file: FileResults) -> dict[str, Any]:
    groups = f" in {count(file.num_groups)} groups" if file.num_groups else ""
    dropped = [(getattr(file.pixels, name), words) for name, words in PIXEL_WORDS]
    facts = [
        f"{count(file.num_members)} members{groups}",
        f"M = {_short_list(entry.members)}",
        f"{count(file.pixels.valid)} valid {file.counted}",
        *(
            [f"{'targets' if len(file.target_names) > 1 else 'target'}: {listed(file.target_names)}"]
            if file.target_names
            else []
        ),
        *(f"{count(number)} {words}" for number, words in dropped if number),
        f"uncertainty: {file.uncertainty}",
        f"sparsification {file.sparsification}",
    ]
    return {"entry": entry, "path": file.path, "facts": facts, "notes": file.notes}


def _short_list(numbers: Sequence[int]) -> str:
    if len(numbers) > 8:
        return f"{numbers[0]}, {numbers[1]}, {numbers[2]} … {numbers[-1]} ({len(numbers)} sizes)"
    return ", ".join(map(str, numbers))


def _comparison_warnings(entries: Sequence[Entry]) -> list[str]:
    """What speaks against comparing the files of a kind."""
    groups = comparable(entries)
    warnings = []
    if len(groups) > 1:
        warnings.append("The files differ in domain or unit: they are ranked only where they agree in both.")
    for group in groups:
        pixels = {count(entry.file.pixels.valid) for entry in group if entry.file}
        if len(pixels) > 1:
            where = f" on {group[0].domain}" if group[0].domain else ""
            numbers = f"valid {counted_in(group)} ({', '.join(sorted(pixels))})"
            warnings.append(
                f"The files{where} were scored on different numbers of {numbers}: "
                "check that they hold the same targets before comparing them."
            )
    return warnings
