"""ECE with bins of equal width and of equal mass."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from epibench.metrics import AdaptiveConfidenceCalibration, ConfidenceCalibration, ece, ece_adaptive
from metrics.cases import CONVENTIONS

FEW = settings(max_examples=40, deadline=None, derandomize=True)


@st.composite
def predictions(draw, max_size=60):
    """Confidences of the first of three classes on and off the edges of bins, right or wrong."""
    on_edge = st.sampled_from([1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 1 - 2**-53, 1 - 1e-9, np.nextafter(0.9, 0), 1 / 3])
    confidence = draw(st.lists(st.one_of(on_edge, st.floats(0.34, 1)), min_size=1, max_size=max_size))
    target = draw(st.lists(st.integers(0, 2), min_size=len(confidence), max_size=len(confidence)))
    top = np.array(confidence)
    return np.stack([top, (1 - top) / 2, (1 - top) / 2], 1), np.array(target)


def reliability(probs, target, **options):
    metric = ConfidenceCalibration(**options)
    metric.update(probs, target)
    curves = metric.curves()
    return np.stack([curves["confidence"], curves["accuracy"], curves["count"]], 1)


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("bins", [1, 10, 15])
@FEW
@given(predictions())
def test_ece_equals_brute_force(bins, convention, pair):
    expected = oracles.ece(*pair, bins, convention)
    assert float(ece(*pair, bins, convention=convention)) == pytest.approx(expected, abs=1e-13)


@pytest.mark.parametrize("convention", CONVENTIONS)
@FEW
@given(predictions())
def test_reliability_equals_brute_force(convention, pair):
    rows, _ = oracles.reliability(*pair, 10, convention)
    np.testing.assert_allclose(reliability(*pair, convention=convention), np.array(rows), rtol=1e-12)


@pytest.mark.parametrize("confidence", [0.5, 0.6, 0.7, 0.8, 0.9])
def test_a_confidence_on_an_edge_belongs_to_the_bin_above(confidence):
    counts = reliability(np.array([[confidence, 1 - confidence]]), [0])[:, 2]
    assert counts.argmax() == round(10 * confidence)


def test_empty_bins_have_no_accuracy():
    assert np.isnan(reliability([[0.95, 0.05]], [0])[:9, :2]).all()


def test_the_first_of_equals_is_predicted():
    assert float(ece([[0.5, 0.5]], [0])) == 0.5
    assert float(ece([[0.5, 0.5]], [1])) == 0.5
    assert reliability([[0.5, 0.5]], [0])[5, 1] == 1


def test_rounding_above_one_belongs_to_the_last_bin():
    assert reliability([[1 + 1e-6, 0.0]], [0])[9, 2] == 1


@pytest.mark.parametrize("bins", [1, 7, 10])
@FEW
@given(predictions())
def test_adaptive_ece_equals_brute_force(bins, pair):
    assert float(ece_adaptive(*pair, bins)) == pytest.approx(oracles.ece_adaptive(*pair, bins), abs=1e-12)


@pytest.mark.parametrize("bits", [9, 10, 16])
@FEW
@given(predictions(max_size=120))
def test_adaptive_bound_holds(bits, pair):
    metric = AdaptiveConfidenceCalibration(bits=bits)
    metric.update(*pair)
    result = metric.compute()
    distance = abs(float(result["ece_adaptive"]) - oracles.ece_adaptive(*pair))
    assert distance <= float(result["ece_adaptive_bound"]) + 1e-12


@pytest.mark.parametrize("bits", [9, 10, 12])
@pytest.mark.parametrize("rising", [True, False])
def test_adaptive_bound_holds_where_hits_are_sorted_within_a_bin(bits, rising):
    confidence = 0.8 + np.linspace(0, 1e-3, 1000)
    target = (np.arange(1000) >= 455).astype(np.int64)
    probs = np.stack([confidence, 1 - confidence], 1)
    metric = AdaptiveConfidenceCalibration(bits=bits)
    metric.update(probs, target if rising else 1 - target)
    result = metric.compute()
    exact = oracles.ece_adaptive(probs, target if rising else 1 - target)
    assert abs(float(result["ece_adaptive"]) - exact) <= float(result["ece_adaptive_bound"]) + 1e-12


def test_adaptive_bound_is_not_vacuous():
    probs = np.random.default_rng(0).dirichlet([0.3] * 4, 100_000)
    metric = AdaptiveConfidenceCalibration()
    metric.update(probs, np.zeros(100_000, dtype=np.int64))
    assert float(metric.compute()["ece_adaptive_bound"]) < 0.01


@pytest.mark.parametrize("function", [ece, ece_adaptive])
def test_no_pixel_is_nan(function):
    assert bool(function(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)).isnan())


@pytest.mark.parametrize("function", [ece, ece_adaptive])
@pytest.mark.parametrize("target", [[0, 3], [0, -1], [0, 255]])
def test_a_target_outside_the_classes_is_refused(function, target):
    with pytest.raises(ValueError, match="'target' holds"):
        function([[0.5, 0.3, 0.2]] * 2, target)


@pytest.mark.parametrize("function", [ece, ece_adaptive])
@pytest.mark.parametrize("row", [[np.nan, 0.5], [0.5, np.nan]])
def test_nan_is_refused(function, row):
    with pytest.raises(ValueError, match="NaN"):
        function([[0.5, 0.5], row], [0, 1])


@pytest.mark.parametrize("function", [ece, ece_adaptive])
@pytest.mark.parametrize("row", [[3.0, -2.0], [-3.0, -2.0], [np.inf, 0.0]])
def test_logits_are_refused(function, row):
    with pytest.raises(ValueError, match=r"0.*1"):
        function([[0.5, 0.5], row], [0, 1])


@pytest.mark.parametrize("function", [ece, ece_adaptive])
def test_other_numbers_of_pixels_are_refused(function):
    with pytest.raises(ValueError, match="numbers of pixels differ"):
        function([[0.5, 0.5]] * 3, [0, 1])


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.int32, np.int64])
@pytest.mark.parametrize("function", [ece, ece_adaptive])
def test_any_integer_type_is_a_target(function, dtype):
    probs, target = np.random.default_rng(0).dirichlet([1, 1, 1], 30), np.arange(30) % 3
    assert float(function(probs, target.astype(dtype))) == float(function(probs, target))


def test_an_unknown_convention_is_refused():
    with pytest.raises(ValueError, match="convention 'paper' is unknown"):
        ConfidenceCalibration(convention="paper")
