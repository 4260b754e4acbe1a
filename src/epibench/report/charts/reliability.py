"""The reliability diagram: accuracy against confidence in bins, with the share of pixels below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from markupsafe import Markup

from epibench.report.charts.lines import Layer, Series, draw_marker, layer_group, remark_in_the_middle, runs
from epibench.report.charts.svg import Plot, canvas, element, frame, markup, percent_axis, style_class
from epibench.report.entries import CurveAt, Entry
from epibench.report.numbers import count, measured, percent

WIDTH, HEIGHT = 340.0, 330.0
COUNTS_HEIGHT = 58.0


@dataclass(frozen=True)
class Reliability:
    """A file's reliability at one M."""

    confidence: CurveAt
    accuracy: CurveAt
    count: CurveAt


def reliability_at(entry: Entry, m: int) -> Reliability | None:
    """The three curves at an M, if they were kept."""
    curves = [entry.curve("reliability", part, m) for part in ("confidence", "accuracy", "count")]
    confidence, accuracy, counts = curves
    if confidence is None or accuracy is None or counts is None:
        return None
    return Reliability(confidence, accuracy, counts)


def reliability_chart(entry: Entry, layers: Sequence[tuple[str, int, bool]]) -> Markup:
    """One file's diagram; each layer is (key, M, whether it is seen at first)."""
    root = canvas(
        WIDTH, HEIGHT, f"Reliability of {entry.label}: accuracy against confidence, and share of {entry.counted}"
    )
    plot = frame(root, WIDTH, HEIGHT - COUNTS_HEIGHT, percent_axis("", 20), percent_axis("accuracy"))
    guides = element(root, "g", class_="guides", aria_hidden="true")
    element(guides, "line", class_="guide", x1=plot.left, y1=plot.bottom, x2=plot.right, y2=plot.top)
    element(guides, "text", "below the line: over-confident", class_="remark", x=plot.left + 6, y=plot.top + 12)
    element(guides, "text", f"confidence, and share of {entry.counted} (%) in each bin", class_="label",
            x=(plot.left + plot.right) / 2, y=HEIGHT - 4, text_anchor="middle")  # fmt: skip
    for key, m, chosen in layers:
        _draw_layer(root, plot, entry, key, m, chosen)
    return markup(root)


def _draw_layer(root: Element, plot: Plot, entry: Entry, key: str, m: int, chosen: bool) -> None:
    curves = reliability_at(entry, m)
    if curves is None:
        remark_in_the_middle(layer_group(root, plot, Layer([], {}, key, chosen)), plot, "not scored at this M")
        return
    layer = _readout_layer(curves, entry, key, chosen)
    group = element(layer_group(root, plot, layer), "g", class_=f"series {style_class(entry.index)} solid",
                    data_label=entry.label)  # fmt: skip
    _draw_accuracy(group, plot, curves, entry.index)
    _draw_counts(group, plot, curves)


def _readout_layer(curves: Reliability, entry: Entry, key: str, chosen: bool) -> Layer:
    total = sum(n or 0.0 for n in curves.count.mean) or 1.0
    heads: dict[float, str] = {}
    texts: dict[str, list[str]] = {"accuracy": [], "confidence": [], entry.counted: []}
    for i, x in enumerate(curves.accuracy.x):
        half = 0.5 / len(curves.accuracy.x)
        heads[x] = f"confidence {round(100 * (x - half))} to {round(100 * (x + half))} %"
        texts["accuracy"].append(measured(curves.accuracy.mean[i], curves.accuracy.std[i]))
        texts["confidence"].append(measured(curves.confidence.mean[i], curves.confidence.std[i]))
        n = curves.count.mean[i] or 0.0
        texts[entry.counted].append(f"{count(n)} ({percent(n / total)})")
    empty: list[float | None] = [None] * len(heads)
    series = [Series(part, entry.index, curves.accuracy.x, empty, empty, lines) for part, lines in texts.items()]
    return Layer(series, heads, key, chosen)


def _draw_accuracy(group: Element, plot: Plot, curves: Reliability, style: int) -> None:
    half = 0.5 / len(curves.accuracy.x)
    for x, accuracy in zip(curves.accuracy.x, curves.accuracy.mean, strict=True):
        if accuracy is not None:
            left, right, top = plot.x(x - half) + 1, plot.x(x + half) - 1, plot.y(accuracy)
            element(group, "rect", class_="bar", x=left, y=top, width=right - left, height=plot.bottom - top)
    columns = (curves.confidence.mean, curves.accuracy.mean)
    for run in runs(*columns):
        places = [(plot.x(columns[0][i] or 0.0), plot.y(columns[1][i] or 0.0)) for i in run]
        if len(places) > 1:
            element(group, "path", class_="line", d="M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in places))
        for i, (x, y) in zip(run, places, strict=True):
            mean, std = curves.accuracy.mean[i] or 0.0, curves.accuracy.std[i]
            if std:
                element(group, "line", class_="whisker", x1=x, x2=x, y1=plot.y(mean - std), y2=plot.y(mean + std))
            draw_marker(group, style, x, y)


def _draw_counts(group: Element, plot: Plot, curves: Reliability) -> None:
    """Bars from a common base, with their per cent in digits: most bins hold too little to be seen."""
    half, total = 0.5 / len(curves.count.x), sum(n or 0.0 for n in curves.count.mean)
    base, room = HEIGHT - 30, COUNTS_HEIGHT - 26
    for x, n in zip(curves.count.x, curves.count.mean, strict=True):
        share = (n or 0.0) / total if total else 0.0
        left, right = plot.x(x - half) + 1, plot.x(x + half) - 1
        element(group, "rect", class_="count", x=left, y=base - room * share, width=right - left, height=room * share)
        text = "0" if not share else "<1" if share < 0.005 else f"{100 * share:.0f}"
        element(group, "text", text, class_="digits", x=(left + right) / 2, y=base + 11, text_anchor="middle")
