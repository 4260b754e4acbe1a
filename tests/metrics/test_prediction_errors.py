"""RMSE, MAE, intersection over union, accuracy."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from epibench.metrics import GroupedRootMeanSquaredError, MeanIoU, accuracy, mae, miou, rmse
from metrics.cases import CONVENTIONS

FEW = settings(max_examples=40, deadline=None, derandomize=True)
numbers = st.one_of(st.floats(-1e3, 1e3), st.sampled_from([0.0, -0.0, 1e-310, 5e-324, 1e100, -1e100]))
pairs = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=40)


@st.composite
def predictions(draw):
    classes = draw(st.integers(1, 5))
    size = draw(st.integers(1, 30))
    numerators = st.lists(st.integers(0, 3), min_size=classes, max_size=classes)  # many equals, p in {0, 1}
    probs = np.array(draw(st.lists(numerators, min_size=size, max_size=size))) / 3
    return probs, np.array(draw(st.lists(st.integers(0, classes - 1), min_size=size, max_size=size)))


@pytest.mark.parametrize(("function", "oracle"), [(rmse, oracles.rmse), (mae, oracles.mae)])
@FEW
@given(pairs)
def test_errors_equal_brute_force(function, oracle, rows):
    mean, target = np.array(rows).T
    assert float(function(mean, target)) == pytest.approx(oracle(mean, target), rel=1e-12)


@pytest.mark.parametrize("function", [rmse, mae])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_refused(function, bad):
    with pytest.raises(ValueError, match="1 of 2 values of 'mean' are NaN or infinite"):
        function([1.0, bad], [1.0, 1.0])


@pytest.mark.parametrize("function", [rmse, mae])
def test_no_pixel_is_nan(function):
    assert bool(function([], []).isnan())


@pytest.mark.parametrize("function", [rmse, mae])
@pytest.mark.parametrize("target", [[1.0], [1.0, 2.0], 1.0])
def test_targets_are_not_broadcast(function, target):
    with pytest.raises(ValueError, match="numbers of pixels differ"):
        function([1.0, 2.0, 3.0], target)


def test_float32_is_not_squared_in_float32():
    mean, target = np.full(1000, 60.005, np.float32), np.full(1000, 60.0, np.float32)
    expected = float(np.float64(mean[0]) - np.float64(target[0]))
    assert float(rmse(mean, target)) == pytest.approx(expected, rel=1e-12)


@FEW
@given(
    st.lists(st.tuples(st.floats(-10, 10), st.floats(-10, 10), st.integers(0, 12)), min_size=1, max_size=40),
)
def test_grouped_rmse_equals_brute_force(rows):
    mean, target, image = (np.array(column) for column in zip(*rows, strict=True))
    metric = GroupedRootMeanSquaredError(13)
    metric.update(mean, target, image)
    average, spread = oracles.rmse_grouped(mean, target, image)
    found = metric.compute()
    assert float(found["rmse"]) == pytest.approx(average, rel=1e-12)
    assert float(found["rmse_spread"]) == pytest.approx(spread, abs=1e-9 * average)


def test_grouped_rmse_takes_the_last_images_as_a_group_of_their_own():
    metric = GroupedRootMeanSquaredError(5)
    metric.update(np.zeros(5), [1.0, 1.0, 1.0, 1.0, 3.0], np.arange(5))
    alone, together = (1 + 3) / 2, (math.sqrt((3 + 9) / 4) + 1) / 2  # the image with the error 3
    times = (float(metric.compute()["rmse"]) - together) / (alone - together) * 100
    assert times == pytest.approx(round(times), abs=1e-9)
    assert 10 <= times <= 30  # one image of five is the last one in 20 of 100 shuffles


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64])
def test_images_have_any_integer_type(dtype):
    metric = GroupedRootMeanSquaredError(8)
    metric.update(np.zeros(2), [1.0, 3.0], np.array([0, 7], dtype))
    assert float(metric.compute()["rmse"]) == math.sqrt(5)  # images without pixels are in no group


@pytest.mark.parametrize("image", [[0, 8], [0, -1], [0.0, 1.0]])
def test_images_outside_the_set_are_refused(image):
    with pytest.raises(ValueError, match="'image'"):
        GroupedRootMeanSquaredError(8).update([1.0, 2.0], [1.0, 2.0], image)


@pytest.mark.parametrize("convention", CONVENTIONS)
@FEW
@given(predictions())
def test_miou_equals_brute_force(convention, pair):
    assert float(miou(*pair, convention=convention)) == pytest.approx(oracles.miou(*pair, convention), abs=1e-13)


@FEW
@given(predictions())
def test_iou_per_class_equals_brute_force(pair):
    metric = MeanIoU(pair[0].shape[-1])
    metric.update(*pair)
    np.testing.assert_allclose(metric.compute()["iou_per_class"], oracles.iou_per_class(*pair), rtol=1e-13)


@FEW
@given(predictions())
def test_accuracy_equals_brute_force(pair):
    assert float(accuracy(*pair)) == pytest.approx(oracles.accuracy(*pair), abs=1e-13)


def test_a_class_without_union_counts_only_as_published():
    probs, target = np.eye(3)[[0, 1]], [0, 1]
    assert [float(miou(probs, target, convention=name)) for name in CONVENTIONS] == [1, pytest.approx(2 / 3)]


@pytest.mark.parametrize("function", [miou, accuracy])
def test_no_pixel_has_no_classes(function):
    assert bool(function(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)).isnan())


@pytest.mark.parametrize("function", [miou, accuracy])
@pytest.mark.parametrize("target", [[0, 2], [0, -1], [0, 255], [0.0, 1.0]])
def test_a_target_outside_the_classes_is_refused(function, target):
    with pytest.raises(ValueError, match="'target'"):
        function([[0.5, 0.5]] * 2, target)


@pytest.mark.parametrize("function", [miou, accuracy])
def test_nan_is_not_a_prediction(function):
    with pytest.raises(ValueError, match="NaN"):
        function([[0.5, 0.5], [0.5, np.nan]], [0, 1])


def test_another_number_of_classes_is_refused():
    with pytest.raises(ValueError, match="2 classes, the metric 3"):
        MeanIoU(3).update([[0.5, 0.5]], [0])


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.int32, np.int64])
def test_any_integer_type_is_a_target(dtype):
    probs, target = np.random.default_rng(0).dirichlet([1, 1, 1], 30), np.arange(30) % 3
    assert float(miou(probs, target.astype(dtype))) == float(miou(probs, target))


def test_an_unknown_convention_is_refused():
    with pytest.raises(ValueError, match="convention 'paper' is unknown"):
        MeanIoU(3, convention="paper")
