"""Test-time augmentation: trained networks see every image in several ways, and each of these is a member."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from epibench.methods.contract import AFTER_TRAINING, Method
from epibench.plans import Plan
from epibench.training.rules import SGD, Rule, Schedule, constant
from epibench.views import View, parse_views


class TTA(Method):
    """A member is a network of another method (`of`), seen through one view; draws are the first M views of each.

    views: `identity`, which comes first, `flip`, `scale 0.75`, `flip scale 1.25` and so on; `scale` alone is 0.75 and
    1.25. Scales are for classes alone: an image that is enlarged shows things nearer, and its depth is another one.
    Nothing is trained.
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
        """Networks of the other method that it takes."""
        return self.num_networks

    @property
    def source(self) -> str | None:
        """The method that has trained them."""
        return self.of

    @property
    def rule(self) -> Rule:
        """None moves."""
        return SGD(0.0)

    @property
    def schedule(self) -> Schedule:
        """There are no steps."""
        return constant(0.0)

    @property
    def plan(self) -> Plan:
        """The first M views of each network."""
        return "prefix"

    @property
    def passes(self) -> tuple[int, int]:
        """The views of a network."""
        return (len(self.views), 1)

    @property
    def member_views(self) -> tuple[View, ...]:
        """How the members of a network see images, by their numbers."""
        return parse_views(self.views)
