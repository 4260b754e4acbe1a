"""The page of `epibench score`: one HTML file that needs nothing else, made from the results alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from epibench.files import write_text
from epibench.report.class_tables import class_tables
from epibench.report.entries import Entry, clean, comparable, read_entries
from epibench.report.figures import (
    LARGE,
    SMALL,
    calibration_figures,
    curve_choices,
    metric_figure,
    reliability_figures,
    sparsification_figures,
)
from epibench.report.metric_info import metric_info
from epibench.report.numbers import count
from epibench.report.overlaps import overlap_warnings
from epibench.report.page import listed, render
from epibench.report.switches import Switch, switch_rules
from epibench.report.tables import all_members, metric_names, metric_tables
from epibench.report.verdicts import card, confidence_sentence, gain, headline_names, title_with_unit

KIND_TITLES = {"gaussian": "Regression", "categorical": "Classification"}
PIXEL_WORDS = (("masked", "masked"), ("ignored", "with the ignored label"), ("skipped", "skipped as invalid"))


def write_score_page(results: dict[str, Any], folder: Path) -> Path:
    """Writes `folder/score.html` in one step and returns its path."""
    path = folder / "score.html"
    write_text(path, render_score_page(results))
    return path


def render_score_page(results: dict[str, Any]) -> str:
    """The whole page as text."""
    results = clean(results)
    entries = read_entries(results)
    kinds = list(dict.fromkeys(entry.kind for entry in entries))
    sections = [
        _section(number, [entry for entry in entries if entry.kind == kind]) for number, kind in enumerate(kinds)
    ]
    return render(
        "score.html",
        ["page.css"],
        [rule for section in sections for rule in switch_rules(section["id"], [section["switch"]])],
        header=_header(results, entries),
        sections=sections,
    )


def _header(results: dict[str, Any], entries: Sequence[Entry]) -> dict[str, Any]:
    words = {None: "none", True: "yes", False: "no"}
    settings = {
        key: words[value] if value is None or isinstance(value, bool) else str(value)
        for key, value in (results.get("settings") or {}).items()
    }
    domains = list(dict.fromkeys(entry.domain for entry in entries if entry.domain))
    methods = list(dict.fromkeys(str(e.raw.get("method") or e.label) for e in entries))
    return {
        "title": listed(methods) if len(methods) <= 3 else f"{len(entries)} files",
        "domain": listed(domains),
        "convention": results.get("convention", ""),
        "epibench": results.get("epibench", ""),
        "draws": settings.get("draws", ""),
        "seed": settings.get("seed", ""),
        "plans": listed(list(dict.fromkeys(str(e.raw["plan"]) for e in entries if e.raw.get("plan")))),
        "pixels": listed(sorted({count((e.raw.get("pixels") or {}).get("valid")) for e in entries})),
        "settings": settings,
    }


def _section(number: int, entries: Sequence[Entry]) -> dict[str, Any]:
    """Everything the page shows about one kind of predictions."""
    kind, names, choices = entries[0].kind, metric_names(entries), curve_choices(entries)
    headlines = headline_names(entries)
    several = len(all_members(entries)) > 1
    together, panels = sparsification_figures(entries, choices)
    return {
        "id": f"kind{number}",
        "kind": kind,
        "title": KIND_TITLES.get(kind, kind),
        "files": [_file_facts(entry) for entry in entries],
        "entries": entries,
        "groups": [_comparison(group, headlines) for group in _ranked_groups(entries)],
        "headlines": [title_with_unit(metric_info(name), entries) for name in headlines],
        "several_members": several,
        "gains": [(entry, [gain(entry, name) for name in headlines]) for entry in entries] if several else [],
        "confidence": [(entry, text) for entry in entries if (text := confidence_sentence(entry))],
        "main_figures": [metric_figure(name, entries, LARGE) for name in headlines] if several else [],
        "more_figures": [metric_figure(name, entries, SMALL) for name in names if name not in headlines],
        "switch": Switch("m", "Curves at M =", choices),
        "sparsification": together,
        "sparsification_panels": panels,
        "calibration": calibration_figures(entries, choices),
        "reliability": reliability_figures(entries, choices),
        "tables": metric_tables(entries),
        "classes": class_tables(entries),
        "num_notes": len(overlap_warnings(entries)) + sum(len(e.raw.get("notes") or []) for e in entries),
        "overlaps": overlap_warnings(entries),
        "warnings": _comparison_warnings(entries),
    }


def _ranked_groups(entries: Sequence[Entry]) -> list[Sequence[Entry]]:
    """Groups to rank within; files that all differ in domain are shown side by side, without a rank."""
    groups = comparable(entries)
    if all(len(group) == 1 for group in groups) and len({entry.unit for entry in entries}) == 1:
        return [entries]
    return list(groups)


def _comparison(entries: Sequence[Entry], headlines: Sequence[str]) -> dict[str, Any]:
    place = " ".join(part for part in (entries[0].domain, f"in {entries[0].unit}" if entries[0].unit else "") if part)
    return {"title": place or "no domain given", "cards": [card(name, entries) for name in headlines]}


def _file_facts(entry: Entry) -> dict[str, Any]:
    raw, pixels = entry.raw, entry.raw.get("pixels") or {}
    facts = [f"{count(raw.get('num_members'))} members"]
    if raw.get("num_groups"):
        facts[0] += f" in {count(raw['num_groups'])} groups"
    facts.append(f"M = {_short_list(entry.members)}")
    facts.append(f"{count(pixels.get('valid'))} valid pixels")
    facts += [f"{count(pixels[key])} {words}" for key, words in PIXEL_WORDS if pixels.get(key)]
    facts.append(f"uncertainty: {raw.get('uncertainty') or 'not given'}")
    facts.append(f"sparsification {raw.get('sparsification') or 'not given'}")
    notes = raw.get("notes") or []
    return {"entry": entry, "path": raw.get("path", ""), "facts": facts, "notes": notes}


def _short_list(numbers: Sequence[int]) -> str:
    if len(numbers) > 8:
        return f"{numbers[0]}, {numbers[1]}, {numbers[2]} … {numbers[-1]} ({len(numbers)} sizes)"
    return ", ".join(map(str, numbers))


def _comparison_warnings(entries: Sequence[Entry]) -> list[str]:
    """What speaks against comparing the files of a kind."""
    warnings = []
    if len(comparable(entries)) > 1:
        warnings.append("The files differ in domain or unit: they are ranked only where they agree in both.")
    for group in comparable(entries):
        pixels = {count((entry.raw.get("pixels") or {}).get("valid")) for entry in group}
        if len(pixels) > 1:
            where = f" on {group[0].domain}" if group[0].domain else ""
            warnings.append(
                f"The files{where} were scored on different numbers of valid pixels ({', '.join(sorted(pixels))}): "
                "check that they hold the same targets before comparing them."
            )
    return warnings
