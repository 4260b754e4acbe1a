"""Update rules against torch.optim, on the same gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from epibench.training.rules import SGD, Adam, Pace, Rule, Step

RULES = {
    "adam": (Adam(), lambda weights: torch.optim.Adam(weights, lr=0.02)),
    "sgd": (SGD(), lambda weights: torch.optim.SGD(weights, lr=0.02)),
    "momentum": (SGD(0.9), lambda weights: torch.optim.SGD(weights, lr=0.02, momentum=0.9)),
}


def gradients(steps: int = 50) -> torch.Tensor:
    """Some of them 0, and of very different sizes."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(steps, 4, 9)) * 10.0 ** rng.integers(-9, 3, 9)
    return torch.from_numpy(np.where(rng.random(values.shape) < 0.1, 0, values))


@pytest.mark.parametrize("name", RULES)
def test_fifty_steps_equal_pytorch(name: str) -> None:
    rule, optimiser = RULES[name]
    ours = torch.from_numpy(np.random.default_rng(1).normal(size=(4, 9)))
    theirs = ours.clone().requires_grad_()
    optimiser, state = optimiser([theirs]), rule.start(ours)
    for number, gradient in enumerate(gradients(), 1):
        rule.update(ours, gradient.clone(), state, Step(number, Pace(0.02), 1000, None))
        theirs.grad = gradient
        optimiser.step()
        torch.testing.assert_close(ours, theirs.detach(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", RULES)
def test_the_rate_may_change_from_step_to_step(name: str) -> None:
    rule, optimiser = RULES[name]
    ours = torch.zeros(4, 9, dtype=torch.float64)
    theirs = ours.clone().requires_grad_()
    optimiser, state = optimiser([theirs]), rule.start(ours)
    for number, gradient in enumerate(gradients(10), 1):
        rule.update(ours, gradient.clone(), state, Step(number, Pace(0.1 / number), 1000, None))
        optimiser.param_groups[0]["lr"] = 0.1 / number
        theirs.grad = gradient
        optimiser.step()
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("rule", [Adam(), SGD(), SGD(0.9)])
def test_entries_do_not_see_each_other(rule: Rule) -> None:
    whole = torch.zeros(4, 9, dtype=torch.float64)
    part = torch.zeros(1, 9, dtype=torch.float64)
    states = rule.start(whole), rule.start(part)
    for number, gradient in enumerate(gradients(5), 1):
        step = Step(number, Pace(0.02), 1000, None)
        rule.update(whole, gradient.clone(), states[0], step)
        rule.update(part, gradient[2:3].clone(), states[1], step)
    assert torch.equal(whole[2:3], part)
