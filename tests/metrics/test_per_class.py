"""Metrics of each class: those of its pixels alone, within the bound that few bins leave; classes without pixels."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from epibench import metrics
from epibench.metrics.per_class import NUM_BINS, narrow_bin, narrow_edges

from . import class_oracles
from .cases import NUM_CLASSES, PATTERNS, categorical_pixels, pixels_of_classes


def scores(probs, target):
    return {name: value.tolist() for name, value in metrics.scores_per_class(probs, target).items()}


def test_a_class_is_scored_by_its_own_pixels():
    probs = np.array([[0.8, 0.2], [0.6, 0.4], [0.25, 0.75], [0.9, 0.1]])
    found = scores(probs, np.array([0, 0, 1, 1]))
    assert found["accuracy_per_class"] == [1, 0.5]
    assert found["brier_per_class"] == pytest.approx([(0.08 + 0.32) / 2, (0.125 + 1.62) / 2])
    assert found["nll_per_class"] == pytest.approx([-np.log(0.48) / 2, -np.log(0.075) / 2])
    assert found["share_per_class"] == [0.5, 0.5]


def test_calibration_is_that_of_pixels_predicted_as_the_class():
    # Predicted as class 0: three pixels in three bins; as class 1: one, which is right.
    probs = np.array([[0.8, 0.2], [0.6, 0.4], [0.25, 0.75], [0.9, 0.1]])
    found = scores(probs, np.array([0, 0, 1, 1]))["ece_per_class"]
    assert found == pytest.approx([(0.2 + 0.4 + 0.9) / 3, 0.25])


def test_a_class_that_is_nowhere_true_can_be_predicted():
    found = scores(np.array([[0.1, 0.9, 0.0]]), np.array([0]))
    assert np.isnan(found["accuracy_per_class"]).tolist() == [False, True, True]
    assert np.isnan(found["brier_per_class"]).tolist() == [False, True, True]
    assert np.isnan(found["nll_per_class"]).tolist() == [False, True, True]
    assert np.isnan(found["ece_per_class"]).tolist() == [True, False, True]
    assert found["ece_per_class"][1] == pytest.approx(0.9)
    assert found["share_per_class"] == [1, 0, 0]


def test_one_infinite_nll_leaves_that_of_other_classes():
    probs = np.array([[1.0, 0.0], [0.5, 0.5], [0.5, 0.5]])
    found = metrics.scores_per_class(probs, np.array([1, 1, 0]))["nll_per_class"]
    assert found[0] == pytest.approx(np.log(2))
    assert bool(found[1].isnan())


def test_an_infinite_nll_stays_after_merging():
    sure = metrics.ClassScores(2)
    sure.update(np.array([[1.0, 0.0]]), np.array([1]))
    other = metrics.ClassScores(2)
    other.update(np.array([[0.5, 0.5]]), np.array([1]))
    assert bool(other.merge(sure).compute()["nll_per_class"][1].isnan())


def test_equal_probabilities_are_predicted_as_the_first_class():
    found = scores(np.array([[0.5, 0.5], [0.5, 0.5]]), np.array([0, 1]))
    assert found["accuracy_per_class"] == [1, 0]
    assert found["ece_per_class"][0] == 0
    assert np.isnan(found["ece_per_class"][1])


def test_a_confidence_of_one_is_in_the_last_bin():
    found = scores(np.array([[1.0, 0.0], [0.95, 0.05]]), np.array([0, 1]))
    assert found["ece_per_class"][0] == pytest.approx((1.95 - 1) / 2)


@pytest.mark.parametrize("pattern", ["continuous", "ties", "nasty"])
def test_classes_add_up_to_the_scores_of_all_pixels(pattern):
    pixels = categorical_pixels(np.random.default_rng(1), 300, pattern, draws=1)
    probs, target = 0.9 * pixels["probs"][0] + 0.1 / NUM_CLASSES, pixels["target"]
    found = metrics.scores_per_class(probs, target)
    share = found["share_per_class"]
    assert float((share * found["accuracy_per_class"]).sum()) == pytest.approx(oracles.accuracy(probs, target))
    assert float((share * found["brier_per_class"]).sum()) == pytest.approx(float(metrics.brier(probs, target)))
    assert float((share * found["nll_per_class"]).sum()) == pytest.approx(float(metrics.nll_categorical(probs, target)))


def test_a_single_pixel_equals_brute_force():
    probs, target = np.array([[0.2, 0.5, 0.3]]), np.array([2])
    for name, value in class_oracles.scores(probs, target).items():
        np.testing.assert_allclose(metrics.scores_per_class(probs, target)[name], value, rtol=1e-12, err_msg=name)


def test_more_counts_than_float32_can_hold():
    metric = metrics.MeanIoU(2)
    metric.confusion += torch.tensor([2**24 + 1, 0, 0, 2**24])
    metric.update(np.array([[0.75, 0.25]]), np.array([0]))
    assert float(metric.compute()["share_per_class"][0]) == (2**24 + 2) / (2**25 + 2)


def test_a_confidence_of_one_counts_for_classes_under_every_convention():
    metric = metrics.ConfidenceCalibration(num_classes=2, convention="gustafsson2020")
    metric.update(np.array([[1.0, 0.0], [0.95, 0.05]]), np.array([1, 1]))
    assert float(metric.compute()["ece"]) == pytest.approx(0.475)
    assert float(metric.compute()["ece_per_class"][0]) == pytest.approx(0.975)


def test_curves_of_classes_are_those_of_all_pixels():
    pixels = categorical_pixels(np.random.default_rng(1), 300, "nasty")
    one, other = metrics.ConfidenceCalibration(num_draws=3), metrics.ConfidenceCalibration(num_draws=3, num_classes=4)
    for metric in (one, other):
        metric.update(**pixels)
    for name, values in one.curves().items():
        torch.testing.assert_close(other.curves()[name], values, equal_nan=True, msg=name)


@pytest.mark.parametrize("value", [-1, 2, 255])
def test_a_target_that_is_no_class_is_refused(value):
    with pytest.raises(ValueError, match="'target' holds"):
        metrics.ClassScores(2).update(np.array([[0.5, 0.5]]), np.array([value]))


def test_other_classes_than_those_of_the_metric_are_refused():
    with pytest.raises(ValueError, match="probs has 2 classes, the metric 3"):
        metrics.ClassScores(3).update(np.array([[0.5, 0.5]]), np.array([0]))


FEW = settings(max_examples=20, deadline=None, derandomize=True)


def streamed(uncertainty, loss, target, num_classes, error="brier"):
    metric = metrics.ClassSparsification(num_classes, error)
    metric.update(uncertainty, loss, target)
    return metric.compute()


@FEW
@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 300), pattern=st.sampled_from(PATTERNS))
def test_the_function_equals_brute_force(seed, size, pattern):
    pixels = pixels_of_classes(np.random.default_rng(seed), size, pattern, draws=1)
    found = metrics.ause_per_class(pixels["uncertainty"][0], pixels["loss"][0], pixels["target"], 4)
    expected = class_oracles.ause(pixels["uncertainty"][0], pixels["loss"][0], pixels["target"], 4)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_each_class_is_ranked_alone():
    rng = np.random.default_rng(0)
    target = np.repeat([0, 1], 200)
    loss = np.where(target == 0, 1.0, 0.1) * rng.random(400)
    uncertainty = np.where(target == 0, loss, 1 - loss)  # class 0 knows its errors, class 1 has them upside down
    found = streamed(uncertainty, loss, target, 2)
    assert float(found["ause_per_class"][0]) == pytest.approx(0, abs=float(found["ause_per_class_bound"][0]))
    assert float(found["ause_per_class"][1]) > 0.5


def test_many_pixels_are_close_to_exact():
    rng = np.random.default_rng(0)
    uncertainty = rng.gamma(0.5, 0.5, 60_000).clip(max=2.9)
    loss, target = np.minimum(uncertainty * rng.gamma(1.0, 0.7, 60_000), 2), rng.integers(0, 3, 60_000)
    found = streamed(uncertainty, loss, target, 3)
    exact = metrics.ause_per_class(uncertainty, loss, target, 3)
    np.testing.assert_allclose(found["ause_per_class"], exact, atol=2e-3)
    assert bool(((found["ause_per_class"] - exact).abs() <= found["ause_per_class_bound"]).all())
    assert float(found["ause_per_class_bound"].max()) < 0.05


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e12])
def test_keys_outside_the_bins_widen_the_bound(scale):
    rng = np.random.default_rng(0)
    uncertainty, loss, target = scale * rng.random(500), scale * rng.random(500), rng.integers(0, 2, 500)
    found = streamed(uncertainty, loss, target, 2)
    exact = class_oracles.ause(uncertainty, loss, target, 2)
    assert np.all(np.abs(np.asarray(found["ause_per_class"]) - exact) <= np.asarray(found["ause_per_class_bound"]))


def test_a_class_without_loss_has_no_area():
    found = streamed(np.array([0.1, 0.2, 0.3]), np.array([0.0, 0.0, 0.5]), np.array([0, 0, 1]), 3)
    assert found["ause_per_class"][:2].tolist() == [0, 0]
    assert bool(found["ause_per_class"][2].isnan())
    assert bool(found["ause_per_class_bound"][2].isnan())


def test_equal_uncertainties_of_zero_leave_no_doubt_but_that_of_the_oracle():
    loss = np.repeat([0.5, 1.0], 50)
    found = streamed(np.zeros(100), loss, np.zeros(100, dtype=np.int64), 2)
    assert float(found["ause_per_class"][0]) == pytest.approx(metrics.ause(np.zeros(100), loss, "brier").item())
    assert float(found["ause_per_class_bound"][0]) < 1e-6


def test_bins_keep_the_order_and_have_edges():
    keys = torch.tensor([0.0, 1e-40, 1e-20, 2.0**-28, 2.0**-27.99, 0.1, 0.11, 2.0, 7.99, 8.0, 8.1, torch.inf])
    index, edges = narrow_bin(keys), narrow_edges(keys.device)
    assert len(edges) == NUM_BINS
    assert bool((index.diff() >= 0).all())
    assert bool((keys <= edges[index]).all())
    assert bool((keys[1:] > edges[index[1:] - 1]).all())
    assert index[[0, -1]].tolist() == [0, NUM_BINS - 1]


def test_the_state_of_19_classes_is_small():
    metric = metrics.ClassSparsification(19)
    assert sum(state.nbytes for state in metric.metric_state.values()) < 400 * 1024


def test_a_class_that_is_none_is_refused():
    with pytest.raises(ValueError, match="'target' holds"):
        streamed(np.ones(2), np.ones(2), np.array([0, 255]), 3)
