from collections.abc import Callable
from typing import Any

import pytest
from scipy.stats import binom

from epibench.published import (
    DEPTH,
    SEGMENTATION,
    DenseFigure,
    PublishedCell,
    Row,
    compare,
    dense_draws,
    grounds_of,
    warnings_of,
)
from epibench.report.published_tables import published_blocks, published_table
from epibench.report.table import markdown_text
from epibench.results import Draw, Results, Stat

RunOf = Callable[..., Results]
Compared = Callable[..., list[PublishedCell]]


@pytest.fixture
def compared(run_of: RunOf) -> Compared:
    """The cells that have a value of ours, of a run with one metric of an ensemble at M = 4."""

    def make(name: str, domain: str, metric: str, mean: float | None, unit: str | None = "m") -> list[PublishedCell]:
        summary = {4: {metric: Stat(mean=mean, std=0.01, n=16)}}
        values = [None if mean is None else mean + (0.01 if number % 2 else -0.01) for number in range(16)]
        draws = [Draw(M=4, metrics={metric: value, "iou": [0.5]}) for value in values]
        parts = {domain: {"summary": summary, "draws": draws, "unit": unit}}
        cells = compare(run_of(name, pool={"num_members": 33}, scores=parts))
        return [cell for cell in cells if cell.mean is not None]

    return make


@pytest.mark.parametrize("name", ["kitti-depth", "kitti-depth-quick", "kitti-depth-small"])
def test_every_depth_cell_belongs_to_the_recipe(name: str, run_of: RunOf) -> None:
    assert len(compare(run_of(name))) == 36


def test_every_segmentation_cell_belongs_to_the_recipe(run_of: RunOf) -> None:
    assert len(compare(run_of("cityscapes-segmentation"))) == 30


def test_metres_are_compared_as_millimetres(compared: Compared) -> None:
    (cell,) = compared("kitti-depth", "kitti", "rmse", 2.2)
    assert (cell.row.metric, cell.row.mean) == ("RMSE [mm]", 2187.89)
    assert (cell.mean, cell.std) == (pytest.approx(2200.0), pytest.approx(10.0))
    assert cell.within_std is True
    assert (min(cell.units), max(cell.units)) == (pytest.approx(2190.0), pytest.approx(2210.0))


def test_sets_that_overlap_count_as_those_that_could_be_disjoint(compared: Compared) -> None:
    """16 sets of 4 of 33 networks, as 8; each is 10 mm above or below the mean, so that it is heads or tails."""
    ps = [compared("kitti-depth", "kitti", "rmse", 2.18789 + metres)[0].p for metres in (0.0055, 0.014)]
    # More than 10 heads of 16 move the difference of two means of 8 by 7.5 mm or more, 14 by 15 mm.
    assert ps == [pytest.approx(2 * binom.sf(10, 16, 0.5), rel=0.1), pytest.approx(2 * binom.sf(13, 16, 0.5), rel=0.4)]


def test_fractions_are_compared_as_per_cent(compared: Compared) -> None:
    (cell,) = compared("cityscapes-segmentation", "cityscapes", "miou", 0.44, None)
    assert cell.row.metric == "mIoU [%]"
    assert cell.mean == pytest.approx(44.0)


def test_areas_have_no_unit(compared: Compared) -> None:
    (cell,) = compared("kitti-depth", "kitti", "ause", 0.06)
    assert cell.mean == 0.06


def test_what_was_measured_as_published_is_what_is_compared(run_of: RunOf) -> None:
    metrics = {"rmse": Stat(mean=2.2, std=0.01, n=16), "rmse_gustafsson2020": Stat(mean=2.1, std=0.02, n=16)}
    metrics["ause_gustafsson2020"] = Stat(mean=0.06, std=0.01, n=16)
    run = run_of("kitti-depth", pool={"num_members": 33}, scores={"kitti": {"unit": "m", "summary": {4: metrics}}})
    found = {cell.row.metric: cell.mean for cell in compare(run) if cell.mean is not None}
    assert found == {"RMSE [mm]": pytest.approx(2100.0), "AUSE": pytest.approx(0.06)}
    assert not any("different conventions" in text for text in warnings_of(run))
    assert "RMSE as the mean over groups of 4 images" in grounds_of(run)[0]
    pooled = run_of("kitti-depth", scores={"kitti": {"unit": "m", "summary": {4: {"rmse": metrics["rmse"]}}}})
    assert any("different conventions" in text for text in warnings_of(pooled))


@pytest.mark.parametrize(
    "run",
    [
        ("kitti-depth", "clean", "ause", 0.06),  # another domain
        ("kitti-depth", "kitti", "crps", 0.06),  # a metric that was not published
        ("kitti-depth", "kitti", "rmse", 0.06, None),  # in an unknown unit
        ("kitti-depth", "kitti", "ause", None),
        ("street-depth", "kitti", "ause", 0.06),  # another recipe
    ],
)
def test_nothing_else_is_compared(run: tuple[Any, ...], compared: Compared) -> None:
    assert compared(*run) == []


@pytest.mark.parametrize(
    ("figure", "series", "members", "draws"),
    [
        (DEPTH, "Ensembling", 1, 32),
        (DEPTH, "Ensembling", 4, 8),  # 16 sets, of which 8 could be disjoint
        (DEPTH, "Ensembling", 32, 1),
        (DEPTH, "MC-dropout", 8, 16),
        (SEGMENTATION, "Ensembling", 2, 8),
        (SEGMENTATION, "Ensembling", 16, 1),
        (SEGMENTATION, "MC-dropout", 1, 8),
    ],
)
def test_published_draws_follow_the_protocol(figure: DenseFigure, series: str, members: int, draws: int) -> None:
    row = Row("", "", "AUSE", series, members, 1.0, 1.0)
    assert dense_draws(row, figure) == draws


def test_large_numbers_are_written_in_full(compared: Compared) -> None:
    table = markdown_text(published_table(published_blocks(compared("kitti-depth", "kitti", "rmse", 2.2))))
    assert table.splitlines()[-1].startswith(
        "| RMSE [mm], Ensembling | 4 | 2,188 ± 32 | 8 | 2,200 ± 10 | 2,200 | 8 | +12.1 |"
    )
