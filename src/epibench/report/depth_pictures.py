"""Pictures of depth completion: input and truth, and each method's prediction, its error and its uncertainty."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from epibench.report.colour_map import AMOUNT, DEPTH
from epibench.report.colour_scale import ColourScale, draw_bar, scale_end
from epibench.report.domains import Domain
from epibench.report.grids import Grid, enlarged, pooled, read_grid, shrunk
from epibench.report.numbers import finite, m_equals
from epibench.report.picture_panels import (
    MOST_COLUMNS,
    WIDTH,
    Panel,
    PanelRow,
    photo_chart,
    picture_canvas,
    picture_methods,
    picture_panel,
)
from epibench.report.runs import Method, Run
from epibench.report.svg import element, markup

MOST_SPARSE_COLUMNS = 320  # where pixels are single points, which must be seen
SPARSE = 0.12  # where less of a picture is known than this, single pixels are enlarged


@dataclass(frozen=True)
class Prediction:
    """One method's grids for one image, and the error where the target is known."""

    mean: Grid | None
    std: Grid | None
    error: Grid | None
    m: int | None


class DepthPanels:
    """Draws the pictures of one run on common scales: one of depth, and one of error and uncertainty."""

    def __init__(self, run: Run, pictures: Sequence[dict[str, Any]]) -> None:
        unit = str(run.results.get("unit") or "")
        depths, amounts = [], []
        for picture in pictures:
            depths.append(read_grid(picture.get("target"), zero_is_none=True))
            for method in picture_methods(picture):
                prediction = read_prediction(picture, method)
                amounts += [prediction.error, prediction.std]
        self.depth = ColourScale(scale_end(pooled(depths), 0.995), DEPTH, unit)
        self.amount = ColourScale(scale_end(pooled(amounts), 0.98), AMOUNT, unit)

    def rows(self, picture: dict[str, Any], methods: Sequence[Method], domain: Domain) -> Iterator[PanelRow]:
        """Input and truth in a row, then a row for each method."""
        sparse = read_grid(picture.get("sparse_depth"), zero_is_none=True)
        target = read_grid(picture.get("target"), zero_is_none=True)
        first = [
            Panel("Image", photo_chart(picture)),
            Panel("Sparse depth, the input", self._drawn("Sparse input depth", sparse, self.depth)),
            Panel("True depth", self._drawn("True depth", target, self.depth)),
        ]
        yield PanelRow("Input and truth", first)
        for method in methods:
            if method.name in picture_methods(picture):
                yield self._method_row(read_prediction(picture, method.name), method)

    def _method_row(self, found: Prediction, method: Method) -> PanelRow:
        where = f"{method.label}, {m_equals(found.m)}" if found.m is not None else method.label
        panels = [
            Panel("Predicted depth", self._drawn(f"Predicted depth, {where}", found.mean, self.depth)),
            Panel("|Error|", self._drawn(f"Absolute error, {where}", found.error, self.amount)),
            Panel("Uncertainty (std)", self._drawn(f"Predicted std, {where}", found.std, self.amount)),
        ]
        return PanelRow(where, panels, method.index)

    def _drawn(self, description: str, values: Grid | None, scale: ColourScale) -> Markup | None:
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
        picture_panel(root, scale.uri(small), height)
        draw_bar(root, scale, WIDTH, height + 5)
        return markup(root)


def read_prediction(picture: dict[str, Any], method: str) -> Prediction:
    """A method's grids; no error where there is no target, or one of another size."""
    found = picture_methods(picture)[method]
    mean, std = read_grid(found.get("mean")), read_grid(found.get("std"))
    target = read_grid(picture.get("target"), zero_is_none=True)
    error = np.abs(mean - target) if mean is not None and target is not None and mean.shape == target.shape else None
    m = finite(found.get("M"))
    return Prediction(mean, std, error, None if m is None else int(m))
