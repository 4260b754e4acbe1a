"""Chains that are warmed up: two phases, a temperature, the prior on every parameter, snapshots after the warm-up."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy import linalg
from test_samplers import NUM_POINTS, PRECISION, drive
from torch import Tensor, nn

from epibench.data.batch import Batch
from epibench.methods.chains import Chains, WarmedUp
from epibench.methods.cyclical import Cyclical, cyclical
from epibench.methods.sghmc import SGHMC, HamiltonianRule
from epibench.methods.sgld import SGLD, LangevinRule
from epibench.training.network import NetworkKeys, NetworkTraining, train_network
from epibench.training.rules import SGD, Adam, Pace, Rule, RuleState, Step, poly
from epibench.training.state import TrainingCallbacks, Weights

every_chain = pytest.mark.parametrize("chain", [SGLD, SGHMC, Cyclical])


@every_chain
class TestWithoutWarmUp:
    """What the published toy problems use: the sampler from the first step on."""

    def test_the_rule_is_the_samplers_own(self, chain: type[Chains]) -> None:
        method = chain(num_epochs=30)
        assert method.rule == method.sampling_rule
        assert isinstance(method.rule, HamiltonianRule if chain is SGHMC else LangevinRule)

    def test_the_schedule_is_the_samplers_own_bit_for_bit(self, chain: type[Chains]) -> None:
        method = chain(num_epochs=32, learning_rate=0.03, power=0.7)
        own = cyclical(0.03, 32, 0.5) if chain is Cyclical else poly(0.03, 0.7)
        assert [method.schedule(step, 160) for step in range(1, 161)] == [own(step, 160) for step in range(1, 161)]

    def test_nothing_is_fitted_afterwards(self, chain: type[Chains]) -> None:
        assert not chain().fits


@every_chain
class TestWarmUp:
    def test_snapshots_are_those_of_a_shorter_chain_after_it(self, chain: type[Chains]) -> None:
        warmed, cold = chain(num_epochs=50, warm_up_epochs=10, num_snapshots=64), chain(num_epochs=40, num_snapshots=64)
        assert warmed.keep == tuple(10 + epoch for epoch in cold.keep)

    def test_the_sampler_paces_itself_over_what_is_left(self, chain: type[Chains]) -> None:
        warmed, cold = chain(num_epochs=50, warm_up_epochs=10), chain(num_epochs=40)
        paces = [warmed.schedule(70 + step, 350) for step in range(1, 281)]
        assert paces == [cold.schedule(step, 280) for step in range(1, 281)]

    def test_it_decays_to_0_without_noise(self, chain: type[Chains]) -> None:
        method = chain(num_epochs=50, warm_up_epochs=10, warm_up_rate=0.02)
        paces = [method.schedule(step, 350) for step in range(1, 71)]
        assert paces == [Pace(poly(0.02)(step, 70).rate, 0.0) for step in range(1, 71)]

    def test_temperature_multiplies_that_of_the_sampler(self, chain: type[Chains]) -> None:
        warm, cold = (chain(num_epochs=20, temperature=each) for each in (1.0, 0.25))
        for step in range(1, 101):
            (rate, temperature), found = warm.schedule(step, 100), cold.schedule(step, 100)
            assert found == (rate, 0.25 * temperature)

    @pytest.mark.parametrize("epochs", [20, 21])
    def test_one_that_leaves_nothing_to_sample_in_is_refused(self, chain: type[Chains], epochs: int) -> None:
        with pytest.raises(ValidationError, match=f"warm_up_epochs: {epochs} of 20 epochs leave none to sample in"):
            chain(num_epochs=20, warm_up_epochs=epochs)

    def test_a_preconditioner_without_it_is_refused(self, chain: type[Chains]) -> None:
        with pytest.raises(ValidationError, match="preconditioned: it takes what Adam has seen"):
            chain(preconditioned=True)


def follow(rule: Rule, num_steps: int) -> Tensor:
    """Where a rule goes with the same gradients and noise in so many steps; an epoch has two."""
    generator = torch.Generator().manual_seed(1)
    parameters = torch.ones(2, 3)
    state = rule.start(parameters)
    for number in range(1, num_steps + 1):
        gradient, noise = torch.randn(2, 2, 3, generator=generator)
        rule.update(parameters, gradient, state, Step(number, Pace(0.1), 10, noise, epoch_steps=2))
    return parameters


def test_the_warm_up_is_adam() -> None:
    assert torch.equal(follow(WarmedUp(HamiltonianRule(), 2), 4), follow(Adam(), 4))


def test_the_sampler_goes_on_from_where_adam_ended() -> None:
    before, after = (follow(WarmedUp(LangevinRule(), 1), steps) for steps in (2, 3))
    generator = torch.Generator().manual_seed(1)
    gradient, noise = [torch.randn(2, 2, 3, generator=generator) for _ in range(3)][-1]
    LangevinRule().update(before, gradient, {}, Step(3, Pace(0.1), 10, noise))
    assert torch.equal(after, before)


def test_a_preconditioned_step_divides_by_what_adam_divides_by() -> None:
    """Whatever the size of the gradient, once it has been the same for long: a rate is of the size of one of Adam's."""
    rule = WarmedUp(LangevinRule(), 1, preconditioned=True, damping=0.0)
    parameters, gradient = torch.zeros(1, 3), torch.tensor([[1e-3, -1.0, 50.0]])
    state = rule.start(parameters)
    for number in range(1, 6):
        rule.update(parameters, gradient, state, Step(number, Pace(0.1), 10, None, epoch_steps=5))
    before = parameters.clone()
    rule.update(parameters, gradient, state, Step(6, Pace(0.1), 10, None, epoch_steps=5))
    torch.testing.assert_close(parameters - before, -0.1 * gradient.sign(), rtol=1e-5, atol=0)


SCALE = np.array([1.0, 4.0, 0.5])
FACTOR = 1 / (SCALE + 0.1 * SCALE.mean())  # P


class Preset(WarmedUp):
    """A preconditioner of which the moments are known, after a warm-up of as many steps as are not taken."""

    def start(self, parameters: Tensor) -> RuleState:
        state = super().start(parameters)
        state["adam.second"].copy_(torch.from_numpy(SCALE**2))
        return state

    def update(self, parameters: Tensor, gradient: Tensor, state: RuleState, step: Step) -> None:
        super().update(parameters, gradient, state, step._replace(number=step.number + 10**6, epoch_steps=10**6))


def test_a_preconditioned_langevin_chain_reaches_the_stationary_distribution_of_its_recursion() -> None:
    """θ − m ← (I − h P A)(θ − m) + noise of covariance 2hP T: near T A⁻¹, whatever P is."""
    rate, temperature = 1.0, 0.5
    step = rate / NUM_POINTS * np.diag(FACTOR)
    stationary = linalg.solve_discrete_lyapunov(np.eye(3) - step @ PRECISION, 2 * step * temperature)
    np.testing.assert_allclose(stationary, temperature * np.linalg.inv(PRECISION), rtol=0.1, atol=0.02)
    samples = drive(Preset(LangevinRule(), 1, preconditioned=True), [Pace(rate, temperature)] * 1500, 20_000)
    # The variance of 20,000 samples is known to 1 % (standard deviation): five of these.
    np.testing.assert_allclose(np.cov(samples.T), stationary, rtol=0.05, atol=0.05 * stationary.max())


def test_a_preconditioned_hamiltonian_chain_samples_the_same_posterior() -> None:
    samples = drive(Preset(HamiltonianRule(0.1), 1, preconditioned=True), [Pace(0.2)] * 2000, 10_000)
    np.testing.assert_allclose(np.cov(samples.T), np.linalg.inv(PRECISION), rtol=0.1, atol=0.1)


class Normed(nn.Module):
    """Weights before batch norm, whose scale the outputs do not depend on; scales, shifts and biases, 512 of each."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Conv2d(3, 512, 1), nn.BatchNorm2d(512), nn.Conv2d(512, 2, 1)

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        output: Tensor = self.last(self.norm(self.first(inputs["image"])))
        return output


class Noise:
    """Twenty images of noise; targets that nothing depends on."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Batch:
        image = torch.randn(3, 4, 4, generator=torch.Generator().manual_seed(index))
        return Batch({"image": image}, torch.zeros(4, 4), torch.ones(4, 4, dtype=torch.bool))


def last_snapshot(method: Chains, scale_of_loss: float, prior_scale: float) -> Weights:
    """The last weights of a chain on a squared error, times a factor."""
    kept: list[Weights] = []
    training = NetworkTraining(
        **vars(method.training),
        build=Normed,
        loss=lambda raw, target: scale_of_loss * (raw[:, 0] - target).square(),
        samples=Noise(),
        augment=lambda sample, key: sample,
        epoch_steps=10,
        weight_decay=1 / (20 * prior_scale**2),
        decay_all=True,
    )
    keys, callbacks = (
        NetworkKeys.of(0, method.name, 0),
        TrainingCallbacks(keep=lambda epoch, weights: kept.append(weights)),
    )
    train_network(training, keys, torch.device("cpu"), callbacks=callbacks)
    return kept[-1]


@cache
def without_likelihood(chain: type[Chains], rate: float, prior_scale: float, temperature: float) -> Weights:
    """A chain that sees nothing but its prior; each is followed once."""
    options = {"num_epochs": 45, "warm_up_epochs": 5, "batch_size": 2, "learning_rate": rate, "power": 0}
    return last_snapshot(chain(**options, temperature=temperature, num_snapshots=1), 0.0, prior_scale)


@pytest.mark.parametrize("name", ["first.weight", "first.bias", "norm.weight", "norm.bias", "last.weight"])
@pytest.mark.parametrize(("chain", "rate"), [(SGLD, 0.8), (SGHMC, 0.05)])
def test_without_a_likelihood_every_parameter_has_the_variance_of_the_prior(
    chain: type[Chains], rate: float, name: str
) -> None:
    """prior_scale² · temperature: weights that are followed by batch norm, scales and biases too."""
    prior_scale, temperature, precision = 0.5, 0.6, 1 / (20 * 0.5**2)
    values = without_likelihood(chain, rate, prior_scale, temperature)[name].double()
    # SGLD settles at s²T / (1 − αλ/2); SGHMC at almost s²T: its step is far smaller.
    expected = prior_scale**2 * temperature / (1 - rate * precision / 2 if chain is SGLD else 1)
    # A sum of n squares over its expectation has the standard deviation √(2/n): five of these.
    assert float(values.square().mean()) / expected == pytest.approx(1, abs=5 * (2 / values.numel()) ** 0.5)


def test_a_chain_of_temperature_0_is_gradient_descent() -> None:
    options = {"num_epochs": 4, "batch_size": 2, "learning_rate": 1e-4, "num_snapshots": 1}
    chain = SGLD(temperature=0.0, **options)

    class Descent(SGLD):
        @property
        def sampling_rule(self) -> Rule:
            return SGD()

    found, expected = (last_snapshot(each, 1.0, 2.0) for each in (chain, Descent(**options)))
    assert [name for name in expected if not torch.equal(found[name], expected[name])] == []
    noisy = last_snapshot(SGLD(**options), 1.0, 2.0)
    assert not torch.equal(noisy["first.weight"], found["first.weight"])
