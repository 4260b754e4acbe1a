"""Stochastic gradient Hamiltonian Monte Carlo (Chen, Fox, Guestrin 2014)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from epibench.methods.chains import Chains
from epibench.training.rules import Rule, RuleState, Step, zeros_like

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class HamiltonianRule:
    """r ← (1 − η) r − α ∇(U/N) + √(2ηα/N) ε, then θ ← θ + r with the new momentum."""

    friction: float = 0.1
    noisy = True
    decoupled = False

    def start(self, parameters: Tensor) -> RuleState:
        """Return a momentum of 0."""
        return {"momentum": zeros_like(parameters)}

    def update(self, parameters: Tensor, gradient: Tensor, state: RuleState, step: Step) -> None:
        """Take one step of every chain."""
        rate, temperature = step.pace
        momentum = state["momentum"].mul_(1 - self.friction).add_(gradient, alpha=-rate)
        if step.noise is not None:
            momentum.add_(step.noise, alpha=math.sqrt(2 * self.friction * rate * temperature / step.num_points))
        parameters.add_(momentum)


class SGHMC(Chains):
    """Hamiltonian dynamics with friction and gradients of batches."""

    name: ClassVar[str] = "sghmc"
    label: ClassVar[str] = "SGHMC"

    learning_rate: float = Field(0.001, gt=0, le=1e6)
    friction: float = Field(0.1, gt=0, le=1)

    @property
    def sampling_rule(self) -> Rule:
        """The Hamiltonian rule with friction."""
        return HamiltonianRule(self.friction)
