"""What methods cost: parameters, operations, time and memory for each image over M, and what quality that buys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from epibench.report.charts import Decor, Layer, Series, line_chart
from epibench.report.domains import Domain, entries_on
from epibench.report.figures import LARGE, SMALL, Figure, band_ends
from epibench.report.metric_info import BETTER_TEXT, metric_info
from epibench.report.numbers import MISSING, count, duration, finite, m_equals, measured, significant
from epibench.report.runs import Method
from epibench.report.svg import log_axis, member_axis, nice_axis
from epibench.report.verdicts import title_with_unit

PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
MEBIBYTE = 2.0**20


@dataclass(frozen=True)
class CostRow:
    """What one method costs, as text."""

    entry: Method
    cells: list[str]


@dataclass(frozen=True)
class Cost:
    """All about cost; charts where time or memory for each image is known."""

    columns: list[str]
    rows: list[CostRow]
    figures: list[Figure] = field(default_factory=list)
    quality: list[tuple[Domain, list[Figure]]] = field(default_factory=list)


def cost_section(methods: Sequence[Method], domains: Sequence[Domain], names: Sequence[str]) -> Cost:
    """Members and cost of every method, and its quality on some domains for that cost."""
    figures = [
        _over_members(methods, operations, 1e-9, "Operations (GFLOP)", "All M passes over one image."),
        _over_members(methods, seconds, 1e3, "Time (ms)", "All M passes over one image."),
        _over_members(methods, peak_bytes, 1 / MEBIBYTE, "Peak memory (MiB)", "While predicting one image."),
    ]
    quality = [(domain, _quality(domain, methods, names)) for domain in domains]
    return Cost(
        ["Parameters", "Operations per pass", "Image", "Networks or chains", "Members", "Draws", "Training, all"],
        [CostRow(method, _cells(method)) for method in methods],
        [figure for figure in figures if figure is not None],
        [(domain, charts) for domain, charts in quality if charts],
    )


def _cost(method: Method) -> dict[str, Any]:
    found = method.run.part("cost").get(method.name)
    return found if isinstance(found, dict) else {}


def operations(method: Method) -> dict[int, float]:
    """Floating-point operations for one image at each M: those of a pass, M times."""
    flops = finite(_cost(method).get("flops"))
    return {m: flops * m for m in seconds(method)} if flops else {}


def seconds(method: Method) -> dict[int, float]:
    """Seconds for one image at each M."""
    return _per_image(method, "seconds")


def peak_bytes(method: Method) -> dict[int, float]:
    """The largest amount of memory while predicting one image at each M."""
    return _per_image(method, "peak_bytes")


def _per_image(method: Method, part: str) -> dict[int, float]:
    """What is known for one image at each M."""
    found = _cost(method).get("per_image")
    pairs = {
        int(m): finite(one.get(part))
        for m, one in (found.items() if isinstance(found, dict) else ())
        if isinstance(one, dict) and str(m).isdigit()
    }
    return {m: value for m, value in sorted(pairs.items()) if value is not None and value > 0}


def _cells(method: Method) -> list[str]:
    cost, about = _cost(method), method.about
    size = cost.get("image_size")
    return [
        with_prefix(finite(cost.get("parameters"))),
        with_prefix(finite(cost.get("flops")), "FLOP"),
        " × ".join(count(side) for side in size) if isinstance(size, list) and len(size) == 2 else MISSING,
        count(about.get("num_networks")),
        count(about.get("num_members")),
        str(about.get("plan") or MISSING),
        duration(cost.get("train_seconds")),
    ]


def with_prefix(value: float | None, unit: str = "") -> str:
    """A large number as 41 G, with its unit."""
    if value is None:
        return MISSING
    for size, prefix in PREFIXES:
        if value >= size:
            return f"{significant(value / size, 3)}\u00a0{prefix}{unit}"
    return f"{significant(value, 3)}\u00a0{unit}".rstrip()


def _over_members(
    methods: Sequence[Method], read: Callable[[Method], dict[int, float]], factor: float, title: str, meaning: str
) -> Figure | None:
    """A cost over M, on a scale from zero."""
    known = {method.label: read(method) for method in methods}
    members = sorted({m for values in known.values() for m in values})
    if len(members) < 2:
        return None
    series = []
    for method in methods:
        if values := known[method.label]:
            y = [factor * value for value in values.values()]
            texts = [significant(value, 3) for value in y]
            series.append(Series(method.label, method.index, list(values), [*y], [None] * len(y), texts))
    chart = line_chart(
        [Layer(series, {m: m_equals(m) for m in members})],
        member_axis(members, SMALL[0] - 60),
        nice_axis(0.0, max(band_ends(series))),
        f"{title} over {m_equals(members[0])} to {members[-1]}",
        size=LARGE,
        decor=Decor(markers=True),
    )
    return Figure(title, meaning, "↓ lower is cheaper", chart)


def _quality(domain: Domain, methods: Sequence[Method], names: Sequence[str]) -> list[Figure]:
    """A chart for each metric against the time for each image."""
    found = [_quality_figure(name, domain, methods) for name in names]
    return [figure for figure in found if figure is not None]


def _quality_figure(name: str, domain: Domain, methods: Sequence[Method]) -> Figure | None:
    entries = {entry.label: entry for entry in entries_on(methods, domain.name)}
    series, heads = [], {}
    for method in methods:
        if method.label not in entries:
            continue
        entry, times = entries[method.label], seconds(method)
        stats = {times[m]: (m, entry.stat(name, m)) for m in entry.members if m in times}
        texts = [f"{measured(stat.mean, stat.std)} at {m_equals(m)}" for m, stat in stats.values()]
        means, stds = [stat.mean for _, stat in stats.values()], [stat.std for _, stat in stats.values()]
        series.append(Series(method.label, method.index, list(stats), means, stds, texts))
        heads.update({x: f"{duration(x)} per image" for x in stats})
    ends = band_ends(series)
    if not ends or len(heads) < 2:
        return None
    info = metric_info(name)
    chart = line_chart(
        [Layer(series, heads)],
        log_axis(min(heads) / 1.1, max(heads) * 1.1, "seconds per image"),
        nice_axis(min(ends), max(ends)),
        f"{info.title} on {domain.label} against seconds per image",
        size=LARGE,
        decor=Decor(markers=True),
    )
    title = title_with_unit(info, list(entries.values()))
    return Figure(title, "", BETTER_TEXT[info.better], chart)
