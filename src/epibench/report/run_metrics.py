"""Metrics of a run on fresh test data, for each domain, shown as the page of a score shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from epibench.report.entries import Entry
from epibench.report.figures import (
    SMALL,
    calibration_figures,
    curve_choices,
    metric_figure,
    reliability_figures,
    sparsification_figures,
)
from epibench.report.runs import Method
from epibench.report.tables import metric_names, metric_tables

TITLES = {"inside": "Inside the training region", "outside": "Outside the training region"}
FIRST = {"gaussian": ("nll", "auce", "ause", "rmse"), "categorical": ("nll", "ece", "ause", "accuracy")}


def metric_sections(methods: Sequence[Method]) -> list[dict[str, Any]]:
    """Figures and tables for each domain that any method was tested on; curves where there is one run only."""
    with_curves = len({method.run.name for method in methods}) == 1  # those of several runs would hide one another
    domains = dict.fromkeys(domain for method in methods for domain in _summary(method))
    return [
        _section(domain, [_entry(method, domain) for method in methods if _summary(method).get(domain)], with_curves)
        for domain in domains
    ]


def _summary(method: Method) -> dict[str, Any]:
    found = method.run.part("summary").get(method.name)
    return found if isinstance(found, dict) else {}


def _entry(method: Method, domain: str) -> Entry:
    """A method on one domain, as figures and tables want it; the domain is said once, above them."""
    curves = (method.run.part("curves").get(method.name) or {}).get(domain) or {}
    return Entry(method.index, method.label, method.run.kind, _summary(method)[domain], curves)


def _section(domain: str, entries: Sequence[Entry], with_curves: bool) -> dict[str, Any]:
    names = metric_names(entries)
    first = [name for name in FIRST.get(entries[0].kind, ()) if name in names]
    choices = [option for option in curve_choices(entries) if option.chosen] if with_curves else []
    together, _ = sparsification_figures(entries, choices) if with_curves else ([], [])
    return {
        "title": TITLES.get(domain, f"On {domain}"),
        "entries": entries,
        "main_figures": [metric_figure(name, entries, SMALL) for name in first],
        "more_figures": [metric_figure(name, entries, SMALL) for name in names if name not in first],
        "curves": [*calibration_figures(entries, choices), *together] if with_curves else [],
        "reliability": reliability_figures(entries, choices) if with_curves else [],
        "m": choices[0].text if choices else "",
        "tables": metric_tables(entries),
    }
