"""ENCE: exactly, and streamed to its bound."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from epibench.metrics import NormalisedCalibration, ence

FEW = settings(max_examples=40, deadline=None, derandomize=True)
targets = st.one_of(st.floats(-10, 10), st.sampled_from([0.0, -0.0, 1e-10, 1e10]))
variances = st.one_of(st.floats(1e-6, 10), st.sampled_from([0.0, -0.0, 1e-40, 1.0, 1.0 + 2**-40, 1e10]))
pixels = st.lists(st.tuples(targets, variances), min_size=1, max_size=40)


def streamed(variance, target, **options):
    metric = NormalisedCalibration(**options)
    metric.update(np.zeros_like(target), variance, target)
    result = metric.compute()
    return float(result["ence"]), float(result["ence_bound"])


@pytest.mark.parametrize("bins", [1, 7, 10])
@FEW
@given(pixels)
def test_equals_brute_force(bins, rows):
    target, variance = np.array(rows).T
    expected = oracles.ence(np.zeros_like(target), variance, target, bins)
    assert float(ence(np.zeros_like(target), variance, target, bins)) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("bits", [9, 10, 16])
@FEW
@given(pixels)
def test_bound_holds(bits, rows):
    target, variance = np.array(rows).T
    exact = oracles.ence(np.zeros_like(target), variance, target)
    value, bound = streamed(variance, target, bits=bits)
    # Sums of a bin are differences: with errors from 1e-10 to 1e10, rounding is relative to the largest.
    assert value == exact or abs(value - exact) <= bound + 1e-12 + 1e-9 * abs(exact)


@pytest.mark.parametrize("bits", [9, 10, 16])
@pytest.mark.parametrize("order", [1, -1])
def test_bound_holds_where_errors_are_sorted_within_a_bin(bits, order):
    variance = 1 + np.linspace(0, 1e-3, 500)
    target = np.sort(np.random.default_rng(0).gamma(0.2, 3, 500))[::order].copy()
    value, bound = streamed(variance, target, bits=bits)
    assert abs(value - oracles.ence(np.zeros(500), variance, target)) <= bound + 1e-12


def test_calibrated_variances_have_almost_no_error():
    rng = np.random.default_rng(0)
    variance = rng.gamma(2, 1, 100_000)
    assert streamed(variance, np.sqrt(variance) * rng.normal(size=100_000))[0] < 0.02


def test_bound_is_not_vacuous():
    rng = np.random.default_rng(0)
    assert streamed(rng.gamma(2, 1, 100_000), rng.normal(size=100_000))[1] < 0.02


def test_no_variance_and_no_error_agree():
    assert streamed(np.zeros(20), np.zeros(20)) == (0, 0)


def test_errors_without_variance_are_infinitely_wrong_without_doubt():
    assert streamed(np.zeros(20), np.ones(20)) == (np.inf, 0)


def test_no_pixel_is_nan():
    assert bool(ence([], [], []).isnan())


def test_nan_in_the_mean_is_not_a_number():
    assert bool(ence([np.nan] * 20, [1.0] * 20, [1.0] * 20).isnan())


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -1.0])
@pytest.mark.parametrize("function", [ence, lambda *args: NormalisedCalibration().update(*args)])
def test_a_bad_variance_is_refused(function, value, dtype):
    variance = torch.ones(20, dtype=dtype)
    variance[3] = value
    with pytest.raises(ValueError, match="1 of 20 values of 'variance'"):
        function(torch.zeros(20), variance, torch.zeros(20))


@pytest.mark.parametrize("sizes", [(10, 10, 1), (1, 10, 10), (10, 1, 10)])
def test_other_numbers_of_pixels_are_refused(sizes):
    with pytest.raises(ValueError, match="numbers of pixels differ"):
        ence(*(torch.ones(size) for size in sizes))
