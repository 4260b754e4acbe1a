"""The contract of a method: its networks, their training, and its members.

A method is a frozen object whose fields are its options. It neither trains nor predicts. Two trainers, for stacked
small networks and for one large network, execute its `training`. Pools request the weights of each member. So one file
serves toy problems and images. This module does not import torch: recipes are read without it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from epibench.plans import Plan
from epibench.training.rules import Rule, Schedule
from epibench.training.state import TrainingPlan, Weights
from epibench.views import View

if TYPE_CHECKING:
    from torch import Tensor, nn

    from epibench.networks.last_layer import LastLayers
    from epibench.training.stacked import StackedTraining

# Marks an option that changes no trained network, e.g. the number of networks or the plan of draws.
AFTER_TRAINING = "after training"


@dataclass(frozen=True)
class Member:
    """One sample of the parameters.

    Args:
        network: Number of the trained network.
        snapshot: Index of its kept weights.
        number: Index of the pass or sample of these weights.
    """

    network: int
    snapshot: int
    number: int = 0


@dataclass(frozen=True)
class MemberTable:
    """All members of a pool, and the plan of draws.

    `group` has the network or chain behind each member; None if draws mix them.
    """

    members: tuple[Member, ...]
    plan: Plan
    group: tuple[int, ...] | None


def _no_last_layers(weights: Weights) -> LastLayers:
    raise NotImplementedError("whoever made this view of a network did not say what its last layers are")


@dataclass(frozen=True)
class TrainedNetwork:
    """A view of a trained network, for its method.

    Args:
        number: Number of the network.
        kept: Returns its weights at a snapshot.
        posterior: Tensors that `Method.posterior` has fitted to it; empty before the fit.
        key: Returns a fixed random key for a purpose.
        batches: Yields the training data as (inputs, target, valid).
        raw: Returns differentiable raw outputs for weights and inputs.
        statistics: Returns statistics of batch norm by name for any weights, over a number of batches of augmented
            training data; empty without batch norm.
        last_layers: Returns the last layers and their inputs for any weights.
        likelihood: Likelihood of the raw outputs.
        class_weights: Returns the weights of classes in training; None: equal weights.
    """

    number: int
    kept: Callable[[int], Weights]
    posterior: Weights
    key: Callable[..., int]
    batches: Callable[[], Iterable[tuple[Any, Tensor, Tensor]]]
    raw: Callable[[Weights, Any], Tensor]
    statistics: Callable[[Weights, int], Weights] = lambda weights, num_batches: {}
    last_layers: Callable[[Weights], LastLayers] = _no_last_layers
    likelihood: str = "gaussian"
    class_weights: Callable[[], tuple[float, ...] | None] = lambda: None

    def refresh(self, made: Callable[[int], Weights], count: int, num_batches: int) -> dict[str, Tensor]:
        """Return statistics of batch norm for several weights, by number and name.

        Args:
            made: Returns the weights of a number.
            count: How many weights there are.
            num_batches: Batches for the statistics of each.
        """
        fitted = dict[str, "Tensor"]()
        for number in range(count):
            statistics = self.statistics(made(number), num_batches)
            if not statistics:  # without batch norm
                break
            fitted |= {f"{number}.{name}": each for name, each in statistics.items()}
        return fitted

    def refreshed(self, weights: Weights, number: int) -> Weights:
        """Return weights with the statistics that `refresh` has computed for this number, if any."""
        return {name: self.posterior.get(f"{number}.{name}", each) for name, each in weights.items()}


class Method(BaseModel, ABC):
    """A method: its networks, their training, and its members.

    Members are kept weights, or passes of a network with dropout (`passes`). Other methods fit tensors to every trained
    network (`posterior`) and compute each member's weights from them (`weights`). Networks start from random weights,
    or from networks that another method has trained (`source`, `begin`). Networks may have another form in training
    than in prediction (`build`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: ClassVar[str]
    label: ClassVar[str]
    prior: ClassVar[bool] = True  # whether the prior on weights is part of its loss
    samples: ClassVar[bool] = False  # whether it samples the posterior, which needs a prior on every parameter
    version: ClassVar[str] = "1"  # increased when a code change changes trained or fitted weights
    single: ClassVar[bool] = False  # whether members never predict together, so that only M = 1 exists
    pool_option: ClassVar[str | None] = None  # the option that raises the largest M of a draw
    of_last_layers: ClassVar[bool] = False  # whether it fits tensors to the last layers of networks
    only_images: ClassVar[str | None] = None  # why toy problems cannot use it; None: they can

    diverged: Annotated[Literal["stop", "drop"], AFTER_TRAINING] = "stop"  # after a network became NaN
    num_epochs: int = Field(150, ge=1)
    batch_size: int = Field(32, ge=1, le=10**9)

    @property
    @abstractmethod
    def num_trained(self) -> int:
        """The number of independent networks or chains that it trains."""

    @property
    @abstractmethod
    def rule(self) -> Rule:
        """The update rule of the parameters."""

    @property
    @abstractmethod
    def schedule(self) -> Schedule:
        """The learning rate over the steps."""

    @property
    def keep(self) -> tuple[int, ...]:
        """The epochs, from 1, whose final weights are kept; by default the last one."""
        return (self.num_epochs,)

    @property
    def dropout(self) -> float:
        """The rate of dropout in training and in the passes of its networks; 0: none."""
        return 0.0

    @property
    def one_start(self) -> bool:
        """Whether all networks start from the initial weights of network 0."""
        return False

    @property
    def source(self) -> str | None:
        """Name of the method whose trained networks these start from; None: random weights.

        Network i starts from network i of the source. With `num_epochs` 0 the networks equal the source's.
        """
        return None

    def begin(self, weights: Weights, network: Any) -> Weights:
        """Return the initial weights, given the last weights of the source's network; by default the same weights.

        The weights may have fewer channels than the network, which is then reduced to them. `network` is the result of
        `build`; on toy problems it is the `StackedMLP`.
        """
        return weights

    def build(self, make: Callable[[], nn.Module]) -> nn.Module:
        """Return a network on images in its training form; by default the plain network of `make`.

        A network with several heads returns (head · image, …). The sum of the heads' losses is minimised.
        """
        return make()

    def stack(self, training: StackedTraining) -> StackedTraining:
        """Return the training of networks on toy problems; by default all networks are independent."""
        return training

    @property
    def training(self) -> TrainingPlan:
        """The training plan, with all fields that the method decides."""
        return TrainingPlan(**{field.name: getattr(self, field.name) for field in fields(TrainingPlan)})

    @property
    def training_options(self) -> dict[str, Any]:
        """The options as plain data, without options that change no trained network."""
        left_out = {name for name, option in type(self).model_fields.items() if AFTER_TRAINING in option.metadata}
        return self.model_dump(mode="json", exclude=left_out)

    @property
    def plan(self) -> Plan:
        """The plan of draws; by default random sets."""
        return "random"

    def max_draws(self, size: int, default: int) -> int:
        """Return the largest number of draws of a size; by default the recipe's number."""
        return default

    @property
    def passes(self) -> tuple[int, int]:
        """Members of each kept network, and number of such sets; (1, 1): one member."""
        return (1, 1)

    @property
    def member_views(self) -> tuple[View, ...]:
        """The views of a network's members, by their numbers. Empty: all members see plain images."""
        return ()

    def shared_stages(self, names: Sequence[str]) -> int:
        """Return how many first stages members of a trained network share. `names`: all stages."""
        return 0

    @property
    def largest_draw(self) -> int:
        """The largest M of a draw: the pool, or the members of one network or chain."""
        of_network = len(self.keep) * self.passes[0]
        return self.num_trained * of_network if self.plan in ("random", "disjoint") else of_network

    def draw_sizes(self, asked: Sequence[int]) -> tuple[int, ...]:
        """Return the requested sizes M that the pool can draw."""
        return (1,) if self.single else tuple(size for size in asked if size <= self.largest_draw)

    def members(self, networks: Sequence[int]) -> MemberTable:
        """Return all members of these trained networks: kept weights and their passes."""
        passes, repeats = self.passes
        members = tuple(
            Member(network, snapshot, number)
            for network in networks
            for snapshot in range(len(self.keep))
            for number in range(passes * repeats)
        )
        if self.plan in ("random", "disjoint"):  # sets mix the members of all networks
            return MemberTable(members, self.plan, None)
        group = tuple(member.network * repeats + member.number // passes for member in members)
        return MemberTable(members, self.plan, group)

    @property
    def fits(self) -> bool:
        """Whether `posterior` fits tensors."""
        return type(self).posterior is not Method.posterior

    def posterior(self, trained: TrainedNetwork) -> Weights:
        """Return tensors that are fitted to a trained network and saved beside it; by default none."""
        return {}

    @property
    def fitted_size(self) -> float:
        """The approximate size of large fits, in multiples of the weights of a network."""
        return 0.0

    def weights(self, member: Member, trained: TrainedNetwork) -> Weights:
        """Return the weights of a member; by default the kept weights."""
        return trained.kept(member.snapshot)
