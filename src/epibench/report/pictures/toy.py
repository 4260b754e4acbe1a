"""Pictures of toy problems: what the reference and every method predict, as small multiples on common axes.

Regression: predictive mean ± 1 and 2 std, with the data, the truth (± 1 and 2 of its own std) and the reference.
Classification with two inputs: maps of the probability of class 0, with the data and the true boundary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from PIL import Image

from epibench.report.chart import COLOURS, LIGHT, Axis, Chart, Layer, LookName, Plot, Series, colour_of, plot_of
from epibench.report.charts.lines import layer_group
from epibench.report.charts.matplotlib import POINT, draw_image, framed, settings
from epibench.report.charts.svg import canvas, element, frame, markup, polyline, simplified, style_class
from epibench.report.numbers import m_equals, significant
from epibench.report.page import Option, Switch
from epibench.report.pictures import Drawing, Panel, PanelRow
from epibench.report.pictures.colours import NUM_COLOURS, PROBABILITY, data_uri, indexed, palette
from epibench.report.runs import Run, RunMethod
from epibench.results import RADIUS, TRAIN_REGION, Columns, ToyPictures

MAX_EXAMPLES = 5
READOUT_STEP = 5
SPILL = 40.0  # how far lines run on beyond the frame before they are cut, in pixels
BAR_SIZE = (270.0, 46.0)


def toy_book(run: Run, methods: Sequence[RunMethod], identity: str) -> dict[str, Any] | None:
    """All pictures of a run, with a switch between examples; None where it has none."""
    pictures = run.results.toy
    if pictures is None:
        return None
    panels = (BandPanels if run.problem == "toy-regression" else MapPanels)(pictures, identity)
    examples = {
        method.label: {m: given[:MAX_EXAMPLES] for m, given in pictures.methods.get(method.name, {}).items() if given}
        for method in methods
    }
    given: list[tuple[str, str, list[Columns]]] = []
    if pictures.reference:
        given.append(("Reference", "the reference", [pictures.reference]))
    given.append(("Data and truth", panels.truth, []))
    if pictures.direct:
        given.append(("Direct regression, no uncertainty", "direct regression", [pictures.direct]))
    groups = [
        PanelRow("To compare with", [Panel(title, _panel(panels, about, shown)) for title, about, shown in given])
    ]
    alone: list[Panel] = []
    for method in methods:
        of_method, row = examples[method.label], []
        for m in sorted(of_method):
            title, single = f"{method.label}, {m_equals(m)}", len(of_method) == 1
            chart = _panel(panels, title, of_method[m], method.index)
            row.append(Panel(title if single else m_equals(m), chart, method.index if single else None))
        if len(row) > 1:
            groups.append(PanelRow(method.label, row, method.index))
        alone += row if len(row) == 1 else []
    if alone:
        groups.insert(1, PanelRow("At one M only", alone))
    most = max((len(given) for of_method in examples.values() for given in of_method.values()), default=1)
    options = [Option(str(number), str(number), number == 1) for number in range(1, most + 1)]
    switch = Switch("example", "Example", options)
    return {"identity": identity, "run": run, "shared": panels.shared(), "switch": switch, "groups": groups}


def _panel(
    panels: BandPanels | MapPanels, description: str, examples: Sequence[Columns], style: int | None = None
) -> Drawing:
    description = panels.about.format(description)
    root = canvas(*panels.size, description)
    frame(root, panels.plot, panels.size)
    keys = [str(number) for number in range(1, len(examples) + 1)] if len(examples) > 1 else [""]
    by_key = dict(zip(keys, examples, strict=False))
    panels.draw_svg(root, by_key, style)

    def draw(title: str, key: str) -> Any:
        with settings():
            axes = framed(Chart(title, panels.plot.x_axis, panels.plot.y_axis, size=panels.size), title, {})
            panels.draw_axes(axes, by_key.get(key), style)
            return axes

    return Drawing(markup(root), description, panels.size, draw, keys)


class BandPanels:
    """Bands around the predictive mean. Pictures of methods outline the reference."""

    size, truth = (300.0, 210.0), "the true distribution"
    about = "Predictive mean ± 1 and 2 std of {}, over x from −7 to 7"

    def __init__(self, pictures: ToyPictures, identity: str) -> None:
        self.x = [float(x) for x in pictures.grid["x"] if x is not None]
        self.pictures, self.identity = pictures, identity
        self.plot = plot_of(self.size, _axis("x", self.x[0], self.x[-1]), _axis("y", -4.0, 4.0, range(-4, 5, 2)))

    def shared(self) -> Markup:
        """Data, truth with its bands and the reference's outline, to be referred to by every picture."""
        root = element(None, "svg", class_="shared", width=0, height=0, aria_hidden="true")
        data, reference = self.pictures.data, self.pictures.reference or {}
        points = zip(data["x"], data["y"], strict=True)
        dots = "".join(f"M{self.plot.x(x or 0.0):.1f} {_y(self.plot, y or 0.0):.1f}h0" for x, y in points)
        edges = [self._path([self._at(reference, width)]) for width in (-2, 2)]
        element(root, "path", id=f"{self.identity}-data", class_="dots", d=dots)
        element(root, "path", id=f"{self.identity}-outline", class_="outline", d=" ".join(edges).strip())
        group = element(root, "g", id=f"{self.identity}-truth")
        self._draw_shapes(group, self.pictures.truth, "true-std", "truth")
        return markup(root)

    def draw_svg(self, root: Element, examples: dict[str, Columns], style: int | None) -> None:
        """Draw a layer for each example, by key, between the shared parts."""
        plot, (start, end) = self.plot, TRAIN_REGION["toy-regression"][0]
        left, right = plot.x(start), plot.x(end)
        element(root, "rect", class_="region", x=left, y=plot.top, width=right - left, height=plot.bottom - plot.top)
        element(_window(root, plot), "use", href=f"#{self.identity}-data")
        heads = {x: f"x = {significant(x, 2)}" for x in self.x[::READOUT_STEP]}
        for key, example in examples.items():
            group = layer_group(root, plot, Layer(self._readout(example, style), heads, key, key in ("", "1")))
            look = "neutral" if style is None else style_class(style)
            self._draw_shapes(element(_window(group, plot), "g", class_=f"predictive {look}"), example, "std", "mean")
        above, reference = _window(root, plot), self.pictures.reference
        for name in ("truth", "outline")[: 2 if reference and examples and reference not in examples.values() else 1]:
            element(above, "use", href=f"#{self.identity}-{name}")

    def draw_axes(self, axes: Any, example: Columns | None, style: int | None) -> None:
        """Draw an example with the shared parts on matplotlib axes."""
        ink, colour = LIGHT["ink"], LIGHT["soft"] if style is None else colour_of(style)
        data, reference = self.pictures.data, self.pictures.reference
        axes.axvspan(*TRAIN_REGION["toy-regression"][0], color=LIGHT["hover"], linewidth=0, zorder=0)
        axes.plot(data["x"], data["y"], "o", color=ink, alpha=0.3, markersize=1.5 * POINT, markeredgewidth=0)
        looks: dict[str, dict[str, Any]] = {
            "std": {"color": colour, "alpha": 0.22, "linewidth": 0},
            "mean": {"color": colour, "linewidth": 1.8 * POINT},
            "true-std": {"color": ink, "alpha": 0.2, "linewidth": 0},
            "truth": {"color": ink, "linewidth": 1.1 * POINT, "linestyle": (0, (2.7, 2.3)), "alpha": 0.8},
        }
        shapes = [*self._shapes(example or {}, "std", "mean"), *self._shapes(self.pictures.truth, "true-std", "truth")]
        for name, edges in shapes:
            if edges[0]:
                (axes.plot if len(edges) == 1 else axes.fill_between)(self.x, *edges, **looks[name])
        if reference and example and example != reference:
            for width in (-2, 2):
                axes.plot(self.x, self._at(reference, width), color=ink, linewidth=0.8 * POINT, alpha=0.6)

    def _at(self, columns: Columns, width: float = 0.0) -> list[float]:
        """Mean + width · std at every x; NaN where either is unknown."""
        means = columns.get("mean", [])
        stds = columns.get("std", []) if width else [0.0] * len(means)
        pairs = zip(means, stds, strict=False)
        return [math.nan if mean is None or std is None else mean + width * std for mean, std in pairs]

    def _shapes(self, columns: Columns, band: str, line: str) -> Iterator[tuple[str, list[list[float]]]]:
        """The bands of ± 2 and ± 1 std, where a std is known, and the mean: class and edges of each."""
        for width in (2, 1) if "std" in columns else ():
            yield band, [self._at(columns, width), self._at(columns, -width)]
        yield line, [self._at(columns)]

    def _draw_shapes(self, group: Element, columns: Columns, band: str, line: str) -> None:
        for name, edges in self._shapes(columns, band, line):
            element(group, "path", class_=name, d=self._path(edges))

    def _path(self, edges: Sequence[Sequence[float]]) -> str:
        """A line, or the outline of a band, with as few points as possible and without gaps."""
        upper, *others = (
            simplified([(self.plot.x(x), _y(self.plot, y)) for x, y in zip(self.x, edge, strict=False) if y == y])
            for edge in edges
        )
        return polyline([*upper, *reversed(others[0])]) + "Z" if others else polyline(upper)

    def _readout(self, example: Columns, style: int | None) -> list[Series]:
        """Numbers for the pointer at some x, which are not drawn."""
        x, series = self.x[::READOUT_STEP], []
        look: LookName = "oracle" if style is None else "file"
        for name, label in (("mean", "mean"), ("std", "std"), ("aleatoric_std", "of it aleatoric")):
            if name in example:
                values = example[name][::READOUT_STEP]
                texts = [significant(value, 2) for value in values]
                series.append(Series(label, style or 0, x, values, texts=texts, look=look))
        return series


class MapPanels:
    """Maps of the probability of class 0. They keep their colours, whatever the style."""

    size = (270.0, 291.4)  # the frame takes 36.6 across and 58 down, so that the map is square
    truth = "the training data and the true boundary"
    about = "Probability of class 0 by {}, over x₁ and x₂ from −6 to 6"

    def __init__(self, pictures: ToyPictures, identity: str) -> None:
        axes = []
        for name, label in (("x1", "x₁"), ("x2", "x₂")):
            values = pictures.grid[name]
            first, last = values[0] or 0.0, values[-1] or 0.0
            half = (last - first) / (len(values) - 1) / 2  # a cell reaches as far beyond its point
            axes.append(_axis(label, first - half, last + half))
        self.pictures, self.identity, self.plot = pictures, identity, plot_of(self.size, axes[0], axes[1])

    def shared(self) -> Markup:
        """The training data of each class, to be referred to by every map."""
        root = element(None, "svg", class_="shared", width=0, height=0, aria_hidden="true")
        group = element(root, "g", id=f"{self.identity}-data")
        for number in (0, 1):
            dots = "".join(f"M{self.plot.x(x):.1f} {self.plot.y(y):.1f}h0" for x, y in self._points(number))
            element(group, "path", class_=f"dots class{number}", d=dots)
        return markup(root)

    def draw_svg(self, root: Element, examples: dict[str, Columns], style: int | None) -> None:
        """Draw a layer for each example, by key, between the shared parts."""
        plot = self.plot
        box: dict[str, Any] = {"x": plot.left, "y": plot.top, "width": plot.right - plot.left}
        for key, example in examples.items():
            group = layer_group(root, plot, Layer([], {}, key, key in ("", "1")))
            uri = data_uri(self._map(example))
            element(group, "image", href=uri, preserveAspectRatio="none", **box, height=plot.bottom - plot.top)
        over = element(root, "g", class_="over" if examples else "over alone")
        element(over, "use", href=f"#{self.identity}-data")
        across, down = plot.x(RADIUS) - plot.x(0), plot.y(0) - plot.y(RADIUS)
        element(over, "ellipse", class_="boundary", cx=plot.x(0), cy=plot.y(0), rx=across, ry=down)
        (left, right), (low, high) = TRAIN_REGION["toy-classification"]
        x, y = plot.x(left), plot.y(high)
        element(over, "rect", class_="training", x=x, y=y, width=plot.x(right) - x, height=plot.y(low) - y)

    def draw_axes(self, axes: Any, example: Columns | None, style: int | None) -> None:
        """Draw an example with the shared parts on matplotlib axes."""
        x, y = self.plot.x_axis, self.plot.y_axis
        if example:
            draw_image(axes, self._map(example), (x.lower, y.upper, x.upper, y.lower), zorder=0.5)
        ink, opacity = ("#14161a", 0.4) if example else (LIGHT["ink"], 0.8)
        for number, colour in enumerate(("#06213f", "#3d1700") if example else COLOURS[:2]):
            style_of_dots = {"color": colour, "alpha": opacity, "markersize": 1.5 * POINT, "markeredgewidth": 0}
            axes.plot(*zip(*self._points(number), strict=True), "o", **style_of_dots)
        turns = np.linspace(0.0, 2.0 * np.pi, 181)
        axes.plot(RADIUS * np.cos(turns), RADIUS * np.sin(turns), color=ink, linewidth=1.2 * POINT)
        (left, right), (low, high) = TRAIN_REGION["toy-classification"]
        edge = {"color": ink, "linewidth": 0.9 * POINT, "linestyle": (0, (3.3, 2.8))}
        axes.plot([left, right, right, left, left], [low, low, high, high, low], **edge)
        axes.grid(visible=example is None, axis="y")

    def _points(self, number: int) -> list[tuple[float, float]]:
        data = self.pictures.data
        rows = zip(data["x1"], data["x2"], data["class"], strict=True)
        return [(x or 0.0, y or 0.0) for x, y, label in rows if label == number]

    def _map(self, example: Columns) -> Image.Image:
        # Rows of a picture go down, rows of the grid go up.
        shape = len(self.pictures.grid["x2"]), len(self.pictures.grid["x1"])
        return probability_image(np.array(example["probs"], dtype=float).reshape(shape)[::-1])


def _axis(label: str, lower: float, upper: float, ticks: Sequence[int] = range(-6, 7, 3)) -> Axis:
    shown = [(float(value), significant(float(value), 1)) for value in ticks if lower <= value <= upper]
    return Axis(lower, upper, shown, label)


def _window(parent: Element, plot: Plot) -> Element:
    """A part of the drawing in the same coordinates that cuts off what lies outside the frame."""
    width, height = plot.right - plot.left, plot.bottom - plot.top
    box = f"{plot.left:.4g} {plot.top:.4g} {width:.4g} {height:.4g}"
    return element(parent, "svg", x=plot.left, y=plot.top, width=width, height=height, viewBox=box)


def _y(plot: Plot, value: float) -> float:
    """The vertical position of a value, also outside the frame, up to where it cannot be seen any more."""
    down = plot.bottom - (plot.bottom - plot.top) * plot.y_axis.share(value)
    return min(max(down, plot.top - SPILL), plot.bottom + SPILL)


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
