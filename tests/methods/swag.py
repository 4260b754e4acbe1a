"""SWAG (Maddox et al. 2019) as a user would add it: a Gaussian fitted to the last epochs of a training, in one file.

Deviations are those from the mean of all snapshots, not from the running one: samples then have the covariance
½ diag(variance) + ½ D Dᵀ / (K − 1), whose second part is the covariance of the K snapshots.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from epibench.methods import AFTER_TRAINING, Member, MemberTable, TrainedNetwork
from epibench.methods.optimised import Optimised
from epibench.training.state import Weights

if TYPE_CHECKING:
    from torch import Tensor


class SWAG(Optimised):
    """Draws are the first M samples of each network. scale: of all deviations from the mean; 0 is SWA."""

    name: ClassVar[str] = "swag"
    label: ClassVar[str] = "SWAG"

    num_networks: Annotated[int, AFTER_TRAINING] = Field(4, ge=1)
    num_samples: Annotated[int, AFTER_TRAINING] = Field(16, ge=1)
    scale: Annotated[float, AFTER_TRAINING] = Field(1.0, ge=0)
    num_snapshots: int = Field(8, ge=2)

    @property
    def num_trained(self) -> int:
        """Every network; its samples need no training."""
        return self.num_networks

    @property
    def keep(self) -> tuple[int, ...]:
        """The last epochs."""
        return tuple(range(max(1, self.num_epochs - self.num_snapshots + 1), self.num_epochs + 1))

    @property
    def largest_draw(self) -> int:
        """All samples of a network."""
        return self.num_samples

    def members(self, networks: Sequence[int]) -> MemberTable:
        """The samples of every network."""
        last = len(self.keep) - 1
        members = tuple(Member(network, last, number) for network in networks for number in range(self.num_samples))
        return MemberTable(members, "prefix", tuple(member.network for member in members))

    def posterior(self, trained: TrainedNetwork) -> Weights:
        """Mean, standard deviation and deviations of the snapshots, by the name of the weights."""
        import torch

        snapshots = [trained.kept(snapshot) for snapshot in range(len(self.keep))]
        fitted: dict[str, Tensor] = {}
        for name, last in snapshots[-1].items():
            # Buffers stay those of the last snapshot: counts, and statistics of batch norm, which may not be negative.
            if last.is_floating_point() and "running_" not in name:
                values = torch.stack([each[name] for each in snapshots]).double()
                fitted[f"mean.{name}"] = values.mean(0).to(last.dtype)
                fitted[f"std.{name}"] = values.std(0, correction=0).to(last.dtype)
                fitted[f"deviations.{name}"] = (values - values.mean(0)).to(last.dtype)
        return fitted

    def weights(self, member: Member, trained: TrainedNetwork) -> Weights:
        """A sample: half of the variance independent for every weight, half of it along the snapshots."""
        fitted, count = trained.posterior, len(self.keep)
        along = normal(trained.key("sample", member.number), (count,)) / math.sqrt(2 * max(1, count - 1))
        sample = dict(trained.kept(member.snapshot))
        for name in (name for name in sample if f"mean.{name}" in fitted):
            alone = normal(trained.key("sample", member.number, name), sample[name].shape) / math.sqrt(2)
            change = alone * fitted[f"std.{name}"] + (along @ fitted[f"deviations.{name}"].flatten(1)).view_as(alone)
            sample[name] = fitted[f"mean.{name}"] + self.scale * change
        return sample


def normal(key: int, shape: Sequence[int]) -> Tensor:
    """Standard normal numbers of a key."""
    import torch

    from epibench import randomness

    count = math.prod(shape)
    return randomness.normal(torch.tensor([key]), 0, -(-count // 2)).flatten()[:count].view(*shape)
