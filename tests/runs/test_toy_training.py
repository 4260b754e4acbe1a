"""Schedules and gradients of methods on toy problems, against the published formulas."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from small_recipes import toy_recipe
from torch import Tensor, nn

from epibench.runs.toy_training import stacked_training, toy_problem
from epibench.training.stacked import Block, Keys, StackedTraining, start

EPOCHS = 3
PROBLEMS = ("toy-regression", "toy-classification")


def training_of(recipe_name: str, name: str, *options: str) -> StackedTraining:
    """Return the training of a method of a recipe, for three epochs."""
    recipe = toy_recipe(recipe_name, f"{name}.num_epochs={EPOCHS}", "members=[1]", *options)
    return stacked_training(recipe, toy_problem(recipe), recipe.method(name))


def rates_of(training: StackedTraining) -> list[float]:
    """Return the learning rate of every step."""
    total = EPOCHS * training.steps_per_epoch
    return [training.schedule(step, total).rate for step in range(1, total + 1)]


def published_rates(rate: float, num_points: int, extra: int) -> list[float]:
    """α_t = α₀(1 − t/T)^0.9 with T = epochs·⌊N/32⌋ + extra and t = epoch·⌊N/32⌋ + step, from 0."""
    full = num_points // 32
    steps = full + 1  # neither 1,000 nor 1,039 is a multiple of 32
    times = [epoch * full + step for epoch in range(EPOCHS) for step in range(steps)]
    return [rate * (1 - t / (EPOCHS * full + extra)) ** 0.9 for t in times]


class TestPolyDecay:
    @pytest.mark.parametrize("problem", PROBLEMS)
    @pytest.mark.parametrize(("name", "extra"), [("ensemble", 0), ("mc_dropout", 0), ("sgld", 1), ("sghmc", 1)])
    def test_has_the_published_rates(self, problem: str, name: str, extra: int) -> None:
        training = training_of(f"{problem}-sgd", name)
        rate = toy_recipe(f"{problem}-sgd").method(name).learning_rate
        num_points = {"toy-regression": 1000, "toy-classification": 1039}[problem]
        assert rates_of(training) == pytest.approx(published_rates(rate, num_points, extra), rel=1e-12)

    def test_counts_every_step_where_batches_are_full(self) -> None:
        rates = rates_of(training_of("toy-regression-sgd", "ensemble", "ensemble.batch_size=100"))
        assert rates == pytest.approx([0.02 * (1 - t / 30) ** 0.9 for t in range(30)], rel=1e-12)

    def test_counts_epochs_where_a_batch_holds_all_points(self) -> None:
        rates = rates_of(training_of("toy-regression-sgd", "ensemble", "ensemble.batch_size=5000"))
        assert rates == pytest.approx([0.02, 0.02 * (2 / 3) ** 0.9, 0.02 * (1 / 3) ** 0.9], rel=1e-12)

    def test_counts_every_step_after_a_warm_up(self) -> None:
        training = training_of("toy-regression", "sgld", "sgld.warm_up_epochs=1")
        assert rates_of(training)[32:] == pytest.approx([0.01 * (1 - t / 64) ** 0.9 for t in range(1, 65)], rel=1e-12)

    @pytest.mark.parametrize("options", [("cyclical.num_cycles=1",), ("swa.decay=poly", "swa.swa_rate=1e-5")])
    def test_leaves_other_schedules_alone(self, options: tuple[str, ...]) -> None:
        name = options[0].partition(".")[0]
        method = toy_recipe("toy-regression", f"{name}.num_epochs={EPOCHS}", "members=[1]", *options).method(name)
        rates = rates_of(training_of("toy-regression", name, *options))
        assert rates == [method.schedule(step, 96).rate for step in range(1, 97)]


@dataclass(frozen=True)
class Still:
    """A rule that changes no parameter, so that a test can read the gradient."""

    noisy: bool = False
    decoupled: bool = False

    def start(self, parameters: Tensor) -> dict[str, Tensor]:
        return {}

    def update(self, parameters: Tensor, gradient: Tensor, state: Any, step: Any) -> None:
        pass


def outputs(parameters: Tensor, inputs: Tensor, mask: Tensor | None) -> Tensor:
    """A network of two hidden layers of ten ReLU, with dropout after the first; parameters: layer by layer, flat."""
    count = inputs.shape[1]
    width = (len(parameters) - 10 * count - 120) // 11
    sizes = [10 * count, 10, 100, 10, 10 * width, width]
    w1, b1, w2, b2, w3, b3 = parameters.split(sizes)
    hidden = torch.relu(inputs @ w1.view(10, count).T + b1)
    hidden = torch.relu((hidden if mask is None else hidden * mask.T) @ w2.view(10, 10).T + b2)
    return hidden @ w3.view(width, 10).T + b3


def published_loss(problem: str, theta: Tensor, data: Any, masks: Tensor | None, share: float) -> Tensor:
    """The loss over all points; share: of the prior term, 1 − p with dropout.

    Regression: mean of (y − μ)²/σ² + log σ², plus ‖θ‖²(1 − p)/N. Classification: cross-entropy plus ‖θ‖²(1 − p)/(2N).
    """
    num_points, prior = len(data.target), share * theta.square().sum()
    if problem == "toy-classification":
        logits = outputs(theta, data.inputs, None if masks is None else masks[0])
        return nn.functional.cross_entropy(logits, data.target) + prior / (2 * num_points)
    mean, log_variance = (
        outputs(half, data.inputs, None if masks is None else masks[head])[:, 0]
        for head, half in enumerate(theta.chunk(2))
    )
    return ((data.target - mean) ** 2 / log_variance.exp() + log_variance).mean() + prior / num_points


class TestGradient:
    @pytest.mark.parametrize(
        ("recipe", "name", "rate"),
        [
            ("toy-regression", "ensemble", 0.0),
            ("toy-regression", "mc_dropout", 0.2),
            ("toy-regression-sgd", "mc_dropout", 0.2),
            ("toy-regression-dropout", "mc_dropout_5", 0.05),
            ("toy-classification", "map", 0.0),
            ("toy-classification", "mc_dropout", 0.1),
            ("toy-classification-momentum", "mc_dropout", 0.2),
            ("toy-classification-dropout", "mc_dropout_50", 0.5),
        ],
    )
    def test_is_of_the_published_loss(self, recipe: str, name: str, rate: float) -> None:
        """Compare gradients of U/N, which in regression is half the published loss."""
        chosen = toy_recipe(recipe)
        training = stacked_training(chosen, toy_problem(chosen), chosen.method(name))
        assert training.dropout == rate
        inputs, target = training.data.inputs.double(), training.data.target
        data = replace(training.data, inputs=inputs, target=target.double() if target.is_floating_point() else target)
        training = replace(training, data=data, rule=Still(), batch_size=2000)
        keys = Keys.of(0, name, range(1), torch.device("cpu"))
        state = start(training, keys)
        state = replace(state, parameters=state.parameters.double())
        block = Block(training, keys, state, {})
        block.run(last=1)
        order, (count,) = block.batches(0)
        seen = replace(data, inputs=inputs[order[0, :count]], target=data.target[order[0, :count]])
        masks = block.dropout(0, count).double() if rate else None
        theta = state.parameters[0].clone().requires_grad_()
        published_loss(chosen.problem, theta, seen, masks, 1 - rate).backward()  # type: ignore[no-untyped-call]
        expected = theta.grad / (2 if chosen.problem == "toy-regression" else 1)  # type: ignore[operator]
        torch.testing.assert_close(block.gradient[0], expected, rtol=1e-6, atol=1e-9)
