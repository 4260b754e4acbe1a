"""The charts of curves: calibration, reliability and sparsification, of every M and of every draw that was kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from epibench.report.chart import Axis, Bins, Chart, Layer, LookName, Remark, Series, nice_axis, percent_axis
from epibench.report.entries import CurveAt, Entry, all_members, comparable, in_words
from epibench.report.figures import FOURTH, PANEL, band_ends
from epibench.report.numbers import count, measured, percent
from epibench.report.page import Option, Switch

TALL = (PANEL[0], 305.0)  # with its caption as tall as a reliability diagram
RELIABILITY = (PANEL[0], 330.0)
MAX_CHOICES = 8
LARGEST = "largest"
READ_OUT_STEP = 0.1  # the read-out leaves out other x, as every number makes the page longer
REMOVED = "most uncertain pixels removed"
LEVEL = "level of the interval"
SIDES: tuple[Remark, Remark] = ((0.02, 0.93, "start", "↑ under-confident"), (0.98, 0.05, "end", "↓ over-confident"))

SeriesOf = Callable[[Entry, int], list[Series]]
AxisOf = Callable[[list[float]], Axis]


def curve_switch(entries: Sequence[Entry]) -> Switch:
    """The M of curves: up to eight, the largest at first; methods may differ in their largest."""
    members = all_members(entries)
    if len(members) > MAX_CHOICES:
        powers = [m for m in members if m & (m - 1) == 0 or m == members[-1]]
        members = [*powers[: MAX_CHOICES - 1], members[-1]] if len(powers) > MAX_CHOICES else powers
    differ = len({entry.members[-1] for entry in entries}) > 1
    options = [Option(str(m), str(m), not differ and m == members[-1]) for m in members]
    return Switch("m", "Curves at M =", [*options, Option(LARGEST, "largest of each", True)] if differ else options)


@dataclass(frozen=True)
class CurveParts:
    """All charts of curves of some entries: together, a reliability diagram of each, and the rows of each."""

    together: list[Chart] = field(default_factory=list)
    reliability: list[Chart] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.together or self.reliability or self.rows)


def curve_parts(entries: Sequence[Entry], choices: Sequence[Option]) -> CurveParts:
    """All charts of curves, at each choice of M."""
    if not choices:
        return CurveParts()
    together = [*calibration_figures(entries, choices), *sparsification_figures(entries, choices)]
    return CurveParts(together, reliability_figures(entries, choices), rows_of_draws(entries, choices))


def calibration_figures(entries: Sequence[Entry], choices: Sequence[Option]) -> list[Chart]:
    """Coverage against level, the gap between them, and the length of intervals."""
    having = _having(entries, "calibration", "coverage")
    if not having:
        return []
    units = {entry.unit for entry in having}
    unit = f", in {units.pop()}" if len(units) == 1 and "" not in units else ""
    share = in_words("Share of pixels inside the interval, against its level; ideal on the diagonal.", having)
    gap = "The same, closer; the area between curve and zero is the AUCE."
    length = f"Mean length of the interval{unit}. Short is good only where the coverage holds."
    low: Remark = (0.02, 0.05, "start", "↓ over-confident")
    coverage = Chart("Coverage", meaning=share, diagonal=True, remarks=SIDES)
    charts: list[tuple[Chart, SeriesOf, AxisOf]] = [
        (coverage, _of_entry("calibration", "coverage"), lambda _: percent_axis("")),
        (Chart("Coverage minus level", meaning=gap, zero=True, remarks=(SIDES[0], low)), _coverage_gap,
         lambda ends: nice_axis(-0.05, 0.05, *ends, pad=0.16)),
        (Chart("Interval length", meaning=length), _of_entry("calibration", "interval_length"),
         lambda ends: nice_axis(0.0, *ends, pad=0.03)),
    ]  # fmt: skip
    # As large as reliability diagrams or other curves of calibration beside them.
    size = TALL if having[0].kind == "categorical" else FOURTH
    return [
        one
        for chart, make, axis in charts
        for one in _charts(replace(chart, size=size), [having], choices, make, LEVEL, axis, "interval")
    ]


def sparsification_figures(entries: Sequence[Entry], choices: Sequence[Option]) -> list[Chart]:
    """All sparsification errors together; none of a single entry, whose own charts show it."""
    having = _having(entries, "sparsification", "curve")
    if len(having) < 2:
        return []
    size = TALL if having[0].kind == "categorical" else FOURTH
    chart = Chart("Sparsification error", size=size, meaning="Curve minus oracle; its area is the AUSE.")
    make = _of_entry("sparsification", "error")
    return _charts(chart, [having], choices, make, REMOVED, lambda ends: nice_axis(0.0, *ends, pad=0.03), "removed")


def reliability_figures(entries: Sequence[Entry], choices: Sequence[Option]) -> list[Chart]:
    """A reliability diagram per entry: accuracy against confidence in bins, with the share of pixels below."""
    figures = []
    for entry in _having(entries, "reliability", "accuracy"):
        chart = Chart(
            entry.label,
            percent_axis(f"confidence, and share of {entry.counted} (%) in each bin", 20),
            description=f"Reliability of {entry.label}: accuracy against confidence, and share of {entry.counted}",
            size=RELIABILITY,
            style=entry.index,
            diagonal=True,
            markers=True,
            remarks=[(0.02, 0.95, "start", "below the line: over-confident")],
        )
        figures += _charts(chart, [[entry]], choices, _diagram, "", lambda _: percent_axis("accuracy"))
    return figures


def reliability_together(entries: Sequence[Entry], choices: Sequence[Option]) -> list[Chart]:
    """Accuracy against confidence of all entries in one chart; of a single one its own diagram."""
    having = _having(entries, "reliability", "accuracy")
    if len(having) < 2:
        return reliability_figures(having, choices)
    meaning = "Accuracy against confidence in bins; below the diagonal: over-confident."
    chart = Chart("Reliability", size=TALL, meaning=meaning, diagonal=True)
    axis = percent_axis("accuracy")
    return _charts(chart, [having], choices, _reliability, "confidence", lambda _: axis, "confidence")


def rows_of_draws(entries: Sequence[Entry], choices: Sequence[Option]) -> list[dict[str, Any]]:
    """Each entry with its own charts: all draws of an M in one picture, and sparsification beside the oracle.

    Entries of one domain share their scales.
    """
    own: dict[str, list[Chart]] = {entry.label: [] for entry in entries}
    for group in comparable(entries):
        for entry, chart in _own_charts(group, choices):
            own[entry.label].append(chart)
    with_charts = [entry for entry in entries if own[entry.label]]
    # Captions stand in the first row alone.
    return [
        {"entry": entry, "figures": [replace(one, meaning="") if i else one for one in own[entry.label]]}
        for i, entry in enumerate(with_charts)
    ]


def _own_charts(entries: Sequence[Entry], choices: Sequence[Option]) -> Iterator[tuple[Entry, Chart]]:
    titles = {"rmse": "RMSE", "brier": "Brier score"}  # of the errors that sparsification curves show
    known = [title for name, title in titles.items() if any(name in entry.metrics for entry in entries)]
    error = f"{[*known, 'Share of errors'][0]} of the rest, relative"
    charts: list[tuple[str, str, SeriesOf, AxisOf]] = [
        ("Coverage", LEVEL, _of_draws("calibration", "coverage"), lambda _: percent_axis("")),
        ("Reliability", "confidence", _of_draws("reliability", "accuracy"), lambda _: percent_axis("accuracy")),
        ("Sparsification", REMOVED, _beside_oracle, lambda ends: nice_axis(0.0, 1.0, *ends, label=error, pad=0.02)),
        ("Sparsification error", REMOVED, _of_draws("sparsification", "error"),
         lambda ends: nice_axis(0.0, *ends, pad=0.12)),
    ]  # fmt: skip
    for title, x_label, make, axis in charts:
        if make is _beside_oracle:
            meaning = "By uncertainty, and by the true error (oracle, dashed); the area is the AUSE."
            having, word = _having(entries, "sparsification", "curve"), "removed"
            chart = Chart(title, size=PANEL, meaning=meaning, between=True)
        else:
            # Of one draw there is no picture.
            having, word = [entry for entry in entries if max(len(make(entry, m)) for m in entry.members) > 1], ""
            meaning, diagonal = "A line for each draw of M members.", title in ("Coverage", "Reliability")
            chart = Chart(f"{title} of every draw", size=PANEL, meaning=meaning, diagonal=diagonal)
        groups = [[entry] for entry in having]
        drawn = _charts(chart, groups, choices, make, in_words(x_label, entries), axis, word)
        yield from zip(having, drawn, strict=True)


def _charts(
    chart: Chart,
    groups: Sequence[Sequence[Entry]],
    choices: Sequence[Option],
    make: SeriesOf,
    x_label: str,
    axis: AxisOf,
    word: str = "",
) -> list[Chart]:
    """The chart of each group of entries on common axes, with a layer for each choice of M.

    x_label: by default, the chart has its x axis; axis: makes the y axis from the ends of all bands; word: what the
    read-out calls x.
    """
    layers = [_layers(entries, choices, make, word) for entries in groups]
    y_axis = axis(band_ends(one for of_group in layers for layer in of_group for one in layer.series))
    return [
        replace(
            chart,
            x_axis=percent_axis(in_words(x_label, entries)) if x_label else chart.x_axis,
            y_axis=y_axis,
            layers=of_group,
            description=chart.description or f"{chart.title}: {', '.join(entry.label for entry in entries)}",
        )
        for entries, of_group in zip(groups, layers, strict=True)
    ]


def _layers(entries: Sequence[Entry], choices: Sequence[Option], make: SeriesOf, word: str) -> list[Layer]:
    """A layer for each choice of M; choices that mean the same M share one."""
    meaning: dict[tuple[int, ...], list[Option]] = {}
    for choice in choices:
        chosen = (entry.members[-1] if choice.key == LARGEST else int(choice.key) for entry in entries)
        meaning.setdefault(tuple(chosen), []).append(choice)
    layers = []
    for sizes, same in meaning.items():
        series = [one for entry, m in zip(entries, sizes, strict=True) for one in make(entry, m)]
        layer = Layer(series, {}, " ".join(one.key for one in same), any(one.chosen for one in same))
        if series and series[0].look == "thin":
            drawn = entries[0].num_draws(sizes[0])
            shown = f"{len(series)} of {count(drawn)}" if len(series) < drawn else f"{drawn}"
            layer = replace(layer, note=f"{shown} {'draw' if drawn == 1 else 'draws'}")
        elif word:
            xs = sorted({x for one in series for x in one.x})
            rounded = [x for x in xs if abs(x / READ_OUT_STEP - round(x / READ_OUT_STEP)) < 1e-6] or xs
            layer = replace(layer, heads={x: f"{percent(x, 3)} {word}" for x in rounded})
        elif series and (bins := series[0].bins):
            ends = {x: (round(100 * (x - bins.half)), round(100 * (x + bins.half))) for x in bins.middles}
            heads, none = {x: f"confidence {a} to {b} %" for x, (a, b) in ends.items()}, [None] * len(ends)
            style, rows = series[0].style, bins.texts.items()
            readout = [Series(name, style, bins.middles, none, texts=texts) for name, texts in rows]
            layer = replace(layer, heads=heads, readout=readout)
        layers.append(layer)
    return layers


def _having(entries: Sequence[Entry], family: str, part: str) -> list[Entry]:
    return [entry for entry in entries if entry.curve(family, part, entry.members[-1])]


def _series(curve: CurveAt | None, label: str, style: int, look: LookName = "file") -> list[Series]:
    if curve is None:
        return []
    texts = [measured(mean, std) for mean, std in zip(curve.mean, curve.std, strict=True)]
    return [Series(label, style, curve.x, curve.mean, curve.std, texts, look=look)]


def _of_entry(family: str, part: str) -> SeriesOf:
    return lambda entry, m: _series(entry.curve(family, part, m), entry.label, entry.index)


def _of_draws(family: str, part: str) -> SeriesOf:
    def make(entry: Entry, m: int) -> list[Series]:
        kept = entry.curve(family, part, m)
        confidence = entry.curve(family, "confidence", m) if family == "reliability" else None
        lines = []
        for number, values in enumerate(kept.draws if kept else ()):
            x = confidence.draws[number] if confidence else kept.x if kept else ()
            # Bins without pixels have neither confidence nor accuracy.
            points = zip(x, values, strict=True)
            pairs = [(a, b) for a, b in points if a is not None and (b is not None or not confidence)]
            line = [a for a, _ in pairs], [b for _, b in pairs]
            lines.append(Series(f"draw {number + 1}", entry.index, *line, look="thin"))
        return lines

    return make


def _beside_oracle(entry: Entry, m: int) -> list[Series]:
    curve, oracle = (entry.curve("sparsification", part, m) for part in ("curve", "oracle"))
    return [
        *_series(curve, "by uncertainty", entry.index, "solid"),
        *_series(oracle, "by error (oracle)", entry.index, "oracle"),
    ]


def _coverage_gap(entry: Entry, m: int) -> list[Series]:
    curve = entry.curve("calibration", "coverage", m)
    gaps = [None if a is None else a - b for a, b in zip(curve.mean, curve.x, strict=True)] if curve else []
    return _series(curve and replace(curve, mean=gaps), entry.label, entry.index)


def _reliability(entry: Entry, m: int) -> list[Series]:
    """Accuracy against confidence, means over draws, over the bins that have pixels."""
    confidence, accuracy = (entry.curve("reliability", part, m) for part in ("confidence", "accuracy"))
    if confidence is None or accuracy is None:
        return []
    bins = zip(confidence.mean, accuracy.mean, accuracy.std, strict=True)
    known = [(x, y, std) for x, y, std in bins if x is not None and y is not None]
    texts = [measured(y, std) for _, y, std in known]
    line = [x for x, _, _ in known], [y for _, y, _ in known], [std for _, _, std in known]
    return [Series(entry.label, entry.index, *line, texts)]


def _diagram(entry: Entry, m: int) -> list[Series]:
    """The same over bars and shares of the bins."""
    confidence, accuracy, counts = (entry.curve("reliability", part, m) for part in ("confidence", "accuracy", "count"))
    if confidence is None or accuracy is None or counts is None:
        return []
    numbers = [n or 0.0 for n in counts.mean]
    total = sum(numbers) or 1.0
    texts = {
        "accuracy": [measured(a, b) for a, b in zip(accuracy.mean, accuracy.std, strict=True)],
        "confidence": [measured(a, b) for a, b in zip(confidence.mean, confidence.std, strict=True)],
        entry.counted: [f"{count(n)} ({percent(n / total)})" for n in numbers],
    }
    bins = Bins(accuracy.x, accuracy.mean, [n / total for n in numbers], texts)
    (line,) = _reliability(entry, m)
    return [replace(line, std=[std or None for std in line.std], look="solid", bins=bins)]
