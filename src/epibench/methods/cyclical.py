"""Cyclical SG-MCMC (Zhang et al. 2019): step sizes that rise again and again, so that one chain sees several modes."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from pydantic import Field

from epibench.evaluation.draws import spread
from epibench.methods.chains import Chains
from epibench.methods.sghmc import HamiltonianRule
from epibench.methods.sgld import LangevinRule
from epibench.training.rules import Rule
from epibench.training.schedules import Schedule, cyclical


class Cyclical(Chains):
    """Each cycle explores without noise while the step size is large, then samples; snapshots are from that part."""

    name: ClassVar[str] = "cyclical"
    label: ClassVar[str] = "Cyclical SG-MCMC"

    sampler: Literal["sgld", "sghmc"] = "sgld"
    friction: float = Field(0.1, gt=0, le=1)
    num_cycles: int = Field(32, ge=1)
    exploration: float = Field(0.5, ge=0, lt=1)
    burn_in: float = Field(0.0, ge=0, lt=1)

    @property
    def rule(self) -> Rule:
        """The rule of the sampler within the cycles."""
        return LangevinRule() if self.sampler == "sgld" else HamiltonianRule(self.friction)

    @property
    def schedule(self) -> Schedule:
        """Cosine cycles of rate and temperature."""
        return cyclical(self.learning_rate, self.num_cycles, self.exploration)

    @property
    def snapshots(self) -> tuple[int, ...]:
        """As many of each cycle as there is room for, evenly spread over the part that samples."""
        length = self.num_epochs / self.num_cycles
        each = max(1, self.num_snapshots // self.num_cycles)
        kept: list[int] = []
        for cycle in range(self.num_cycles):
            first = max(1, math.ceil((cycle + self.exploration) * length) + 1)
            last = max(first, min(self.num_epochs, math.floor((cycle + 1) * length)))
            kept += [first + position for position in spread(last - first + 1, min(each, last - first + 1))]
        return tuple(sorted({epoch for epoch in kept if self.burn_in * self.num_epochs <= epoch <= self.num_epochs}))
