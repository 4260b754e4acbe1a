"""The 269 published cells of the paper's plots, and their comparison with a run, cell by cell.

Gustafsson, Danelljan and Schön, "Evaluating Scalable Bayesian Deep Learning Methods for Robust Computer Vision", 2020.
KLs of toy problems are compared under the published convention, metrics of dense problems in the published unit.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from statistics import fmean, median
from typing import Any

import numpy as np

from epibench.published.resampling import LEVEL, Array, Joint, chance_differences, detectable, joint, probability
from epibench.results import QUICK, Number, PoolSize, Results, Score, Stat
from epibench.standard_errors import independent_draws

TOY = "toy_problems_quantative_results"  # spelled as the paper's source does
PANELS = {"toy-regression": "Regression", "toy-classification": "Classification"}
TOY_FIGURES = {
    "": TOY,
    "-sgd": f"{TOY}_SGD",
    "-momentum": f"{TOY}_SGDMOM",
    "-less-training": f"{TOY}_SGDMOM_less_training",
    "-dropout": f"{TOY}_mcdropout_adam",
}
# Prefixes of their series; series of the dropout figure are rates.
METHODS = {"Ensembling": "ensemble", "MC-dropout": "mc_dropout", "SGLD": "sgld", "SGHMC": "sghmc"}
CONVENTION, REGION = "gustafsson2020", "grid"
CONVENTION_NOTES = {  # by domain: the largest difference from pooled metrics
    "kitti": "RMSE as the mean over groups of 4 images",
    "cityscapes": "a confidence of exactly 1 in no bin of the ECE, mIoU over all classes, a missing one as 0",
}
IN_MILLIMETRES = {"m": 1000.0, "mm": 1.0}


@dataclass(frozen=True)
class Row:
    """One published cell: its place in the paper, and its mean and population std."""

    figure: str
    panel: str
    metric: str
    series: str
    members: int
    mean: float
    std: float

    @property
    def identity(self) -> tuple[str, str, int, float, float]:
        """The values that two rows share if they show the same result in two figures."""
        return self.panel, self.metric, self.members, self.mean, self.std

    @property
    def line(self) -> str:
        """The line of its plot."""
        return f"{self.panel}/{self.metric}/{self.series}"

    @property
    def is_kl(self) -> bool:
        """Whether it is of a toy problem, whose only metric is the KL."""
        return self.metric.startswith("KL")


@dataclass(frozen=True)
class DenseFigure:
    """A figure of the paper: the domain, the metric of each panel, and the draws behind its cells."""

    recipes: str  # names of recipes begin with it
    figure: str
    domain: str
    metrics: dict[str, str]
    num_networks: dict[str, int]
    num_sets: dict[int, int]  # random sets of ensemble networks for each M


DEPTH = DenseFigure(
    recipes="kitti-depth",
    figure="depth_completion_ause_auce",
    domain="kitti",
    metrics={"AUSE": "ause", "AUCE": "auce", "RMSE [mm]": "rmse"},
    num_networks={"ensemble": 33, "mc_dropout": 16},
    num_sets={1: 32, 2: 16, 4: 16, 8: 16, 16: 16, 32: 4},
)
SEGMENTATION = DenseFigure(
    recipes="cityscapes-segmentation",
    figure="segmentation_ause_ece_miou",
    domain="cityscapes",
    metrics={"AUSE": "ause", "ECE": "ece", "mIoU [%]": "miou"},
    num_networks={"ensemble": 26, "mc_dropout": 8},
    num_sets=dict.fromkeys((1, 2, 4, 8, 16), 8),
)


@cache
def published_rows() -> tuple[Row, ...]:
    """Return every published cell, in the order of the paper's figures."""
    text = resources.files("epibench.published").joinpath("results.csv").read_text(encoding="utf-8")
    return tuple(
        Row(figure, panel, metric, series, int(members), float(mean), float(std))
        for figure, panel, metric, series, members, mean, std in list(csv.reader(text.splitlines()))[1:]
    )


def distinct_rows(rows: Iterable[Row]) -> list[Row]:
    """Return rows without repetitions: some series are shown in several figures."""
    return list({row.identity: row for row in reversed(list(rows))}.values())[::-1]


def _recipe_name(results: Results) -> str:
    """Return the name of a run's recipe without the suffix of its quick variant."""
    return str(results.recipe.get("name") or "").removesuffix(QUICK)


def _dense_figure(results: Results) -> DenseFigure | None:
    """Return the figure of a recipe, or None."""
    return next((figure for figure in (DEPTH, SEGMENTATION) if _recipe_name(results).startswith(figure.recipes)), None)


def _toy_rows(recipe_name: str) -> list[Row]:
    """Return the published rows of a recipe; empty if the paper has none."""
    problem = next((problem for problem in PANELS if recipe_name.startswith(problem)), "")
    figure = TOY_FIGURES.get(recipe_name.removeprefix(problem))
    return [row for row in published_rows() if (row.figure, row.panel) == (figure, PANELS.get(problem))]


def _methods_by_rate(recipe: Mapping[str, Any]) -> dict[str, str]:
    """Return methods of the dropout figure by their rate; the star marks the paper's chosen rate."""
    methods = {}
    for method, variant in {"mc_dropout": recipe.get("mc_dropout"), **(recipe.get("variants") or {})}.items():
        options = variant or {}
        rate = (options.get("options") or {}).get("rate", options.get("rate"))
        if rate is not None:
            methods.update({f"p = {rate:g}": method, f"*p = {rate:g}": method})
    return methods


@dataclass(frozen=True)
class PublishedCell:
    """One published cell and our value.

    The value is None if the method or the M was not run.

    Args:
        row: The published cell.
        method: Our method.
        num_published: Number of published draws.
        mean: Our mean.
        std: Our std.
        num_ours: Number of our independent draws.
        units: Our values, one for each set, dropout network or chain.
    """

    row: Row
    method: str
    num_published: int
    mean: float | None = None
    std: float | None = None
    num_ours: int = 0
    units: tuple[float, ...] = ()

    @property
    def difference(self) -> float | None:
        """Our mean minus the published mean."""
        return None if self.mean is None else self.mean - self.row.mean

    @property
    def median(self) -> float | None:
        """The median of our values, which is robust to single large values."""
        return median(self.units) if self.units else None

    @property
    def within_std(self) -> bool | None:
        """Whether the difference is at most one published std; None without our mean."""
        return None if self.difference is None else abs(self.difference) <= self.row.std

    @cached_property
    def by_chance(self) -> Array | None:
        """Chance differences between as many draws as published and ours; None with fewer than two draws."""
        if self.mean is None or self.num_ours < 2 or len(self.units) < 2:
            return None
        return chance_differences(self.units, self.num_published, self.num_ours, self.row.line)

    @cached_property
    def p(self) -> float | None:
        """The probability of a difference this large in either direction, if the draws are alike."""
        if self.by_chance is None or self.difference is None:
            return None
        return probability(-self.difference, self.by_chance)

    @property
    def agrees(self) -> bool | None:
        """Whether chance may explain the difference (p ≥ 0.05); None if p is unknown."""
        return None if self.p is None else self.p >= LEVEL

    @cached_property
    def detectable(self) -> tuple[float, float] | None:
        """Shares of our mean by which published draws must be lower, or higher, to be detected.

        Detected: p < 0.05, with a probability of 80 %. A share below −1 is impossible.
        """
        if self.by_chance is None or not self.mean:
            return None
        low, high = detectable(self.by_chance)
        return low / self.mean, high / self.mean


@dataclass(frozen=True)
class Totals:
    """Numbers of cells: published, compared, within one published std, judged, and with p < 0.05 (`unlike`)."""

    published: int
    compared: int
    within_std: int
    judged: int
    unlike: int

    @property
    def expected(self) -> float:
        """The number of cells that would have p < 0.05 by chance alone."""
        return LEVEL * self.judged


@dataclass(frozen=True)
class SeriesComparison:
    """The judged cells of one series, one by one and together."""

    cells: tuple[PublishedCell, ...]
    together: Joint

    @property
    def unlike(self) -> int:
        """The number of cells with p < 0.05."""
        return sum(cell.agrees is False for cell in self.cells)


def compare(results: Results) -> list[PublishedCell]:
    """Compare every published cell of a run's recipe with our value.

    Returns:
        The cells; empty for a recipe without published cells.
    """
    figure = _dense_figure(results)
    if figure is not None:
        rows = [row for row in published_rows() if row.figure == figure.figure]
        return [_dense_cell(row, results, figure) for row in rows]
    rates = _methods_by_rate(results.recipe)
    return [
        _toy_cell(row, rates.get(row.series, "") if "p = " in row.series else method_of(row.series), results)
        for row in _toy_rows(_recipe_name(results))
    ]


def method_of(series: str) -> str:
    """Return our method of a published series."""
    return next(method for name, method in METHODS.items() if series.startswith(name))


def _toy_cell(row: Row, method: str, results: Results) -> PublishedCell:
    score = results.score(method, REGION)
    return _cell(row, method, score, f"kl_{CONVENTION}", published_draws(row), 1.0)


def _dense_cell(row: Row, results: Results, figure: DenseFigure) -> PublishedCell:
    method, name = method_of(row.series), figure.metrics[row.metric]
    score = results.score(method, figure.domain)
    published = f"{name}_{CONVENTION}"
    metric = published if score and published in score.summary.get(row.members, {}) else name
    return _cell(row, method, score, metric, dense_draws(row, figure), _unit_factor(row, score))


def _cell(
    row: Row, method: str, score: Score | None, metric: str, num_published: int, factor: float | None
) -> PublishedCell:
    """Return a cell from our score. `factor`: from our unit to the published one; None: our unit is unknown."""
    stat = score.summary.get(row.members, {}).get(metric) if score else None
    if score is None or factor is None or not isinstance(stat, Stat) or stat.mean is None:
        return PublishedCell(row, method, num_published)
    values = [draw.metrics.get(metric) for draw in score.draws if row.members == draw.M]
    draws = [value for value in values if not isinstance(value, list)]
    num_ours = independent_draws(stat.n, row.members, score.pool)
    std = None if stat.std is None else factor * stat.std
    units = tuple(factor * unit for unit in independent_units(draws, score.pool))
    return PublishedCell(row, method, num_published, factor * stat.mean, std, num_ours, units)


def independent_units(draws: Sequence[Number], pool: PoolSize) -> tuple[float, ...]:
    """Return the values of draws, averaged within a network; empty if a value is missing."""
    values = [value for value in draws if value is not None]
    if len(values) < len(draws):
        return ()
    repeats = max(1, (pool.num_groups or 0) // (pool.num_networks or pool.num_groups or 1))
    return tuple(fmean(values[first : first + repeats]) for first in range(0, len(values), repeats))


def _unit_factor(row: Row, score: Score | None) -> float | None:
    """Return the factor from our unit to a published cell's; None if our unit is unknown."""
    if row.metric.endswith("[mm]"):
        return IN_MILLIMETRES.get((score.unit or "") if score else "")
    return 100.0 if row.metric.endswith("[%]") else 1.0


def published_draws(row: Row) -> int:
    """Return the independent draws behind a published toy cell: sets of 1,024 networks, 10 dropout networks, or chains.

    The text has 6 chains; the authors' scripts for classification read 7 of SGLD and 10 of SGHMC.
    """
    classification = row.panel == "Classification"
    if row.series.startswith("Ensembling"):
        return min(1024 // row.members, 20 if classification else 1024)
    if row.series.startswith("SGLD"):
        return 7 if classification else 6
    return 6 if row.series.startswith("SGHMC") and not classification else 10


def dense_draws(row: Row, figure: DenseFigure) -> int:
    """Return the independent draws behind a published dense cell: disjoint sets, or dropout networks."""
    method = method_of(row.series)
    networks = figure.num_networks[method]
    if method == "mc_dropout":
        return networks
    return independent_draws(figure.num_sets[row.members], row.members, PoolSize(networks))


def distinct(cells: Iterable[PublishedCell]) -> list[PublishedCell]:
    """Return cells without repeated published numbers. Of repetitions, a cell with our mean is kept."""
    kept: dict[object, PublishedCell] = {}
    for cell in cells:
        known = kept.get(cell.row.identity)
        if known is None or (known.mean is None and cell.mean is not None):
            kept[cell.row.identity] = cell
    return list(kept.values())


def totals(cells: Iterable[PublishedCell]) -> Totals:
    """Return counts over cells."""
    counted = list(cells)
    return Totals(
        published=len(counted),
        compared=sum(cell.mean is not None for cell in counted),
        within_std=sum(cell.within_std is True for cell in counted),
        judged=sum(cell.agrees is not None for cell in counted),
        unlike=sum(cell.agrees is False for cell in counted),
    )


def by_series(cells: Iterable[PublishedCell]) -> list[SeriesComparison]:
    """Return the distinct judged cells by series, because cells of a series are dependent."""
    lines: dict[str, list[PublishedCell]] = {}
    for cell in distinct(cells):
        if cell.p is not None:
            lines.setdefault(cell.row.line, []).append(cell)
    return [_together(line, tuple(of_line)) for line, of_line in lines.items()]


def _together(line: str, cells: tuple[PublishedCell, ...]) -> SeriesComparison:
    sizes = {(len(cell.units), cell.num_published, cell.num_ours) for cell in cells}
    paired = len(sizes) == 1 and not cells[0].row.series.startswith("Ensembling")
    differences = [-cell.difference for cell in cells if cell.difference is not None]
    tables = [cell.by_chance for cell in cells if cell.by_chance is not None]
    return SeriesComparison(cells, joint(differences, tables, line, paired))


def unlike_by_chance(series: Sequence[SeriesComparison]) -> tuple[int, int]:
    """Return the range of the number of cells with p < 0.05 by chance.

    If both sides are alike, the number lies in it in 90 of 100 cases.
    """
    counts = sum(each.together.counts for each in series)
    low, high = np.quantile(counts, (0.05, 0.95))
    return int(low), int(high)


def warnings_of(results: Results) -> list[str]:
    """Return the reasons why our numbers are not comparable cell by cell."""
    name, warnings = _recipe_name(results), []
    if str(results.recipe.get("name")).endswith(QUICK):
        warnings.append(f"This is the quick variant of {name}: smaller, and trained less, than what was published.")
    # Another text describes the origin of data and reference.
    changed = [text for text in results.changes if not text.startswith(("data.", "reference."))]
    if changed:
        warnings.append(f"Settings that differ from the recipe's: {', '.join(changed)}.")
    figure = _dense_figure(results)
    data = results.recipe.get("data") or {}
    if figure is not None and not _as_published(results, figure):
        warnings.append(
            f"The two are measured by different conventions: the published numbers as in {CONVENTION} "
            f"({CONVENTION_NOTES[figure.domain]}), ours over all valid pixels together (pooled)."
        )
    if figure is None and not data.get("path"):
        warnings.append(
            f"Ours was trained on data that epibench generated itself (seed {data.get('seed', 'unknown')}), not on the "
            "published data: the numbers are comparable in kind only, not cell by cell."
        )
    return warnings


def _as_published(results: Results, figure: DenseFigure) -> bool:
    """Return whether a run has its metrics under the published convention, too."""
    if results.convention == CONVENTION:
        return True
    scores = [score for score in results.latest() if score.domain == figure.domain]
    return all(f"ause_{CONVENTION}" in metrics for score in scores for metrics in score.summary.values())


def grounds_of(results: Results) -> list[str]:
    """Return sentences on the data, reference and measure behind our numbers."""
    figure = _dense_figure(results)
    if figure is not None:
        facts = results.domains.get(figure.domain)
        where = f"Ours are those on {facts.label if facts else figure.domain}, in the published unit"
        how = CONVENTION_NOTES[figure.domain]
        return [f"{where} and convention ({how})." if _as_published(results, figure) else f"{where}."]
    path = (results.recipe.get("data") or {}).get("path")
    grounds = [f"Ours was trained on the data in {path}."] if path else []
    reference = results.reference.path if results.reference else None
    if reference:
        name = "the one that ships with epibench" if reference == "shipped" else reference
        grounds.append(f"Our reference is {name}; the published numbers were measured against one HMC chain.")
    return [*grounds, "KL(reference ‖ method) over the grid under the published convention."]
