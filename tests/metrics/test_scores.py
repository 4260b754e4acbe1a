"""NLL, CRPS, Brier score and interval score, pixel by pixel."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from epibench import metrics
from epibench.metrics import pixel_scores

FEW = settings(max_examples=40, deadline=None, derandomize=True)
centers = st.one_of(st.floats(-10, 10), st.sampled_from([0.0, -0.0, 60.005, 1e-310, 1e6]))
variances = st.one_of(st.floats(1e-8, 10), st.sampled_from([0.0, -0.0, 5e-324, 1e-310, 2.5e-5, 1.0, 1e30]))
gaussians = st.lists(st.tuples(centers, variances, centers), min_size=1, max_size=30)

GAUSSIAN = {
    "nll": (pixel_scores.gaussian_nll, oracles.gaussian_nll),
    "crps": (pixel_scores.gaussian_crps, oracles.gaussian_crps),
    "interval_score": (pixel_scores.interval_score, oracles.interval_score),
}
MIXTURE = {
    "nll": (pixel_scores.mixture_nll, oracles.mixture_nll),
    "crps": (pixel_scores.mixture_crps, oracles.mixture_crps),
}


@st.composite
def mixtures(draw):
    """Members (member, pixel), weights (draw, member) with zeros among them, targets."""
    members, size, draws = draw(st.integers(1, 4)), draw(st.integers(1, 6)), draw(st.integers(1, 3))

    def table(elements, rows, columns):
        row = st.lists(elements, min_size=columns, max_size=columns)
        return np.array(draw(st.lists(row, min_size=rows, max_size=rows)))

    weights = table(st.integers(0, 3), draws, members) + np.eye(draws, members)
    weights[weights.sum(1) == 0] = 1
    target = np.array(draw(st.lists(centers, min_size=size, max_size=size)))
    return (
        table(centers, members, size),
        table(variances, members, size),
        weights / weights.sum(1, keepdims=True),
        target,
    )


def tensors(*arrays):
    return tuple(torch.as_tensor(np.asarray(array)) for array in arrays)


@pytest.mark.parametrize("score", GAUSSIAN)
@FEW
@given(gaussians)
def test_gaussian_scores_equal_brute_force(score, rows):
    function, oracle = GAUSSIAN[score]
    mean, variance, target = np.array(rows).T
    actual = function(*tensors(mean, variance, target)).numpy()
    scale = 1 + np.abs(mean).max() + np.abs(target).max() + np.sqrt(variance.max())  # of what cancels
    np.testing.assert_allclose(actual, oracle(mean, variance, target), rtol=1e-12, atol=1e-12 * scale)


@pytest.mark.parametrize("score", MIXTURE)
@FEW
@given(mixtures())
def test_mixture_scores_equal_brute_force(score, mixture):
    function, oracle = MIXTURE[score]
    means, variances, weights, target = mixture
    actual = function(*tensors(means, variances, weights, target)).numpy()
    expected = np.stack([oracle(means, variances, row, target) for row in weights])
    scale = 1 + np.abs(means).max() + np.abs(target).max() + np.sqrt(variances.max())
    np.testing.assert_allclose(actual, expected, rtol=1e-11, atol=1e-12 * scale)


@pytest.mark.parametrize(
    ("means", "variances", "weights", "target"),
    [
        ([0.0], [1.0], [1.0], 0.3),
        ([0.0, 4.0], [1.0, 0.25], [0.5, 0.5], 1.0),
        ([-1.0, 0.0, 2.0], [0.04, 1.0, 2.0], [0.2, 0.5, 0.3], 7.0),
        ([60.0, 60.005], [2.5e-5, 2.5e-5], [0.5, 0.5], 60.01),
    ],
)
def test_mixture_crps_is_the_integral(means, variances, weights, target):
    """∫ (F(x) − 1{x ≥ y})² dx."""
    means, variances, weights = (np.array(values) for values in (means, variances, weights))
    actual = pixel_scores.mixture_crps(*tensors(means[:, None], variances[:, None], weights[None], [target]))
    assert float(actual) == pytest.approx(oracles.crps_by_integration(means, variances, weights, target), rel=1e-8)


def test_gaussian_crps_is_the_integral():
    for mean, variance, target in np.random.default_rng(0).gamma(2, 1, (10, 3)):
        actual = float(pixel_scores.gaussian_crps(*tensors(mean, variance, target)))
        integral = oracles.crps_by_integration(np.array([mean]), np.array([variance]), [1.0], target)
        assert actual == pytest.approx(integral, rel=1e-8)


@pytest.mark.parametrize("score", ["nll", "crps"])
def test_a_mixture_of_one_is_the_gaussian(score):
    mean, variance, target = np.random.default_rng(0).gamma(2, 1, (3, 50))
    one = MIXTURE[score][0](*tensors(mean[None], variance[None], [[1.0]], target))[0]
    np.testing.assert_allclose(one, GAUSSIAN[score][0](*tensors(mean, variance, target)), rtol=1e-12)


@pytest.mark.parametrize("score", ["nll", "crps"])
def test_a_member_without_weight_does_not_matter(score):
    mean, variance, target = np.random.default_rng(0).gamma(2, 1, (3, 3, 20))
    mean[2], variance[2], target = 1e6, 0.0, target[0]
    with_it = MIXTURE[score][0](*tensors(mean, variance, [[0.5, 0.5, 0.0]], target))
    without = MIXTURE[score][0](*tensors(mean[:2], variance[:2], [[0.5, 0.5]], target))
    np.testing.assert_allclose(with_it, without, rtol=1e-12)


@pytest.mark.parametrize("kind", [metrics.MixtureNLL, metrics.MixtureCRPS])
def test_members_have_equal_weights_by_default(kind):
    mean, variance, target = np.random.default_rng(0).gamma(2, 1, (3, 3, 20))
    values = []
    for weights in (None, [[1 / 3] * 3]):
        metric = kind(weights)
        metric.update(mean, variance, target[0])
        values.append(float(metric.compute()[kind.name]))
    assert values[0] == pytest.approx(values[1], rel=1e-12)


def test_mixture_nll_survives_densities_that_underflow():
    # One draw holds the member that fits, the other only one 1,000 σ away.
    actual = pixel_scores.mixture_nll(*tensors([[0.0], [1000.0]], [[1.0], [1.0]], [[1.0, 0.0], [0.0, 1.0]], [0.0]))
    constant = 0.5 * math.log(2 * math.pi)
    np.testing.assert_allclose(actual[:, 0], [constant, constant + 500_000], rtol=1e-12)


@pytest.mark.parametrize(("target", "expected"), [(1.0, -math.inf), (1.5, math.inf)])
def test_nll_without_variance(target, expected):
    assert float(pixel_scores.gaussian_nll(*tensors(1.0, 0.0, target))) == expected


@pytest.mark.parametrize(("target", "expected"), [(1.0, 0.0), (1.5, 0.5)])
def test_crps_without_variance_is_the_distance(target, expected):
    assert float(pixel_scores.gaussian_crps(*tensors(1.0, 0.0, target))) == expected


@pytest.mark.parametrize(("target", "expected"), [(1.0, 0.0), (1.5, 10.0)])
def test_interval_score_without_variance_is_twenty_times_the_distance(target, expected):
    assert float(pixel_scores.interval_score(*tensors(1.0, 0.0, target))) == expected


def test_infinite_scores_are_counted_apart():
    metric = metrics.GaussianNLL()
    metric.update([1.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 2.0, 0.0])
    result = metric.compute()
    assert bool(result["nll_gaussian"].isnan())
    assert int(result["nll_gaussian_infinite"]) == 2


def test_no_probability_for_the_target_is_infinite():
    metric = metrics.CategoricalNLL()
    metric.update([[1.0, 0.0], [0.5, 0.5]], [1, 0])
    assert int(metric.compute()["nll_infinite"]) == 1


@st.composite
def predictions(draw):
    """Probabilities with zeros, ones and the last digits before one."""
    size = draw(st.integers(1, 20))
    near = st.sampled_from([0.0, 1.0, 1e-9, 1 - 1e-9, 2**-53, 1 - 2**-53, 5e-324, 0.5])
    first = np.array(draw(st.lists(st.one_of(near, st.floats(0, 1)), min_size=size, max_size=size)))
    split = np.array(draw(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=size, max_size=size)))
    probs = np.stack([first, (1 - first) * split, (1 - first) * (1 - split)], 1)
    return probs, np.array(draw(st.lists(st.integers(0, 2), min_size=size, max_size=size)))


@pytest.mark.parametrize(
    ("function", "oracle"),
    [(pixel_scores.brier_score, oracles.brier), (pixel_scores.categorical_nll, oracles.categorical_nll)],
)
@FEW
@given(predictions())
def test_categorical_scores_equal_brute_force(function, oracle, pair):
    probs, target = pair
    actual = function(*tensors(probs[None], target[None]))[0]
    np.testing.assert_allclose(actual, oracle(probs, target), rtol=1e-12)


def test_brier_score_is_two_where_sure_and_wrong():
    assert float(pixel_scores.brier_score(*tensors([[[0.0, 1.0, 0.0]]], [[2]]))) == 2


@pytest.mark.parametrize("kind", [metrics.BrierScore, metrics.CategoricalNLL])
@pytest.mark.parametrize("target", [[0, 2], [0, -1], [0, 255], [0.0, 1.0]])
def test_a_target_outside_the_classes_is_refused(kind, target):
    with pytest.raises(ValueError, match="'target'"):
        kind().update([[0.5, 0.5]] * 2, target)


@pytest.mark.parametrize("kind", [metrics.GaussianNLL, metrics.GaussianCRPS, metrics.IntervalScore])
@pytest.mark.parametrize("value", [np.nan, -1.0])
def test_a_bad_variance_is_refused(kind, value):
    with pytest.raises(ValueError, match="1 of 2 values of 'variance'"):
        kind().update([0.0, 0.0], [1.0, value], [0.0, 0.0])


@pytest.mark.parametrize("kind", [metrics.MixtureNLL, metrics.MixtureCRPS])
@pytest.mark.parametrize("value", [np.nan, -1.0])
def test_a_bad_member_variance_is_refused(kind, value):
    with pytest.raises(ValueError, match="1 of 4 values of 'member_variance'"):
        kind().update(np.zeros((2, 2)), [[1.0, 1.0], [1.0, value]], [0.0, 0.0])


@pytest.mark.parametrize("kind", [metrics.GaussianNLL, metrics.GaussianCRPS, metrics.IntervalScore])
@pytest.mark.parametrize("name", ["mean", "target"])
def test_nan_is_refused(kind, name):
    arrays = {"mean": np.zeros(5), "variance": np.ones(5), "target": np.zeros(5)}
    arrays[name][2] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        kind().update(**arrays)


@pytest.mark.parametrize("kind", [metrics.MixtureNLL, metrics.MixtureCRPS])
@pytest.mark.parametrize(
    ("weights", "variances"), [(None, (1, 5)), ([[0.5, 0.5]], (3, 5)), ([[0.25] * 4], (3, 5)), (None, (2, 5))]
)
def test_other_numbers_of_members_are_refused(kind, weights, variances):
    with pytest.raises(ValueError, match="member"):
        kind(weights).update(np.zeros((3, 5)), np.ones(variances), np.zeros(5))


@pytest.mark.parametrize("kind", [metrics.MixtureNLL, metrics.MixtureCRPS])
def test_weights_are_a_matrix(kind):
    with pytest.raises(ValueError, match="weights must be"):
        kind([0.5, 0.5])


GAUSSIAN_PIXELS = ([0.0, 1.0], [1.0, 4.0], [0.5, -2.0])
MEMBER_PIXELS = ([[0.0, 1.0], [0.5, 3.0]], [[1.0, 4.0], [2.0, 0.1]], [0.5, -2.0])
CLASS_PIXELS = ([[0.2, 0.8], [0.6, 0.4]], [1, 1])


@pytest.mark.parametrize(
    ("function", "oracle", "pixels"),
    [
        (metrics.nll_gaussian, oracles.gaussian_nll, GAUSSIAN_PIXELS),
        (metrics.crps_gaussian, oracles.gaussian_crps, GAUSSIAN_PIXELS),
        (metrics.interval_score, oracles.interval_score, GAUSSIAN_PIXELS),
        (metrics.nll_mixture, lambda m, v, y: oracles.mixture_nll(m, v, [0.5, 0.5], y), MEMBER_PIXELS),
        (metrics.crps_mixture, lambda m, v, y: oracles.mixture_crps(m, v, [0.5, 0.5], y), MEMBER_PIXELS),
        (metrics.nll_categorical, oracles.categorical_nll, CLASS_PIXELS),
        (metrics.brier, oracles.brier, CLASS_PIXELS),
    ],
)
def test_functions_on_whole_arrays_give_the_mean(function, oracle, pixels):
    assert float(function(*pixels)) == pytest.approx(np.mean(oracle(*pixels)), rel=1e-12)
