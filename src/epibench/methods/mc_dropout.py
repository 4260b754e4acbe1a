"""MC-dropout (Gal and Ghahramani 2016): dropout stays on at prediction; each pass is a member."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from epibench.methods.contract import AFTER_TRAINING
from epibench.methods.optimised import Optimised
from epibench.plans import Plan


class MCDropout(Optimised):
    """Draws are the first M passes of each network.

    `repeats` is the number of draws from each network, each with its own passes.
    """

    name: ClassVar[str] = "mc_dropout"
    label: ClassVar[str] = "MC-dropout"
    pool_option: ClassVar[str | None] = "num_passes"

    num_epochs: int = Field(300, ge=1)
    num_networks: Annotated[int, AFTER_TRAINING] = Field(10, ge=1)
    num_passes: Annotated[int, AFTER_TRAINING] = Field(256, ge=1)
    repeats: Annotated[int, AFTER_TRAINING] = Field(1, ge=1)
    rate: float = Field(0.2, gt=0, lt=1)

    @property
    def num_trained(self) -> int:
        """The number of networks; passes need no training."""
        return self.num_networks

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
        """The number of passes in a draw, and the number of draws of each network."""
        return (self.num_passes, self.repeats)
