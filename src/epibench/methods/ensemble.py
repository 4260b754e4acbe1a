"""Ensembling: networks trained from different initial weights (Lakshminarayanan, Pritzel, Blundell 2017)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from epibench.evaluation.pool import Pool
from epibench.members.draws import Plan
from epibench.members.stacked import StackedPool
from epibench.methods.contract import Problem
from epibench.methods.optimised import Optimised


class Ensemble(Optimised):
    """Each member is a network of its own; draws are sets of networks, by default sets that share none."""

    name: ClassVar[str] = "ensemble"
    label: ClassVar[str] = "Ensembling"

    num_members: int = Field(1024, ge=1)
    sets: Literal["disjoint", "random"] = "disjoint"
    num_sets: dict[int, Annotated[int, Field(ge=1)]] = Field({})  # at most so many sets of a size M, where it differs

    @property
    def plan(self) -> Plan:
        """Sets that share no network, or random ones that may."""
        return self.sets

    def max_draws(self, size: int, default: int) -> int:
        """As the option says for this size."""
        return self.num_sets.get(size, default)

    @property
    def num_trained(self) -> int:
        """One network per member."""
        return self.num_members

    @property
    def largest_draw(self) -> int:
        """All networks."""
        return self.num_members

    def pool(self, problem: Problem, parameters: Tensor, seed: int) -> Pool:
        """The trained networks."""
        return StackedPool(problem.network, problem.objective, parameters[:, -1], plan=self.plan)
