"""Direct regression: a network that predicts the target itself, trained on the squared error, without uncertainty."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from torch import Tensor

from epibench.evaluation.pool import Pool
from epibench.methods.contract import Problem
from epibench.methods.map import MAP
from epibench.training.objectives import OBJECTIVES
from epibench.training.stacked import Training


class Direct(MAP):
    """It has no predictive distribution: it is drawn beside the methods, not scored, and so not among METHODS."""

    name: ClassVar[str] = "direct"
    label: ClassVar[str] = "Direct regression"

    num_restarts: int = 1

    def training(self, problem: Problem) -> Training:
        """Training on the squared error, without a prior."""
        return replace(super().training(without_uncertainty(problem)), prior_precision=0.0)

    def pool(self, problem: Problem, parameters: Tensor, seed: int) -> Pool:
        """Networks that predict a mean and nothing else."""
        return super().pool(without_uncertainty(problem), parameters, seed)


def without_uncertainty(problem: Problem) -> Problem:
    """The same problem with networks of one head."""
    return replace(problem, kind="direct", network=replace(problem.network, heads=OBJECTIVES["direct"].heads))
