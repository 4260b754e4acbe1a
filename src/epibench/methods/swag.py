"""The mean of the weights at the end of training (SWA), and a Gaussian around it (SWAG, multi-SWAG).

SWA: Izmailov et al. 2018. SWAG: Maddox et al. 2019. Multi-SWAG: Wilson and Izmailov 2020. The last part of a training
has a constant rate, so that weights move around a mode. The weights at ends of its epochs are the snapshots.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field, model_validator

from epibench.methods.contract import AFTER_TRAINING, Member, MemberTable, TrainedNetwork
from epibench.methods.optimised import Optimised
from epibench.plans import Plan, evenly_spaced
from epibench.training.rules import Pace, Schedule, constant, poly
from epibench.training.state import Weights

if TYPE_CHECKING:
    from torch import Tensor


class SWA(Optimised):
    """The mean of the last epochs of each training, a point estimate: scored at M = 1.

    Args:
        collect: Share of the epochs, at least two epochs, whose final weights are averaged.
        swa_rate: Constant rate in these epochs; None: `learning_rate` throughout. Before them the rate is constant, or
            falls to this rate if `decay` is set.
        num_snapshots: Largest number of averaged epochs, evenly spaced.
        refresh_batches: Batches of training data for the statistics of batch norm; 0: statistics of the last epoch.
    """

    name: ClassVar[str] = "swa"
    label: ClassVar[str] = "SWA"
    single: ClassVar[bool] = True

    num_networks: Annotated[int, AFTER_TRAINING] = Field(10, ge=1)
    collect: float = Field(0.5, gt=0, le=1)
    num_snapshots: int = Field(20, ge=2)
    swa_rate: float | None = Field(None, gt=0, le=1e6)
    refresh_batches: Annotated[int, AFTER_TRAINING] = Field(16, ge=0)

    @model_validator(mode="after")
    def _several(self) -> SWA:
        if self.num_epochs < 2:
            raise ValueError(f"num_epochs: {self.label} takes the weights of at least two epochs; give 2 or more")
        return self

    @property
    def num_trained(self) -> int:
        """The number of networks."""
        return self.num_networks

    @property
    def plan(self) -> Plan:
        """Each network alone."""
        return "prefix"

    @property
    def tail(self) -> int:
        """The number of last epochs in which weights are collected."""
        return max(2, int(self.collect * self.num_epochs + 0.5))

    @property
    def keep(self) -> tuple[int, ...]:
        """The snapshots: evenly spaced over the tail, including its last epoch."""
        tail = self.tail
        first = self.num_epochs - tail + 1
        return tuple(first + position for position in evenly_spaced(tail, min(self.num_snapshots, tail)))

    @property
    def schedule(self) -> Schedule:
        """The learning rate over the steps: constant in the tail."""
        low = self.learning_rate if self.swa_rate is None else self.swa_rate
        above = self.learning_rate - low
        before = constant(above) if self.decay == "none" else poly(above)

        def pace(step: int, total: int) -> Pace:
            first = total // self.num_epochs * (self.num_epochs - self.tail)
            return Pace(low + (before(step, first).rate if step <= first else 0.0))

        return pace

    @property
    def of_network(self) -> int:
        """The number of members of each network."""
        return 1

    @property
    def largest_draw(self) -> int:
        """The members of one network."""
        return self.of_network

    def members(self, networks: Sequence[int]) -> MemberTable:
        """Return the members of every network."""
        last = len(self.keep) - 1
        members = tuple(Member(network, last, number) for network in networks for number in range(self.of_network))
        return MemberTable(members, self.plan, tuple(member.network for member in members))

    def mean(self, trained: TrainedNetwork) -> dict[str, Tensor]:
        """Return the mean of all snapshots, float64, with one snapshot in memory at a time."""
        mean, count = dict[str, "Tensor"](), len(self.keep)
        for snapshot in range(count):
            for name, each in trained.kept(snapshot).items():
                if averaged(name, each):
                    share = each.double() / count
                    mean[name] = mean[name].add_(share) if name in mean else share
        return mean

    def posterior(self, trained: TrainedNetwork) -> Weights:
        """Return the mean as the weights of a network."""
        last, mean = trained.kept(len(self.keep) - 1), self.mean(trained)
        weights = {name: mean[name].to(each.dtype) if name in mean else each for name, each in last.items()}
        return weights if not self.refresh_batches else {**weights, **trained.statistics(weights, self.refresh_batches)}

    @property
    def fitted_size(self) -> float:
        """The size of the mean."""
        return 1.0

    def weights(self, member: Member, trained: TrainedNetwork) -> Weights:
        """Return the mean."""
        return trained.posterior


class SWAG(SWA):
    """A Gaussian around the mean. Draws are the first M samples of each network.

    The covariance is ½ diag(variance) + ½ D Dᵀ/(K − 1). D has the deviations of the K snapshots from their mean, so
    that the second term is half of the snapshots' covariance. Each sample has its own statistics of batch norm. A fit
    is K + 2 times as large as the weights of a network.

    Args:
        scale: Factor of all deviations from the mean; 0 is SWA.
    """

    name: ClassVar[str] = "swag"
    label: ClassVar[str] = "SWAG"
    single: ClassVar[bool] = False
    pool_option: ClassVar[str | None] = "num_samples"

    num_samples: Annotated[int, AFTER_TRAINING] = Field(256, ge=1)
    scale: Annotated[float, AFTER_TRAINING] = Field(1.0, ge=0, le=1e6)

    @property
    def of_network(self) -> int:
        """The number of samples."""
        return self.num_samples

    def posterior(self, trained: TrainedNetwork) -> Weights:
        """Return mean, standard deviation and deviations by name, and the statistics of every sample."""
        import torch

        mean, count = self.mean(trained), len(self.keep)
        kept = trained.kept(count - 1)
        fitted = {f"fixed.{name}": each for name, each in kept.items() if name not in mean}
        for name, centre in mean.items():
            fitted[f"mean.{name}"] = centre.to(kept[name].dtype)
            fitted[f"deviations.{name}"] = kept[name].new_empty((count, *centre.shape))
        for snapshot in range(count):
            kept = trained.kept(snapshot)
            for name, centre in mean.items():
                fitted[f"deviations.{name}"][snapshot] = kept[name] - centre
        for name in mean:
            spread = torch.linalg.vector_norm(fitted[f"deviations.{name}"], dim=0)
            fitted[f"std.{name}"] = spread / math.sqrt(count)
        if not self.refresh_batches:
            return fitted
        sample = partial(self.sample, fitted=fitted, key=trained.key)
        return fitted | trained.refresh(sample, self.num_samples, self.refresh_batches)

    @property
    def fitted_size(self) -> float:
        """Mean, standard deviation and deviations; statistics of samples are small."""
        return 2.0 + len(self.keep)

    def sample(self, number: int, fitted: Weights, key: Callable[..., int]) -> dict[str, Tensor]:
        """Return a sample: half of the variance is independent per weight, half along the snapshots."""
        from epibench.parallel import silenced_torch_threads
        from epibench.randomness import normal_of

        weights = {name.removeprefix("fixed."): each for name, each in fitted.items() if name.startswith("fixed.")}
        names = [name.removeprefix("mean.") for name in fitted if name.startswith("mean.")]
        count = len(fitted[f"deviations.{names[0]}"])
        along = normal_of(key("sample", number), (count,)) / math.sqrt(2 * (count - 1))
        with silenced_torch_threads():  # on a CPU the numbers must not depend on the number of threads
            for name in names:
                std, deviations = fitted[f"std.{name}"], fitted[f"deviations.{name}"]
                alone = normal_of(key("sample", number, name), std.shape) / math.sqrt(2)
                change = (along @ deviations.view(count, -1)).view_as(std).addcmul_(alone, std)
                weights[name] = fitted[f"mean.{name}"] + self.scale * change
        return weights

    def weights(self, member: Member, trained: TrainedNetwork) -> Weights:
        """Return a sample, with its own statistics of batch norm."""
        return trained.refreshed(self.sample(member.number, trained.posterior, trained.key), member.number)


class MultiSWAG(SWAG):
    """SWAG of several networks. Draws are random sets of all their samples."""

    name: ClassVar[str] = "multi_swag"
    label: ClassVar[str] = "Multi-SWAG"

    @property
    def plan(self) -> Plan:
        """Random sets."""
        return "random"

    @property
    def largest_draw(self) -> int:
        """The samples of all networks."""
        return self.num_networks * self.num_samples

    def members(self, networks: Sequence[int]) -> MemberTable:
        """Return the samples of all networks, in one group."""
        return MemberTable(super().members(networks).members, self.plan, None)


def averaged(name: str, weights: Tensor) -> bool:
    """Return whether weights are averaged: floating-point, and no statistics of batch norm."""
    return weights.is_floating_point() and "running_" not in name
