"""Samplers on posteriors that are known: Gaussians, by their rules and as whole methods on a linear model.

With a constant step h = α/N on U(θ) = ½(θ − m)ᵀA(θ − m), every rule is a linear recursion with Gaussian noise. So its
distribution after any number of steps is a Gaussian whose mean and covariance follow in closed form, discretisation
included; chains must agree with that within Monte Carlo error, and it must lie near N(m, A⁻¹).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
import torch
from gaussian_samples import assert_gaussian
from scipy import linalg
from torch import Tensor
from toy_fit import Problem, train

from epibench.methods import METHODS, Method
from epibench.methods.cyclical import cyclical
from epibench.methods.sghmc import HamiltonianRule
from epibench.methods.sgld import LangevinRule
from epibench.networks.mlp import StackedMLP
from epibench.training.rules import Pace, Rule, Step

Array = npt.NDArray[np.float64]
NUM_POINTS = 50  # N: rules are given the gradient of U/N
MODE = np.array([1.0, -2.0, 0.5])
PRECISION = np.array([[2.0, 0.9, 0.0], [0.9, 1.0, -0.4], [0.0, -0.4, 3.0]])  # A; eigenvalues 0.5 to 3.1
COVARIANCE = np.linalg.inv(PRECISION)
CHAINS = 20_000


def drive(rule: Rule, paces: Sequence[Pace], chains: int = CHAINS) -> Tensor:
    """Follow a rule from 0 on U; (chain, parameter)."""
    generator = torch.Generator().manual_seed(0)
    parameters = torch.zeros(chains, 3, dtype=torch.float64)
    state = rule.start(parameters)
    mode, precision = torch.from_numpy(MODE), torch.from_numpy(PRECISION)
    for number, pace in enumerate(paces, 1):
        noise = torch.randn(parameters.shape, generator=generator, dtype=torch.float64) if pace.temperature else None
        gradient = (parameters - mode) @ precision / NUM_POINTS
        rule.update(parameters, gradient, state, Step(number, pace, NUM_POINTS, noise))
    return parameters


def langevin_map(rate: float, temperature: float = 1.0) -> tuple[Array, Array]:
    """θ − m ← B (θ − m) + noise of covariance Q."""
    step = rate / NUM_POINTS
    return np.eye(3) - step * PRECISION, 2 * step * temperature * np.eye(3)


def hamiltonian_map(rate: float, friction: float) -> tuple[Array, Array]:
    """The same for (θ − m, r): r ← (1 − η) r − h A (θ − m) + noise, then θ ← θ + r."""
    step = rate / NUM_POINTS
    one, zero = np.eye(3), np.zeros((3, 3))
    momentum = np.hstack((-step * PRECISION, (1 - friction) * one))
    transition = np.vstack((np.hstack((one, zero)) + momentum, momentum))
    noise = 2 * friction * step * np.block([[one, one], [one, one]])
    return transition, noise


def is_gaussian(samples: Tensor, mean: Array, covariance: Array) -> bool:
    try:
        assert_gaussian(samples, mean, covariance)
    except AssertionError:
        return False
    return True


LANGEVIN_RATE, HAMILTONIAN_RATE = 5.0, 0.5  # of U/N: steps of 0.1 and 0.01 on U


class TestLangevin:
    def test_chains_reach_the_stationary_distribution_of_the_recursion(self) -> None:
        samples = drive(LangevinRule(), [Pace(LANGEVIN_RATE)] * 300)
        assert_gaussian(samples, MODE, linalg.solve_discrete_lyapunov(*langevin_map(LANGEVIN_RATE)))

    def test_that_is_the_posterior_but_for_the_step(self) -> None:
        """Σ = (A − h A²/2)⁻¹: at a step of h, relatively hA/2 off."""
        stationary = linalg.solve_discrete_lyapunov(*langevin_map(LANGEVIN_RATE))
        step = LANGEVIN_RATE / NUM_POINTS
        np.testing.assert_allclose(stationary, np.linalg.inv(PRECISION - step / 2 * PRECISION @ PRECISION), rtol=1e-9)
        samples = drive(LangevinRule(), [Pace(LANGEVIN_RATE)] * 300)
        np.testing.assert_allclose(np.cov(samples.T), COVARIANCE, rtol=0, atol=0.12)

    def test_a_small_step_samples_the_posterior_itself(self) -> None:
        samples = drive(LangevinRule(), [Pace(LANGEVIN_RATE / 40)] * 6000, 4_000)
        assert_gaussian(samples, MODE, COVARIANCE)

    def test_a_few_steps_from_the_start_are_where_they_should_be(self) -> None:
        transition, noise = langevin_map(LANGEVIN_RATE)
        mean, covariance = -MODE, np.zeros((3, 3))
        for _ in range(5):
            mean, covariance = transition @ mean, transition @ covariance @ transition.T + noise
        assert_gaussian(drive(LangevinRule(), [Pace(LANGEVIN_RATE)] * 5), MODE + mean, covariance)

    def test_without_noise_it_goes_to_the_mode(self) -> None:
        samples = drive(LangevinRule(), [Pace(LANGEVIN_RATE, 0.0)] * 600, 3)
        np.testing.assert_allclose(samples, np.tile(MODE, (3, 1)), atol=1e-9)

    def test_half_the_temperature_is_half_the_covariance(self) -> None:
        samples = drive(LangevinRule(), [Pace(LANGEVIN_RATE, 0.5)] * 300)
        assert_gaussian(samples, MODE, linalg.solve_discrete_lyapunov(*langevin_map(LANGEVIN_RATE, 0.5)))


class TestHamiltonian:
    @pytest.mark.parametrize("friction", [0.1, 0.5, 1.0])
    def test_chains_reach_the_stationary_distribution_of_the_recursion(self, friction: float) -> None:
        stationary = linalg.solve_discrete_lyapunov(*hamiltonian_map(HAMILTONIAN_RATE, friction))
        steps = {0.1: 400, 0.5: 900, 1.0: 1800}[friction]
        samples = drive(HamiltonianRule(friction), [Pace(HAMILTONIAN_RATE)] * steps, 10_000)
        assert_gaussian(samples, MODE, stationary[:3, :3])

    @pytest.mark.parametrize("friction", [0.1, 0.5, 1.0])
    def test_that_is_the_posterior_but_for_the_step(self, friction: float) -> None:
        stationary = linalg.solve_discrete_lyapunov(*hamiltonian_map(HAMILTONIAN_RATE, friction))
        np.testing.assert_allclose(stationary[:3, :3], COVARIANCE, rtol=0, atol=0.1)

    def test_the_posterior_is_the_limit_of_small_steps(self) -> None:
        distances = [
            np.abs(linalg.solve_discrete_lyapunov(*hamiltonian_map(rate, 0.1))[:3, :3] - COVARIANCE).max()
            for rate in (0.5, 0.05, 0.005)
        ]
        assert distances[1] < distances[0] / 8
        assert distances[2] < distances[1] / 8

    def test_the_momentum_has_the_covariance_of_its_step(self) -> None:
        """Near hI: the temperature of the momentum in the units of Chen et al.'s Equation 15."""
        stationary = linalg.solve_discrete_lyapunov(*hamiltonian_map(HAMILTONIAN_RATE, 0.1))
        np.testing.assert_allclose(stationary[3:, 3:], HAMILTONIAN_RATE / NUM_POINTS * np.eye(3), atol=0.0012)

    def test_a_few_steps_from_the_start_are_where_they_should_be(self) -> None:
        transition, noise = hamiltonian_map(HAMILTONIAN_RATE, 0.1)
        mean, covariance = np.concatenate((-MODE, np.zeros(3))), np.zeros((6, 6))
        for _ in range(7):
            mean, covariance = transition @ mean, transition @ covariance @ transition.T + noise
        samples = drive(HamiltonianRule(0.1), [Pace(HAMILTONIAN_RATE)] * 7)
        assert_gaussian(samples, MODE + mean[:3], covariance[:3, :3])

    def test_without_noise_it_goes_to_the_mode(self) -> None:
        samples = drive(HamiltonianRule(0.1), [Pace(HAMILTONIAN_RATE, 0.0)] * 2000, 3)
        np.testing.assert_allclose(samples, np.tile(MODE, (3, 1)), atol=1e-9)

    def test_it_moves_with_the_new_momentum(self) -> None:
        """facts.md: θ_{t+1} = θ_t + r_{t+1}; the first step from rest is −α ∇(U/N)."""
        step = HAMILTONIAN_RATE / NUM_POINTS
        found = drive(HamiltonianRule(0.1), [Pace(HAMILTONIAN_RATE, 0.0)], 1)
        np.testing.assert_allclose(found[0], step * PRECISION @ MODE, rtol=1e-12)


class TestCyclical:
    def test_the_end_of_every_cycle_is_a_sample(self) -> None:
        """Its last cycle, step by step in closed form; the rate falls to 0, so it ends near the posterior itself."""
        schedule, total = cyclical(LANGEVIN_RATE, 3, 0.25), 1200
        paces = [schedule(number, total) for number in range(1, total + 1)]
        mean, covariance = -MODE, np.zeros((3, 3))
        for pace in paces:
            transition, noise = langevin_map(*pace)
            mean, covariance = transition @ mean, transition @ covariance @ transition.T + noise
        samples = drive(LangevinRule(), paces)
        assert_gaussian(samples, MODE + mean, covariance)
        np.testing.assert_allclose(covariance, COVARIANCE, atol=0.03)

    def test_exploration_ends_at_the_mode(self) -> None:
        schedule = cyclical(LANGEVIN_RATE, 1, 0.5)
        samples = drive(LangevinRule(), [schedule(number, 1000) for number in range(1, 501)], 3)
        np.testing.assert_allclose(samples, np.tile(MODE, (3, 1)), atol=1e-6)


NOISE_FACTOR = 0.01


class FaintNoise:
    """The peer's way: a hundredth of the noise."""

    noisy = True
    decoupled = False

    def __init__(self, rule: Rule):
        self.rule = rule

    def start(self, parameters: Tensor) -> dict[str, Tensor]:
        return self.rule.start(parameters)

    def update(self, parameters: Tensor, gradient: Tensor, state: dict[str, Tensor], step: Step) -> None:
        noise = None if step.noise is None else NOISE_FACTOR * step.noise
        self.rule.update(parameters, gradient, state, step._replace(noise=noise))


@pytest.mark.parametrize(
    ("rule", "rate", "transition"),
    [
        (LangevinRule(), LANGEVIN_RATE, langevin_map(LANGEVIN_RATE)),
        (HamiltonianRule(0.1), HAMILTONIAN_RATE, hamiltonian_map(HAMILTONIAN_RATE, 0.1)),
    ],
)
def test_a_noise_factor_of_a_hundredth_fails_these_tests(
    rule: Rule, rate: float, transition: tuple[Array, Array]
) -> None:
    """torch-uncertainty's default: the spread is that of an optimiser, 10⁻⁴ of the posterior's covariance."""
    stationary = linalg.solve_discrete_lyapunov(*transition)[:3, :3]
    samples = drive(FaintNoise(rule), [Pace(rate)] * 400, 2_000)
    assert is_gaussian(drive(rule, [Pace(rate)] * 400, 2_000), MODE, stationary)
    assert not is_gaussian(samples, MODE, stationary)
    np.testing.assert_allclose(np.cov(samples.T), stationary * NOISE_FACTOR**2, rtol=0, atol=3e-5)


class TestLinearModel:
    """With unit noise and prior N(0, s²I), y = w·x + b has the posterior precision XᵀX + I/s² in closed form."""

    prior_scale = 0.5
    inputs = np.random.default_rng(0).normal(size=(24, 2))
    target = inputs @ [1.0, -0.5] + 0.3 + np.random.default_rng(1).normal(size=24)
    design = np.hstack((inputs, np.ones((24, 1))))
    precision = design.T @ design + np.eye(3) / prior_scale**2
    mode = np.linalg.solve(precision, design.T @ target)

    @property
    def problem(self) -> Problem:
        inputs, target = torch.from_numpy(self.inputs).float(), torch.from_numpy(self.target).float()
        return Problem.of("direct", inputs, target, StackedMLP(2, 1, hidden=()), self.prior_scale)

    def samples(self, method: Method) -> Tensor:
        """The last snapshot of every chain."""
        parameters = train(method, self.problem)
        assert parameters.shape[1] == 1
        return parameters[:, 0]

    def stationary(self, rate: float, friction: float | None = None) -> Array:
        """Of whole batches: the covariance that the recursion settles at."""
        step, one = rate / 24, np.eye(3)
        if friction is None:
            return linalg.solve_discrete_lyapunov(one - step * self.precision, 2 * step * one)
        momentum = np.hstack((-step * self.precision, (1 - friction) * one))
        transition = np.vstack((np.hstack((one, 0 * one)) + momentum, momentum))
        noise = 2 * friction * step * np.block([[one, one], [one, one]])
        return linalg.solve_discrete_lyapunov(transition, noise)[:3, :3]

    def test_sgld_samples_the_posterior(self) -> None:
        method = METHODS["sgld"](
            num_chains=3000, num_epochs=200, batch_size=24, learning_rate=0.05, power=0, num_snapshots=1
        )
        expected = self.stationary(0.05)
        np.testing.assert_allclose(expected, np.linalg.inv(self.precision), rtol=0.08, atol=1e-4)
        assert_gaussian(self.samples(method), self.mode, expected)

    def test_sghmc_samples_the_posterior(self) -> None:
        method = METHODS["sghmc"](
            num_chains=3000, num_epochs=200, batch_size=24, learning_rate=0.01, power=0, num_snapshots=1
        )
        expected = self.stationary(0.01, 0.1)
        np.testing.assert_allclose(expected, np.linalg.inv(self.precision), rtol=0.08, atol=1e-4)
        assert_gaussian(self.samples(method), self.mode, expected)

    def test_cyclical_samples_the_posterior(self) -> None:
        """Step by step in closed form, from initial weights in U(−1/√2, 1/√2); it ends near the posterior itself."""
        method = METHODS["cyclical"](
            num_chains=3000, num_epochs=400, batch_size=24, learning_rate=0.2, num_cycles=2, num_snapshots=2
        )
        mean, covariance = -self.mode, np.eye(3) / 6
        for number in range(1, 401):
            rate, temperature = method.schedule(number, 400)
            transition = np.eye(3) - rate / 24 * self.precision
            mean = transition @ mean
            covariance = transition @ covariance @ transition.T + 2 * rate / 24 * temperature * np.eye(3)
        np.testing.assert_allclose(covariance, np.linalg.inv(self.precision), rtol=0, atol=0.005)
        assert_gaussian(train(method, self.problem)[:, -1], self.mode + mean, covariance)

    @pytest.mark.parametrize(("name", "rate"), [("sgld", 0.01), ("sghmc", 0.001)])
    def test_batches_sample_it_too_at_a_small_rate(self, name: str, rate: float) -> None:
        method = METHODS[name](
            num_chains=1000, num_epochs=800, batch_size=8, learning_rate=rate, power=0, num_snapshots=1
        )
        samples, covariance = self.samples(method).double(), np.linalg.inv(self.precision)
        assert np.abs(samples.mean(0) - self.mode).max() < 5 * np.sqrt(np.diag(covariance).max() / 1000)
        np.testing.assert_allclose(np.diag(np.cov(samples.T)), np.diag(covariance), rtol=0.2)

    def test_map_finds_the_mode(self) -> None:
        method = METHODS["map"](
            num_restarts=3, num_epochs=600, batch_size=24, learning_rate=0.3, optimiser="momentum", decay="poly"
        )
        np.testing.assert_allclose(self.samples(method), np.tile(self.mode, (3, 1)), atol=1e-4)

    def test_maximum_likelihood_is_least_squares(self) -> None:
        method = METHODS["ml"](
            num_restarts=3, num_epochs=600, batch_size=24, learning_rate=0.3, optimiser="momentum", decay="poly"
        )
        least_squares = np.linalg.lstsq(self.design, self.target)[0]
        np.testing.assert_allclose(self.samples(method), np.tile(least_squares, (3, 1)), atol=1e-4)
