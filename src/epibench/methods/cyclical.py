"""Cyclical SG-MCMC (Zhang et al. 2019): repeated cycles of step sizes, to reach several modes."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from pydantic import Field

from epibench.methods.chains import Chains
from epibench.methods.sghmc import HamiltonianRule
from epibench.methods.sgld import LangevinRule
from epibench.plans import evenly_spaced
from epibench.training.rules import Pace, Rule, Schedule


class Cyclical(Chains):
    """Each cycle explores without noise at a large step size, then samples.

    Snapshots are from the sampling part.
    """

    name: ClassVar[str] = "cyclical"
    label: ClassVar[str] = "Cyclical SG-MCMC"

    sampler: Literal["sgld", "sghmc"] = "sgld"
    friction: float = Field(0.1, gt=0, le=1)
    num_cycles: int = Field(32, ge=1)
    exploration: float = Field(0.5, ge=0, lt=1)
    burn_in: float = Field(0.0, ge=0, lt=1)

    @property
    def sampling_rule(self) -> Rule:
        """The rule of the sampler within the cycles."""
        return LangevinRule() if self.sampler == "sgld" else HamiltonianRule(self.friction)

    @property
    def cycle(self) -> int:
        """The number of epochs of a cycle, rounded up, so that cycles are aligned with epochs."""
        return -(-self.sampling_epochs // self.num_cycles)

    @property
    def sampling_schedule(self) -> Schedule:
        """Cosine cycles of rate and temperature."""
        pace, epochs = cyclical(self.learning_rate, self.num_cycles, self.exploration), self.cycle * self.num_cycles
        return lambda step, total: pace(step, total // self.sampling_epochs * epochs)

    @property
    def sampling_keep(self) -> tuple[int, ...]:
        """The kept epochs: evenly spaced over the sampling part of each cycle."""
        each = max(1, self.num_snapshots // self.num_cycles)
        explored = min(math.ceil(self.exploration * self.cycle), self.cycle - 1)
        kept: list[int] = []
        for start in range(0, self.sampling_epochs, self.cycle):
            room = min(start + self.cycle, self.sampling_epochs) - start - explored
            if room > 0:
                kept += [start + explored + 1 + position for position in evenly_spaced(room, min(each, room))]
        kept = [epoch for epoch in kept if epoch >= self.burn_in * self.sampling_epochs] or kept[-1:]
        return tuple(kept[position] for position in evenly_spaced(len(kept), min(self.num_snapshots, len(kept))))


def cyclical(rate: float, num_cycles: int, exploration: float) -> Schedule:
    """Return cosine cycles whose first part explores without noise.

    Zhang et al. 2019, Equation 1 and Algorithm 1.
    """

    def pace(step: int, total: int) -> Pace:
        length = math.ceil(total / num_cycles)
        position = ((step - 1) % length) / length
        return Pace(rate / 2 * (math.cos(math.pi * position) + 1), 0.0 if position < exploration else 1.0)

    return pace
