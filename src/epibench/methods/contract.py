"""What every method is: a frozen object whose fields are its options, which fits a problem and yields a pool."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from epibench.data.batch import Points
from epibench.errors import InputError
from epibench.evaluation.pool import Pool
from epibench.members.draws import Plan
from epibench.networks.mlp import StackedMLP
from epibench.training.objectives import OBJECTIVES, Objective
from epibench.training.rules import Rule
from epibench.training.schedules import Schedule
from epibench.training.stacked import DivergedError, Keys, State, Training, train


@dataclass(frozen=True)
class Problem:
    """What is to be learnt: data, the kind of prediction, the network, and the prior N(0, prior_scale²) on weights."""

    kind: str
    data: Points
    network: StackedMLP
    prior_scale: float = 1.0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def objective(self) -> Objective:
        """The loss of the networks, and what they predict."""
        return OBJECTIVES[self.kind]


@dataclass(frozen=True)
class Watch:
    """How the world outside follows a fit: epochs done of all, and states to go on from after an interruption."""

    progress: Callable[[int, int], None] = lambda done, total: None
    load: Callable[[], State | None] = lambda: None
    save: Callable[[State], None] = lambda state: None


@dataclass(frozen=True)
class Member:
    """One sample of the parameters: a trained network, which of its snapshots, and which of its passes."""

    network: int
    snapshot: int
    dropout_pass: int = 0


@dataclass(frozen=True)
class Roll:
    """All members of a pool, how they are drawn from, and the network or chain behind each, if there are several."""

    members: tuple[Member, ...]
    plan: Plan
    group: tuple[int, ...] | None


class Method(BaseModel, ABC):
    """The contract of a method: `train` makes parameters, `pool` says what they predict, `fit` is both.

    Parameters are (network, snapshot, parameter): one row per network or chain, in the order of its snapshots. They are
    what is saved. A method knows nothing of data sets, draws or metrics beyond the plan that its pool suggests.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: ClassVar[str]
    label: ClassVar[str]
    prior: ClassVar[bool] = True  # whether it knows of the prior on weights
    single: ClassVar[bool] = False  # whether its members never predict together: only M = 1 makes sense

    diverged: Literal["stop", "drop"] = "stop"  # what happens when networks become NaN
    num_epochs: int = Field(150, ge=1)
    batch_size: int = Field(32, ge=1, le=10**9)

    @property
    @abstractmethod
    def num_trained(self) -> int:
        """How many independent networks or chains it trains."""

    @property
    @abstractmethod
    def largest_draw(self) -> int:
        """The largest M that can be drawn from its pool."""

    @property
    @abstractmethod
    def rule(self) -> Rule:
        """How parameters move."""

    @property
    @abstractmethod
    def schedule(self) -> Schedule:
        """The learning rate over the steps."""

    @property
    def plan(self) -> Plan:
        """How draws are made from its members: random sets."""
        return "random"

    def max_draws(self, size: int, default: int) -> int:
        """At most so many draws of a size, where the recipe says `default`."""
        return default

    @property
    def dropout(self) -> float:
        """The rate of dropout in training and in the passes of its networks; 0: none."""
        return 0.0

    @property
    def passes(self) -> tuple[int, int]:
        """Passes of each network that predict together, and how many such sets of passes; (1, 1) without dropout."""
        return (1, 1)

    @property
    def keep(self) -> tuple[int, ...]:
        """The epochs, from 1, at whose ends parameters are kept: the last one."""
        return (self.num_epochs,)

    def training(self, problem: Problem) -> Training:
        """How its networks are trained on a problem: on the posterior, U/N."""
        return Training(
            network=problem.network,
            objective=problem.objective,
            data=problem.data,
            rule=self.rule,
            schedule=self.schedule,
            num_epochs=self.num_epochs,
            batch_size=self.batch_size,
            keep=self.keep,
            prior_precision=1 / problem.prior_scale**2 if self.prior else 0.0,
        )

    def pool(self, problem: Problem, parameters: Tensor, seed: int) -> Pool:
        """The members of a toy problem that the trained parameters stand for; problems with images use `roll`."""
        raise InputError(f"{self.name} is a method for images: it has no `pool`, which the toy problems need")

    def train(self, problem: Problem, seed: int, watch: Watch | None = None) -> Tensor:
        """Train all networks together; (network, snapshot, parameter)."""
        watch = Watch() if watch is None else watch
        training = replace(self.training(problem), drop_diverged=self.diverged == "drop")
        keys = Keys.of(seed, self.name, range(self.num_trained), problem.device)

        def after_segment(state: State) -> None:
            watch.progress(state.epoch, training.num_epochs)
            watch.save(state)

        try:
            return train(training, keys, watch.load(), after_segment)
        except DivergedError as error:
            some = ", ".join(map(str, error.members[:5])) + (" …" if len(error.members) > 5 else "")
            raise InputError(
                f"{self.name}: {len(error.members)} of {self.num_trained} networks diverged (NaN or infinite weights) "
                f"by epoch {error.epoch}: number {some}; lower {self.name}.learning_rate, "
                f"or leave them out with {self.name}.diverged=drop"
            ) from None

    def roll(self, networks: Sequence[int]) -> Roll:
        """Every member of trained networks: their snapshots, and the passes of each."""
        passes, repeats = self.passes
        members = tuple(
            Member(network, snapshot, number)
            for network in networks
            for snapshot in range(len(self.keep))
            for number in range(passes * repeats)
        )
        if self.plan in ("random", "disjoint") and len(members) == len(networks):
            return Roll(members, self.plan, None)
        return Roll(members, self.plan, tuple(each.network * repeats + each.dropout_pass // passes for each in members))

    def fit(self, problem: Problem, seed: int, watch: Watch | None = None) -> Pool:
        """Train, and return the pool of members."""
        return self.pool(problem, finite(self.train(problem, seed, watch)), seed)


def finite(parameters: Tensor) -> Tensor:
    """The networks that have not diverged, (network, snapshot, parameter)."""
    return parameters[torch.isfinite(parameters).all(2).all(1)]
