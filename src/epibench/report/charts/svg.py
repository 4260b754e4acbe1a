"""The ground of drawings for pages: elements, paths, and the frame with its axes.

Elements are made with ElementTree, so that text from files is escaped wherever it ends up.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element, SubElement, tostring

from markupsafe import Markup

from epibench.report.chart import COLOURS, DASHES, LIGHT, LOOKS, NUM_STYLES, Plot, Point


def style_sheet() -> str:
    """Colours, dashes and lines of charts as style rules: the light theme, which pages change for the dark."""
    colours = {**LIGHT, **{f"s{number}": colour for number, colour in enumerate(COLOURS)}}
    rules = [":root {" + "; ".join(f"--{name}: {colour}" for name, colour in colours.items()) + "}"]
    for style, dash in enumerate(DASHES):
        dashed = f"; --dash: {dash}" if dash else ""
        rules.append(f".{style_class(style)} {{ --c: var(--s{style % len(COLOURS)}){dashed} }}")
    for name, look in LOOKS.items():
        path = "svg .line" if name == "file" else f"svg .{name} .line"
        colour, dash = "soft" if look.grey else "c", "var(--dash, none)" if look.dash is None else look.dash or "none"
        line = f"fill: none; stroke: var(--{colour}); stroke-linejoin: round; stroke-width: {look.width:g}"
        rules.append(f"{path} {{ {line}; stroke-dasharray: {dash}; opacity: {look.opacity:g} }}")
    return "\n".join(rules) + "\n"


def element(parent: Element | None, tag: str, text: str | None = None, **attributes: object) -> Element:
    """A new element; `class_` and `stroke_width` are written as `class` and `stroke-width`."""
    written = {
        name.rstrip("_").replace("_", "-"): f"{value:.4g}" if isinstance(value, float) else str(value)
        for name, value in attributes.items()
        if value is not None
    }
    made = Element(tag, written) if parent is None else SubElement(parent, tag, written)
    made.text = text
    return made


def canvas(width: float, height: float, description: str) -> Element:
    """An empty drawing with its accessible name."""
    root = element(None, "svg", viewBox=f"0 0 {width:g} {height:g}", role="img", aria_label=description, class_="chart")
    element(root, "title", description)
    return root


def markup(root: Element) -> Markup:
    """The drawing as text for the page."""
    return Markup(tostring(root, encoding="unicode"))


def polyline(points: Iterable[Point]) -> str:
    """A path through points, to a tenth of a pixel. Steps between points are shorter than positions."""
    tenths = [(round(10 * x), round(10 * y)) for x, y in points]
    if not tenths:
        return ""
    (x, y), pairs = tenths[0], itertools.pairwise(tenths)
    steps = [f"{(x1 - x0) / 10:g},{(y1 - y0) / 10:g}" for (x0, y0), (x1, y1) in pairs]
    return f"M{x / 10:g},{y / 10:g}l" + " ".join(steps)


def simplified(points: Sequence[Point], tolerance: float = 0.5) -> list[Point]:
    """The fewest points in order of x whose line passes all points within a tolerance, in pixels."""
    if len(points) < 3:
        return list(points)
    (left, first), (right, last) = points[0], points[-1]
    slope = (last - first) / (right - left) if right != left else 0.0
    offs = [abs(y - first - slope * (x - left)) for x, y in points]
    farthest = max(range(1, len(points) - 1), key=lambda i: offs[i])
    if offs[farthest] <= tolerance:
        return [points[0], points[-1]]
    return [*simplified(points[: farthest + 1], tolerance)[:-1], *simplified(points[farthest:], tolerance)]


def style_class(index: int) -> str:
    """The class that gives a series its colour, dash and marker; styles repeat after the last."""
    return f"s{index % NUM_STYLES}"


def frame(root: Element, plot: Plot, size: tuple[float, float], inset: float = 0.0) -> None:
    """Draw axes, grid and labels around the rectangle of a plot."""
    x_axis, y_axis, width, height = plot.x_axis, plot.y_axis, *size
    left, bottom = plot.left - inset, plot.bottom
    grid = element(root, "g", class_="axes", aria_hidden="true")
    for value, text in y_axis.ticks:
        y = plot.y(value)
        element(grid, "line", class_="grid", x1=left, x2=width - 16, y1=y, y2=y)
        element(grid, "text", text, x=left - 6, y=y + 3.5, text_anchor="end")
    element(grid, "line", class_="base", x1=left, x2=width - 16, y1=bottom, y2=bottom)
    for value, text in x_axis.ticks:
        x = plot.x(value)
        element(grid, "line", class_="base", x1=x, x2=x, y1=bottom, y2=bottom + (4 if text else 2))
        if text:
            element(grid, "text", text, x=x, y=bottom + 16, text_anchor="middle")
    if x_axis.label:
        element(grid, "text", x_axis.label, class_="label", x=(left + width) / 2, y=height - 4, text_anchor="middle")
    if y_axis.label:
        element(grid, "text", y_axis.label, class_="label", x=2, y=11)
