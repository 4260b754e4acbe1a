"""Point estimates: single networks at the posterior's mode, or at that of the likelihood. Each is scored at M = 1."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from epibench.methods.contract import AFTER_TRAINING
from epibench.methods.optimised import Optimised
from epibench.plans import Plan


class MAP(Optimised):
    """Several trainings of the one network, to see how it varies; every group has one member."""

    name: ClassVar[str] = "map"
    label: ClassVar[str] = "MAP"
    single: ClassVar[bool] = True

    num_restarts: Annotated[int, AFTER_TRAINING] = Field(10, ge=1)

    @property
    def num_trained(self) -> int:
        """One network per restart."""
        return self.num_restarts

    @property
    def plan(self) -> Plan:
        """Each network by itself."""
        return "prefix"


class MaximumLikelihood(MAP):
    """Networks trained for the likelihood alone, without the prior."""

    name: ClassVar[str] = "ml"
    label: ClassVar[str] = "Maximum likelihood"
    prior: ClassVar[bool] = False


class Direct(MAP):
    """Direct regression: networks that predict the target itself, trained on the squared error.

    It has no predictive distribution: it is drawn beside the methods, not scored, and so not among METHODS.
    """

    name: ClassVar[str] = "direct"
    label: ClassVar[str] = "Direct regression"
    prior: ClassVar[bool] = False

    num_restarts: Annotated[int, AFTER_TRAINING] = 1
