"""The reliability diagram: accuracy against confidence in bins, with the share of pixels below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from markupsafe import Markup

from epibench.report.charts import Layer, Series, draw_marker, layer_group, runs
from epibench.report.entries import Curve, Entry
from epibench.report.numbers import count, measured, percent
from epibench.report.svg import Plot, canvas, element, frame, markup, percent_axis, style_class

WIDTH, HEIGHT = 340.0, 330.0
COUNTS_HEIGHT = 58.0


@dataclass(frozen=True)
class Reliability:
    """A file's reliability at one M."""

    confidence: Curve
    accuracy: Curve
    count: Curve


def reliability_at(entry: Entry, m: int) -> Reliability | None:
    """The three curves at an M, if they were kept."""
    curves = [entry.curve("reliability", part, m) for part in ("confidence", "accuracy", "count")]
    confidence, accuracy, counts = curves
    if confidence is None or accuracy is None or counts is None:
        return None
    return Reliability(confidence, accuracy, counts)


def reliability_chart(entry: Entry, layers: Sequence[tuple[str, int, bool]]) -> Markup:
    """One file's diagram; each layer is (key, M, whether it is seen at first)."""
    root = canvas(WIDTH, HEIGHT, f"Reliability of {entry.label}: accuracy against confidence, and share of pixels")
    plot = frame(root, WIDTH, HEIGHT - COUNTS_HEIGHT, percent_axis("", 20), percent_axis("accuracy"))
    guides = element(root, "g", class_="guides", aria_hidden="true")
    element(guides, "line", class_="guide", x1=plot.left, y1=plot.bottom, x2=plot.right, y2=plot.top)
    element(guides, "text", "below the line: over-confident", class_="remark", x=plot.left + 6, y=plot.top + 12)
    element(guides, "text", "confidence, and share of pixels (%) in each bin", class_="label",
            x=(plot.left + plot.right) / 2, y=HEIGHT - 4, text_anchor="middle")  # fmt: skip
    for key, m, chosen in layers:
        _draw_layer(root, plot, entry, key, m, chosen)
    return markup(root)


def _draw_layer(root: Element, plot: Plot, entry: Entry, key: str, m: int, chosen: bool) -> None:
    found = reliability_at(entry, m)
    if found is None:
        group = element(root, "g", class_="layer chosen" if chosen else "layer", data_m=key)
        middle = (plot.left + plot.right) / 2
        element(group, "text", "not scored at this M", class_="remark", x=middle, y=60, text_anchor="middle")
        return
    layer = _readout_layer(found, entry, key, chosen)
    group = element(layer_group(root, plot, layer), "g", class_=f"series {style_class(entry.index)} solid",
                    data_label=entry.label)  # fmt: skip
    _draw_accuracy(group, plot, found, entry.index)
    _draw_counts(group, plot, found)


def _readout_layer(found: Reliability, entry: Entry, key: str, chosen: bool) -> Layer:
    total = sum(n or 0.0 for n in found.count.mean) or 1.0
    heads, texts = {}, {"accuracy": [], "confidence": [], "pixels": []}  # type: dict[float, str], dict[str, list[str]]
    for i, x in enumerate(found.accuracy.x):
        half = 0.5 / len(found.accuracy.x)
        heads[x] = f"confidence {round(100 * (x - half))} to {round(100 * (x + half))} %"
        texts["accuracy"].append(measured(found.accuracy.mean[i], found.accuracy.std[i]))
        texts["confidence"].append(measured(found.confidence.mean[i], found.confidence.std[i]))
        n = found.count.mean[i] or 0.0
        texts["pixels"].append(f"{count(n)} ({percent(n / total)})")
    empty: list[float | None] = [None] * len(heads)
    series = [Series(part, entry.index, found.accuracy.x, empty, empty, lines) for part, lines in texts.items()]
    return Layer(series, heads, key, chosen)


def _draw_accuracy(group: Element, plot: Plot, found: Reliability, style: int) -> None:
    half = 0.5 / len(found.accuracy.x)
    places = []
    for x, accuracy in zip(found.accuracy.x, found.accuracy.mean, strict=True):
        if accuracy is not None:
            left, right, top = plot.x(x - half) + 1, plot.x(x + half) - 1, plot.y(accuracy)
            element(group, "rect", class_="bar", x=left, y=top, width=right - left, height=plot.bottom - top)
    columns = (found.confidence.mean, found.accuracy.mean)
    for run in runs(*columns):
        places = [(plot.x(columns[0][i] or 0.0), plot.y(columns[1][i] or 0.0)) for i in run]
        if len(places) > 1:
            element(group, "path", class_="line", d="M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in places))
        for i, (x, y) in zip(run, places, strict=True):
            mean, std = found.accuracy.mean[i] or 0.0, found.accuracy.std[i]
            if std:
                element(group, "line", class_="whisker", x1=x, x2=x, y1=plot.y(mean - std), y2=plot.y(mean + std))
            draw_marker(group, style, x, y)


def _draw_counts(group: Element, plot: Plot, found: Reliability) -> None:
    """Bars from a common base, with their per cent in digits: most bins hold too little to be seen."""
    half, total = 0.5 / len(found.count.x), sum(n or 0.0 for n in found.count.mean)
    base, room = HEIGHT - 30, COUNTS_HEIGHT - 26
    for x, n in zip(found.count.x, found.count.mean, strict=True):
        share = (n or 0.0) / total if total else 0.0
        left, right = plot.x(x - half) + 1, plot.x(x + half) - 1
        element(group, "rect", class_="count", x=left, y=base - room * share, width=right - left, height=room * share)
        text = "0" if not share else "<1" if share < 0.005 else f"{100 * share:.0f}"
        element(group, "text", text, class_="digits", x=(left + right) / 2, y=base + 11, text_anchor="middle")
