"""Update rules of parameters, and schedules of the learning rate.

A rule changes parameters of any shape in place, entry by entry, so that it serves stacked networks and single large
networks. Samplers have their rules beside their method. This module does not import torch: recipes are read without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from torch import Tensor

RuleState = dict[str, "Tensor"]


class Pace(NamedTuple):
    """The learning rate of a step, and its factor of the posterior's noise (0: none, 1: all)."""

    rate: float
    temperature: float = 1.0


POWER = 0.9  # of the poly decay

Schedule = Callable[[int, int], Pace]  # (step from 1, number of steps) -> pace


def constant(rate: float) -> Schedule:
    """A constant rate."""
    return lambda step, total: Pace(rate)


def poly(rate: float, power: float = POWER) -> Schedule:
    """α₀(1 − t/T)^power: down to 0 at the last step."""
    return lambda step, total: Pace(rate * (1 - step / total) ** power)


class Step(NamedTuple):
    """The facts about a step that a rule may use."""

    number: int  # from 1
    pace: Pace
    num_points: int  # N: the loss is U/N
    noise: Tensor | None  # standard normal, in the shape of the parameters; None without noise
    epoch_steps: int = 1  # steps of an epoch


class Rule(Protocol):
    """An update rule of parameters. Its `state` has tensors in the shape of the parameters."""

    @property
    def noisy(self) -> bool:
        """Whether it needs noise."""

    @property
    def decoupled(self) -> bool:
        """Whether weight decay shrinks the parameters directly, instead of through the gradient."""

    def start(self, parameters: Tensor) -> RuleState:
        """Return the state before the first step."""

    def update(self, parameters: Tensor, gradient: Tensor, state: RuleState, step: Step) -> None:
        """Change the parameters in place."""


def decay(parameters: Tensor, gradient: Tensor, precision: float, rule: Rule, pace: Pace) -> None:
    """Shrink parameters as a prior N(0, 1/(N·precision)) does in U/N, through the gradient or directly."""
    if precision and rule.decoupled:
        parameters.mul_(1 - pace.rate * precision)
    elif precision:
        gradient.add_(parameters, alpha=precision)


def zeros_like(parameters: Tensor) -> Tensor:
    """Zeros in the shape of the parameters, on their device."""
    return parameters.new_zeros(parameters.shape)


@dataclass(frozen=True)
class SGD:
    """Gradient descent; momentum as in PyTorch: v ← m·v + g, θ ← θ − α·v."""

    momentum: float = 0.0
    noisy = False
    decoupled = False

    def start(self, parameters: Tensor) -> RuleState:
        """Return the velocity; empty without momentum."""
        return {"velocity": zeros_like(parameters)} if self.momentum else {}

    def update(self, parameters: Tensor, gradient: Tensor, state: RuleState, step: Step) -> None:
        """Take one step down the gradient."""
        if self.momentum:
            gradient = state["velocity"].mul_(self.momentum).add_(gradient)
        parameters.add_(gradient, alpha=-step.pace.rate)


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma and Ba 2015), as in PyTorch."""

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    noisy = False
    decoupled = False

    def start(self, parameters: Tensor) -> RuleState:
        """Return both moments."""
        return {"first": zeros_like(parameters), "second": zeros_like(parameters)}

    def update(self, parameters: Tensor, gradient: Tensor, state: RuleState, step: Step) -> None:
        """Take one step along the first moment, scaled by the second."""
        first = state["first"].lerp_(gradient, 1 - self.beta1)
        second = state["second"].mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
        scale = math.sqrt(1 - self.beta2**step.number)
        size = step.pace.rate / (1 - self.beta1**step.number)
        parameters.addcdiv_(first, second.sqrt().div_(scale).add_(self.epsilon), value=-size)


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    decoupled = True
