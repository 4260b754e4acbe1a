"""Divergences against numeric integration, brute force in float64 and, on a grid, loops in plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats
from torch import Tensor

from epibench.metrics.divergence import divergences, kl_categorical, kl_gaussian, kl_normalised_map

in_any_time = settings(deadline=None, max_examples=50)


def gaussians(*values: float) -> list[Tensor]:
    return [torch.tensor([value], dtype=torch.float64) for value in values]


def random_probs(seed: int, *shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).dirichlet(np.full(shape[-1], 0.5), shape[:-1]))


class TestGaussian:
    @pytest.mark.parametrize(
        ("mean_p", "variance_p", "mean_q", "variance_q"),
        [(0, 1, 0, 1.5), (0.3, 0.02, -0.1, 0.5), (-1, 4, 2, 1), (60, 0.01, 60.2, 0.02)],
    )
    def test_equals_the_integral(self, mean_p: float, variance_p: float, mean_q: float, variance_q: float) -> None:
        p, q = (stats.norm(m, math.sqrt(v)) for m, v in ((mean_p, variance_p), (mean_q, variance_q)))
        expected, _ = integrate.quad(
            lambda y: p.pdf(y) * (p.logpdf(y) - q.logpdf(y)), *p.interval(1 - 1e-14), epsabs=1e-12, limit=200
        )
        found = kl_gaussian(*gaussians(mean_p, variance_p, mean_q, variance_q))
        assert float(found) == pytest.approx(expected, rel=1e-9)

    @in_any_time
    @given(
        means=st.tuples(st.floats(-100, 100), st.floats(-100, 100)),
        log_variances=st.tuples(st.floats(-20, 20), st.floats(-20, 20)),
    )
    def test_equals_torch(self, means: tuple[float, float], log_variances: tuple[float, float]) -> None:
        (mean_p, mean_q), (variance_p, variance_q) = means, map(math.exp, log_variances)
        p, q = (torch.distributions.Normal(m, v.sqrt()) for m, v in _pairs(mean_p, variance_p, mean_q, variance_q))
        found = kl_gaussian(*gaussians(mean_p, variance_p, mean_q, variance_q))
        torch.testing.assert_close(found, torch.distributions.kl_divergence(p, q), rtol=1e-10, atol=1e-13)

    @pytest.mark.parametrize("variance", [1e-30, 0.0225, 1.0, 1e30])
    def test_of_itself_is_0(self, variance: float) -> None:
        assert float(kl_gaussian(*gaussians(60, variance, 60, variance))) == pytest.approx(0, abs=1e-15)

    def test_a_tiny_variance_of_p_costs_its_logarithm(self) -> None:
        assert float(kl_gaussian(*gaussians(0, 1e-30, 0, 1))) == pytest.approx((30 * math.log(10) - 1) / 2, rel=1e-12)

    def test_a_tiny_variance_of_q_stays_finite(self) -> None:
        assert float(kl_gaussian(*gaussians(0, 1, 0, 1e-30))) == pytest.approx(0.5e30, rel=1e-12)

    def test_variances_whose_ratio_no_float_can_hold(self) -> None:
        """1e-200 / 1e200 rounds to 0: a logarithm of the ratio would be infinite."""
        found = float(kl_gaussian(*gaussians(0, 1e-200, 0, 1e200)))
        assert found == pytest.approx((400 * math.log(10) - 1) / 2, rel=1e-12)

    def test_is_the_first_against_the_second(self) -> None:
        """KL(p ‖ q) of a narrow p in a broad q is small, the other way round large."""
        one, other = (float(kl_gaussian(*gaussians(0, a, 0, b))) for a, b in ((0.01, 1), (1, 0.01)))
        assert (one, other) == pytest.approx((1.8076, 47.197), rel=1e-3)

    def test_element_by_element(self) -> None:
        rng = np.random.default_rng(0)
        means, variances = torch.from_numpy(rng.normal(size=(2, 3, 5))), torch.from_numpy(rng.gamma(2, size=(2, 3, 5)))
        whole = kl_gaussian(means[0], variances[0], means[1], variances[1])
        one = kl_gaussian(means[0, 1, 2], variances[0, 1, 2], means[1, 1, 2], variances[1, 1, 2])
        assert whole.shape == (3, 5)
        assert float(whole[1, 2]) == pytest.approx(float(one), rel=1e-14)


def _pairs(mean_p: float, variance_p: float, mean_q: float, variance_q: float) -> list[list[Tensor]]:
    return [gaussians(mean_p, variance_p), gaussians(mean_q, variance_q)]


class TestCategorical:
    @in_any_time
    @given(seed=st.integers(0, 2**32), classes=st.integers(2, 20))
    def test_equals_scipy(self, seed: int, classes: int) -> None:
        p, q = random_probs(seed, 2, 7, classes)
        expected = special.rel_entr(p.numpy(), q.numpy()).sum(-1)
        np.testing.assert_allclose(kl_categorical(p, q), expected, rtol=1e-9, atol=1e-13)

    @pytest.mark.parametrize(
        ("p", "q", "expected"),
        [
            ([1.0, 0.0], [0.5, 0.5], math.log(2)),
            ([1.0, 0.0], [1.0, 0.0], 0.0),
            ([0.0, 1.0], [0.0, 1.0], 0.0),
            ([0.5, 0.5], [1.0, 0.0], math.inf),
            ([0.0, 1.0], [1.0, 0.0], math.inf),
            ([0.5, 0.5], [1 - 1e-12, 1e-12], 0.5 * math.log(0.25e12)),
        ],
    )
    def test_certainty(self, p: list[float], q: list[float], expected: float) -> None:
        found = kl_categorical(torch.tensor(p, dtype=torch.float64), torch.tensor(q, dtype=torch.float64))
        assert float(found) == pytest.approx(expected, rel=1e-9)

    def test_of_itself_is_exactly_0(self) -> None:
        p = random_probs(3, 50, 4)
        assert (kl_categorical(p, p) == 0).all()

    @in_any_time
    @given(seed=st.integers(0, 2**32))
    def test_is_never_below_0_by_more_than_rounding(self, seed: int) -> None:
        p = random_probs(seed, 20, 3)
        nearly = p * (1 + 1e-9 * torch.from_numpy(np.random.default_rng(seed).normal(size=(20, 3))))
        assert float(kl_categorical(p, nearly / nearly.sum(-1, keepdim=True)).min()) > -1e-15


class TestNormalisedMap:
    def test_equals_brute_force(self) -> None:
        p, q = np.random.default_rng(0).random((2, 3600))
        total_p, total_q = math.fsum(p), math.fsum(q)
        expected = math.fsum(
            a / total_p * math.log((a / total_p) / (b / total_q)) for a, b in zip(p.tolist(), q.tolist(), strict=True)
        )
        assert float(kl_normalised_map(torch.from_numpy(p), torch.from_numpy(q))) == pytest.approx(expected, rel=1e-10)

    @pytest.mark.parametrize("factor", [1e-6, 0.5, 7.0])
    def test_scaling_a_map_leaves_it(self, factor: float) -> None:
        p, q = torch.from_numpy(np.random.default_rng(1).random((2, 3600)))
        assert float(kl_normalised_map(p, factor * p)) == pytest.approx(0, abs=1e-14)
        assert float(kl_normalised_map(p, factor * q)) == pytest.approx(float(kl_normalised_map(p, q)), rel=1e-10)

    def test_points_without_probability_count_nothing(self) -> None:
        p, q = torch.tensor([[0.0, 0.5, 0.5], [0.2, 0.4, 0.4]], dtype=torch.float64)
        assert float(kl_normalised_map(p, q)) == pytest.approx(-math.log(0.8), rel=1e-12)

    def test_one_number_for_each_draw(self) -> None:
        p, q = torch.from_numpy(np.random.default_rng(2).random((2, 4, 100)))
        one_by_one = torch.stack([kl_normalised_map(a, b) for a, b in zip(p, q, strict=True)])
        torch.testing.assert_close(kl_normalised_map(p, q), one_by_one, rtol=1e-12, atol=0)


torch.manual_seed(3)
POINTS, DRAWS = 9, 4
INSIDE = torch.tensor([False, True, True, False, True, False, False, True, False])
GAUSSIAN = (
    {"mean": torch.randn(POINTS).double(), "variance": torch.rand(POINTS).double() + 0.1},
    {"mean": torch.randn(DRAWS, POINTS).double(), "variance": torch.rand(DRAWS, POINTS).double() + 0.1},
)
CATEGORICAL = (
    {"probs": torch.softmax(torch.randn(POINTS, 2).double(), 1)},
    {"probs": torch.softmax(torch.randn(DRAWS, POINTS, 2).double(), 2)},
)


def gaussian_kl(p, q, draw: int | None, other: int | None, points) -> float:
    total = 0.0
    for i in points:
        (m, v), (n, w) = (
            (float(x["mean"][i]), float(x["variance"][i]))
            if number is None
            else (float(x["mean"][number, i]), float(x["variance"][number, i]))
            for x, number in ((p, draw), (q, other))
        )
        total += 0.5 * math.log(w / v) + (v + (m - n) ** 2) / (2 * w) - 0.5
    return total / len(points)


def row(x, number):
    return x["probs"] if number is None else x["probs"][number]


def categorical_kl(p, q, draw, other, points) -> float:
    first, second = row(p, draw).tolist(), row(q, other).tolist()
    return sum(a * math.log(a / b) for i in points for a, b in zip(first[i], second[i], strict=True)) / len(points)


def map_kl(p, q, draw, other, points) -> float:
    first, second = ([row(x, number)[i, 0].item() for i in points] for x, number in ((p, draw), (q, other)))
    total, other_total = sum(first), sum(second)
    return sum(a / total * math.log(a / total / (b / other_total)) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(
    ("sides", "convention", "brute_force"),
    [
        (GAUSSIAN, "pooled", gaussian_kl),
        (GAUSSIAN, "gustafsson2020", gaussian_kl),
        (CATEGORICAL, "pooled", categorical_kl),
        (CATEGORICAL, "gustafsson2020", map_kl),
    ],
)
@pytest.mark.parametrize("region", ["grid", "train"])
def test_divergences_equal_brute_force(sides, convention, brute_force, region) -> None:
    reference, predicted = sides
    points = range(POINTS) if region == "grid" else [i for i in range(POINTS) if INSIDE[i]]
    found = divergences(reference, predicted, INSIDE, convention)
    for draw in range(DRAWS):
        there = brute_force(reference, predicted, None, draw, points)
        back = brute_force(predicted, reference, draw, None, points)
        assert found["reference_to_method"][region][draw].item() == pytest.approx(there, rel=1e-10)
        assert found["method_to_reference"][region][draw].item() == pytest.approx(back, rel=1e-10)


def test_the_published_map_does_not_see_a_common_factor() -> None:
    reference = CATEGORICAL[0]
    halved = torch.stack((reference["probs"][:, 0] / 2, 1 - reference["probs"][:, 0] / 2), 1)
    predicted = {"probs": halved[None]}
    assert divergences(reference, predicted, INSIDE, "gustafsson2020")["reference_to_method"]["grid"].item() < 1e-12
    assert divergences(reference, predicted, INSIDE, "pooled")["reference_to_method"]["grid"].item() > 0.01
