"""Test-time augmentation: members are trained networks with different views of every image."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from epibench.methods.contract import AFTER_TRAINING, Method
from epibench.plans import Plan
from epibench.training.rules import SGD, Rule, Schedule, constant
from epibench.views import View, parse_views


class TTA(Method):
    """A member is a network of another method (`of`) with one view. Nothing is trained.

    Draws are the first M views of each network. Only classes can have scales: an enlarged image shows things nearer, at
    another depth.

    Args:
        views: `identity`, which comes first, `flip`, `scale 0.75`, `flip scale 1.25` and so on; `scale` alone is 0.75
            and 1.25.
    """

    name: ClassVar[str] = "tta"
    label: ClassVar[str] = "Test-time augmentation"
    pool_option: ClassVar[str | None] = "views"
    only_images: ClassVar[str | None] = "the points of toy problems have no mirror image"

    of: str = "ensemble"
    num_epochs: int = Field(0, ge=0, le=0)
    num_networks: Annotated[int, AFTER_TRAINING] = Field(4, ge=1)
    views: Annotated[tuple[str, ...], AFTER_TRAINING] = ("identity", "flip")

    @field_validator("views")
    @classmethod
    def _known(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(str, parse_views(given)))

    @property
    def num_trained(self) -> int:
        """The number of networks of the other method."""
        return self.num_networks

    @property
    def source(self) -> str | None:
        """The method of the networks."""
        return self.of

    @property
    def rule(self) -> Rule:
        """A rule that is never used."""
        return SGD(0.0)

    @property
    def schedule(self) -> Schedule:
        """A schedule that is never used."""
        return constant(0.0)

    @property
    def plan(self) -> Plan:
        """The first M views of each network."""
        return "prefix"

    @property
    def passes(self) -> tuple[int, int]:
        """The number of views of a network."""
        return (len(self.views), 1)

    @property
    def member_views(self) -> tuple[View, ...]:
        """The views of a network's members, by their numbers."""
        return parse_views(self.views)
