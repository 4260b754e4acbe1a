"""Errors of depth: by hand, at the edges, and where a depth is not above 0."""

import math

import numpy as np
import pytest
import torch

from epibench.evaluation.suite import SuiteSettings, make_suite
from epibench.metrics import DepthErrors, errors_of_depth

LOGS = ("silog", "rmse_log", "log10", "irmse")


def plain(values):
    return {name: value.item() for name, value in values.items()}


def test_one_pixel_by_hand():
    values = plain(errors_of_depth([5.0], [4.0]))
    assert values["abs_rel"] == 0.25
    assert values["sq_rel"] == 0.25
    assert (values["delta1"], values["delta2"], values["delta3"]) == (0, 1, 1)  # 5/4 is not below 1.25
    assert values["rmse_log"] == pytest.approx(math.log(1.25))
    assert values["log10"] == pytest.approx(math.log10(1.25))
    assert values["irmse"] == pytest.approx(1000 / 4 - 1000 / 5)  # 50 per km
    assert values["silog"] == 0


def test_a_common_factor_leaves_silog_at_0():
    rng = np.random.default_rng(0)
    target = rng.uniform(1, 80, 10_000)
    values = plain(errors_of_depth(3 * target, target))
    assert values["silog"] == 0
    assert values["rmse_log"] == pytest.approx(math.log(3))
    assert values["delta3"] == 0


def test_silog_is_100_times_the_std_of_the_log_error():
    target = np.full(4, 10.0)
    mean = target * np.exp([0.1, -0.1, 0.3, 0.1])
    assert errors_of_depth(mean, target)["silog"].item() == pytest.approx(100 * np.std([0.1, -0.1, 0.3, 0.1]))


@pytest.mark.parametrize("prediction", [0.0, -0.0, -3.0])
def test_a_prediction_that_is_not_above_0_is_wrong_and_left_out_of_logarithms(prediction):
    values = plain(errors_of_depth([prediction, 4.0], [4.0, 4.0]))
    assert values["depth_left_out"] == 1
    assert values["depth_left_out_targets"] == 0
    assert values["abs_rel"] == (4 - prediction) / 4 / 2
    assert values["delta3"] == 0.5
    assert all(values[name] == 0 for name in LOGS)  # of the other pixel


@pytest.mark.parametrize("target", [0.0, -1.0])
def test_a_target_that_is_not_above_0_counts_nowhere(target):
    values = plain(errors_of_depth([2.0, 8.0], [target, 4.0]))
    expected = plain(errors_of_depth([8.0], [4.0]))
    assert (values.pop("depth_left_out"), values.pop("depth_left_out_targets")) == (1, 1)
    assert values == {name: expected[name] for name in values}


def test_nothing_left_is_nan_and_said():
    values = plain(errors_of_depth([1.0, 2.0], [0.0, 0.0]))
    assert all(math.isnan(values[name]) for name in ("abs_rel", "sq_rel", "delta1", *LOGS))
    assert values["depth_left_out"] == values["depth_left_out_targets"] == 2


def test_nan_is_refused():
    with pytest.raises(ValueError, match="1 of 1 values of 'mean' are NaN or infinite"):
        errors_of_depth([math.nan], [1.0])


def test_float32_depths_are_summed_in_float64():
    target = torch.full((1000,), 60.0)
    mean = target + 0.001
    expected = ((mean.double() - 60) / 60).mean()
    assert errors_of_depth(mean, target)["abs_rel"].item() == pytest.approx(expected.item(), rel=1e-12)


def test_draws_leave_out_their_own_pixels():
    metric = DepthErrors(num_draws=2)
    metric.update([[1.0, -1.0], [1.0, 1.0]], [1.0, 1.0])
    assert metric.compute()["depth_left_out"].tolist() == [1, 0]
    assert metric.compute()["delta1"].tolist() == [0.5, 1.0]


# In the set of metrics


def test_only_depth_has_them():
    plain, depth = (
        make_suite(torch.ones(1, 1), SuiteSettings("gaussian", "pooled", "total", depth=depth)).compute()
        for depth in (False, True)
    )
    assert set(DepthErrors.info) <= set(depth)
    assert set(depth) - set(plain) == set(DepthErrors.info)
    classes = SuiteSettings("categorical", "pooled", "entropy", num_classes=3)
    assert not set(DepthErrors.info) & set(make_suite(torch.ones(1, 1), classes).compute())
