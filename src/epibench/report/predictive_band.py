"""Pictures of a regression: predictive mean ± 1 and 2 std, with the data, the truth and the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.etree.ElementTree import Element

from markupsafe import Markup

from epibench.data.sets.toy import TRAIN_REGION
from epibench.report.charts import Layer, Look, Series, layer_group
from epibench.report.numbers import finite, significant
from epibench.report.svg import Axis, Plot, Point, canvas, element, frame, markup, polyline, style_class

SIZE = (300.0, 210.0)
HEIGHT_RANGE = (-4.0, 4.0)
READOUT_STEP = 5
SPILL = 40.0  # how far lines run on beyond the frame before they are cut, in pixels


class BandPanels:
    """Draws the pictures of one run; what they share is drawn once and referred to."""

    def __init__(self, pictures: dict[str, Any], identity: str) -> None:
        self.pictures, self.identity = pictures, identity
        self.x = [float(x) for x in pictures["grid"]["x"]]
        lower, upper = self.x[0], self.x[-1]
        ticks = [float(value) for value in range(-6, 7, 3) if lower <= value <= upper]
        self.x_axis = Axis(lower, upper, [(value, significant(value, 1)) for value in ticks], "x")
        heights = (-4.0, -2.0, 0.0, 2.0, 4.0)
        self.y_axis = Axis(*HEIGHT_RANGE, [(value, significant(value, 1)) for value in heights], "y")

    def first(self) -> list[tuple[str, Markup]]:
        """The reference, and direct regression, where there are any."""
        found = []
        reference, direct = self.pictures.get("reference"), self.pictures.get("direct")
        if reference:
            found.append(("Reference", self._panel("the reference", [reference], None, outline=False)))
        if direct:
            found.append(("Direct regression, no uncertainty", self._panel("direct regression", [direct], None, True)))
        return found

    def method(self, description: str, examples: Sequence[dict[str, Any]], style: int) -> Markup:
        """A method's picture, with a layer for each example."""
        return self._panel(description, examples, style, outline=True)

    def shared(self) -> Markup:
        """Data, truth and the reference's outline, to be referred to by every picture."""
        root = element(None, "svg", class_="shared", width=0, height=0, aria_hidden="true")
        plot = frame(element(None, "svg"), *SIZE, self.x_axis, self.y_axis)
        data, truth = self.pictures.get("data") or {}, self.pictures.get("truth") or {}
        dots = "".join(
            f"M{plot.x(x):.1f} {_y(plot, y):.1f}h0" for x, y in zip(data.get("x", []), data.get("y", []), strict=True)
        )
        element(root, "path", id=f"{self.identity}-data", class_="dots", d=dots)
        element(
            root, "path", id=f"{self.identity}-truth", class_="truth", d=polyline(self._line(plot, truth.get("mean")))
        )
        reference = self.pictures.get("reference") or {}
        edges = [polyline(self._line(plot, reference.get("mean"), reference.get("std"), sign)) for sign in (-2, 2)]
        element(root, "path", id=f"{self.identity}-outline", class_="outline", d=" ".join(edges).strip())
        return markup(root)

    def _panel(self, description: str, examples: Sequence[dict[str, Any]], style: int | None, outline: bool) -> Markup:
        root = canvas(*SIZE, f"Predictive mean ± 1 and 2 std of {description}, over x from −7 to 7")
        plot = frame(root, *SIZE, self.x_axis, self.y_axis)
        left, right = (plot.x(x) for x in TRAIN_REGION["toy-regression"][0])
        element(root, "rect", class_="region", x=left, y=plot.top, width=right - left, height=plot.bottom - plot.top)
        element(_window(root, plot), "use", href=f"#{self.identity}-data")
        for number, example in enumerate(examples, start=1):
            key = str(number) if len(examples) > 1 else ""
            group = layer_group(root, plot, Layer(self._readout(example, style), self._heads(), key, number == 1))
            self._draw(_window(group, plot), plot, example, style)
        above = _window(root, plot)
        names = ["truth", *(["outline"] if outline and self.pictures.get("reference") else [])]
        for name in names:
            element(above, "use", href=f"#{self.identity}-{name}")
        return markup(root)

    def _draw(self, parent: Element, plot: Plot, example: dict[str, Any], style: int | None) -> None:
        group = element(
            parent, "g", class_="predictive neutral" if style is None else f"predictive {style_class(style)}"
        )
        mean, std = example.get("mean"), example.get("std")
        for width in (2, 1) if std else ():
            upper, lower = (self._line(plot, mean, std, sign * width) for sign in (1, -1))
            element(group, "path", class_="std", d=polyline([*upper, *reversed(lower)]) + "Z")
        element(group, "path", class_="mean", d=polyline(self._line(plot, mean)))

    def _line(self, plot: Plot, mean: Any, std: Any = None, width: float = 0.0) -> list[Point]:
        """Points of mean + width · std in pixels; those without a number are left out."""
        points = []
        for i, x in enumerate(self.x[: len(mean or [])]):
            centre, spread = finite(mean[i]), finite(std[i]) if std else 0.0
            if centre is not None and spread is not None:
                points.append((plot.x(x), _y(plot, centre + width * spread)))
        return points

    def _heads(self) -> dict[float, str]:
        return {x: f"x = {significant(x, 2)}" for x in self.x[::READOUT_STEP]}

    def _readout(self, example: dict[str, Any], style: int | None) -> list[Series]:
        """Numbers for the pointer at some places; nothing of this is drawn."""
        x, found = self.x[::READOUT_STEP], []
        for name, label in (("mean", "mean"), ("std", "std"), ("aleatoric_std", "of it aleatoric")):
            if example.get(name):
                values = [finite(value) for value in example[name][::READOUT_STEP]]
                texts = [significant(value, 2) for value in values]
                look: Look = "oracle" if style is None else "file"
                found.append(Series(label, style or 0, x, values, [None] * len(x), texts, look=look))
        return found


def _window(parent: Element, plot: Plot) -> Element:
    """A part of the drawing in the same coordinates that cuts off what lies outside the frame."""
    width, height = plot.right - plot.left, plot.bottom - plot.top
    box = f"{plot.left:.4g} {plot.top:.4g} {width:.4g} {height:.4g}"
    return element(parent, "svg", x=plot.left, y=plot.top, width=width, height=height, viewBox=box)


def _y(plot: Plot, value: float) -> float:
    """The vertical position of a value, also outside the frame, up to where it cannot be seen any more."""
    share = (value - plot.y_axis.lower) / (plot.y_axis.upper - plot.y_axis.lower)
    return min(max(plot.bottom - (plot.bottom - plot.top) * share, plot.top - SPILL), plot.bottom + SPILL)
