"""BatchEnsemble (Wen, Tran, Ba 2020): members in one network that share most weights."""

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
    """Member j of a network has the weights W ∘ s_j r_jᵀ and its own biases.

    W and batch norm are shared. Each part of a batch trains one member, so that a step costs as much as a step of a
    plain network. A member predicts as a plain network with its own weights. Draws are the first M members of each
    network.

    Args:
        vectors: Initial s and r: random signs, or normal around 1 with `deviation`.
        refresh_batches: Batches for each member's own statistics of batch norm; 0: statistics of all members together.
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
        """The number of networks, each with all its members."""
        return self.num_networks

    @property
    def plan(self) -> Plan:
        """The first M members of each network."""
        return "prefix"

    @property
    def passes(self) -> tuple[int, int]:
        """The number of members of a network."""
        return (self.num_members, 1)

    def build(self, make: Callable[[], nn.Module]) -> nn.Module:
        """Return the network with the vectors and biases of all members."""
        from epibench.networks.batch_ensemble import around_one, random_signs, share_among

        draw = random_signs if self.vectors == "signs" else partial(around_one, deviation=self.deviation)
        return share_among(make(), self.num_members, draw)

    @property
    def fits(self) -> bool:
        """Whether each member has its own statistics of batch norm."""
        return self.refresh_batches > 0

    def posterior(self, trained: TrainedNetwork) -> Weights:
        """Return the statistics of batch norm of every member."""
        return trained.refresh(partial(self._folded, trained), self.num_members, self.refresh_batches)

    def weights(self, member: Member, trained: TrainedNetwork) -> Weights:
        """Return the weights of the plain network that equals the member."""
        return trained.refreshed(self._folded(trained, member.number), member.number)

    def _folded(self, trained: TrainedNetwork, number: int) -> Weights:
        from epibench.networks.batch_ensemble import member_weights

        return member_weights(trained.kept(0), self.num_members, number)
