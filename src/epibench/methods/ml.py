"""Maximum likelihood: as the MAP point estimate, without the prior."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from epibench.methods.contract import Problem
from epibench.methods.map import MAP
from epibench.training.stacked import Training


class MaximumLikelihood(MAP):
    """Networks trained for the likelihood alone."""

    name: ClassVar[str] = "ml"
    label: ClassVar[str] = "Maximum likelihood"

    def training(self, problem: Problem) -> Training:
        """Training without the prior."""
        return replace(super().training(problem), prior_precision=0.0)
