"""AUCE: coverage counted exactly, with closed intervals."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import oracles
from epibench.metrics import IntervalCalibration, auce
from epibench.metrics.interval_calibration import half_widths

FEW = settings(max_examples=40, deadline=None, derandomize=True)

centers = st.one_of(st.floats(-10, 10), st.sampled_from([0.0, -0.0, 1.0, 1e-310, -1e300, 60.005]))
widths = st.one_of(st.floats(0, 10), st.sampled_from([0.0, -0.0, 5e-324, 1e-310, 1e-40, 0.005, 1e30, 1e300]))
pixels = st.lists(st.tuples(centers, widths, centers), min_size=1, max_size=30)


def computed(mean, std, target):
    metric = IntervalCalibration()
    metric.update(mean, std, target)
    return metric.compute(), metric.curves()


@FEW
@given(pixels)
def test_coverage_equals_brute_force(rows):
    mean, std, target = np.array(rows).T
    np.testing.assert_allclose(computed(mean, std, target)[1]["coverage"], oracles.coverage(mean, std, target))


@FEW
@given(pixels)
def test_areas_equal_brute_force(rows):
    mean, std, target = np.array(rows).T
    values, _ = computed(mean, std, target)
    expected = oracles.auce(mean, std, target), oracles.auce_signed(mean, std, target)
    np.testing.assert_allclose((values["auce"], values["auce_signed"]), expected, atol=1e-13)


@FEW
@given(pixels)
def test_interval_lengths_equal_brute_force(rows):
    mean, std, target = np.array(rows).T
    expected = oracles.interval_lengths(std)
    np.testing.assert_allclose(computed(mean, std, target)[1]["interval_length"], expected, rtol=1e-12)


def test_the_function_equals_the_metric():
    mean, std, target = np.random.default_rng(0).gamma(2, 1, (3, 200))
    assert float(auce(mean, std, target)) == float(computed(mean, std, target)[0]["auce"])


def test_half_widths_are_the_quantiles():
    expected = [stats.norm.isf((1 - level) / 2) for level in oracles.LEVELS]
    np.testing.assert_allclose(half_widths(), expected, rtol=1e-12)


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_target_on_the_border_is_covered(sign):
    """Closed: |y − μ| ≤ w·σ. Not so with |y − μ| / σ ≤ w, which is rounded otherwise."""
    std = np.random.default_rng(0).gamma(2, 1, 50)
    for level, half_width in enumerate(half_widths().numpy()):
        coverage = computed(np.zeros(50), std, sign * half_width * std)[1]["coverage"]
        assert coverage[level] == 1, f"level {level}"


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_target_just_beyond_the_border_is_not_covered(sign):
    for level, half_width in enumerate(half_widths().numpy()):
        coverage = computed([0.0], [1.0], [sign * np.nextafter(half_width, np.inf)])[1]["coverage"]
        assert coverage[level] == 0, f"level {level}"


@pytest.mark.parametrize(("target", "covered"), [(2.0, 1.0), (np.nextafter(2.0, 3), 0.0), (-2.0, 0.0)])
def test_no_spread_covers_only_the_mean(target, covered):
    assert set(computed([2.0], [0.0], [target])[1]["coverage"].tolist()) == {covered}


def test_too_wide_intervals_are_under_confident():
    values, _ = computed(np.zeros(100), np.full(100, 10.0), np.random.default_rng(0).normal(size=100))
    assert values["auce_signed"] > 0.3


def test_a_calibrated_gaussian_has_almost_no_area():
    rng = np.random.default_rng(0)
    mean, std = rng.normal(size=100_000), rng.gamma(2, 1, 100_000)
    assert float(auce(mean, std, mean + std * rng.normal(size=100_000))) < 0.005  # 0.5/√100,000 = 0.0016


def test_no_pixel_has_no_coverage():
    assert bool(computed([], [], [])[1]["coverage"].isnan().all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -1.0])
def test_a_bad_std_is_refused(value, dtype):
    std = torch.ones(20, dtype=dtype)
    std[3] = value
    with pytest.raises(ValueError, match="1 of 20 values of 'std'"):
        auce(torch.zeros(20), std, torch.zeros(20))


@pytest.mark.parametrize("name", ["mean", "target"])
def test_nan_is_refused(name):
    arrays = {"mean": torch.zeros(20), "std": torch.ones(20), "target": torch.zeros(20)}
    arrays[name][3] = torch.nan
    with pytest.raises(ValueError, match="NaN"):
        auce(**arrays)
