"""What the methods that run chains have in common: their options, and which snapshots are their members."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from epibench.methods.contract import AFTER_TRAINING, Method
from epibench.plans import Plan, evenly_spaced
from epibench.training.rules import Schedule, poly


class Chains(Method):
    """Chains that follow a sampler's rule on U/N, with snapshots at ends of epochs as members.

    The rate is that of the mean loss: on U itself the step is rate/N, as in the published runs.
    """

    num_chains: Annotated[int, AFTER_TRAINING] = Field(6, ge=1)
    num_epochs: int = Field(256 * 150, ge=1)
    learning_rate: float = Field(0.01, gt=0, le=1e6)
    power: float = Field(0.9, ge=0, allow_inf_nan=False)
    burn_in: float = Field(0.75, ge=0, lt=1)
    num_snapshots: int = Field(256, ge=1)

    @property
    def num_trained(self) -> int:
        """One network per chain."""
        return self.num_chains

    @property
    def plan(self) -> Plan:
        """M snapshots of a chain, evenly spread."""
        return "spread"

    @property
    def schedule(self) -> Schedule:
        """The step size over the steps: poly decay; power 0 keeps it constant."""
        return poly(self.learning_rate, self.power)

    @property
    def keep(self) -> tuple[int, ...]:
        """The snapshots: evenly spread from int(burn_in·T) to T."""
        first = max(1, int(self.burn_in * self.num_epochs))
        length = self.num_epochs - first + 1
        return tuple(first + position for position in evenly_spaced(length, min(self.num_snapshots, length)))
