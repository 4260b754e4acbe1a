"""Our means beside the published ones, cell by cell: KLs of toy problems as published, metrics of dense ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from epibench.published.dense import METHODS, DenseFigure, dense_draws, dense_figure, dense_stat
from epibench.published.figures import base_recipe, place_of
from epibench.published.independence import combined_error, independent_draws, standard_error
from epibench.published.rows import Row, published_rows

CONVENTION, DIRECTION, REGION = "gustafsson2020", "reference_to_method", "grid"
NUM_PUBLISHED_NETWORKS = 1024
NUM_PUBLISHED_GROUPS = {"mc_dropout": 10, "sgld": 6, "sghmc": 6}
MOST_CLASSIFICATION_SETS = 20


@dataclass(frozen=True)
class Cell:
    """One published cell, and what our run gives there: nothing where the method or the M was not run."""

    row: Row
    method: str
    num_published: int
    mean: float | None = None
    std: float | None = None
    num_ours: int = 0

    @property
    def difference(self) -> float | None:
        """Ours minus published."""
        return None if self.mean is None else self.mean - self.row.mean

    @property
    def error(self) -> float | None:
        """The standard error of the difference, √(s²published/n published + s²ours/n ours)."""
        published = standard_error(self.row.std, self.num_published)
        return combined_error(published, standard_error(self.std, self.num_ours))

    @property
    def within_std(self) -> bool | None:
        """Whether the difference is at most one published std; None where we have no mean."""
        return None if self.difference is None else abs(self.difference) <= self.row.std

    @property
    def within_error(self) -> bool | None:
        """Whether the difference is at most two of its standard errors; None where these are unknown."""
        if self.difference is None or self.error is None:
            return None
        return abs(self.difference) <= 2 * self.error


def is_kl(cell: Cell) -> bool:
    """Whether a cell is of a toy problem, where the KL is the only metric."""
    return cell.row.metric.startswith("KL")


@dataclass(frozen=True)
class Totals:
    """How many cells were published, compared, and agree in either sense; `judged` have a known Monte Carlo error."""

    published: int
    compared: int
    within_std: int
    judged: int
    within_error: int


def compare(results: Mapping[str, Any]) -> list[Cell]:
    """Every cell that the paper shows for the recipe of a run, with ours beside it; empty for a recipe of our own."""
    recipe = results.get("recipe") or {}
    figure = dense_figure(base_recipe(str(recipe.get("name") or "")))
    if figure is not None:
        rows = [row for row in published_rows() if row.figure == figure.figure]
        return [_dense_cell(row, results, figure) for row in rows]
    place = place_of(recipe)
    if place is None:
        return []
    rows = [row for row in published_rows() if (row.figure, row.panel) == (place.figure, place.panel)]
    return [_toy_cell(row, place.methods.get(row.series, ""), results) for row in rows]


def _dense_cell(row: Row, results: Mapping[str, Any], figure: DenseFigure) -> Cell:
    return _cell(row, METHODS[row.series], results, dense_stat(row, results, figure), dense_draws(row, figure))


def _toy_cell(row: Row, method: str, results: Mapping[str, Any]) -> Cell:
    found: Any = (results.get("kl") or {}).get(method) or {}
    for key in (CONVENTION, DIRECTION, REGION, str(row.members)):
        found = found.get(key) or {}
    return _cell(row, method, results, found, published_draws(row))


def _cell(row: Row, method: str, results: Mapping[str, Any], found: Mapping[str, Any], num_published: int) -> Cell:
    """A cell from our mean, std and n, which are missing where the method or the M was not run."""
    if found.get("mean") is None:
        return Cell(row, method, num_published)
    about = (results.get("methods") or {}).get(method) or {}
    num_ours = independent_draws(int(found.get("n") or 1), row.members, about)
    std = found.get("std")
    return Cell(row, method, num_published, float(found["mean"]), None if std is None else float(std), num_ours)


def published_draws(row: Row) -> int:
    """Independent draws behind a published toy cell: sets of 1,024 networks, 10 dropout networks, or 6 chains."""
    if row.series.startswith("Ensembling"):
        sets = NUM_PUBLISHED_NETWORKS // row.members
        return sets if row.panel == "Regression" else min(MOST_CLASSIFICATION_SETS, sets)
    if row.series.startswith("SG"):
        return NUM_PUBLISHED_GROUPS["sgld" if row.series.startswith("SGLD") else "sghmc"]
    return NUM_PUBLISHED_GROUPS["mc_dropout"]


def distinct(cells: Iterable[Cell]) -> list[Cell]:
    """Cells without those whose published number was met before; of these, one that we have a mean for is kept."""
    kept: dict[object, Cell] = {}
    for cell in cells:
        known = kept.get(cell.row.identity)
        if known is None or (known.mean is None and cell.mean is not None):
            kept[cell.row.identity] = cell
    return list(kept.values())


def totals(cells: Iterable[Cell]) -> Totals:
    """Counts over cells."""
    listed = list(cells)
    return Totals(
        published=len(listed),
        compared=sum(cell.mean is not None and math.isfinite(cell.mean) for cell in listed),
        within_std=sum(cell.within_std is True for cell in listed),
        judged=sum(cell.within_error is not None for cell in listed),
        within_error=sum(cell.within_error is True for cell in listed),
    )
