"""Line charts with bands, lollipops for single values, and the swatches of keys and tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal
from xml.etree.ElementTree import Element

from markupsafe import Markup

from epibench.report.charts.svg import (
    Axis,
    Plot,
    Point,
    canvas,
    element,
    frame,
    markup,
    polyline,
    simplified,
    style_class,
)
from epibench.report.entries import ClassStyle
from epibench.results import RGB, Stat

Remark = tuple[float, float, str, str]  # shares of the way across and up, anchor, text
Box = tuple[float, float, float, float]  # left, top, right, bottom
Look = Literal["file", "solid", "oracle", "published", "level", "faint", "thin", "trail"]
MARK_LETTER, MARK_HEIGHT = 5.6, 8.0  # of the 9.5 px letters beside points
STRIPES: tuple[RGB, RGB] = ((0x9A, 0xA0, 0xA8), (0xB9, 0xBE, 0xC5))  # of what has no label; seen on light and dark
MARKERS = (  # around (0, 0); the same order as the colours of the style sheet
    "M-3.6,0a3.6,3.6 0 1,0 7.2,0a3.6,3.6 0 1,0 -7.2,0z",
    "M-3.2,-3.2h6.4v6.4h-6.4z",
    "M0,-4.2L4,3H-4z",
    "M0,-4.6L4.6,0L0,4.6L-4.6,0z",
    "M0,4.2L4,-3H-4z",
    "M-1.4,-4.2h2.8v2.8h2.8v2.8h-2.8v2.8h-2.8v-2.8h-2.8v-2.8h2.8z",
    "M0,-4.4L4.2,-1.2L2.6,3.8H-2.6L-4.2,-1.2z",
    "M-4.2,-2.4h8.4v4.8h-8.4z",
)
MARKER_STEP = 3  # styles after the first eight have their colours with other markers


@dataclass(frozen=True)
class Series:
    """One line: values at x, their std, and the text that the read-out shows at each x.

    A level is one value that does not depend on x, drawn across and marked once.
    """

    label: str
    style: int
    x: Sequence[float]
    y: Sequence[float | None]
    std: Sequence[float | None]
    texts: list[str]
    hollow: Sequence[bool] = ()
    look: Look = "file"
    name: str = ""  # what the key calls it, where that is not its label
    marks: Sequence[str] = ()  # what stands beside its points, where there is room


@dataclass(frozen=True)
class Layer:
    """Series that are seen together; a layer with a key is seen when its M is chosen. note: at the right."""

    series: list[Series]
    heads: dict[float, str]
    key: str = ""
    chosen: bool = True
    note: str = ""


@dataclass(frozen=True)
class Decor:
    """What a chart shows besides its lines."""

    diagonal: bool = False
    zero: bool = False
    markers: bool = False
    fill_between: bool = False
    floors: list[tuple[float, str]] = field(default_factory=list)  # below it values mean nothing; its name
    remarks: list[Remark] = field(default_factory=list)


def line_chart(
    layers: Sequence[Layer],
    x_axis: Axis,
    y_axis: Axis,
    description: str,
    *,
    size: tuple[float, float],
    decor: Decor,
) -> Markup:
    """A chart of lines with ± std bands."""
    root = canvas(*size, description)
    plot = frame(root, *size, x_axis, y_axis, inset=10 if decor.markers else 0)
    _draw_guides(root, plot, decor)
    for layer in layers:
        group = layer_group(root, plot, layer)
        if not layer.series:
            remark_in_the_middle(group, plot, "not scored at this M")
        if decor.fill_between and len(layer.series) == 2:
            _draw_between(group, plot, *layer.series)
        groups = [_draw_series(group, plot, series, decor.markers) for series in layer.series]
        _draw_marks(groups, plot, layer.series)
        if layer.note:
            # Below the diagonal, or above the lines.
            y = plot.bottom - 7 if decor.diagonal else plot.top + 10
            element(group, "text", layer.note, class_="remark", x=plot.right - 4, y=y, text_anchor="end")
    return markup(root)


def remark_in_the_middle(parent: Element, plot: Plot, text: str) -> None:
    """Words in place of lines."""
    element(parent, "text", text, class_="remark", x=(plot.left + plot.right) / 2, y=60, text_anchor="middle")


def layer_group(root: Element, plot: Plot, layer: Layer) -> Element:
    """The group of a layer, with what the read-out needs as data."""
    names = "layer chosen" if layer.chosen else "layer"
    group = element(root, "g", class_=names, data_m=layer.key or None)
    if layer.heads and layer.series:
        group.set("data-readout", readout(plot, layer))
    return group


def readout(plot: Plot, layer: Layer) -> str:
    """Positions, headings and texts for the pointer, as JSON; long lists are joined to keep the page small."""
    positions = sorted(layer.heads)
    rows = []
    for series in layer.series:
        texts = dict(zip(series.x, series.texts, strict=True))
        name = series.look if series.look in ("oracle", "published") else style_class(series.style)
        rows.append({"label": series.label, "style": name, "texts": "|".join(texts.get(x, "") for x in positions)})
    top, bottom = round(plot.top, 1), round(plot.bottom, 1)
    data = {
        "x": [round(plot.x(x), 1) for x in positions],
        "heads": "|".join(layer.heads[x] for x in positions),
        "rows": rows,
        "span": [top, bottom],
    }
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def _draw_guides(root: Element, plot: Plot, decor: Decor) -> None:
    guides = element(root, "g", class_="guides", aria_hidden="true")
    if decor.diagonal:
        start = max(plot.x_axis.lower, plot.y_axis.lower)
        end = min(plot.x_axis.upper, plot.y_axis.upper)
        element(guides, "line", class_="guide", x1=plot.x(start), y1=plot.y(start), x2=plot.x(end), y2=plot.y(end))
    if decor.zero and plot.y_axis.lower <= 0 <= plot.y_axis.upper:
        room = 10 if decor.markers else 0
        element(guides, "line", class_="guide", x1=plot.left - room, x2=plot.right + room, y1=plot.y(0), y2=plot.y(0))
    for number, (floor, text) in enumerate(decor.floors):
        _draw_floor(guides, plot, floor, text, number)
    for x, y, anchor, text in decor.remarks:
        across, down = plot.left + x * (plot.right - plot.left), plot.bottom - y * (plot.bottom - plot.top)
        element(guides, "text", text, class_="remark", x=across, y=down, text_anchor=anchor)


def _draw_floor(guides: Element, plot: Plot, floor: float, text: str, number: int) -> None:
    """A zone from the bottom up to the floor, its line, and its name beneath it, or above where there is no room."""
    top, left, right = plot.y(floor), plot.left - 10, plot.right + 10
    element(guides, "rect", class_="floor", x=left, y=top, width=right - left, height=plot.bottom - top)
    element(guides, "line", class_="floor-line", x1=left, x2=right, y1=top, y2=top)
    beneath = plot.bottom - top >= 14
    element(guides, "text", text, class_="floor-name", x=left + 6 + 150 * number, y=top + 11 if beneath else top - 4)


def _draw_series(parent: Element, plot: Plot, series: Series, markers: bool) -> Element:
    """A line with its band and its markers; returns their group."""
    group = element(
        parent, "g", class_=f"series {style_class(series.style)} {series.look}", data_label=series.name or series.label
    )
    for run in runs(series.y, series.std):
        if len(run) > 1:
            element(group, "path", class_="band", d=_band(plot, series, run))
    for run in runs(series.y):
        if len(run) > 1:
            element(group, "path", class_="line", d=polyline(simplified([_point(plot, series, i) for i in run])))
    if not markers:
        return group
    alone = sum(y is not None for y in series.y) == 1
    for i, (x, y, std) in enumerate(zip(series.x, series.y, series.std, strict=True)):
        if y is None or (series.look == "level" and i > 0):
            continue
        if alone and std is not None:
            element(group, "line", class_="whisker", x1=plot.x(x), x2=plot.x(x), y1=plot.y(y - std), y2=plot.y(y + std))
        hollow = " hollow" if series.hollow and series.hollow[i] else ""
        draw_marker(group, series.style, plot.x(x), plot.y(y), hollow)
    return group


def _draw_marks(groups: Sequence[Element], plot: Plot, series: Sequence[Series]) -> None:
    """What stands beside points, first at the ends of lines; left out where it would cover another or a marker."""
    points = [
        (abs(2 * i - len(one.marks) + 1), number, i, _point(plot, one, i))
        for number, one in enumerate(series)
        for i in range(len(one.marks))
        if one.y[i] is not None
    ]
    taken: list[Box] = [(x - 4, y - 4, x + 4, y + 4) for *_, (x, y) in points]
    for _, number, i, (x, y) in sorted(points, key=lambda point: -point[0]):
        text = series[number].marks[i]
        width = MARK_LETTER * len(text)
        for left, base in ((x - width / 2, y - 6), (x - width / 2, y + 13), (x + 6, y + 3), (x - 6 - width, y + 3)):
            box = (left, base - MARK_HEIGHT, left + width, base)
            if not any(_overlap(box, other) for other in taken):
                taken.append(box)
                element(groups[number], "text", text, class_="mark", x=left + width / 2, y=base, text_anchor="middle")
                break


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def draw_marker(parent: Element, style: int, x: float, y: float, extra: str = "") -> Element:
    """The marker of a style at a place."""
    return element(
        parent,
        "path",
        class_=f"marker{extra}",
        d=MARKERS[(style + MARKER_STEP * (style // len(MARKERS))) % len(MARKERS)],
        transform=f"translate({x:.1f},{y:.1f})",
    )


def runs(*columns: Sequence[float | None]) -> Iterator[list[int]]:
    """Stretches of indices where every column is defined."""
    run: list[int] = []
    for i, values in enumerate(zip(*columns, strict=True)):
        if all(value is not None for value in values):
            run.append(i)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _point(plot: Plot, series: Series, i: int, shift: float = 0.0) -> Point:
    return plot.x(series.x[i]), plot.y((series.y[i] or 0.0) + shift)


def _band(plot: Plot, series: Series, run: list[int]) -> str:
    above = [_point(plot, series, i, series.std[i] or 0.0) for i in run]
    below = [_point(plot, series, i, -(series.std[i] or 0.0)) for i in reversed(run)]
    return polyline(simplified(above) + simplified(below)) + "Z"


def _draw_between(parent: Element, plot: Plot, upper: Series, lower: Series) -> None:
    for run in runs(upper.y, lower.y):
        above, below = [_point(plot, upper, i) for i in run], [_point(plot, lower, i) for i in reversed(run)]
        edge = polyline(simplified(above) + simplified(below)) + "Z"
        element(parent, "path", class_=f"between {style_class(upper.style)}", d=edge)


def swatch(style: int) -> Markup:
    """A short stretch of a file's line with its marker, for keys and tables."""
    root = element(None, "svg", class_=f"swatch {style_class(style)}", viewBox="0 0 26 12", aria_hidden="true")
    element(root, "line", class_="line", x1=0, x2=26, y1=6, y2=6)
    draw_marker(root, style, 13, 6)
    return markup(root)


def class_swatch(style: ClassStyle | None) -> Markup:
    """A small square in the colour of a class; striped for what has no label."""
    root = element(None, "svg", class_="class-swatch", viewBox="0 0 12 12", aria_hidden="true")
    element(root, "rect", width=12, height=12, fill=_hex(STRIPES[0] if style is None else style.colour))
    if style is None:
        element(root, "path", d="M-1,9L9,-1M3,13L13,3", stroke=_hex(STRIPES[1]), stroke_width=3)
    return markup(root)


def _hex(colour: RGB) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)


def lollipop(
    stat: Stat, style: int, lower: float, upper: float, description: str, hollow: bool = False, log: bool = False
) -> Markup:
    """One value as a dot with a whisker of ± std, in a strip of any width; its stem starts at zero.

    On a logarithmic scale, which has no zero, the stem starts at the lower end.
    """
    root = element(None, "svg", class_=f"strip {style_class(style)}", role="img", aria_label=description)
    element(root, "title", description)
    if stat.mean is None:
        return markup(root)

    axis, origin = Axis(lower, upper, [], log=log), lower if log else 0.0

    def at(value: float) -> str:
        return f"{4 + 92 * min(max(axis.share(value), 0.0), 1.0):.2f}%"

    element(root, "line", class_="origin", x1=at(origin), x2=at(origin), y1=0, y2="100%")
    element(root, "line", class_="stem", x1=at(origin), x2=at(stat.mean), y1="50%", y2="50%")
    if stat.std is not None:
        element(
            root, "line", class_="whisker", x1=at(stat.mean - stat.std), x2=at(stat.mean + stat.std), y1="50%", y2="50%"
        )
    dot = element(root, "svg", x=at(stat.mean), y="50%", overflow="visible")
    draw_marker(dot, style, 0, 0, " hollow" if hollow else "")
    return markup(root)
