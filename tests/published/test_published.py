import math
from collections.abc import Callable
from typing import Any

import pytest

from epibench import published
from epibench.published import CONVENTION, DIRECTION, REGION, PublishedCell, Totals, compare, published_draws
from epibench.report.markdown import published_table
from epibench.results import RunResults, Stat
from epibench.standard_errors import PoolSize

TOY = [row for row in published.published_rows() if row.figure.startswith("toy")]


RunOf = Callable[..., RunResults]
CellOf = Callable[..., PublishedCell]


def kl(stats: dict[int, tuple[float | None, float | None, int]], convention: str = CONVENTION) -> dict[str, Any]:
    """KLs at some M, in the view that was published."""
    of_m = {m: Stat(mean=mean, std=std, n=n) for m, (mean, std, n) in stats.items()}
    return {convention: {DIRECTION: {REGION: of_m}}}


@pytest.fixture
def cell_of(run_of: RunOf) -> CellOf:
    """Ensembling on regression at M = 16: published 0.336318 ± 0.0984614 from 64 sets."""

    def make(mean: float, std: float | None, n: int, pool: dict[str, Any] | None = None) -> PublishedCell:
        cells = compare(run_of("toy-regression", pool=pool, kl={"ensemble": kl({16: (mean, std, n)})}))
        return next(one for one in cells if one.mean is not None)

    return make


def test_every_published_cell_is_there() -> None:
    assert len(published.published_rows()) == 269
    assert len(TOY) == 203


def test_132_toy_cells_are_distinct() -> None:
    assert len(published.distinct_rows(TOY)) == 132


def test_the_real_recipes_reach_every_toy_cell_once(run_of: RunOf) -> None:
    from epibench.recipes import RECIPES

    full = {name: recipe for name, recipe in RECIPES.items() if not name.endswith("-quick")}
    runs = [run_of(name, recipe=recipe.model_dump(mode="json")) for name, recipe in full.items()]
    cells = [one for run in runs for one in compare(run) if one.row.is_kl]
    assert sorted(map(str, TOY)) == sorted(str(one.row) for one in cells)
    assert all(one.method for one in cells)


@pytest.mark.parametrize(
    ("name", "method", "series"),
    [
        ("toy-regression", "ensemble", "Ensembling"),
        ("toy-classification", "sghmc", "SGHMC"),
        ("toy-classification-sgd", "mc_dropout", "MC-dropout - SGD"),
        ("toy-regression-momentum", "ensemble", "Ensembling - SGDMOM"),
        ("toy-regression-less-training", "sgld", "SGLD-64"),
        ("toy-regression-quick", "sgld", "SGLD"),
    ],
)
def test_a_method_of_a_recipe_has_its_series(name: str, method: str, series: str, run_of: RunOf) -> None:
    assert {cell.method for cell in compare(run_of(name)) if cell.row.series == series} == {method}


@pytest.mark.parametrize("variant", [{"rate": 0.05}, {"method": "mc_dropout", "options": {"rate": 0.05}}])
def test_a_dropout_variant_is_found_by_its_rate(variant: dict[str, Any], run_of: RunOf) -> None:
    cells = compare(run_of("toy-classification-dropout", recipe={"variants": {"mine": variant}}))
    assert {cell.method for cell in cells if cell.row.series == "p = 0.05"} == {"mine"}


@pytest.mark.parametrize("name", ["", "my-recipe", "toy-regression-mine", "toy-classification-less-training"])
def test_a_recipe_of_our_own_has_no_published_cells(name: str, run_of: RunOf) -> None:
    assert compare(run_of(name)) == []


@pytest.mark.parametrize(
    ("panel", "series", "members", "draws"),
    [
        ("Regression", "Ensembling", 8, 128),
        ("Regression", "Ensembling - SGD", 256, 4),
        ("Classification", "Ensembling", 8, 20),
        ("Classification", "Ensembling", 128, 8),
        ("Classification", "*p = 0.1", 8, 10),
        ("Regression", "MC-dropout", 64, 10),
        ("Regression", "SGLD-64", 8, 6),
        ("Classification", "SGHMC", 256, 6),
    ],
)
def test_published_draws_follow_the_protocol(panel: str, series: str, members: int, draws: int) -> None:
    assert published_draws(published.Row("", panel, "", series, members, 1.0, 1.0)) == draws


@pytest.mark.parametrize(
    ("draws", "pool", "independent"),
    [
        (30, PoolSize(480, num_groups=30, num_networks=10), 10),  # three repeats of each of ten networks
        (24, PoolSize(480, num_groups=24, num_networks=24), 24),
        (24, PoolSize(480, num_groups=24), 24),
        (64, PoolSize(1024), 64),
        (100, PoolSize(64), 4),  # random sets of 16 out of 64: four of them could be disjoint
        (1, PoolSize(20), 1),
    ],
)
def test_draws_that_share_networks_count_once(draws: int, pool: PoolSize, independent: int) -> None:
    assert published.independent_draws(draws, 16, pool) == independent


def test_one_draw_has_no_standard_error() -> None:
    assert published.standard_error(0.1, 1) is None
    assert published.standard_error(None, 5) is None


def test_the_combined_error_uses_independent_draws(cell_of: CellOf) -> None:
    cell = cell_of(0.4, 0.2, 30, {"num_groups": 30, "num_networks": 10})
    assert cell.error == pytest.approx(math.sqrt(0.0984614**2 / 64 + 0.2**2 / 10))


@pytest.mark.parametrize(("mean", "agrees"), [(0.336318 + 0.098, True), (0.336318 - 0.099, False)])
def test_within_one_published_std(mean: float, agrees: bool, cell_of: CellOf) -> None:
    assert cell_of(mean, 0.1, 64).within_std is agrees


@pytest.mark.parametrize(("errors", "agrees"), [(1.99, True), (2.01, False), (-2.01, False)])
def test_within_two_standard_errors_of_the_difference(errors: float, agrees: bool, cell_of: CellOf) -> None:
    error = math.hypot(0.0984614, 0.1) / 8
    assert cell_of(0.336318 + errors * error, 0.1, 64).within_error is agrees


def test_without_an_error_of_ours_there_is_no_judgement(cell_of: CellOf) -> None:
    assert cell_of(0.4, None, 1).within_error is None


def test_cells_that_were_not_run_are_counted_but_not_compared(run_of: RunOf) -> None:
    run = run_of("toy-regression", kl={"ensemble": kl({8: (0.45, 0.2, 128), 16: (None, None, 64)})})
    counts = published.totals(compare(run))
    assert counts == Totals(published=24, compared=1, within_std=1, judged=1, within_error=1)


def test_other_conventions_are_not_compared(run_of: RunOf) -> None:
    run = run_of("toy-regression", kl={"ensemble": kl({8: (0.45, 0.2, 128)}, "pooled")})
    assert published.totals(compare(run)).compared == 0


def test_of_cells_that_show_one_number_the_one_that_was_run_is_kept(run_of: RunOf) -> None:
    first = compare(run_of("toy-regression", "sgld"))
    second = compare(run_of("toy-regression-sgd", "sgld", kl={"sgld": kl({8: (0.5, 0.2, 6)})}))
    cells = published.distinct([*first, *second])
    assert len(cells) == 24 + 12
    assert [one.mean for one in cells if one.row.series == "SGLD" and one.row.members == 8] == [0.5]


def test_the_table_has_a_row_per_cell(run_of: RunOf) -> None:
    run = run_of("toy-regression", kl={"ensemble": kl({8: (0.45, 0.2, 128), 16: (0.5, 0.1, 64)})})
    lines = published_table(compare(run)).splitlines()
    assert len(lines) == 2 + 24
    assert (
        lines[2] == "| regression | Ensembling | 8 | 0.442 ± 0.22 | 128 | 0.45 ± 0.2 | 128 | +0.00773 | 0.03 | 0.29 |"
    )
    assert lines[3].endswith("| +0.164 | **1.66** | **9.33** |")
    assert lines[4].endswith("| no finite value |  |  |  |  |")
