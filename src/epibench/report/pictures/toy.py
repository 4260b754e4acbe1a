"""Pictures of toy problems: what the reference and every method predict, as small multiples on common axes.

Regression: predictive mean ± 1 and 2 std, with the data, the truth (± 1 and 2 of its own std) and the reference.
Classification with two inputs: maps of the probability of class 0, with the data and the true boundary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from PIL import Image

from epibench.report.chart import (
    COLOURS,
    LIGHT,
    Axis,
    Chart,
    Layer,
    LookName,
    Plot,
    Point,
    Series,
    colour_of,
    plot_of,
)
from epibench.report.charts.lines import layer_group
from epibench.report.charts.matplotlib import POINT, draw_image, framed, settings
from epibench.report.charts.svg import canvas, element, frame, markup, polyline, simplified, style_class
from epibench.report.numbers import m_equals, significant
from epibench.report.page import Option, Switch
from epibench.report.pictures import Drawing, Panel, PanelRow
from epibench.report.pictures.colours import NUM_COLOURS, PROBABILITY, data_uri, indexed, palette
from epibench.report.runs import Run, RunMethod
from epibench.results import RADIUS, TRAIN_REGION, Columns, ToyPictures, Values

MAX_EXAMPLES = 5
BAND_SIZE = (300.0, 210.0)
BAND_HEIGHTS = (-4.0, -2.0, 0.0, 2.0, 4.0)
READOUT_STEP = 5
SPILL = 40.0  # how far lines run on beyond the frame before they are cut, in pixels
MAP_SIZE = (270.0, 291.4)  # the frame takes 36.6 across and 58 down, so that the map is square
BAR_SIZE = (270.0, 46.0)


def toy_book(run: Run, methods: Sequence[RunMethod], identity: str) -> dict[str, Any] | None:
    """All pictures of a run, with a switch between examples; None where it has none."""
    pictures = run.results.toy
    if pictures is None:
        return None
    panels = BandPanels(pictures, identity) if run.problem == "toy-regression" else MapPanels(pictures, identity)
    examples = {
        method.label: {m: given[:MAX_EXAMPLES] for m, given in pictures.methods.get(method.name, {}).items() if given}
        for method in methods
    }
    groups = [PanelRow("To compare with", panels.first())]
    single = [method for method in methods if len(examples[method.label]) == 1]
    if alone := [panel for method in single for panel in _panels(panels, method, examples[method.label], alone=True)]:
        groups.append(PanelRow("At one M only", alone))
    for method in methods:
        if len(examples[method.label]) > 1:
            groups.append(PanelRow(method.label, _panels(panels, method, examples[method.label]), method.index))
    most = max((len(given) for of_method in examples.values() for given in of_method.values()), default=1)
    options = [Option(str(number), str(number), number == 1) for number in range(1, most + 1)]
    switch = Switch("example", "Example", options)
    return {"identity": identity, "run": run, "shared": panels.shared(), "switch": switch, "groups": groups}


def _panels(
    panels: BandPanels | MapPanels, method: RunMethod, examples: dict[int, list[Columns]], alone: bool = False
) -> list[Panel]:
    """A picture for each M; one that stands alone is named after its method."""
    return [
        Panel(
            f"{method.label}, {m_equals(m)}" if alone else m_equals(m),
            panels.panel(f"{method.label}, {m_equals(m)}", examples[m], method.index),
            method.index if alone else None,
        )
        for m in sorted(examples)
    ]


class BandPanels:
    """The bands of one run. Shared parts are drawn once and referred to."""

    def __init__(self, pictures: ToyPictures, identity: str) -> None:
        self.pictures, self.identity = pictures, identity
        self.x = [float(x) for x in pictures.grid["x"] if x is not None]
        lower, upper = self.x[0], self.x[-1]
        ticks = [float(value) for value in range(-6, 7, 3) if lower <= value <= upper]
        self.x_axis = Axis(lower, upper, [(value, significant(value, 1)) for value in ticks], "x")
        heights = [(value, significant(value, 1)) for value in BAND_HEIGHTS]
        self.y_axis = Axis(BAND_HEIGHTS[0], BAND_HEIGHTS[-1], heights, "y")

    def first(self) -> list[Panel]:
        """The reference, where there is one; the data with the truth; direct regression, where there is any."""
        reference = self.pictures.reference
        panels = [Panel("Reference", self.panel("the reference", [reference]))] if reference else []
        panels.append(Panel("Data and truth", self.panel("the true distribution", [])))
        if direct := self.pictures.direct:
            panels.append(Panel("Direct regression, no uncertainty", self.panel("direct regression", [direct])))
        return panels

    def shared(self) -> Markup:
        """Data, truth with its bands and the reference's outline, to be referred to by every picture."""
        root = element(None, "svg", class_="shared", width=0, height=0, aria_hidden="true")
        plot = plot_of(BAND_SIZE, self.x_axis, self.y_axis)
        data, truth, reference = self.pictures.data, self.pictures.truth, self.pictures.reference or {}
        points = zip(data["x"], data["y"], strict=True)
        dots = "".join(f"M{plot.x(x or 0.0):.1f} {_y(plot, y or 0.0):.1f}h0" for x, y in points)
        edges = [polyline(self._line(plot, reference, width)) for width in (-2, 2)]
        parts = {"data": ("dots", dots), "outline": ("outline", " ".join(edges).strip())}
        for name, (look, path) in parts.items():
            element(root, "path", id=f"{self.identity}-{name}", class_=look, d=path)
        group = element(root, "g", id=f"{self.identity}-truth")
        self._draw_bands(group, plot, truth, "true-std")
        element(group, "path", class_="truth", d=polyline(self._line(plot, truth)))
        return markup(root)

    def panel(self, description: str, examples: Sequence[Columns], style: int | None = None) -> Drawing:
        """A picture with a layer for each example; pictures of methods outline the reference."""
        description = f"Predictive mean ± 1 and 2 std of {description}, over x from −7 to 7"
        root = canvas(*BAND_SIZE, description)
        plot = frame(root, plot_of(BAND_SIZE, self.x_axis, self.y_axis), BAND_SIZE)
        left, right = (plot.x(x) for x in TRAIN_REGION["toy-regression"][0])
        element(root, "rect", class_="region", x=left, y=plot.top, width=right - left, height=plot.bottom - plot.top)
        element(_window(root, plot), "use", href=f"#{self.identity}-data")
        heads = {x: f"x = {significant(x, 2)}" for x in self.x[::READOUT_STEP]}
        for number, example in enumerate(examples, start=1):
            key = str(number) if len(examples) > 1 else ""
            group = layer_group(root, plot, Layer(self._readout(example, style), heads, key, number == 1))
            self._draw(_window(group, plot), plot, example, style)
        above = _window(root, plot)
        reference = self.pictures.reference
        outlined = bool(reference and examples) and reference not in examples
        for name in ("truth", *(["outline"] if outlined else [])):
            element(above, "use", href=f"#{self.identity}-{name}")
        keys = [str(number) for number in range(1, len(examples) + 1)] if len(examples) > 1 else [""]

        def draw(title: str, key: str) -> Any:
            chart = Chart(title, self.x_axis, self.y_axis, size=BAND_SIZE)
            with settings():
                axes = framed(chart, title)
                axes.axvspan(*TRAIN_REGION["toy-regression"][0], color=LIGHT["hover"], linewidth=0, zorder=0)
                self._plot(axes, examples[int(key or 1) - 1] if examples else {}, style, outlined)
                return axes

        return Drawing(markup(root), description, BAND_SIZE, draw, keys)

    def _plot(self, axes: Any, example: Columns, style: int | None, outlined: bool) -> None:
        """A predictive over the data, below the truth and the outline of the reference, on matplotlib axes."""
        ink, colour = LIGHT["ink"], LIGHT["soft"] if style is None else colour_of(style)
        data, reference = self.pictures.data, self.pictures.reference or {}
        axes.plot(data["x"], data["y"], "o", color=ink, alpha=0.3, markersize=1.5 * POINT, markeredgewidth=0)
        looks: list[tuple[Columns, dict[str, Any], dict[str, Any]]] = [
            (example, {"color": colour, "alpha": 0.22}, {"color": colour, "linewidth": 1.8 * POINT}),
            (
                self.pictures.truth,
                {"color": ink, "alpha": 0.2},
                {"color": ink, "linewidth": 1.1 * POINT, "linestyle": (0, (2.7, 2.3)), "alpha": 0.8},
            ),
        ]
        for columns, band, line in looks:
            for width in (2, 1) if "std" in columns else ():
                axes.fill_between(self.x, *(self._at(columns, sign * width) for sign in (1, -1)), linewidth=0, **band)
            if "mean" in columns:
                axes.plot(self.x, self._at(columns), **line)
        for width in (-2, 2) if outlined else ():
            axes.plot(self.x, self._at(reference, width), color=ink, linewidth=0.8 * POINT, alpha=0.6)

    def _at(self, columns: Columns, width: float = 0.0) -> list[float]:
        """Mean + width · std at every x; NaN where either is unknown."""
        means, stds = columns["mean"], columns["std"] if width else [0.0] * len(self.x)
        pairs = zip(means, stds, strict=False)
        return [math.nan if mean is None or std is None else mean + width * std for mean, std in pairs]

    def _draw(self, parent: Element, plot: Plot, example: Columns, style: int | None) -> None:
        look = "neutral" if style is None else style_class(style)
        group = element(parent, "g", class_=f"predictive {look}")
        self._draw_bands(group, plot, example, "std")
        element(group, "path", class_="mean", d=polyline(self._line(plot, example)))

    def _draw_bands(self, group: Element, plot: Plot, columns: Columns, look: str) -> None:
        """± 2 and ± 1 std around the mean, where a std is known."""
        for width in (2, 1) if "std" in columns else ():
            upper, lower = (self._line(plot, columns, sign * width) for sign in (1, -1))
            element(group, "path", class_=look, d=polyline([*upper, *reversed(lower)]) + "Z")

    def _line(self, plot: Plot, columns: Columns, width: float = 0.0) -> list[Point]:
        """Points of mean + width · std in pixels, as few as possible, without gaps."""
        means = columns.get("mean", [])
        stds: Values = columns.get("std", []) if width else [0.0] * len(means)
        return simplified(
            [
                (plot.x(x), _y(plot, mean + width * std))
                for x, mean, std in zip(self.x, means, stds, strict=False)
                if mean is not None and std is not None
            ]
        )

    def _readout(self, example: Columns, style: int | None) -> list[Series]:
        """Numbers for the pointer at some x; nothing of this is drawn."""
        x, series = self.x[::READOUT_STEP], []
        look: LookName = "oracle" if style is None else "file"
        for name, label in (("mean", "mean"), ("std", "std"), ("aleatoric_std", "of it aleatoric")):
            if name in example:
                values = example[name][::READOUT_STEP]
                texts = [significant(value, 2) for value in values]
                series.append(Series(label, style or 0, x, values, texts=texts, look=look))
        return series


def _window(parent: Element, plot: Plot) -> Element:
    """A part of the drawing in the same coordinates that cuts off what lies outside the frame."""
    width, height = plot.right - plot.left, plot.bottom - plot.top
    box = f"{plot.left:.4g} {plot.top:.4g} {width:.4g} {height:.4g}"
    return element(parent, "svg", x=plot.left, y=plot.top, width=width, height=height, viewBox=box)


def _y(plot: Plot, value: float) -> float:
    """The vertical position of a value, also outside the frame, up to where it cannot be seen any more."""
    share = (value - plot.y_axis.lower) / (plot.y_axis.upper - plot.y_axis.lower)
    return min(max(plot.bottom - (plot.bottom - plot.top) * share, plot.top - SPILL), plot.bottom + SPILL)


class MapPanels:
    """Draws the maps of one run; the data is drawn once and referred to."""

    def __init__(self, pictures: ToyPictures, identity: str) -> None:
        self.pictures, self.identity = pictures, identity
        self.shape = len(pictures.grid["x2"]), len(pictures.grid["x1"])
        self.x_axis, self.y_axis = (_map_axis(pictures.grid[name], text) for name, text in (("x1", "x₁"), ("x2", "x₂")))

    def first(self) -> list[Panel]:
        """The reference, where there is one, and how to read the maps."""
        reference = self.pictures.reference
        panels = [Panel("Reference", self.panel("the reference", [reference]))] if reference else []
        return [*panels, Panel("Data and truth", self.panel("the training data and the true boundary", []))]

    def shared(self) -> Markup:
        """The training data of each class, to be referred to by every map."""
        root = element(None, "svg", class_="shared", width=0, height=0, aria_hidden="true")
        plot = plot_of(MAP_SIZE, self.x_axis, self.y_axis)
        data = self.pictures.data
        points = list(zip(data["x1"], data["x2"], data["class"], strict=True))
        group = element(root, "g", id=f"{self.identity}-data")
        for number in (0, 1):
            dots = "".join(f"M{plot.x(x or 0):.1f} {plot.y(y or 0):.1f}h0" for x, y, label in points if label == number)
            element(group, "path", class_=f"dots class{number}", d=dots)
        return markup(root)

    def panel(self, description: str, examples: Sequence[Columns], style: int | None = None) -> Drawing:
        """A map with a layer for each example; maps keep their colours, whatever the style."""
        description = f"Probability of class 0 by {description}, over x₁ and x₂ from −6 to 6"
        root = canvas(*MAP_SIZE, description)
        plot = frame(root, plot_of(MAP_SIZE, self.x_axis, self.y_axis), MAP_SIZE)
        images: list[Image.Image] = []
        for number, example in enumerate(examples, start=1):
            group = layer_group(root, plot, Layer([], {}, str(number) if len(examples) > 1 else "", number == 1))
            # Rows of a picture go down, rows of the grid go up.
            probs = np.array(example["probs"], dtype=float).reshape(self.shape)[::-1]
            images.append(probability_image(probs))
            box: dict[str, Any] = {"x": plot.left, "y": plot.top, "width": plot.right - plot.left, "height": plot.bottom - plot.top}
            element(group, "image", href=data_uri(images[-1]), preserveAspectRatio="none", **box)
        over = element(root, "g", class_="over" if examples else "over alone")
        element(over, "use", href=f"#{self.identity}-data")
        _draw_truth(over, plot)
        keys = [str(number) for number in range(1, len(examples) + 1)] if len(examples) > 1 else [""]

        def draw(title: str, key: str) -> Any:
            with settings():
                axes = framed(Chart(title, self.x_axis, self.y_axis, size=MAP_SIZE), title)
                self._plot(axes, images[int(key or 1) - 1] if images else None)
                return axes

        return Drawing(markup(root), description, MAP_SIZE, draw, keys)

    def _plot(self, axes: Any, image: Image.Image | None) -> None:
        """A map below the data, the true boundary and the training region, on matplotlib axes."""
        x, y, data = self.x_axis, self.y_axis, self.pictures.data
        if image:
            draw_image(axes, image, (x.lower, y.upper, x.upper, y.lower), zorder=0.5)
        ink, opacity = ("#14161a", 0.4) if image else (LIGHT["ink"], 0.8)
        for number, colour in enumerate(("#06213f", "#3d1700") if image else COLOURS[:2]):
            rows = zip(data["x1"], data["x2"], data["class"], strict=True)
            points = [(a, b) for a, b, label in rows if label == number]
            style = {"color": colour, "alpha": opacity, "markersize": 1.5 * POINT, "markeredgewidth": 0}
            axes.plot([a for a, _ in points], [b for _, b in points], "o", **style)
        turns = np.linspace(0.0, 2.0 * np.pi, 181)
        axes.plot(RADIUS * np.cos(turns), RADIUS * np.sin(turns), color=ink, linewidth=1.2 * POINT)
        (left, right), (low, high) = TRAIN_REGION["toy-classification"]
        edge = {"color": ink, "linewidth": 0.9 * POINT, "linestyle": (0, (3.3, 2.8))}
        axes.plot([left, right, right, left, left], [low, low, high, high, low], **edge)
        axes.grid(visible=image is None, axis="y")


def _map_axis(values: Values, label: str) -> Axis:
    """An axis that reaches half a cell beyond the first and last grid point, as the map does."""
    first, last = values[0] or 0.0, values[-1] or 0.0
    half = (last - first) / (len(values) - 1) / 2
    ticks = [(float(value), significant(float(value), 1)) for value in range(-6, 7, 3)]
    return Axis(first - half, last + half, [tick for tick in ticks if first - half <= tick[0] <= last + half], label)


def _draw_truth(parent: Element, plot: Plot) -> None:
    """The true boundary of the classes, and the region that training data comes from."""
    across, down = plot.x(RADIUS) - plot.x(0), plot.y(0) - plot.y(RADIUS)
    element(parent, "ellipse", class_="boundary", cx=plot.x(0), cy=plot.y(0), rx=across, ry=down)
    (left, right), (low, high) = TRAIN_REGION["toy-classification"]
    x, y = plot.x(left), plot.y(high)
    element(parent, "rect", class_="training", x=x, y=y, width=plot.x(right) - x, height=plot.y(low) - y)


def probability_image(probs: NDArray[np.floating[Any]]) -> Image.Image:
    """Probabilities in their colours; NaN counts as undecided."""
    shares = np.clip(np.nan_to_num(probs, nan=0.5), 0.0, 1.0)
    return indexed((shares * (NUM_COLOURS - 1)).round(), palette(PROBABILITY))


def probability_bar() -> Markup:
    """The colours of the probabilities, with their scale."""
    width, height = BAR_SIZE
    root = canvas(width, height, "Colours: from sure of class 1 over undecided to sure of class 0")
    uri = data_uri(probability_image(np.linspace(0.0, 1.0, NUM_COLOURS)[None]))
    element(root, "image", href=uri, x=8, y=15, width=width - 16, height=10, preserveAspectRatio="none")
    element(root, "text", "probability of class 0", x=8, y=10)
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        anchor = "start" if share == 0 else "end" if share == 1 else "middle"
        element(root, "text", significant(share, 2), x=8 + share * (width - 16), y=38, text_anchor=anchor)
    return markup(root)
