from typing import Any

import pytest

from epibench import published
from epibench.published.dense import DEPTH, SEGMENTATION, dense_draws


def results(name: str, domain: str, metric: str, mean: float | None, unit: str | None = "m") -> dict[str, Any]:
    """A run with one metric of an ensemble at M = 4."""
    stat = {"mean": mean, "std": 0.01, "n": 16}
    return {
        "recipe": {"name": name},
        "unit": unit,
        "methods": {"ensemble": {"num_members": 33}},
        "summary": {"ensemble": {domain: {"4": {metric: stat}}}},
    }


def compared(run: dict[str, Any]) -> list[published.Cell]:
    return [cell for cell in published.compare(run) if cell.mean is not None]


@pytest.mark.parametrize("name", ["kitti-depth", "kitti-depth-quick", "kitti-depth-small"])
def test_every_depth_cell_belongs_to_the_recipe(name: str) -> None:
    assert len(published.compare({"recipe": {"name": name}})) == 36


def test_every_segmentation_cell_belongs_to_the_recipe() -> None:
    assert len(published.compare({"recipe": {"name": "cityscapes-segmentation"}})) == 30


def test_metres_are_compared_as_millimetres() -> None:
    (cell,) = compared(results("kitti-depth", "kitti", "rmse", 2.2))
    assert (cell.row.metric, cell.row.mean) == ("RMSE [mm]", 2187.89)
    assert (cell.mean, cell.std) == (pytest.approx(2200.0), pytest.approx(10.0))
    assert cell.within_std is True


def test_fractions_are_compared_as_per_cent() -> None:
    (cell,) = compared(results("cityscapes-segmentation", "cityscapes", "miou", 0.44, None))
    assert cell.row.metric == "mIoU [%]"
    assert cell.mean == pytest.approx(44.0)


def test_areas_have_no_unit() -> None:
    (cell,) = compared(results("kitti-depth", "kitti", "ause", 0.06))
    assert cell.mean == 0.06


@pytest.mark.parametrize(
    "run",
    [
        results("kitti-depth", "clean", "ause", 0.06),  # another domain
        results("kitti-depth", "kitti", "crps", 0.06),  # a metric that was not published
        results("kitti-depth", "kitti", "rmse", 0.06, None),  # in an unknown unit
        results("kitti-depth", "kitti", "ause", None),
        results("street-depth", "kitti", "ause", 0.06),  # another recipe
        {"recipe": {"name": "kitti-depth"}, "summary": {"ensemble": None}},
    ],
)
def test_nothing_else_is_compared(run: dict[str, Any]) -> None:
    assert compared(run) == []


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
def test_published_draws_follow_the_protocol(figure: Any, series: str, members: int, draws: int) -> None:
    assert dense_draws(published.Row("", "", "AUSE", series, members, 1.0, 1.0), figure) == draws


def test_large_numbers_are_written_in_full() -> None:
    table = published.published_table(compared(results("kitti-depth", "kitti", "rmse", 2.2)))
    assert table.splitlines()[-1].startswith("| RMSE [mm] | Ensembling | 4 | 2188 ± 32 | 8 | 2200 ± 10 | 8 | +12.1 |")
