"""The MAP point estimate: single networks at the posterior's mode. Each is scored by itself, at M = 1."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from torch import Tensor

from epibench.evaluation.pool import Pool
from epibench.members.draws import Plan
from epibench.members.stacked import StackedPool
from epibench.methods.contract import Problem
from epibench.methods.optimised import Optimised


class MAP(Optimised):
    """Several trainings of the one network, to see how it varies; every group has one member."""

    name: ClassVar[str] = "map"
    label: ClassVar[str] = "MAP"
    single: ClassVar[bool] = True

    num_restarts: int = Field(10, ge=1)

    @property
    def num_trained(self) -> int:
        """One network per restart."""
        return self.num_restarts

    @property
    def largest_draw(self) -> int:
        """One network."""
        return 1

    @property
    def plan(self) -> Plan:
        """Each network by itself."""
        return "prefix"

    def pool(self, problem: Problem, parameters: Tensor, seed: int) -> Pool:
        """Networks that never predict together."""
        group = tuple(range(len(parameters)))
        return StackedPool(problem.network, problem.objective, parameters[:, -1], plan=self.plan, group=group)
