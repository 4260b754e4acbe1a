"""Metrics of a run on fresh test data, for each domain, shown as the page of a score shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from epibench.report.class_tables import class_tables
from epibench.report.domains import Domain, entries_on
from epibench.report.entries import Entry
from epibench.report.figures import (
    FOURTH,
    LARGE,
    PANEL,
    SMALL,
    calibration_figures,
    curve_choices,
    metric_figure,
    reliability_figures,
    sparsification_figures,
)
from epibench.report.metric_info import HEADLINES
from epibench.report.runs import Method
from epibench.report.tables import metric_names, metric_tables

TITLES = {"inside": "Inside the training region", "outside": "Outside the training region"}
FIRST = {"gaussian": ("nll", "auce", "ause", "rmse"), "categorical": ("nll", "ece", "ause", "accuracy")}

SIZES = ((LARGE, PANEL), (FOURTH, FOURTH))  # beside reliability diagrams, or three of calibration and one in a row

Size = tuple[float, float]


def metric_sections(methods: Sequence[Method]) -> list[dict[str, Any]]:
    """Figures and tables for each region of a toy problem that any method was tested on."""
    summaries = [method.run.part("summary").get(method.name) for method in methods]
    names = dict.fromkeys(name for summary in summaries if isinstance(summary, dict) for name in summary)
    found = {name: entries for name in names if (entries := entries_on(methods, name))}
    curves = _from_one_run(methods)
    return [_section(TITLES.get(name, f"On {name}"), entries, curves, FIRST) for name, entries in found.items()]


def domain_section(domain: Domain, methods: Sequence[Method]) -> dict[str, Any]:
    """Figures and tables for a domain of a dense problem; the headline metrics have charts of their own."""
    entries = entries_on(methods, domain.name)
    found = _section(domain.label, entries, _from_one_run(methods), HEADLINES, SIZES[entries[0].kind == "gaussian"])
    return {**found, "domain": domain, "classes": class_tables(entries)}


def _from_one_run(methods: Sequence[Method]) -> bool:
    """Whether there is room for curves: those of several runs would hide one another."""
    return len({method.run.name for method in methods}) == 1


def _section(
    title: str,
    entries: Sequence[Entry],
    with_curves: bool,
    main: Mapping[str, Sequence[str]],
    sizes: tuple[Size, Size] = (LARGE, PANEL),
) -> dict[str, Any]:
    """sizes: of the charts of calibration and of sparsification."""
    names = metric_names(entries)
    first = [name for name in main.get(entries[0].kind, ()) if name in names]
    choices = [option for option in curve_choices(entries) if option.chosen] if with_curves else []
    together, panels = sparsification_figures(entries, choices, sizes[1]) if with_curves else ([], [])
    return {
        "title": title,
        "entries": entries,
        "main_figures": [metric_figure(name, entries, SMALL) for name in first],
        "more_figures": [metric_figure(name, entries, SMALL) for name in names if name not in first],
        "curves": [*calibration_figures(entries, choices, sizes[0]), *together] if with_curves else [],
        "panels": panels,
        "reliability": reliability_figures(entries, choices) if with_curves else [],
        "m": choices[0].text if choices else "",
        "tables": metric_tables(entries),
    }
