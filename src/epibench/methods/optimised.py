"""Optimiser, learning rate and decay of all methods that optimise networks."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from epibench.methods.contract import Method
from epibench.training.rules import SGD, Adam, AdamW, Rule, Schedule, constant, poly

if TYPE_CHECKING:
    from epibench.training.stacked import StackedTraining


class WithOptimiser(Method):
    """Networks that are optimised for the mean loss U/N. Each method defines its schedule.

    For regression the published loss omits the ½ of the Gaussian, so that a published rate of SGD is twice as large
    here.

    Args:
        same_start: Whether all networks start from the initial weights of network 0. The order of the data, crops and
            dropout still differ.
    """

    optimiser: Literal["adam", "adamw", "sgd", "momentum"] = "adam"
    learning_rate: float = Field(1e-3, gt=0, le=1e6)
    same_start: bool = False

    @property
    def one_start(self) -> bool:
        """The option `same_start`."""
        return self.same_start

    @property
    def rule(self) -> Rule:
        """The update rule of the optimiser."""
        rules: dict[str, Rule] = {"adam": Adam(), "adamw": AdamW(), "sgd": SGD(0.0), "momentum": SGD(0.9)}
        return rules[self.optimiser]


class Optimised(WithOptimiser):
    """Networks kept at the end of training; the rate is constant or falls to 0."""

    version: ClassVar[str] = "2"

    decay: Literal["none", "poly"] = "none"

    @property
    def schedule(self) -> Schedule:
        """The learning rate over the steps."""
        return constant(self.learning_rate) if self.decay == "none" else poly(self.learning_rate)

    def stack(self, training: StackedTraining) -> StackedTraining:
        """On toy problems the poly decay counts steps as published."""
        published = type(self).schedule is Optimised.schedule and self.decay == "poly"
        return training.count_steps_as_published() if published else training
