"""Charts as inline SVG with bands, lollipops for single values, and the swatches of keys and tables."""

from __future__ import annotations

import json
from xml.etree.ElementTree import Element

from markupsafe import Markup

from epibench.report.chart import (
    COUNTS_HEIGHT,
    NUM_MARKERS,
    Area,
    Axis,
    Bins,
    Chart,
    Layer,
    Plot,
    Series,
    areas,
    mark_places,
    marker_of,
    runs,
)
from epibench.report.charts.svg import canvas, element, frame, markup, polyline, simplified, style_class
from epibench.report.entries import ClassStyle
from epibench.results import RGB, Stat

STRIPES: tuple[RGB, RGB] = ((0x9A, 0xA0, 0xA8), (0xB9, 0xBE, 0xC5))  # of what has no label; seen on light and dark
MARKERS = (  # around (0, 0)
    "M-3.6,0a3.6,3.6 0 1,0 7.2,0a3.6,3.6 0 1,0 -7.2,0z",
    "M-3.2,-3.2h6.4v6.4h-6.4z",
    "M0,-4.2L4,3H-4z",
    "M0,-4.6L4.6,0L0,4.6L-4.6,0z",
    "M0,4.2L4,-3H-4z",
    "M-1.4,-4.2h2.8v2.8h2.8v2.8h-2.8v2.8h-2.8v-2.8h-2.8v-2.8h2.8z",
    "M0,-4.4L4.2,-1.2L2.6,3.8H-2.6L-4.2,-1.2z",
    "M-4.2,-2.4h8.4v4.8h-8.4z",
)
assert len(MARKERS) == NUM_MARKERS


def line_chart(chart: Chart) -> Markup:
    """The chart as inline SVG, with a group for each layer."""
    root, plot, (width, height) = canvas(*chart.size, chart.description), chart.plot, chart.size
    frame(root, plot, (width, height - (COUNTS_HEIGHT if chart.counts else 0.0)), chart.inset)
    _draw_guides(root, plot, chart)
    middle = (plot.left + plot.right) / 2
    for layer in chart.layers:
        group = layer_group(root, plot, layer)
        if not layer.series:
            element(group, "text", "not scored at this M", class_="remark", x=middle, y=60, text_anchor="middle")
        if chart.between and len(layer.series) == 2:
            upper, lower = layer.series
            for area in areas(upper.x, lower.y, upper.y):
                element(group, "path", class_=f"between {style_class(upper.style)}", d=_outline(plot, area))
        groups = [_draw_series(group, plot, series, chart) for series in layer.series]
        for number, _, (x, y), text in mark_places(plot, layer.series):
            element(groups[number], "text", text, class_="mark", x=x, y=y, text_anchor="middle")
        if layer.note:
            # Below the diagonal, or above the lines.
            y = plot.bottom - 7 if chart.diagonal else plot.top + 10
            element(group, "text", layer.note, class_="remark", x=plot.right - 4, y=y, text_anchor="end")
    return markup(root)


def layer_group(root: Element, plot: Plot, layer: Layer) -> Element:
    """The group of a layer, with the read-out as JSON. Long lists are joined to keep the page small."""
    group = element(root, "g", class_="layer chosen" if layer.chosen else "layer", data_m=layer.key or None)
    if not layer.heads or not layer.series:
        return group
    positions, rows = sorted(layer.heads), []
    for series in layer.readout or layer.series:
        texts = dict(zip(series.x, series.texts, strict=True))
        name = series.look if series.look in ("oracle", "published") else style_class(series.style)
        rows.append({"label": series.label, "style": name, "texts": "|".join(texts.get(x, "") for x in positions)})
    data = {
        "x": [round(plot.x(x), 1) for x in positions],
        "heads": "|".join(layer.heads[x] for x in positions),
        "rows": rows,
        "span": [round(plot.top, 1), round(plot.bottom, 1)],
    }
    group.set("data-readout", json.dumps(data, ensure_ascii=False, separators=(",", ":")))
    return group


def _draw_guides(root: Element, plot: Plot, chart: Chart) -> None:
    guides = element(root, "g", class_="guides", aria_hidden="true")
    if chart.diagonal:
        start, end = chart.diagonal_ends
        element(guides, "line", class_="guide", x1=plot.x(start), y1=plot.y(start), x2=plot.x(end), y2=plot.y(end))
    if chart.zero and plot.y_axis.lower <= 0 <= plot.y_axis.upper:
        left, right, y = plot.left - chart.inset, plot.right + chart.inset, plot.y(0)
        element(guides, "line", class_="guide", x1=left, x2=right, y1=y, y2=y)
    for number, (floor, text) in enumerate(chart.floors):
        # A zone from the bottom up, with its name beneath the line if there is room, else above.
        top, left, right = plot.y(floor), plot.left - 10, plot.right + 10
        element(guides, "rect", class_="floor", x=left, y=top, width=right - left, height=plot.bottom - top)
        element(guides, "line", class_="floor-line", x1=left, x2=right, y1=top, y2=top)
        y = top + 11 if plot.bottom - top >= 14 else top - 4
        element(guides, "text", text, class_="floor-name", x=left + 6 + 150 * number, y=y)
    for x, y, anchor, text in chart.remarks:
        across, down = plot.left + x * (plot.right - plot.left), plot.bottom - y * (plot.bottom - plot.top)
        element(guides, "text", text, class_="remark", x=across, y=down, text_anchor=anchor)
    if chart.counts:
        x, y = (plot.left + plot.right) / 2, chart.size[1] - 4
        element(guides, "text", chart.x_axis.label, class_="label", x=x, y=y, text_anchor="middle")


def _draw_series(parent: Element, plot: Plot, series: Series, chart: Chart) -> Element:
    names, label = f"series {style_class(series.style)} {series.look}", series.name or series.label
    group = element(parent, "g", class_=names, data_label=label)
    if series.bins:
        _draw_bins(group, plot, series.bins, chart.size[1] - 30)
    for area in series.bands:
        element(group, "path", class_="band", d=_outline(plot, area))
    for run in runs(series.y):
        if len(run) > 1:
            points = [(plot.x(series.x[i]), plot.y(series.y[i] or 0.0)) for i in run]
            element(group, "path", class_="line", d=polyline(points if series.bins else simplified(points)))
    if not chart.markers:
        return group
    for x, low, high in series.whiskers:
        element(group, "line", class_="whisker", x1=plot.x(x), x2=plot.x(x), y1=plot.y(low), y2=plot.y(high))
    for i, (x, value) in enumerate(zip(series.x, series.y, strict=True)):
        if value is not None and (series.look != "level" or i == 0):
            hollow = " hollow" if series.hollow and series.hollow[i] else ""
            draw_marker(group, series.style, plot.x(x), plot.y(value), hollow)
    return group


def _draw_bins(group: Element, plot: Plot, bins: Bins, base: float) -> None:
    """Bars of accuracy, and below them bars of shares with their digits: most bins hold too little to be seen."""
    sides = [(plot.x(x - bins.half) + 1, plot.x(x + bins.half) - 1) for x in bins.middles]
    for (left, right), accuracy in zip(sides, bins.heights, strict=True):
        if accuracy is not None:
            top = plot.y(accuracy)
            element(group, "rect", class_="bar", x=left, y=top, width=right - left, height=plot.bottom - top)
    for (left, right), share in zip(sides, bins.shares, strict=True):
        height, x = (COUNTS_HEIGHT - 26) * share, (left + right) / 2
        element(group, "rect", class_="count", x=left, y=base - height, width=right - left, height=height)
        element(group, "text", bins.share_text(share), class_="digits", x=x, y=base + 11, text_anchor="middle")


def draw_marker(parent: Element, style: int, x: float, y: float, extra: str = "") -> None:
    """The marker of a style at a place."""
    where = f"translate({x:.1f},{y:.1f})"
    element(parent, "path", class_=f"marker{extra}", d=MARKERS[marker_of(style)], transform=where)


def _outline(plot: Plot, area: Area) -> str:
    above, below = ([(plot.x(x), plot.y(y)) for x, y in zip(area.x, ends, strict=True)] for ends in area[:0:-1])
    return polyline(simplified(above) + simplified(below[::-1])) + "Z"


def swatch(style: int) -> Markup:
    """A short stretch of a file's line with its marker, for keys and tables."""
    root = element(None, "svg", class_=f"swatch {style_class(style)}", viewBox="0 0 26 12", aria_hidden="true")
    element(root, "line", class_="line", x1=0, x2=26, y1=6, y2=6)
    draw_marker(root, style, 13, 6)
    return markup(root)


def class_swatch(style: ClassStyle | None) -> Markup:
    """A small square in the colour of a class; striped for what has no label."""
    root = element(None, "svg", class_="class-swatch", viewBox="0 0 12 12", aria_hidden="true")
    element(root, "rect", width=12, height=12, fill=hex_colour(STRIPES[0] if style is None else style.colour))
    if style is None:
        element(root, "path", d="M-1,9L9,-1M3,13L13,3", stroke=hex_colour(STRIPES[1]), stroke_width=3)
    return markup(root)


def hex_colour(colour: RGB) -> str:
    """A colour as programs for drawing read it."""
    return "#{:02x}{:02x}{:02x}".format(*colour)


def lollipop(
    stat: Stat, style: int, lower: float, upper: float, description: str, hollow: bool = False, log: bool = False
) -> Markup:
    """One value as a dot with a whisker of ± std, in a strip of any width.

    The stem starts at zero, or at the lower end of a logarithmic scale.
    """
    root = element(None, "svg", class_=f"strip {style_class(style)}", role="img", aria_label=description)
    element(root, "title", description)
    if stat.mean is None:
        return markup(root)
    axis, origin = Axis(lower, upper, [], log=log), lower if log else 0.0

    def at(value: float) -> str:
        return f"{4 + 92 * min(max(axis.share(value), 0.0), 1.0):.2f}%"

    middle, mean = {"y1": "50%", "y2": "50%"}, at(stat.mean)
    element(root, "line", class_="origin", x1=at(origin), x2=at(origin), y1=0, y2="100%")
    element(root, "line", class_="stem", x1=at(origin), x2=mean, **middle)
    if stat.std is not None:
        ends = {"x1": at(stat.mean - stat.std), "x2": at(stat.mean + stat.std)}
        element(root, "line", class_="whisker", **ends, **middle)
    draw_marker(element(root, "svg", x=mean, y="50%", overflow="visible"), style, 0, 0, " hollow" if hollow else "")
    return markup(root)
