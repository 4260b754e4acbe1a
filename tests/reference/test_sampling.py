"""The sampler on posteriors with a known answer, and the energy against PyTorch."""

import math

import numpy as np
import pytest
import torch

pytest.importorskip("numpyro", reason="the reference needs numpyro: pip install 'epibench[reference]'")
pytest.importorskip("arviz", reason="the reference needs arviz: pip install 'epibench[reference]'")

import jax
import jax.numpy as jnp

from epibench.reference.chains import run_nuts
from epibench.reference.model import Posterior, inverse_root, posterior_of
from epibench.reference.settings import NutsSettings, TemperingSettings
from epibench.reference.starts import Population, cool, next_inverse_temperature, prior_start, shaken, systematic
from toy_points import toy_problem

# One measurement y = 3 ± 0.01 of θ₀ + θ₁, prior N(0, 1): mean 1.5 each, the difference keeps its prior spread √2.
SPREAD = 0.01
FACTORS = np.array([[1.0, 1.0]]) / SPREAD


def narrow() -> Posterior:
    return Posterior(
        2,
        1.0,
        lambda values: -0.5 * jnp.square((values.sum() - 3) / SPREAD),
        lambda values: jnp.asarray(FACTORS, jnp.float32) + 0 * values.sum(),
        lambda values: {"mean": values},
    )


def two_modes() -> Posterior:
    """θ² = 4 ± 0.4: two modes at ±2, of equal weight."""
    return Posterior(
        1,
        1.0,
        lambda values: -0.5 * jnp.square((values[0] ** 2 - 4) / 0.4),
        lambda values: (2 * values / 0.4)[None],
        lambda values: {"mean": values},
    )


def torch_potential(name: str, parameters: torch.Tensor) -> torch.Tensor:
    train = toy_problem(name).train

    def network(values: torch.Tensor, inputs: torch.Tensor, num_outputs: int) -> torch.Tensor:
        for before, after in ((inputs.shape[1], 10), (10, 10), (10, num_outputs)):
            weight, bias = values[: before * after].view(after, before), values[before * after : (before + 1) * after]
            values, inputs = values[(before + 1) * after :], inputs @ weight.T + bias
            inputs = inputs if after == num_outputs else inputs.relu()
        return inputs

    inputs = train.inputs.double()
    prior = -torch.distributions.Normal(0.0, 1.0).log_prob(parameters).sum()
    if name == "toy-classification":
        return prior + torch.nn.functional.cross_entropy(network(parameters, inputs, 2), train.target, reduction="sum")
    mean, log_variance = (network(half, inputs, 1)[:, 0] for half in parameters.split(141))
    return prior - torch.distributions.Normal(mean, (log_variance / 2).exp()).log_prob(train.target.double()).sum()


@pytest.mark.parametrize(("name", "size"), [("toy-regression", 282), ("toy-classification", 162)])
def test_energy_and_slope_are_those_of_pytorch(name: str, size: int) -> None:
    parameters = 0.5 * np.random.default_rng(0).standard_normal(size)
    posterior = posterior_of(toy_problem(name))
    energy, slope = jax.value_and_grad(posterior.potential)(jnp.asarray(parameters, jnp.float32))
    expected = torch.from_numpy(parameters).requires_grad_()
    value = torch_potential(name, expected)
    value.backward()
    assert posterior.num_parameters == size
    assert float(energy) == pytest.approx(value.item(), rel=1e-4)
    scale = expected.grad.abs().max().item()
    np.testing.assert_allclose(np.asarray(slope), expected.grad.numpy(), atol=1e-4 * scale)


def test_grouped_points_give_nearly_the_same_energy_differences() -> None:
    problem = toy_problem("toy-regression")
    exact, rough = posterior_of(problem), posterior_of(problem, group=4)
    assert rough.num_parameters == exact.num_parameters
    values = 0.1 * jax.random.normal(jax.random.key(0), (8, 282))
    differences = [np.asarray(jax.vmap(each.log_likelihood)(values)) for each in (exact, rough)]
    np.testing.assert_allclose(differences[0], differences[1], rtol=2e-3)


def test_mass_matrix_is_prior_plus_information() -> None:
    root = np.asarray(inverse_root(narrow(), jnp.zeros((3, 2))), np.float64)
    np.testing.assert_allclose(np.linalg.inv(root @ root), np.eye(2) + FACTORS.T @ FACTORS, rtol=1e-2)


def test_nuts_finds_a_narrow_posterior() -> None:
    kept: list[np.ndarray] = []
    settings = NutsSettings(rounds=2, warmup=10, samples=100, max_tree_depth=5)
    starts = prior_start(narrow(), 32, jax.random.key(1))
    run_nuts(
        narrow(), starts, jax.random.key(2), settings, 0.5, lambda draws: kept.append(np.asarray(draws.parameters))
    )
    draws = np.concatenate(kept)
    assert draws.sum(1).mean() == pytest.approx(3.0, abs=3e-3)
    assert draws.sum(1).std() == pytest.approx(SPREAD, rel=0.1)
    difference = draws[:, 0] - draws[:, 1]
    assert abs(difference.mean()) < 0.2
    assert difference.std() == pytest.approx(math.sqrt(2), rel=0.1)


def test_cooling_ends_at_the_posterior_and_finds_both_modes() -> None:
    posterior = two_modes()
    settings = TemperingSettings(networks=512, moves=3, leapfrog_steps=8)
    start = Population(prior_start(posterior, 512, jax.random.key(3)))
    coldest = np.asarray(cool(posterior, start, jax.random.key(4), settings).networks[:, 0])
    assert np.abs(coldest).mean() == pytest.approx(1.98, abs=0.05)
    assert 0.35 < (coldest > 0).mean() < 0.65


def test_heating_forgets_a_start_in_one_mode() -> None:
    posterior = two_modes()
    settings = TemperingSettings(networks=512, moves=3, leapfrog_steps=8, hottest=1e-5)
    one_mode = Population(jnp.full((512, 1), 2.0))
    stuck = shaken(posterior, one_mode, jax.random.key(5), 1.0, 18, settings)
    assert (np.asarray(stuck.networks) > 0).all()
    hot = shaken(posterior, one_mode, jax.random.key(5), settings.hottest, 18, settings)
    coldest = np.asarray(cool(posterior, hot, jax.random.key(6), settings, settings.hottest).networks)
    assert 0.35 < (coldest > 0).mean() < 0.65


def test_next_temperature_keeps_the_effective_share() -> None:
    values = np.random.default_rng(1).normal(0, 100, 1000)
    following = next_inverse_temperature(values, 0.2, 0.7)
    weights = np.exp((following - 0.2) * (values - values.max()))
    assert weights.sum() ** 2 / np.square(weights).sum() / 1000 == pytest.approx(0.7, abs=1e-3)
    assert next_inverse_temperature(np.zeros(5), 0.2, 0.7) == 1.0


def test_systematic_draws_by_weight() -> None:
    assert systematic(np.array([1.0, 0.0, 3.0]), 0.5, 4).tolist() == [0, 2, 2, 2]
