import math
import statistics
from collections.abc import Callable
from typing import Any

import pytest

from epibench import published
from epibench.published import REGION, PublishedCell, Totals, compare, published_draws
from epibench.report.published_tables import published_blocks, published_table, series_table
from epibench.report.table import markdown_text
from epibench.results import Draw, PoolSize, Results, Stat
from named_recipes import NAMES, recipe_of

TOY = [row for row in published.published_rows() if row.figure.startswith("toy")]


RunOf = Callable[..., Results]
CellOf = Callable[..., PublishedCell]


def spread(mean: float, std: float, n: int) -> list[float]:
    """So many values with that mean and population std."""
    return [mean + (std if number % 2 else -std) for number in range(n)]


def kl(draws: dict[int, list[float | None]], name: str = "kl_gustafsson2020") -> dict[str, Any]:
    """KLs of draws at some M, in the view that was published, and their means."""
    stats = {}
    for m, values in draws.items():
        known = [value for value in values if value is not None]
        finite = len(known) == len(values)
        mean, std = (statistics.fmean(known), statistics.pstdev(known)) if finite else (None, None)
        stats[m] = {name: Stat(mean=mean, std=std if len(values) > 1 else None, n=len(values))}
    made = [Draw(M=m, metrics={name: value}) for m, values in draws.items() for value in values]
    return {"scores": {REGION: {"summary": stats, "draws": made}}}


@pytest.fixture
def cell_of(run_of: RunOf) -> CellOf:
    """Ensembling on regression at M = 16: published 0.336318 ± 0.0984614 from 64 sets."""

    def make(draws: list[float], pool: dict[str, Any] | None = None) -> PublishedCell:
        cells = compare(run_of("toy-regression", pool=pool, **kl({16: [*draws]})))
        return next(one for one in cells if one.mean is not None)

    return make


def test_every_published_cell_is_there() -> None:
    assert len(published.published_rows()) == 269
    assert len(TOY) == 203


def test_132_toy_cells_are_distinct() -> None:
    assert len(published.distinct_rows(TOY)) == 132


def test_the_real_recipes_reach_every_toy_cell_once(run_of: RunOf) -> None:

    full = {name: recipe_of(name) for name in NAMES if not name.endswith("-quick")}
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
        ("Regression", "SGHMC", 8, 6),
        ("Classification", "SGLD", 8, 7),
        ("Classification", "SGHMC", 256, 10),
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
        (100, PoolSize(640, num_networks=40), 2),  # of samples of 40 networks, two sets of 16 could share none
        (1, PoolSize(20), 1),
    ],
)
def test_draws_that_share_networks_count_once(draws: int, pool: PoolSize, independent: int) -> None:
    assert published.independent_draws(draws, 16, pool) == independent


def test_repeats_of_a_network_are_one_unit(cell_of: CellOf) -> None:
    cell = cell_of([0.1, 0.2, 0.3, 0.4, 0.5, 0.9], {"num_groups": 6, "num_networks": 2})
    assert cell.units == (pytest.approx(0.2), pytest.approx(0.6))
    assert cell.num_ours == 2


def test_the_median_is_that_of_ours(cell_of: CellOf) -> None:
    assert cell_of([0.1, 0.2, 44.0]).median == 0.2


@pytest.mark.parametrize(("mean", "agrees"), [(0.336318 + 0.098, True), (0.336318 - 0.099, False)])
def test_within_one_published_std(mean: float, agrees: bool, cell_of: CellOf) -> None:
    assert cell_of(spread(mean, 0.1, 64)).within_std is agrees


@pytest.mark.parametrize(("errors", "agrees"), [(1.8, True), (-1.8, True), (2.2, False), (-2.2, False)])
def test_64_means_of_64_differ_by_their_common_error(errors: float, agrees: bool, cell_of: CellOf) -> None:
    error = 0.1 * math.sqrt(2 / 64)
    assert cell_of(spread(0.336318 + errors * error, 0.1, 64)).agrees is agrees


def test_a_large_difference_that_few_draws_cannot_tell_agrees(cell_of: CellOf) -> None:
    """One of ten of ours is far out; ten without such a one are not rare, though the mean is twice as large."""
    cell = cell_of([*spread(0.3, 0.01, 114), *[4.0] * 14], {"num_members": 4096, "num_networks": 4096})
    assert cell.difference is not None
    few = PublishedCell(cell.row, "ensemble", 6, cell.mean, cell.std, cell.num_ours, cell.units)
    assert cell.difference > 0.3
    assert (cell.agrees, few.agrees) == (False, True)


def test_what_can_be_told_apart_is_a_share_of_ours(cell_of: CellOf) -> None:
    share = (1.96 + 0.8416) * 0.1 * math.sqrt(2 / 64) / 0.4
    assert cell_of(spread(0.4, 0.1, 64)).detectable == (pytest.approx(-share, rel=0.05), pytest.approx(share, rel=0.05))


def test_one_draw_of_ours_gives_no_judgement(cell_of: CellOf) -> None:
    cell = cell_of([0.4])
    assert (cell.p, cell.agrees, cell.detectable) == (None, None, None)


def test_results_without_draws_give_no_judgement(run_of: RunOf) -> None:
    parts = kl({16: [0.3, 0.4]})
    del parts["scores"][REGION]["draws"]
    cells = compare(run_of("toy-regression", **parts))
    assert [cell.p for cell in cells if cell.mean is not None] == [None]


def test_cells_that_were_not_run_are_counted_but_not_compared(run_of: RunOf) -> None:
    run = run_of("toy-regression", **kl({8: spread(0.45, 0.2, 128), 16: [None, 0.3], 32: [*spread(0.5, 0.01, 32)]}))
    counts = published.totals(compare(run))
    assert counts == Totals(published=24, compared=2, within_std=1, judged=2, unlike=1)
    assert counts.expected == pytest.approx(0.1)


def test_other_conventions_are_not_compared(run_of: RunOf) -> None:
    run = run_of("toy-regression", **kl({8: [0.4, 0.5]}, "kl"))
    assert published.totals(compare(run)).compared == 0


def test_of_cells_that_show_one_number_the_one_that_was_run_is_kept(run_of: RunOf) -> None:
    first = compare(run_of("toy-regression", "sgld"))
    second = compare(run_of("toy-regression-sgd", "sgld", **kl({8: [0.4, 0.6]})))
    cells = published.distinct([*first, *second])
    assert len(cells) == 24 + 12
    assert [one.mean for one in cells if one.row.series == "SGLD" and one.row.members == 8] == [0.5]


CHAINS = {"num_members": 96, "num_groups": 24, "num_networks": 24}


def test_cells_of_a_series_are_judged_together(run_of: RunOf) -> None:
    """Each of six cells may be chance; as they are of the same chains, all six of them together may be, too."""
    published_means = {row.members: row.mean for row in TOY if (row.panel, row.series) == ("Regression", "SGLD")}
    alike = {m: [mean * (1.2 + 0.5 * (n - 11.5) / 12) for n in range(24)] for m, mean in published_means.items()}
    (series,) = published.by_series(compare(run_of("toy-regression", "sgld", CHAINS, **kl(alike))))
    assert len(series.cells) == 6
    assert all(cell.p == pytest.approx(series.together.p, abs=0.01) for cell in series.cells)
    assert 0.05 < series.together.p < 0.5
    assert series.unlike == 0


def test_small_ps_by_chance_come_together(run_of: RunOf) -> None:
    """Six cells that are one and the same: by chance none or all of them have a small p."""
    draws = {m: [0.1 * n for n in range(24)] for m in (8, 16, 32, 64, 128, 256)}
    runs = [run_of("toy-regression", method, CHAINS, **kl({**draws})) for method in ("sgld", "sghmc")]
    one, other = (published.by_series(compare(run))[0] for run in runs)
    assert set(one.together.counts.tolist()) == {0, 6}
    assert one.together.counts.mean() == pytest.approx(6 * 0.05, rel=0.1)
    assert published.unlike_by_chance([one]) == (0, 0)  # in 95 of 100 cases
    assert published.unlike_by_chance([one, other]) == (0, 6)


def test_sets_of_an_ensemble_hang_together_though_they_differ_in_number(run_of: RunOf) -> None:
    draws = {8: [0.1 * n for n in range(128)], 16: [0.1 * n for n in range(64)]}
    (series,) = published.by_series(compare(run_of("toy-regression", **kl({**draws}))))
    assert set(series.together.counts.tolist()) <= {0, 1, 2}
    assert (series.together.counts == 2).mean() == pytest.approx(0.05, abs=0.01)


def test_the_table_has_a_row_per_cell(run_of: RunOf) -> None:
    run = run_of("toy-regression", **kl({8: spread(0.45, 0.2, 128), 16: spread(0.5, 0.1, 64)}))
    text = markdown_text(published_table(published_blocks(compare(run)))).replace("\N{NO-BREAK SPACE}", " ")
    lines = text.splitlines()
    assert len(lines) == 2 + 24
    start = (
        "| regression, Ensembling | 8 | 0.44 ± 0.22 | 128 | 0.45 ± 0.20 | 0.45 | 128 | +0.00773 | +1.7 % | 0.03 | 0.7"
    )
    assert lines[2].startswith(start)
    assert "| +0.164 | +49 % | **1.66** | **&lt; 0.001** | −10 %, +10 % |" in lines[3]
    assert lines[4].endswith("| no finite value |  |  |  |  |  |  |  |")


def test_a_row_per_series_says_how_many_differ(run_of: RunOf) -> None:
    run = run_of("toy-regression", **kl({8: spread(0.45, 0.2, 128), 16: spread(0.336318 * 1.5, 0.1, 64)}))
    (line,) = markdown_text(series_table(published.by_series(compare(run)))).splitlines()[2:]
    assert line.startswith("| regression, Ensembling | 2 | +2\N{NO-BREAK SPACE}% … +50\N{NO-BREAK SPACE}% | 1 | ")
