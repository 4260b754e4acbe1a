"""Point estimates: single networks at the mode of the posterior or likelihood, at M = 1."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from epibench.methods.contract import AFTER_TRAINING
from epibench.methods.optimised import Optimised
from epibench.plans import Plan


class MAP(Optimised):
    """Several trainings of one network, to show how it varies. Each draw has one network."""

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
        """Each network alone."""
        return "prefix"


class MaximumLikelihood(MAP):
    """Networks trained for the likelihood alone, without the prior."""

    name: ClassVar[str] = "ml"
    label: ClassVar[str] = "Maximum likelihood"
    prior: ClassVar[bool] = False


class Direct(MAP):
    """Direct regression: networks that predict the target itself, trained on the squared error.

    It has no predictive distribution. Pages show it beside the methods without scores, so it is not in METHODS.
    """

    name: ClassVar[str] = "direct"
    label: ClassVar[str] = "Direct regression"
    prior: ClassVar[bool] = False

    num_restarts: Annotated[int, AFTER_TRAINING] = 1
