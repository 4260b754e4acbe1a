"""Pictures of a classification with two inputs: maps of the probability of class 0, with the data and the truth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.etree.ElementTree import Element

from markupsafe import Markup

from epibench.data.sets.toy import RADIUS, TRAIN_REGION
from epibench.report.charts import Layer, layer_group
from epibench.report.colour_map import NUM_COLOURS, map_uri
from epibench.report.numbers import finite, significant
from epibench.report.svg import Axis, Plot, canvas, element, frame, markup

SIZE = (270.0, 291.4)  # the frame takes 36.6 across and 58 down, so that the map is square
BAR_SIZE = (270.0, 46.0)


class MapPanels:
    """Draws the maps of one run; the data is drawn once and referred to."""

    def __init__(self, pictures: dict[str, Any], identity: str) -> None:
        self.pictures, self.identity = pictures, identity
        grid = pictures["grid"]
        self.width, self.height = len(grid["x1"]), len(grid["x2"])
        self.x_axis, self.y_axis = _axis(grid["x1"], "x₁"), _axis(grid["x2"], "x₂")

    def first(self) -> list[tuple[str, Markup]]:
        """The reference, where there is one, and how to read the maps."""
        reference = self.pictures.get("reference")
        found = [("Reference", self._panel("the reference", [reference]))] if reference else []
        return [*found, ("Data and truth", self._panel("the training data and the true boundary", []))]

    def method(self, description: str, examples: Sequence[dict[str, Any]], style: int) -> Markup:
        """A method's map, with a layer for each example; maps keep their colours, whatever the style."""
        return self._panel(description, examples)

    def shared(self) -> Markup:
        """The training data of each class, to be referred to by every map."""
        root = element(None, "svg", class_="shared", width=0, height=0, aria_hidden="true")
        plot = frame(element(None, "svg"), *SIZE, self.x_axis, self.y_axis)
        data = self.pictures.get("data") or {}
        points = list(zip(data.get("x1", []), data.get("x2", []), data.get("class", []), strict=True))
        group = element(root, "g", id=f"{self.identity}-data")
        for number in (0, 1):
            dots = "".join(f"M{plot.x(x):.1f} {plot.y(y):.1f}h0" for x, y, label in points if label == number)
            element(group, "path", class_=f"dots class{number}", d=dots)
        return markup(root)

    def _panel(self, description: str, examples: Sequence[dict[str, Any]]) -> Markup:
        root = canvas(*SIZE, f"Probability of class 0 by {description}, over x₁ and x₂ from −6 to 6")
        plot = frame(root, *SIZE, self.x_axis, self.y_axis)
        for number, example in enumerate(examples, start=1):
            group = layer_group(root, plot, Layer([], {}, str(number) if len(examples) > 1 else "", number == 1))
            self._draw(group, plot, example)
        over = element(root, "g", class_="over" if examples else "over alone")
        element(over, "use", href=f"#{self.identity}-data")
        _draw_truth(over, plot)
        return markup(root)

    def _draw(self, group: Element, plot: Plot, example: dict[str, Any]) -> None:
        probs = [finite(value) for value in example.get("probs") or []]
        if len(probs) != self.width * self.height:
            middle = (plot.left + plot.right) / 2
            element(group, "text", "no picture", class_="remark", x=middle, y=60, text_anchor="middle")
            return
        # Rows of a picture go down, those of the grid go up.
        rows = [probs[start : start + self.width] for start in range(0, len(probs), self.width)][::-1]
        element(
            group,
            "image",
            href=map_uri(rows),
            preserveAspectRatio="none",
            x=plot.left,
            y=plot.top,
            width=plot.right - plot.left,
            height=plot.bottom - plot.top,
        )


def _axis(values: Sequence[float], label: str) -> Axis:
    """An axis that reaches half a cell beyond the first and last grid point, as the map does."""
    half = (values[-1] - values[0]) / (len(values) - 1) / 2
    ticks = [(float(value), significant(float(value), 1)) for value in range(-6, 7, 3)]
    inside = [tick for tick in ticks if values[0] - half <= tick[0] <= values[-1] + half]
    return Axis(values[0] - half, values[-1] + half, inside, label)


def _draw_truth(parent: Element, plot: Plot) -> None:
    """The true boundary of the classes, and the region that training data comes from."""
    across, down = plot.x(RADIUS) - plot.x(0), plot.y(0) - plot.y(RADIUS)
    element(parent, "ellipse", class_="boundary", cx=plot.x(0), cy=plot.y(0), rx=across, ry=down)
    (left, right), (low, high) = TRAIN_REGION["toy-classification"]
    x, y = plot.x(left), plot.y(high)
    element(parent, "rect", class_="training", x=x, y=y, width=plot.x(right) - x, height=plot.y(low) - y)


def colour_bar() -> Markup:
    """The colours of the probabilities, with their scale."""
    width, height = BAR_SIZE
    root = canvas(width, height, "Colours: from sure of class 1 over undecided to sure of class 0")
    values: list[list[float | None]] = [[number / (NUM_COLOURS - 1) for number in range(NUM_COLOURS)]]
    element(root, "image", href=map_uri(values), x=8, y=15, width=width - 16, height=10, preserveAspectRatio="none")
    element(root, "text", "probability of class 0", x=8, y=10)
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        anchor = "start" if share == 0 else "end" if share == 1 else "middle"
        element(root, "text", significant(share, 2), x=8 + share * (width - 16), y=38, text_anchor=anchor)
    return markup(root)
