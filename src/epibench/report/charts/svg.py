"""The ground every chart stands on: elements, scales, ticks, and the frame with its axes.

Elements are made with ElementTree, so that text from files is escaped wherever it ends up.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element, SubElement, tostring

from markupsafe import Markup

from epibench.report.numbers import fixed, magnitude, scientific, significant

NUM_STYLES = 24  # eight colours, each with three markers and dashes
CHARACTER_WIDTH = 6.3  # of the 11 px tick labels, on the generous side

Point = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """One axis: its range, its labelled ticks, and what it shows."""

    lower: float
    upper: float
    ticks: list[tuple[float, str]]
    label: str = ""
    log: bool = False

    def share(self, value: float) -> float:
        """Where a value lies between the ends; on a logarithmic axis, zero lies infinitely far below."""
        lower, upper, position = self.lower, self.upper, value
        if self.log:
            lower, upper, position = math.log(lower), math.log(upper), math.log(value) if value > 0 else -math.inf
        return (position - lower) / (upper - lower) if upper > lower else 0.5


@dataclass(frozen=True)
class Plot:
    """The inner rectangle of a chart, which turns values into positions."""

    left: float
    top: float
    right: float
    bottom: float
    x_axis: Axis
    y_axis: Axis

    def x(self, value: float) -> float:
        """The horizontal position of a value."""
        return self.left + (self.right - self.left) * self.x_axis.share(value)

    def y(self, value: float) -> float:
        """The vertical position of a value; outside the range it stays at the edge."""
        return self.bottom - (self.bottom - self.top) * min(max(self.y_axis.share(value), 0.0), 1.0)


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
    """A path through points, to a tenth of a pixel, by steps from one to the next: shorter than by positions."""
    tenths = [(round(10 * x), round(10 * y)) for x, y in points]
    if not tenths:
        return ""
    steps = [f"{_tenth(x1 - x0)},{_tenth(y1 - y0)}" for (x0, y0), (x1, y1) in itertools.pairwise(tenths)]
    return f"M{_tenth(tenths[0][0])},{_tenth(tenths[0][1])}l" + " ".join(steps)


def simplified(points: Sequence[Point], tolerance: float = 0.5) -> list[Point]:
    """Of points in order of x, those that a line needs to pass all of them within a tolerance, in pixels."""
    if len(points) < 3:
        return list(points)
    (left, first), (right, last) = points[0], points[-1]
    slope = (last - first) / (right - left) if right != left else 0.0
    offs = [abs(y - first - slope * (x - left)) for x, y in points]
    farthest = max(range(1, len(points) - 1), key=lambda i: offs[i])
    if offs[farthest] <= tolerance:
        return [points[0], points[-1]]
    return [*simplified(points[: farthest + 1], tolerance)[:-1], *simplified(points[farthest:], tolerance)]


def _tenth(value: int) -> str:
    return f"{value / 10:g}"


def style_class(index: int) -> str:
    """The class that gives a series its colour, dash and marker; styles repeat after the last."""
    return f"s{index % NUM_STYLES}"


def nice_axis(lower: float, upper: float, label: str = "", target: int = 4, pad: float = 0.06) -> Axis:
    """An axis around a range, with ticks at round numbers."""
    if upper <= lower:
        room = abs(upper) * 0.1 or 1.0
        lower, upper = lower - room, upper + room
    room = (upper - lower) * pad
    start = 0.0 if 0 <= lower < 2 * room else lower - room
    end = 0.0 if -2 * room < upper <= 0 else upper + room
    step = round_step((end - start) / target)
    first, last = math.ceil(start / step - 1e-9), math.floor(end / step + 1e-9)
    values = [i * step for i in range(first, last + 1)]
    return Axis(start, end, [(value, tick_text(value, step)) for value in values], label)


def round_step(raw: float) -> float:
    """The nearest of 1, 2, 2.5, 5 times a power of ten."""
    power = 10.0 ** magnitude(raw)
    return float(min((1, 2, 2.5, 5, 10), key=lambda factor: abs(math.log(factor * power / raw))) * power)


def tick_text(value: float, step: float) -> str:
    """A tick label with as many decimals as its step needs."""
    if value and (abs(value) >= 1e6 or step < 1e-5):
        return scientific(value, 2)
    decimals = max(0, -magnitude(step) + (1 if f"{step:e}".startswith("2.5") else 0))
    return fixed(value, decimals)


def log_axis(lower: float, upper: float, label: str = "") -> Axis:
    """A logarithmic axis with ticks at 1, 2 and 5 times powers of ten, or at the powers where these are many."""
    decades = math.log10(upper / lower)
    factors = (1,) if decades > 3 else (1, 3) if decades > 2 else (1, 2, 5)
    powers = range(magnitude(lower), magnitude(upper) + 1)
    values = [factor * 10.0**power for power in powers for factor in factors]
    ticks = [(value, significant(value, 1)) for value in values if lower <= value <= upper]
    return Axis(lower, upper, ticks, label, log=True)


def percent_axis(label: str, step: int = 25) -> Axis:
    """An axis from 0 to 100 %."""
    return Axis(0.0, 1.0, [(i / 100, f"{i} %") for i in range(0, 101, step)], label)


def member_axis(members: Sequence[int], width: float) -> Axis:
    """A logarithmic axis over M; powers of two and the ends are labelled first, others where there is room."""
    lower, upper = min(members), max(members)
    scale = width / math.log2(upper / lower) if upper > lower else 0.0
    preferred = sorted(members, key=lambda m: (m not in (lower, upper), m & (m - 1) != 0, m))
    labelled: list[int] = []
    for m in preferred:
        if all(abs(math.log2(m / other)) * scale >= 22 for other in labelled):
            labelled.append(m)
    return Axis(lower, upper, [(m, str(m) if m in labelled else "") for m in sorted(members)], "members M", True)


def frame(root: Element, width: float, height: float, x_axis: Axis, y_axis: Axis, inset: float = 0.0) -> Plot:
    """Draws axes, grid and labels, and returns the rectangle between them."""
    widest = max((len(text) for _, text in y_axis.ticks), default=1)
    left = 8 + CHARACTER_WIDTH * widest
    top = 22.0 if y_axis.label else 8.0
    bottom = height - (36.0 if x_axis.label else 20.0)
    inner = Plot(left + inset, top, width - 16 - inset, bottom, x_axis, y_axis)
    grid = element(root, "g", class_="axes", aria_hidden="true")
    for value, text in y_axis.ticks:
        y = inner.y(value)
        element(grid, "line", class_="grid", x1=left, x2=width - 16, y1=y, y2=y)
        element(grid, "text", text, x=left - 6, y=y + 3.5, text_anchor="end")
    element(grid, "line", class_="base", x1=left, x2=width - 16, y1=bottom, y2=bottom)
    for value, text in x_axis.ticks:
        x = inner.x(value)
        element(grid, "line", class_="base", x1=x, x2=x, y1=bottom, y2=bottom + (4 if text else 2))
        if text:
            element(grid, "text", text, x=x, y=bottom + 16, text_anchor="middle")
    if x_axis.label:
        element(grid, "text", x_axis.label, class_="label", x=(left + width) / 2, y=height - 4, text_anchor="middle")
    if y_axis.label:
        element(grid, "text", y_axis.label, class_="label", x=2, y=11)
    return inner
