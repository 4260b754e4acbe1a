"""Pictures of depth completion: input and truth, and each method's prediction, its error and its uncertainty."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from markupsafe import Markup

from epibench.report.charts.svg import element, markup
from epibench.report.numbers import m_equals
from epibench.report.pictures.colours import AMOUNT, DEPTH, ColourScale, GridValues, draw_bar, scale_end
from epibench.report.pictures.panels import (
    MOST_COLUMNS,
    WIDTH,
    Panel,
    PanelRow,
    draw_image,
    enlarged,
    known_values,
    photo_chart,
    picture_canvas,
    read_grid,
    shrunk,
)
from epibench.report.runs import EvalDomain, Run, RunMethod
from epibench.results import Picture

MOST_SPARSE_COLUMNS = 320  # where pixels are single points, which must be seen
SPARSE = 0.12  # where less of a picture is known than this, single pixels are enlarged


class DepthPanels:
    """Draws the pictures of one run on common scales: one of depth, and one of error and uncertainty."""

    def __init__(self, run: Run, pictures: Sequence[Picture]) -> None:
        unit = run.results.unit or ""
        depths = [read_grid(picture.target, zero_is_none=True) for picture in pictures]
        amounts = [error_of(picture, name) for picture in pictures for name in picture.methods]
        amounts += [read_grid(one.std) for picture in pictures for one in picture.methods.values()]
        self.depth = ColourScale(scale_end(known_values(depths), 0.995), DEPTH, unit)
        self.amount = ColourScale(scale_end(known_values(amounts), 0.98), AMOUNT, unit)

    def rows(self, picture: Picture, methods: Sequence[RunMethod], domain: EvalDomain) -> Iterator[PanelRow]:
        """Input and truth in a row, then a row for each method."""
        sparse = read_grid(picture.sparse_depth, zero_is_none=True)
        target = read_grid(picture.target, zero_is_none=True)
        first = [
            Panel("Image", photo_chart(picture)),
            Panel("Sparse depth, the input", self._drawn("Sparse input depth", sparse, self.depth)),
            Panel("True depth", self._drawn("True depth", target, self.depth)),
        ]
        yield PanelRow("Input and truth", first)
        for method in methods:
            if method.name in picture.methods:
                yield self._method_row(picture, method)

    def _method_row(self, picture: Picture, method: RunMethod) -> PanelRow:
        prediction, error = picture.methods[method.name], error_of(picture, method.name)
        where = f"{method.label}, {m_equals(prediction.M)}"
        mean, std = read_grid(prediction.mean), read_grid(prediction.std)
        panels = [
            Panel("Predicted depth", self._drawn(f"Predicted depth, {where}", mean, self.depth)),
            Panel("|Error|", self._drawn(f"Absolute error, {where}", error, self.amount)),
            Panel("Uncertainty (std)", self._drawn(f"Predicted std, {where}", std, self.amount)),
        ]
        return PanelRow(where, panels, method.index)

    def _drawn(self, description: str, values: GridValues | None, scale: ColourScale) -> Markup | None:
        """A grid in colours with its bar; None where there is no grid."""
        if values is None:
            return None
        sparse = bool(np.isfinite(values).mean() < SPARSE)
        small = shrunk(values, MOST_SPARSE_COLUMNS if sparse else MOST_COLUMNS, sparse)
        if sparse and np.isfinite(small).mean() < SPARSE:
            small = enlarged(small)
        height = WIDTH * values.shape[0] / values.shape[1]
        root = picture_canvas(height, f"{description}, from 0 to {scale.upper:g} {scale.unit}".rstrip(), bar=True)
        element(root, "rect", class_="unknown", width=WIDTH, height=height)
        draw_image(root, scale.uri(small), height)
        draw_bar(root, scale, WIDTH, height + 5)
        return markup(root)


def error_of(picture: Picture, method: str) -> GridValues | None:
    """Where a method is off and by how much; None where there is no target, or one of another size."""
    mean, target = read_grid(picture.methods[method].mean), read_grid(picture.target, zero_is_none=True)
    return np.abs(mean - target) if mean is not None and target is not None and mean.shape == target.shape else None
