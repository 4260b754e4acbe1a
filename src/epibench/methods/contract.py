"""The contract of a method: how many networks, how they are trained, and what its members are.

A method is a frozen object whose fields are its options. It trains nothing and predicts nothing itself: two trainers,
one for stacked small networks and one for a large one, carry out its `training`, and pools ask it for the weights of
each member. So one file serves toy problems and images alike. Nothing here imports torch: recipes are read without it.
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

# Marks an option that changes no trained network, such as how many there are or how they are drawn from.
AFTER_TRAINING = "after training"


@dataclass(frozen=True)
class Member:
    """One sample of the parameters: a trained network, which of its kept weights, and which pass or sample of these."""

    network: int
    snapshot: int
    number: int = 0


@dataclass(frozen=True)
class MemberTable:
    """All members of a pool, how they are drawn from, and the network or chain behind each, if there are several."""

    members: tuple[Member, ...]
    plan: Plan
    group: tuple[int, ...] | None


def _no_last_layers(weights: Weights) -> LastLayers:
    raise NotImplementedError("whoever made this view of a network did not say what its last layers are")


@dataclass(frozen=True)
class TrainedNetwork:
    """A trained network as its method sees it.

    kept: its weights at each snapshot; posterior: what `Method.posterior` has fitted to it, empty before that;
    key: a random key for a purpose, always the same one; batches: the training data, as (inputs, target, valid);
    raw: raw outputs for inputs with any weights, through which gradients flow; statistics: of batch norm, by name, for
    any weights, computed anew over so many batches of training data as training sees them; empty without batch norm;
    last_layers: with any weights, where its last layers are and what they see; likelihood: of its raw outputs;
    class_weights: how much a pixel counts in training, by its class, None if all do alike.
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
        """The statistics of several weights that are made of it, by number and name, for `posterior`."""
        fitted = dict[str, "Tensor"]()
        for number in range(count):
            statistics = self.statistics(made(number), num_batches)
            if not statistics:  # there is no batch norm
                break
            fitted |= {f"{number}.{name}": each for name, each in statistics.items()}
        return fitted

    def refreshed(self, weights: Weights, number: int) -> Weights:
        """Weights with the statistics that `refresh` has found for those of a number, if it has."""
        return {name: self.posterior.get(f"{number}.{name}", each) for name, each in weights.items()}


class Method(BaseModel, ABC):
    """How many networks (`num_trained`), how they move (`rule`, `schedule`, `keep`), what the members are (`members`).

    Members are kept weights as they are, or passes of a network with dropout (`passes`). A method whose members are
    neither fits something to every trained network (`posterior`) and makes each member's weights of that (`weights`).
    Networks start from random weights, or from those that another method has trained (`source`, `begin`), and may be
    trained in another form than they predict in (`build`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: ClassVar[str]
    label: ClassVar[str]
    prior: ClassVar[bool] = True  # whether it knows of the prior on weights
    samples: ClassVar[bool] = False  # whether it samples the posterior, which takes a prior on every parameter
    version: ClassVar[str] = "1"  # raised when its code comes to train or fit other weights
    single: ClassVar[bool] = False  # whether its members never predict together: only M = 1 makes sense
    pool_option: ClassVar[str | None] = None  # the option that raises the largest M of a draw
    of_last_layers: ClassVar[bool] = False  # whether it fits something to the last layers of networks
    only_images: ClassVar[str | None] = None  # why it is not for toy problems, if it is not

    diverged: Annotated[Literal["stop", "drop"], AFTER_TRAINING] = "stop"  # what happens when networks become NaN
    num_epochs: int = Field(150, ge=1)
    batch_size: int = Field(32, ge=1, le=10**9)

    @property
    @abstractmethod
    def num_trained(self) -> int:
        """How many independent networks or chains it trains."""

    @property
    @abstractmethod
    def rule(self) -> Rule:
        """How parameters move."""

    @property
    @abstractmethod
    def schedule(self) -> Schedule:
        """The learning rate over the steps."""

    @property
    def keep(self) -> tuple[int, ...]:
        """The epochs, from 1, at whose ends weights are kept: the last one."""
        return (self.num_epochs,)

    @property
    def dropout(self) -> float:
        """The rate of dropout in training and in the passes of its networks; 0: none."""
        return 0.0

    @property
    def one_start(self) -> bool:
        """Whether all its networks start from the initial weights of network 0, and not each from its own."""
        return False

    @property
    def source(self) -> str | None:
        """The method of the same recipe whose trained networks its own start from, number by number; None: no other.

        With `num_epochs` 0 its networks are those of the source as they are.
        """
        return None

    def begin(self, weights: Weights, network: Any) -> Weights:
        """What training starts from, given the last weights of the source's network: by default these.

        They may have fewer channels than the network, which then gets as many. network: as `build` makes it; on toy
        problems the `StackedMLP`.
        """
        return weights

    def build(self, make: Callable[[], nn.Module]) -> nn.Module:
        """A network on images in the form in which it is trained, by default plain, as `make` gives it.

        One that gives outputs of several heads, (head · image, …), is trained on the sum of their losses.
        """
        return make()

    def stack(self, training: StackedTraining) -> StackedTraining:
        """How networks on toy problems are trained, by default each for itself; some may be tied to each other."""
        return training

    @property
    def training(self) -> TrainingPlan:
        """All that it decides about training."""
        return TrainingPlan(**{field.name: getattr(self, field.name) for field in fields(TrainingPlan)})

    @property
    def training_options(self) -> dict[str, Any]:
        """Its options as plain data, less those that change no trained network."""
        left_out = {name for name, option in type(self).model_fields.items() if AFTER_TRAINING in option.metadata}
        return self.model_dump(mode="json", exclude=left_out)

    @property
    def plan(self) -> Plan:
        """How draws are made from its members: random sets."""
        return "random"

    def max_draws(self, size: int, default: int) -> int:
        """At most so many draws of a size, where the recipe says `default`."""
        return default

    @property
    def passes(self) -> tuple[int, int]:
        """Members of each kept network that predict together, and how many such sets; (1, 1): each is a member."""
        return (1, 1)

    @property
    def member_views(self) -> tuple[View, ...]:
        """How members of one network see images, by their numbers; () where all see them as they are."""
        return ()

    def shared_stages(self, names: Sequence[str]) -> int:
        """How many of their first stages (`networks.stages`) members of one trained network share; names: of all."""
        return 0

    @property
    def largest_draw(self) -> int:
        """The largest M that can be drawn from its pool: of all members, or of those of one network or chain."""
        of_network = len(self.keep) * self.passes[0]
        return self.num_trained * of_network if self.plan in ("random", "disjoint") else of_network

    def draw_sizes(self, asked: Sequence[int]) -> tuple[int, ...]:
        """The requested sizes M that its pool can draw."""
        return (1,) if self.single else tuple(size for size in asked if size <= self.largest_draw)

    def members(self, networks: Sequence[int]) -> MemberTable:
        """Every member of these trained networks: their kept weights, and the passes of each."""
        passes, repeats = self.passes
        members = tuple(
            Member(network, snapshot, number)
            for network in networks
            for snapshot in range(len(self.keep))
            for number in range(passes * repeats)
        )
        if self.plan in ("random", "disjoint"):  # sets are of all members, whichever network they are of
            return MemberTable(members, self.plan, None)
        group = tuple(member.network * repeats + member.number // passes for member in members)
        return MemberTable(members, self.plan, group)

    @property
    def fits(self) -> bool:
        """Whether `posterior` fits anything."""
        return type(self).posterior is not Method.posterior

    def posterior(self, trained: TrainedNetwork) -> Weights:
        """What is fitted to a network after its training, and saved beside it; by default nothing."""
        return {}

    @property
    def fitted_size(self) -> float:
        """How large that is, about, where it is large: in multiples of the weights of a network."""
        return 0.0

    def weights(self, member: Member, trained: TrainedNetwork) -> Weights:
        """The weights of a member: those that were kept."""
        return trained.kept(member.snapshot)
