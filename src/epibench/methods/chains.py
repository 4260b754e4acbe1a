"""What the methods that run chains have in common: their options, which snapshots are kept, and their pool."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from epibench.evaluation.pool import Pool
from epibench.members.draws import Plan, spread
from epibench.members.stacked import StackedPool
from epibench.methods.contract import Method, Problem
from epibench.training.schedules import Schedule, poly


class Chains(Method):
    """Chains that follow a sampler's rule on U/N, with snapshots at ends of epochs.

    The rate is that of the mean loss: on U itself the step is rate/N, as in the published runs.
    """

    num_chains: int = Field(6, ge=1)
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
    def largest_draw(self) -> int:
        """All snapshots of a chain."""
        return len(self.snapshots)

    @property
    def plan(self) -> Plan:
        """M snapshots of a chain, evenly spread."""
        return "spread"

    @property
    def schedule(self) -> Schedule:
        """The step size over the steps: poly decay; power 0 keeps it constant."""
        return poly(self.learning_rate, self.power)

    @property
    def snapshots(self) -> tuple[int, ...]:
        """The epochs that are kept: evenly spread from int(burn_in·T) to T."""
        first = max(1, int(self.burn_in * self.num_epochs))
        length = self.num_epochs - first + 1
        return tuple(first + position for position in spread(length, min(self.num_snapshots, length)))

    @property
    def keep(self) -> tuple[int, ...]:
        """The snapshots."""
        return self.snapshots

    def pool(self, problem: Problem, parameters: Tensor, seed: int) -> Pool:
        """Every snapshot of every chain; draws are evenly spread snapshots of one chain."""
        chains, snapshots, _ = parameters.shape
        group = tuple(member // snapshots for member in range(chains * snapshots))
        return StackedPool(problem.network, problem.objective, parameters.flatten(0, 1), plan=self.plan, group=group)
