"""Ensembling: networks trained from different initial weights (Lakshminarayanan, Pritzel, Blundell 2017)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt

from epibench.methods.contract import AFTER_TRAINING
from epibench.methods.optimised import Optimised
from epibench.plans import Plan


class Ensemble(Optimised):
    """Each member is a separate network. Draws are sets of networks, by default disjoint.

    Args:
        num_sets: A limit beside the recipe's `draws`, or by M the number of sets in place of `draws`.
    """

    name: ClassVar[str] = "ensemble"
    label: ClassVar[str] = "Ensembling"
    pool_option: ClassVar[str | None] = "num_members"

    num_members: Annotated[int, AFTER_TRAINING] = Field(1024, ge=1)
    sets: Annotated[Literal["disjoint", "random"], AFTER_TRAINING] = "disjoint"
    num_sets: Annotated[PositiveInt | dict[int, PositiveInt], AFTER_TRAINING] = Field({})

    @property
    def num_trained(self) -> int:
        """One network per member."""
        return self.num_members

    @property
    def plan(self) -> Plan:
        """Disjoint sets of networks, or random ones."""
        return self.sets

    def max_draws(self, size: int, default: int) -> int:
        """Return the option's limit for this size, or the default."""
        return min(self.num_sets, default) if isinstance(self.num_sets, int) else self.num_sets.get(size, default)
