"""The charts of curves: calibration, reliability and sparsification, of every M and of every draw that was kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from epibench.report.chart import Bins, Chart, Layer, LookName, Remark, Series, nice_axis, percent_axis
from epibench.report.entries import CurveAt, Entry, Values, all_members, comparable, in_words
from epibench.report.figures import FOURTH, PANEL, band_ends
from epibench.report.numbers import count, measured, percent
from epibench.report.page import Option, Switch

TALL = (PANEL[0], 305.0)  # with its caption as tall as a reliability diagram
RELIABILITY = (PANEL[0], 330.0)
MAX_CHOICES = 8
LARGEST = "largest"
READ_OUT_STEP = 0.1  # what lies between is left to the eye, as every number makes the page longer
REMOVED = "most uncertain pixels removed"
LEVEL = "level of the interval"
SIDES: tuple[Remark, Remark] = ((0.02, 0.93, "start", "↑ under-confident"), (0.98, 0.05, "end", "↓ over-confident"))

SeriesOf = Callable[[Entry, int], list[Series]]


def curve_switch(entries: Sequence[Entry]) -> Switch:
    """The M that curves are shown at: up to eight, the largest at first; methods may differ in their largest."""
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


def _chosen_m(option: Option, entry: Entry) -> int:
    """The M that an option means for an entry."""
    return entry.members[-1] if option.key == LARGEST else int(option.key)


def _each_m(entry: Entry, choices: Sequence[Option]) -> list[tuple[int, Option]]:
    """Every M that choices mean for an entry, each once, as an option with the keys of all that mean it."""
    meaning: dict[int, list[Option]] = {}
    for choice in choices:
        meaning.setdefault(_chosen_m(choice, entry), []).append(choice)
    return [
        (m, Option(" ".join(one.key for one in same), str(m), any(one.chosen for one in same)))
        for m, same in meaning.items()
    ]


def calibration_figures(entries: Sequence[Entry], choices: Sequence[Option]) -> list[Chart]:
    """Coverage against level, the gap between them, and what the intervals cost in length."""
    having = _having(entries, "calibration", "coverage")
    if not having:
        return []
    units = {entry.unit for entry in having}
    unit = f", in {units.pop()}" if len(units) == 1 and "" not in units else ""
    coverage, gap, length = (
        Chart(
            "Coverage",
            meaning=in_words("Share of pixels inside the interval, against its level; ideal on the diagonal.", having),
            diagonal=True,
            remarks=SIDES,
        ),
        Chart(
            "Coverage minus level",
            meaning="The same, closer; the area between curve and zero is the AUCE.",
            zero=True,
            remarks=[SIDES[0], (0.02, 0.05, "start", "↓ over-confident")],
        ),
        Chart(
            "Interval length",
            meaning=f"Mean length of the interval{unit}. Short is good only where the coverage holds.",
        ),
    )
    return [
        _together(coverage, having, choices, _of_entry("calibration", "coverage"), LEVEL),
        _together(gap, having, choices, _coverage_gap, LEVEL, (-0.05, 0.05)),
        _together(length, having, choices, _of_entry("calibration", "interval_length"), LEVEL),
    ]


def sparsification_figures(entries: Sequence[Entry], choices: Sequence[Option]) -> list[Chart]:
    """All sparsification errors together; none of a single entry, whose own charts show it."""
    having = _having(entries, "sparsification", "curve")
    if len(having) < 2:
        return []
    chart = Chart("Sparsification error", meaning="Curve minus oracle; its area is the AUSE.")
    return [_together(chart, having, choices, _of_entry("sparsification", "error"), REMOVED)]


def reliability_figures(entries: Sequence[Entry], choices: Sequence[Option]) -> list[Chart]:
    """A reliability diagram per entry: accuracy against confidence in bins, with the share of pixels below."""
    return [
        Chart(
            entry.label,
            percent_axis(f"confidence, and share of {entry.counted} (%) in each bin", 20),
            percent_axis("accuracy"),
            [_bins_layer(entry, m, option) for m, option in _each_m(entry, choices)],
            f"Reliability of {entry.label}: accuracy against confidence, and share of {entry.counted}",
            size=RELIABILITY,
            style=entry.index,
            diagonal=True,
            markers=True,
            remarks=[(0.02, 0.95, "start", "below the line: over-confident")],
        )
        for entry in _having(entries, "reliability", "accuracy")
    ]


def _bins_layer(entry: Entry, m: int, option: Option) -> Layer:
    """Accuracy against confidence at an M, over bars and shares of the bins; empty where it was not scored."""
    curves = _reliability_curves(entry, m)
    if curves is None:
        return Layer([], {}, option.key, option.chosen)
    confidence, accuracy, counts = curves
    middles, total = accuracy.x, sum(n or 0.0 for n in counts.mean) or 1.0
    shares = [(n or 0.0) / total for n in counts.mean]
    numbers = [f"{count(n or 0.0)} ({percent(share)})" for n, share in zip(counts.mean, shares, strict=True)]
    texts = {
        "accuracy": [measured(a, b) for a, b in zip(accuracy.mean, accuracy.std, strict=True)],
        "confidence": [measured(a, b) for a, b in zip(confidence.mean, confidence.std, strict=True)],
        entry.counted: numbers,
    }
    none: list[float | None] = [None] * len(middles)
    rows = [Series(part, entry.index, middles, none, none, lines) for part, lines in texts.items()]
    line = Series(
        entry.label,
        entry.index,
        [x or 0.0 for x in confidence.mean],
        [None if x is None else y for x, y in zip(confidence.mean, accuracy.mean, strict=True)],
        [std or None for std in accuracy.std],
        numbers,
        look="solid",
        bins=Bins(middles, accuracy.mean, shares),
    )
    half = 0.5 / len(middles)
    heads = {x: f"confidence {round(100 * (x - half))} to {round(100 * (x + half))} %" for x in middles}
    return Layer([line], heads, option.key, option.chosen, readout=rows)


def reliability_together(entries: Sequence[Entry], choices: Sequence[Option]) -> list[Chart]:
    """Accuracy against confidence of all entries in one chart; of a single one its own diagram."""
    having = _having(entries, "reliability", "accuracy")
    if len(having) < 2:
        return reliability_figures(having, choices)
    lines = [[one for entry in having for one in _reliability(entry, _chosen_m(each, entry))] for each in choices]
    return [
        Chart(
            "Reliability",
            percent_axis("confidence"),
            percent_axis("accuracy"),
            [_layer(series, choice, "confidence") for series, choice in zip(lines, choices, strict=True)],
            f"Reliability: {', '.join(entry.label for entry in having)}",
            size=TALL,
            meaning="Accuracy against confidence in bins; below the diagonal: over-confident.",
            diagonal=True,
        )
    ]


def rows_of_draws(entries: Sequence[Entry], choices: Sequence[Option]) -> list[dict[str, Any]]:
    """Each entry with its own charts: all draws of an M in one picture, and sparsification beside the oracle.

    Entries of one domain share their scales.
    """
    own: dict[str, list[Chart]] = {entry.label: [] for entry in entries}
    for group in comparable(entries):
        calibration = [_of_draws(group, choices, family) for family in ("calibration", "reliability")]
        for charts in (*calibration, _with_oracle(group, choices), _of_draws(group, choices, "sparsification")):
            for label, figure in charts.items():
                own[label].append(figure)
    rows: list[dict[str, Any]] = []
    for entry in entries:
        if figures := own[entry.label]:
            # What the charts show is said once.
            rows.append({"entry": entry, "figures": [replace(one, meaning="") for one in figures] if rows else figures})
    return rows


def _having(entries: Sequence[Entry], family: str, part: str) -> list[Entry]:
    return [entry for entry in entries if entry.curve(family, part, entry.members[-1])]


def _error_title(entries: Sequence[Entry]) -> str:
    """What sparsification curves are of."""
    if any("rmse" in entry.metrics for entry in entries):
        return "RMSE"
    return "Brier score" if any("brier" in entry.metrics for entry in entries) else "Share of errors"


def _with_oracle(entries: Sequence[Entry], choices: Sequence[Option]) -> dict[str, Chart]:
    """The sparsification curve of each entry beside that of its oracle, by label."""

    def both(entry: Entry, m: int) -> list[Series]:
        curve, oracle = (entry.curve("sparsification", part, m) for part in ("curve", "oracle"))
        return [
            *_series(curve, "by uncertainty", entry.index, "solid"),
            *_series(oracle, "by error (oracle)", entry.index, "oracle"),
        ]

    having = _having(entries, "sparsification", "curve")
    layers = {
        entry.label: [_layer(both(entry, m), option, "removed") for m, option in _each_m(entry, choices)]
        for entry in having
    }
    y_axis = nice_axis(0.0, max([1.0, *_ends(layers)]), f"{_error_title(entries)} of the rest, relative", pad=0.02)
    return {
        label: Chart(
            "Sparsification",
            percent_axis(in_words(REMOVED, entries)),
            y_axis,
            of_entry,
            f"Sparsification of {label}",
            size=PANEL,
            meaning="By uncertainty, and by the true error (oracle, dashed); the area is the AUSE.",
            between=True,
        )
        for label, of_entry in layers.items()
    }


def _of_draws(entries: Sequence[Entry], choices: Sequence[Option], family: str) -> dict[str, Chart]:
    """The curves of all draws of an M in one picture, by label; of entries with several draws that were kept."""
    title, part, make, x_label = DRAWN[family]
    having = [entry for entry in entries if _most_draws(entry, family, part) > 1]
    layers = {entry.label: _draw_layers(entry, choices, make) for entry in having}
    unit = family != "sparsification"  # both axes go from 0 to 100 %
    ends = [0.0, *_ends(layers)]
    axis = percent_axis("accuracy" if family == "reliability" else "")
    return {
        label: Chart(
            f"{title} of every draw",
            percent_axis(in_words(x_label, entries)),
            axis if unit else nice_axis(min(ends), max(ends), pad=0.12),
            of_entry,
            f"{title} of every draw of {label}",
            size=PANEL,
            meaning="A line for each draw of M members.",
            diagonal=unit,
        )
        for label, of_entry in layers.items()
    }


def _most_draws(entry: Entry, family: str, part: str) -> int:
    """How many draws were kept of a curve, at the M with the most."""
    curves = [entry.curve(family, part, m) for m in entry.members]
    return max((len(curve.draws) for curve in curves if curve), default=0)


def _draw_layers(entry: Entry, choices: Sequence[Option], make: SeriesOf) -> list[Layer]:
    """A layer for each M, which says how many of its draws are shown."""
    layers = []
    for m, option in _each_m(entry, choices):
        lines, drawn = make(entry, m), entry.num_draws(m)
        shown = f"{len(lines)} of {count(drawn)}" if len(lines) < drawn else f"{drawn}"
        note = f"{shown} {'draw' if drawn == 1 else 'draws'}" if lines else ""
        layers.append(Layer(lines, {}, option.key, option.chosen, note))
    return layers


def _draws_of(family: str, part: str) -> SeriesOf:
    def make(entry: Entry, m: int) -> list[Series]:
        curve = entry.curve(family, part, m)
        return [_thin(entry, curve.x, values, number) for number, values in enumerate(curve.draws)] if curve else []

    return make


def _reliability_of_draws(entry: Entry, m: int) -> list[Series]:
    """Accuracy against confidence over the bins that have pixels."""
    confidence, accuracy = (entry.curve("reliability", part, m) for part in ("confidence", "accuracy"))
    if confidence is None or accuracy is None:
        return []
    series = []
    for number, (x, y) in enumerate(zip(confidence.draws, accuracy.draws, strict=True)):
        pairs = [(a, b) for a, b in zip(x, y, strict=True) if a is not None and b is not None]
        series.append(_thin(entry, [a for a, _ in pairs], [b for _, b in pairs], number))
    return series


def _reliability_curves(entry: Entry, m: int) -> tuple[CurveAt, CurveAt, CurveAt] | None:
    """Confidence, accuracy and number of pixels in bins at an M, if they were kept."""
    confidence, accuracy, counts = (entry.curve("reliability", part, m) for part in ("confidence", "accuracy", "count"))
    return None if confidence is None or accuracy is None or counts is None else (confidence, accuracy, counts)


def _reliability(entry: Entry, m: int) -> list[Series]:
    """Accuracy against confidence, means over draws, over the bins that have pixels."""
    curves = _reliability_curves(entry, m)
    if curves is None:
        return []
    bins = zip(curves[0].mean, curves[1].mean, curves[1].std, strict=True)
    known = [(x, y, std) for x, y, std in bins if x is not None and y is not None]
    texts = [measured(y, std) for _, y, std in known]
    line = [x for x, _, _ in known], [y for _, y, _ in known], [std for _, _, std in known]
    return [Series(entry.label, entry.index, *line, texts, look="file")]


def _thin(entry: Entry, x: Sequence[float], y: Values | list[float], number: int) -> Series:
    """The line of one draw, which says no numbers."""
    return Series(f"draw {number + 1}", entry.index, x, y, [None] * len(x), [""] * len(x), look="thin")


def _series(curve: CurveAt | None, label: str, style: int, look: LookName = "file") -> list[Series]:
    """The line of a curve, if there is one."""
    if curve is None:
        return []
    texts = [measured(mean, std) for mean, std in zip(curve.mean, curve.std, strict=True)]
    return [Series(label, style, curve.x, curve.mean, curve.std, texts, look=look)]


def _of_entry(family: str, part: str) -> SeriesOf:
    return lambda entry, m: _series(entry.curve(family, part, m), entry.label, entry.index)


def _coverage_gap(entry: Entry, m: int) -> list[Series]:
    curve = entry.curve("calibration", "coverage", m)
    gap = curve and CurveAt(curve.x, _differences(curve.mean, curve.x), curve.std)
    return _series(gap, entry.label, entry.index)


def _differences(first: Values, second: Sequence[float | None]) -> Values:
    return [None if a is None or b is None else a - b for a, b in zip(first, second, strict=True)]


def _layer(series: list[Series], choice: Option, word: str) -> Layer:
    xs = sorted({x for one in series for x in one.x})
    read_out = [x for x in xs if abs(x / READ_OUT_STEP - round(x / READ_OUT_STEP)) < 1e-6] or xs
    return Layer(series, {x: f"{percent(x, 3)} {word}" for x in read_out}, choice.key, choice.chosen)


def _together(
    chart: Chart,
    entries: Sequence[Entry],
    choices: Sequence[Option],
    make: SeriesOf,
    x_label: str,
    include: Sequence[float] = (0.0,),
) -> Chart:
    """All curves in one chart, with a layer for each choice of M on common axes."""
    word = "removed" if x_label == REMOVED else "interval"
    layers = [_layer([one for entry in entries for one in make(entry, _chosen_m(c, entry))], c, word) for c in choices]
    ends = [*include, *_ends({"": layers})]
    return replace(
        chart,
        x_axis=percent_axis(in_words(x_label, entries)),
        y_axis=percent_axis("")
        if chart.diagonal
        else nice_axis(min(ends), max(ends), pad=0.16 if chart.remarks else 0.03),
        layers=layers,
        description=f"{chart.title}: {', '.join(entry.label for entry in entries)}",
        # Beside reliability diagrams, or beside other curves of calibration.
        size=TALL if entries[0].kind == "categorical" else FOURTH,
    )


def _ends(layers: Mapping[str, Sequence[Layer]]) -> list[float]:
    return band_ends(one for of_entry in layers.values() for layer in of_entry for one in layer.series)


DRAWN: dict[str, tuple[str, str, SeriesOf, str]] = {  # by family: title, curve, its lines, what lies on the x axis
    "calibration": ("Coverage", "coverage", _draws_of("calibration", "coverage"), LEVEL),
    "reliability": ("Reliability", "accuracy", _reliability_of_draws, "confidence"),
    "sparsification": ("Sparsification error", "error", _draws_of("sparsification", "error"), REMOVED),
}
