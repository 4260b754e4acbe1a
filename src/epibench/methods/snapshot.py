"""Snapshot ensembles (Huang et al. 2017): cycles of the learning rate, with a member at each end."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from epibench.methods.contract import AFTER_TRAINING, Member, MemberTable
from epibench.methods.optimised import WithOptimiser
from epibench.plans import Plan
from epibench.training.rules import Pace, Schedule


class Snapshot(WithOptimiser):
    """Draws are the last M snapshots of each network. All cycles together take `num_epochs`.

    Cycles end with an epoch. If epochs do not divide evenly, some cycles are longer by one.
    """

    name: ClassVar[str] = "snapshot"
    label: ClassVar[str] = "Snapshot ensemble"
    pool_option: ClassVar[str | None] = "num_cycles"

    num_networks: Annotated[int, AFTER_TRAINING] = Field(10, ge=1)
    num_cycles: int = Field(5, ge=1)

    @model_validator(mode="after")
    def _whole_epochs(self) -> Snapshot:
        if self.num_cycles > self.num_epochs:
            raise ValueError(
                f"num_cycles: {self.num_cycles} cycles need as many epochs, and there are {self.num_epochs}; "
                f"give fewer, or a larger num_epochs"
            )
        return self

    @property
    def num_trained(self) -> int:
        """The number of networks."""
        return self.num_networks

    @property
    def plan(self) -> Plan:
        """The first M in the order of the table, i.e. the newest."""
        return "prefix"

    @property
    def keep(self) -> tuple[int, ...]:
        """The last epoch of each cycle."""
        return tuple(cycle * self.num_epochs // self.num_cycles for cycle in range(1, self.num_cycles + 1))

    @property
    def schedule(self) -> Schedule:
        """The rate of each step of a cycle: Equation 2 of the paper.

        It is α/2 (cos(π t/T) + 1) at step t, from 0, of T steps.
        """
        ends, rate = (0, *self.keep), self.learning_rate

        def pace(step: int, total: int) -> Pace:
            epoch_steps = total // self.num_epochs
            cycle = bisect_right(ends, (step - 1) // epoch_steps)
            first, length = ends[cycle - 1] * epoch_steps, (ends[cycle] - ends[cycle - 1]) * epoch_steps
            return Pace(rate / 2 * (math.cos(math.pi * (step - 1 - first) / length) + 1))

        return pace

    def members(self, networks: Sequence[int]) -> MemberTable:
        """Return the snapshots of every network, newest first."""
        newest_first = range(len(self.keep) - 1, -1, -1)
        members = tuple(Member(network, snapshot) for network in networks for snapshot in newest_first)
        return MemberTable(members, self.plan, tuple(member.network for member in members))
