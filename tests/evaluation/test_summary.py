"""Summaries over draws."""

import itertools
import math

import pytest
import torch

from epibench.evaluation.summary import mean_and_std, per_draw, summarise, summarise_curves, to_plain
from epibench.results import ClassStat, Curve, Draw, Stat

SETS = ((0,), (1,), (0, 1))


def test_summary_has_population_std_and_number_of_draws() -> None:
    summary = summarise(SETS, {"ause": torch.tensor([1.0, 3.0, 7.0])})
    assert summary[1]["ause"] == Stat(mean=2.0, std=1.0, n=2)


def test_std_of_one_draw_is_null() -> None:
    assert summarise(SETS, {"ause": torch.tensor([1.0, 3.0, 7.0])})[2]["ause"] == Stat(mean=7.0, std=None, n=1)


def test_metrics_per_class_keep_their_axis() -> None:
    values = torch.tensor([[1.0, math.nan], [3.0, math.nan], [5.0, 6.0]])
    summary = summarise(SETS, {"iou_per_class": values})
    assert summary[1]["iou_per_class"] == ClassStat(mean=[2.0, None], std=[1.0, None], n=2)


def test_draws_carry_members_and_metrics() -> None:
    values = {"count": torch.tensor([4, 5, 6])}
    assert per_draw(SETS, values)[2] == Draw(M=2, members=[0, 1], metrics={"count": 6})


def test_curves_are_summarised_per_size() -> None:
    curves = {"x": torch.tensor([0.0, 0.5]), "curve": torch.tensor([[1.0, 0.0], [3.0, 0.0], [9.0, 9.0]])}
    summary = summarise_curves(SETS, {"sparsification": curves})["sparsification"]
    assert summary.x == [0.0, 0.5]
    assert summary.M[1]["curve"] == Curve(mean=[2.0, 0.0], std=[1.0, 0.0], draws=[[1.0, 0.0], [3.0, 0.0]])
    assert summary.M[2]["curve"] == Curve(mean=[9.0, 9.0], std=None, draws=[[9.0, 9.0]])


@pytest.mark.parametrize("number", [16, 17, 40, 1000])
def test_curves_of_at_most_sixteen_draws_are_kept_the_first_and_the_last_among_them(number: int) -> None:
    sets = [(member,) for member in range(number)]
    curves = {"x": torch.tensor([0.0]), "curve": torch.arange(float(number))[:, None]}
    curve = summarise_curves(sets, {"sparsification": curves})["sparsification"].M[1]["curve"]
    kept = [values[0] for values in curve.draws or []]
    steps = [after - before for before, after in itertools.pairwise(kept)]
    assert len(kept) == 16
    assert (kept[0], kept[-1]) == (0.0, number - 1)
    assert max(steps) - min(steps) <= 1
    assert curve.mean == [(number - 1) / 2]


def test_curves_of_draws_have_five_digits_and_counts_stay_whole() -> None:
    curves = {
        "x": torch.tensor([0.0, 0.5]),
        "accuracy": torch.tensor([[1 / 3, math.nan]], dtype=torch.float64),
        "count": torch.tensor([[1234567, 0]]),
    }
    summary = summarise_curves([(0,)], {"reliability": curves})["reliability"].M[1]
    assert summary["accuracy"].mean[0] == 1 / 3
    assert summary["accuracy"].draws == [[0.33333, None]]
    assert summary["count"].draws == [[1234567, 0]]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_becomes_null(value: float) -> None:
    assert to_plain(torch.tensor([value, 1.0])) == [None, 1.0]
    assert mean_and_std(torch.tensor([value, 1.0]))[0] is None
