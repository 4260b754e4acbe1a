"""A chart as data: axes, lines with bands, and what stands beside them.

`charts/lines.py` draws it as inline SVG for pages, `charts/matplotlib.py` on matplotlib axes for files and notebooks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, NamedTuple

from epibench.report.numbers import fixed, magnitude, scientific, significant

CHARACTER_WIDTH = 6.3  # of the 11 px tick labels, on the generous side
MARK_LETTER, MARK_HEIGHT = 5.6, 8.0  # of the 9.5 px letters beside points
INSET = 10.0  # between the frame and markers at the ends of axes
COUNTS_HEIGHT = 58.0  # of the bars below a reliability diagram

Point = tuple[float, float]
Size = tuple[float, float]
Remark = tuple[float, float, str, str]  # shares of the way across and up, anchor, text
Box = tuple[float, float, float, float]  # left, top, right, bottom
LookName = Literal["file", "solid", "oracle", "published", "level", "faint", "thin", "trail"]


class Area(NamedTuple):
    """x, and both ends there."""

    x: list[float]
    lower: list[float]
    upper: list[float]


class Look(NamedTuple):
    """The look of a line. dash: None for the dash of its style. grey: replaces the colour."""

    width: float = 2.0
    dash: str | None = None
    opacity: float = 1.0
    grey: bool = False


LOOKS: dict[LookName, Look] = {
    "file": Look(),
    "solid": Look(dash=""),
    "oracle": Look(1.5, "4 3", grey=True),
    "published": Look(1.5, "4 3", grey=True),
    "level": Look(1.3, opacity=0.75),
    "faint": Look(1.3, opacity=0.6),
    "thin": Look(1.0, "", 0.7),
    "trail": Look(1.0, "", 0.55),
}
LIGHT = {"ink": "#1c2026", "soft": "#5d6470", "line": "#e4e1da", "grid": "#ecebe6", "hover": "#f1efe9"}
COLOURS = ("#0072b2", "#d55e00", "#00875f", "#b4569a", "#a07400", "#4a4f58", "#3f9bd6", "#8c3b2e")
# After the first eight styles the colours have other dashes and markers.
DASHES = (
    *("", "7 3", "2 2.5", "9 3 2 3", "5 2", "1 2", "12 3", "4 2 1 2 1 2"),
    *("3 2", "11 2 2 2", "6 3", "1.5 2", "10 2", "4 2", "5 2 1 2", "8 3"),
    *("12 2 3 2", "2 2", "10 3", "5 2", "2 1.5", "9 2 2 2", "3 2", "7 2"),
)
NUM_STYLES = len(DASHES)
NUM_MARKERS, MARKER_STEP = 8, 3


def colour_of(style: int) -> str:
    """The colour of a style in the light theme."""
    return COLOURS[style % len(COLOURS)]


def marker_of(style: int) -> int:
    """The number of the marker of a style."""
    return (style + MARKER_STEP * (style // len(COLOURS))) % NUM_MARKERS


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


def plot_of(size: Size, x_axis: Axis, y_axis: Axis, inset: float = 0.0) -> Plot:
    """The rectangle that a drawing of a size leaves between the labels of its axes."""
    left = 8 + CHARACTER_WIDTH * max((len(text) for _, text in y_axis.ticks), default=1)
    bottom = size[1] - (36.0 if x_axis.label else 20.0)
    return Plot(left + inset, 22.0 if y_axis.label else 8.0, size[0] - 16 - inset, bottom, x_axis, y_axis)


@dataclass(frozen=True)
class Bins:
    """Bars behind the line of a reliability diagram, and the share of pixels that each bin holds.

    texts: rows of the read-out.
    """

    middles: Sequence[float]
    heights: Sequence[float | None]
    shares: Sequence[float]
    texts: Mapping[str, Sequence[str]]

    @property
    def half(self) -> float:
        """Half the width of a bin."""
        return 0.5 / len(self.middles)

    def share_text(self, share: float) -> str:
        """A share in per cent, without decimals."""
        return "0" if not share else "<1" if share < 0.005 else f"{100 * share:.0f}"


@dataclass(frozen=True)
class Series:
    """One line: values at x, their std, and the text that the read-out shows at each x.

    A level is one value that does not depend on x, drawn across and marked once.
    """

    label: str
    style: int
    x: Sequence[float]
    y: Sequence[float | None]
    std: Sequence[float | None] = ()  # by default None at every x
    texts: Sequence[str] = ()
    hollow: Sequence[bool] = ()
    look: LookName = "file"
    name: str = ""  # what the key calls it, where that is not its label
    marks: Sequence[str] = ()  # what stands beside its points, where there is room
    bins: Bins | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "std", self.std or [None] * len(self.x))
        object.__setattr__(self, "texts", self.texts or [""] * len(self.x))

    @property
    def bands(self) -> list[Area]:
        """± std around the line."""
        points = list(zip(self.y, self.std, strict=True))
        low, high = ([None if y is None or s is None else y + k * s for y, s in points] for k in (-1, 1))
        return [] if self.bins else areas(self.x, low, high)

    @property
    def whiskers(self) -> list[tuple[float, float, float]]:
        """x and both ends, of points that have no band: all of bins, and one that is alone."""
        alone = sum(y is not None for y in self.y) == 1
        points = zip(self.x, self.y, self.std, strict=True)
        return [(x, y - s, y + s) for x, y, s in points if y is not None and s is not None and (self.bins or alone)]


@dataclass(frozen=True)
class Layer:
    """Series that are seen together; a layer with a key is seen when its M is chosen.

    note: at the right; readout: what the pointer shows instead of the series.
    """

    series: list[Series]
    heads: dict[float, str]
    key: str = ""
    chosen: bool = True
    note: str = ""
    readout: Sequence[Series] = ()


@dataclass(frozen=True)
class Chart:
    """A chart with its caption.

    A chart without layers has no value to show. A chart of one method has the style of this method.

    Args:
        description: What screen readers say.
        bars: Shown on pages instead of the chart, where there is only one M.
        between: Whether the area between two lines is filled.
        floors: Values below which numbers mean nothing, with their names.
    """

    title: str
    x_axis: Axis = Axis(0.0, 1.0, [])
    y_axis: Axis = Axis(0.0, 1.0, [])
    layers: Sequence[Layer] = ()
    description: str = ""
    size: Size = (360.0, 240.0)
    meaning: str = ""
    better: str = ""
    style: int | None = None
    bars: Sequence[dict[str, Any]] = ()
    diagonal: bool = False
    zero: bool = False
    markers: bool = False
    between: bool = False
    floors: Sequence[tuple[float, str]] = ()
    remarks: Sequence[Remark] = ()

    @property
    def counts(self) -> bool:
        """Whether bars of shares stand below."""
        return any(series.bins for layer in self.layers for series in layer.series)

    @property
    def inset(self) -> float:
        """The room between the frame and the ends of the x axis."""
        return INSET if self.markers and not self.counts else 0.0

    @property
    def plot(self) -> Plot:
        """The rectangle between the axes."""
        if not self.counts:
            return plot_of(self.size, self.x_axis, self.y_axis, self.inset)
        unlabelled = Axis(self.x_axis.lower, self.x_axis.upper, self.x_axis.ticks)
        return plot_of((self.size[0], self.size[1] - COUNTS_HEIGHT), unlabelled, self.y_axis)

    @property
    def diagonal_ends(self) -> tuple[float, float]:
        """The first and last value that both axes show."""
        return max(self.x_axis.lower, self.y_axis.lower), min(self.x_axis.upper, self.y_axis.upper)

    @property
    def keys(self) -> list[str]:
        """The keys of the layers, the one that pages show first first."""
        return [layer.key for layer in sorted(self.layers, key=lambda layer: not layer.chosen)]

    def __html__(self) -> str:
        from epibench.report.charts.lines import line_chart  # which draws charts, and so stands above

        return line_chart(self) if self.layers else ""

    __str__ = __html__


def runs(*columns: Sequence[float | None]) -> list[list[int]]:
    """Neighbouring indices at which every column is defined."""
    defined = [None not in values for values in zip(*columns, strict=True)]
    return [list(run) for known, run in groupby(range(len(defined)), key=defined.__getitem__) if known]


def areas(x: Sequence[float], lower: Sequence[float | None], upper: Sequence[float | None]) -> list[Area]:
    """The areas between two lines, where both are defined at neighbouring x."""
    found = [Area([x[i] for i in run], *([line[i] or 0.0 for i in run] for line in (lower, upper)))
             for run in runs(lower, upper)]  # fmt: skip
    return [area for area in found if len(area.x) > 1]


def mark_places(plot: Plot, series: Sequence[Series]) -> Iterator[tuple[int, int, Point, str]]:
    """What stands beside points: the numbers of series and point, the middle of the base line, the text.

    First at the ends of lines; left out where it would cover another or a marker.
    """
    points = [
        (abs(2 * i - len(one.marks) + 1), number, i, (plot.x(one.x[i]), plot.y(y)))
        for number, one in enumerate(series)
        for i in range(len(one.marks))
        if (y := one.y[i]) is not None
    ]
    taken: list[Box] = [(x - 4, y - 4, x + 4, y + 4) for *_, (x, y) in points]
    for _, number, i, (x, y) in sorted(points, key=lambda point: -point[0]):
        text = series[number].marks[i]
        width = MARK_LETTER * len(text)
        for left, base in ((x - width / 2, y - 6), (x - width / 2, y + 13), (x + 6, y + 3), (x - 6 - width, y + 3)):
            box = (left, base - MARK_HEIGHT, left + width, base)
            apart = (box[2] <= b[0] or b[2] <= box[0] or box[3] <= b[1] or b[3] <= box[1] for b in taken)
            if all(apart):
                taken.append(box)
                yield number, i, (left + width / 2, base), text
                break


def nice_axis(*values: float, label: str = "", pad: float = 0.06) -> Axis:
    """An axis around values, with about four ticks at round numbers."""
    lower, upper = min(values), max(values)
    if upper <= lower:
        room = abs(upper) * 0.1 or 1.0
        lower, upper = lower - room, upper + room
    room = (upper - lower) * pad
    start = 0.0 if 0 <= lower < 2 * room else lower - room
    end = 0.0 if -2 * room < upper <= 0 else upper + room
    raw = (end - start) / 4
    # The nearest of 1, 2, 2.5, 5 times a power of ten.
    step = min((factor * 10.0 ** magnitude(raw) for factor in (1, 2, 2.5, 5, 10)), key=lambda x: abs(math.log(x / raw)))
    first, last = math.ceil(start / step - 1e-9), math.floor(end / step + 1e-9)
    return Axis(start, end, [(i * step, tick_text(i * step, step)) for i in range(first, last + 1)], label)


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
    lower, upper, labelled = min(members), max(members), list[int]()
    scale = width / math.log2(upper / lower) if upper > lower else 0.0
    for m in sorted(members, key=lambda m: (m not in (lower, upper), m & (m - 1) != 0, m)):
        if all(abs(math.log2(m / other)) * scale >= 22 for other in labelled):
            labelled.append(m)
    return Axis(lower, upper, [(m, str(m) if m in labelled else "") for m in sorted(members)], "members M", True)
