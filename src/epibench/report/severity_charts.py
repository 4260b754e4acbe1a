"""Metrics against the severity of the shift, with few members and with many."""

from __future__ import annotations

from collections.abc import Sequence

from epibench.report.charts import Decor, Layer, Series, line_chart
from epibench.report.domain_verdicts import compared_at
from epibench.report.domains import Domain, entries_on
from epibench.report.entries import Entry
from epibench.report.figures import LARGE, Figure, band_ends
from epibench.report.metric_info import BETTER_TEXT, metric_info
from epibench.report.numbers import m_equals, measured
from epibench.report.runs import Method
from epibench.report.svg import Axis, nice_axis
from epibench.report.verdicts import title_with_unit

LEAST_SEVERITIES = 3


def severity_figures(domains: Sequence[Domain], methods: Sequence[Method], names: Sequence[str]) -> list[Figure]:
    """A chart for each metric; none where fewer than three domains have a severity of their own."""
    by_severity = {domain.severity: domain for domain in reversed(domains) if domain.severity is not None}
    if len(by_severity) < LEAST_SEVERITIES:
        return []
    ladder = [(severity, entries_on(methods, by_severity[severity].name)) for severity in sorted(by_severity)]
    return [figure for name in names if (figure := _figure(name, ladder, methods)) is not None]


def _figure(name: str, ladder: Sequence[tuple[float, Sequence[Entry]]], methods: Sequence[Method]) -> Figure | None:
    info, severities = metric_info(name), [severity for severity, _ in ladder]
    series = [one for method in methods for one in _series(name, method, ladder)]
    ends = band_ends(series)
    if not ends:
        return None
    chart = line_chart(
        [Layer(series, {severity: f"severity {severity:g}" for severity in severities})],
        severity_axis(severities),
        nice_axis(min(ends), max(ends)),
        f"{info.title} over severity {severities[0]:g} to {severities[-1]:g}",
        size=LARGE,
        decor=Decor(markers=True),
    )
    entries = [entry for _, found in ladder for entry in found]
    return Figure(title_with_unit(info, entries), "", BETTER_TEXT[info.better], chart)


def severity_axis(severities: Sequence[float]) -> Axis:
    """A linear axis with a tick at each severity."""
    ticks = [(severity, f"{severity:g}") for severity in severities]
    return Axis(severities[0], severities[-1], ticks, "severity of the shift")


def _series(name: str, method: Method, ladder: Sequence[tuple[float, Sequence[Entry]]]) -> list[Series]:
    """A method's lines: at the M where methods are compared, and at its smallest, where that is another."""
    found = {severity: entry for severity, entries in ladder for entry in entries if entry.label == method.label}
    if not found:
        return []
    _, m_of = compared_at(next(entries for _, entries in ladder if any(e.label == method.label for e in entries)))
    sizes = sorted({m_of[method.label], next(iter(found.values())).members[0]}, reverse=True)
    return [_line(name, method, m, found, faint=number > 0) for number, m in enumerate(sizes)]


def _line(name: str, method: Method, m: int, found: dict[float, Entry], faint: bool) -> Series:
    stats = [entry.stat(name, m) for entry in found.values()]
    return Series(
        f"{method.label}, {m_equals(m)}",
        method.index,
        list(found),
        [stat.mean for stat in stats],
        [None if faint else stat.std for stat in stats],
        [measured(stat.mean, stat.std) for stat in stats],
        [faint] * len(stats),
        look="faint" if faint else "file",
        name=method.label,
    )
