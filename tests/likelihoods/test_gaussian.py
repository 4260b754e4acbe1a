"""Gaussian members → predictive of every draw, against brute force in float64: one draw and one pixel after another."""

from __future__ import annotations

import itertools
import statistics
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from epibench.likelihoods.gaussian import GaussianPredictive, combine, loss, slope
from epibench.members.draws import make_draws

in_any_time = settings(deadline=None, max_examples=25)  # the first example waits for torch's threads
DTYPES = (torch.float16, torch.float32, torch.float64)
POOLED = make_draws(2, [2]).weights


def random_outputs(
    seed: int, members: int, pixels: int, scale: float = 10.0, offset: float = 60.0
) -> dict[str, Tensor]:
    rng = np.random.default_rng(seed)
    mean = offset + scale * rng.standard_normal((members, pixels))
    return {"mean": torch.from_numpy(mean), "variance": torch.from_numpy(rng.gamma(2.0, 1.0, (members, pixels)))}


def outputs_of(means: list[float], std: float, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """One pixel, on which all members have the same standard deviation."""
    mean = torch.tensor(means, dtype=dtype)[:, None]
    return {"mean": mean, "variance": torch.full_like(mean, std**2)}


def brute_force(outputs: dict[str, Tensor], draws: Any) -> dict[str, Tensor]:
    """Moments of each draw's own members, by exact sums of fractions; each (draw, pixel)."""
    mean, variance = (outputs[name].to(torch.float64).tolist() for name in ("mean", "variance"))
    pixels = range(len(mean[0]))
    found = {
        "mean": [[statistics.mean(mean[m][p] for m in members) for p in pixels] for members in draws.sets],
        "aleatoric": [[statistics.mean(variance[m][p] for m in members) for p in pixels] for members in draws.sets],
        "epistemic": [[statistics.pvariance(mean[m][p] for m in members) for p in pixels] for members in draws.sets],
    }
    return {name: torch.tensor(values, dtype=torch.float64) for name, values in found.items()}


def assert_same_moments(found: GaussianPredictive, expected: dict[str, Tensor], **tolerance: float) -> None:
    for name, values in expected.items():
        torch.testing.assert_close(getattr(found, name), values, **tolerance)


@in_any_time
@given(
    seed=st.integers(0, 2**32),
    members=st.integers(1, 9),
    pixels=st.integers(1, 7),
    plan=st.sampled_from(["random", "disjoint", "prefix", "spread"]),
)
def test_moments_equal_brute_force_for_every_draw(seed: int, members: int, pixels: int, plan: str) -> None:
    outputs = random_outputs(seed, members, pixels)
    draws = make_draws(members, range(1, members + 1), plan=plan, seed=seed, max_draws=4)
    assert_same_moments(combine(outputs, draws.weights), brute_force(outputs, draws), rtol=1e-9, atol=1e-10)


@in_any_time
@given(means=st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=6))
def test_moments_equal_brute_force_for_any_means(means: list[float]) -> None:
    outputs = outputs_of(means, std=1.0)
    draws = make_draws(len(means), [len(means)])
    spread = max(means) - min(means)
    assert_same_moments(
        combine(outputs, draws.weights), brute_force(outputs, draws), rtol=1e-9, atol=1e-13 * spread**2 + 1e-9
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_members_5_m_apart_with_a_std_of_5_mm(dtype: torch.dtype) -> None:
    found = combine(outputs_of([57.5, 62.5], 0.005, dtype), POOLED)
    assert [found.aleatoric.item(), found.epistemic.item()] == pytest.approx([2.5e-5, 6.25], rel=1e-4)


def test_60_m_with_a_spread_of_5_mm() -> None:
    found = combine(outputs_of([59.995, 60.005], 0.005), POOLED)
    assert found.epistemic.item() == pytest.approx(2.5e-5, rel=1e-4)


def millimetres_at_60_m() -> tuple[Tensor, Tensor]:
    """float32 means (member, pixel) at 60 m that spread by about 5 mm, and their exact variance over members."""
    mean = (60 + 0.005 * torch.randn((8, 500), generator=torch.Generator().manual_seed(0), dtype=torch.float64)).float()
    return mean, mean.to(torch.float64).var(0, correction=0)


def test_60_m_with_a_spread_of_5_mm_from_float32() -> None:
    mean, exact = millimetres_at_60_m()
    found = combine({"mean": mean, "variance": torch.zeros_like(mean)}, torch.full((1, 8), 1 / 8))
    torch.testing.assert_close(found.epistemic[0], exact, rtol=1e-4, atol=0)


def test_the_difference_of_squares_in_float32_would_fail_there() -> None:
    mean, exact = millimetres_at_60_m()
    naive = mean.square().mean(0) - mean.mean(0).square()
    assert (naive < 0).float().mean() > 0.2
    assert ((naive - exact).abs() > exact).float().mean() > 0.5


def test_a_tight_draw_inside_a_widely_spread_pool() -> None:
    means = [59.995, 60.005, *np.linspace(0.5, 120.0, 30).tolist()]
    found = combine(outputs_of(means, 0.005), torch.tensor([[0.5] * 2 + [0.0] * 30], dtype=torch.float64))
    assert found.epistemic.item() == pytest.approx(2.5e-5, rel=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_member_has_exactly_no_epistemic_variance(dtype: torch.dtype) -> None:
    outputs = {name: values.to(dtype) for name, values in random_outputs(1, 33, 101).items()}
    assert (combine(outputs, torch.eye(33)).epistemic == 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_member_keeps_its_own_mean_and_variance(dtype: torch.dtype) -> None:
    outputs = {name: values.to(dtype) for name, values in random_outputs(2, 5, 11).items()}
    found = combine(outputs, torch.eye(5))
    torch.testing.assert_close(found.mean, outputs["mean"].to(torch.float64), rtol=1e-15, atol=1e-14)
    assert torch.equal(found.variance, outputs["variance"].to(torch.float64))


@pytest.mark.parametrize("members", [2, 3, 7, 33])
def test_identical_members_have_no_epistemic_variance(members: int) -> None:
    found = combine(outputs_of([60.1] * members, 0.005), torch.full((1, members), 1 / members, dtype=torch.float64))
    assert found.epistemic.item() == pytest.approx(0, abs=1e-25)


def test_the_epistemic_variance_is_never_negative() -> None:
    outputs = outputs_of([60.1] * 3 + [1e6] * 4, 0.005)  # rounding at the pool's scale
    assert (combine(outputs, make_draws(7, max_draws=50).weights).epistemic >= 0).all()


@in_any_time
@given(seed=st.integers(0, 2**32), members=st.integers(1, 5))
def test_aleatoric_and_epistemic_add_up_to_the_variance_of_the_mixture(seed: int, members: int) -> None:
    outputs = random_outputs(seed, members, 1, scale=2.0)
    found = combine(outputs, torch.full((1, members), 1 / members, dtype=torch.float64))
    x = np.linspace(20.0, 100.0, 160_001)
    std = outputs["variance"].sqrt().numpy()
    density = (np.exp(-0.5 * ((x - outputs["mean"].numpy()) / std) ** 2) / (std * np.sqrt(2 * np.pi))).mean(0)
    mean = np.trapezoid(x * density, x)
    variance = np.trapezoid((x - mean) ** 2 * density, x)
    assert found.variance.item() == pytest.approx(variance, rel=1e-6)


@in_any_time
@given(seed=st.integers(0, 2**32), pixels=st.integers(1, 40), data=st.data())
def test_pixels_can_be_split_anywhere(seed: int, pixels: int, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, pixels), max_size=4)))
    outputs, weights = random_outputs(seed, 6, pixels), make_draws(6).weights
    whole = combine(outputs, weights)
    edges = [0, *cuts, pixels]
    parts = [combine({k: v[:, a:b] for k, v in outputs.items()}, weights) for a, b in itertools.pairwise(edges)]
    for name in ("mean", "aleatoric", "epistemic"):
        joined = torch.cat([getattr(part, name) for part in parts], 1)
        torch.testing.assert_close(joined, getattr(whole, name), rtol=1e-13, atol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_any_float_comes_out_as_float64(dtype: torch.dtype) -> None:
    outputs = {name: values.to(dtype) for name, values in random_outputs(3, 4, 9).items()}
    draws = make_draws(4)
    assert_same_moments(combine(outputs, draws.weights.to(dtype)), brute_force(outputs, draws), rtol=1e-9, atol=1e-9)


def test_no_pixels_give_an_empty_predictive() -> None:
    assert combine(random_outputs(0, 3, 0), make_draws(3).weights).variance.shape == (len(make_draws(3).sets), 0)


@pytest.mark.parametrize(
    ("kind", "name"), [("total", "variance"), ("aleatoric", "aleatoric"), ("epistemic", "epistemic")]
)
def test_each_uncertainty_is_the_part_it_names(kind: str, name: str) -> None:
    found = combine(random_outputs(4, 4, 9), make_draws(4).weights)
    assert torch.equal(found.uncertainty(kind), getattr(found, name))


def test_an_unknown_uncertainty_is_refused() -> None:
    with pytest.raises(ValueError, match="'entropy' is unknown; there are total, aleatoric, epistemic"):
        combine(random_outputs(4, 4, 9), make_draws(4).weights).uncertainty("entropy")


def test_members_outside_of_a_draw_leave_no_rounding_in_it():
    mean = torch.tensor([[60.000], [60.005], [60.010], [1e8]], dtype=torch.float64)
    outputs = {"mean": mean, "variance": torch.ones_like(mean)}
    alone = combine({name: values[:3] for name, values in outputs.items()}, torch.full((1, 3), 1 / 3))
    among = combine(outputs, torch.tensor([[1 / 3, 1 / 3, 1 / 3, 0]]))
    torch.testing.assert_close(among.epistemic, alone.epistemic, rtol=1e-9, atol=0)


@in_any_time
@given(seed=st.integers(0, 2**32), scale=st.sampled_from([0.1, 1.0, 5.0]))
def test_the_loss_is_the_negative_log_likelihood_without_its_constant(seed: int, scale: float) -> None:
    mean, log_variance, target = torch.from_numpy(scale * np.random.default_rng(seed).standard_normal((3, 4, 7)))
    exact = -torch.distributions.Normal(mean, (0.5 * log_variance).exp()).log_prob(target)
    constant = 0.5 * np.log(2 * np.pi)
    torch.testing.assert_close(loss(mean, log_variance, target), exact - constant, rtol=1e-10, atol=1e-12)


@in_any_time
@given(seed=st.integers(0, 2**32), scale=st.sampled_from([0.1, 1.0, 5.0]))
def test_the_slope_is_the_derivative_of_the_loss(seed: int, scale: float) -> None:
    mean, log_variance, target = torch.from_numpy(scale * np.random.default_rng(seed).standard_normal((3, 4, 7)))
    leaves = [values.clone().requires_grad_() for values in (mean, log_variance)]
    expected = torch.autograd.grad(loss(*leaves, target).sum(), leaves)
    for found, derivative in zip(slope(mean, log_variance, target), expected, strict=True):
        torch.testing.assert_close(found, derivative, rtol=1e-12, atol=1e-13)


def test_the_slope_leaves_its_input_alone() -> None:
    inputs = torch.from_numpy(np.random.default_rng(0).standard_normal((3, 4, 7)))
    before = inputs.clone()
    slope(*inputs)
    assert torch.equal(inputs, before)
