"""Stochastic gradient Langevin dynamics (Welling and Teh 2011)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from epibench.methods.chains import Chains
from epibench.training.rules import Rule, RuleState, Step

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class LangevinRule:
    """θ ← θ − α ∇(U/N) + √(2α/N) ε: a step of α/N for U itself."""

    noisy = True
    decoupled = False

    def start(self, parameters: Tensor) -> RuleState:
        """Return an empty state."""
        return {}

    def update(self, parameters: Tensor, gradient: Tensor, state: RuleState, step: Step) -> None:
        """Take one step of every chain."""
        rate, temperature = step.pace
        parameters.add_(gradient, alpha=-rate)
        if step.noise is not None:
            parameters.add_(step.noise, alpha=math.sqrt(2 * rate * temperature / step.num_points))


class SGLD(Chains):
    """Langevin dynamics with gradients of batches."""

    name: ClassVar[str] = "sgld"
    label: ClassVar[str] = "SGLD"

    @property
    def sampling_rule(self) -> Rule:
        """The Langevin rule."""
        return LangevinRule()
