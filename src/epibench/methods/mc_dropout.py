"""MC-dropout (Gal and Ghahramani 2016): dropout stays on at prediction; each pass is a member."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from pydantic import Field
from torch import Tensor

from epibench.evaluation.pool import Pool
from epibench.members.draws import Plan
from epibench.members.stacked import DropoutPool
from epibench.methods.contract import Problem
from epibench.methods.optimised import Optimised
from epibench.training.stacked import Training


class MCDropout(Optimised):
    """Draws are the first M passes of each network; `repeats` draws as often from each, with fresh passes."""

    name: ClassVar[str] = "mc_dropout"
    label: ClassVar[str] = "MC-dropout"

    num_epochs: int = Field(300, ge=1)
    num_networks: int = Field(10, ge=1)
    num_passes: int = Field(256, ge=1)
    repeats: int = Field(1, ge=1)
    rate: float = Field(0.2, gt=0, lt=1)

    @property
    def num_trained(self) -> int:
        """Every network; its passes need no training."""
        return self.num_networks

    @property
    def largest_draw(self) -> int:
        """All passes of a network."""
        return self.num_passes

    @property
    def plan(self) -> Plan:
        """The first M passes of each network."""
        return "prefix"

    @property
    def dropout(self) -> float:
        """The rate of dropout."""
        return self.rate

    @property
    def passes(self) -> tuple[int, int]:
        """Passes of a draw, and sets of them."""
        return (self.num_passes, self.repeats)

    def training(self, problem: Problem) -> Training:
        """Training for the posterior's mode with dropout."""
        return replace(super().training(problem), dropout=self.rate)

    def pool(self, problem: Problem, parameters: Tensor, seed: int) -> Pool:
        """Every pass of every network."""
        return DropoutPool(
            problem.network,
            problem.objective,
            parameters[:, -1],
            rate=self.rate,
            passes=self.num_passes,
            seed=seed,
            method=self.name,
            repeats=self.repeats,
        )
