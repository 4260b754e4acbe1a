"""BatchEnsemble (Wen, Tran, Ba 2020): many members in one network, which share most of its weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from epibench.methods.contract import AFTER_TRAINING, Member, TrainedNetwork
from epibench.methods.optimised import Optimised
from epibench.plans import Plan
from epibench.training.state import Weights

if TYPE_CHECKING:
    from torch import nn


class BatchEnsemble(Optimised):
    """Member j of a network has the weights W ∘ s_j r_jᵀ and its own biases; W and batch norm are shared.

    Each part of a batch trains one member, so that a step costs what one of a plain network costs; a member predicts as
    a plain network with weights of its own. vectors: s and r begin as random signs, or normal around 1 with a
    `deviation`. refresh_batches: statistics of batch norm are computed for every member by itself, over so many
    batches; 0: they are those of all members together, as in training. Draws are the first M members of each network.
    """

    name: ClassVar[str] = "batch_ensemble"
    label: ClassVar[str] = "BatchEnsemble"
    pool_option: ClassVar[str | None] = "num_members"
    only_images: ClassVar[str | None] = (
        "the stacked networks of toy problems are trained with gradients of plain layers, and share nothing"
    )

    num_networks: Annotated[int, AFTER_TRAINING] = Field(4, ge=1)
    num_members: int = Field(4, ge=1)
    vectors: Literal["signs", "gaussian"] = "signs"
    deviation: float = Field(0.5, ge=0, le=10)
    refresh_batches: Annotated[int, AFTER_TRAINING] = Field(0, ge=0)

    @model_validator(mode="after")
    def _shared(self) -> BatchEnsemble:
        if self.batch_size % self.num_members:
            raise ValueError(
                f"batch_size: {self.batch_size} images cannot be shared among {self.num_members} members; give a "
                f"multiple of num_members"
            )
        return self

    @property
    def num_trained(self) -> int:
        """Networks, each with all its members."""
        return self.num_networks

    @property
    def plan(self) -> Plan:
        """The first M members of each network."""
        return "prefix"

    @property
    def passes(self) -> tuple[int, int]:
        """The members of a network."""
        return (self.num_members, 1)

    def build(self, make: Callable[[], nn.Module]) -> nn.Module:
        """The network with the vectors and biases of all members."""
        from epibench.networks.batch_ensemble import around_one, random_signs, share_among

        draw = random_signs if self.vectors == "signs" else partial(around_one, deviation=self.deviation)
        return share_among(make(), self.num_members, draw)

    @property
    def fits(self) -> bool:
        """Whether statistics of batch norm are computed for every member."""
        return self.refresh_batches > 0

    def posterior(self, trained: TrainedNetwork) -> Weights:
        """The statistics of batch norm of every member."""
        return trained.refresh(partial(self._folded, trained), self.num_members, self.refresh_batches)

    def weights(self, member: Member, trained: TrainedNetwork) -> Weights:
        """Those of the plain network that the member is."""
        return trained.refreshed(self._folded(trained, member.number), member.number)

    def _folded(self, trained: TrainedNetwork, number: int) -> Weights:
        from epibench.networks.batch_ensemble import member_weights

        return member_weights(trained.kept(0), self.num_members, number)
