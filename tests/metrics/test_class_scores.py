"""Scores of each class: those of its pixels alone, and classes that have none."""

import numpy as np
import pytest
import torch

import oracles
from epibench import metrics

from . import class_oracles
from .cases import NUM_CLASSES, categorical_pixels


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
