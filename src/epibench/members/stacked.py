"""Pools of small networks: stacked networks with parameters of their own, and passes of dropout networks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from epibench import randomness
from epibench.members.draws import Plan
from epibench.networks.mlp import StackedMLP
from epibench.training.objectives import Objective
from epibench.training.stacked import dropout_factor


@dataclass(frozen=True)
class StackedPool:
    """Members that are stacked networks, each with parameters of its own: (member, parameter)."""

    network: StackedMLP
    objective: Objective
    parameters: Tensor
    plan: Plan
    group: tuple[int, ...] | None = None

    @property
    def num_members(self) -> int:
        """One per row of the parameters."""
        return len(self.parameters)

    def outputs(self, inputs: Tensor, members: slice, first: int = 0) -> dict[str, Tensor]:
        """What these members predict."""
        parameters = self.parameters[members]
        shown = inputs.T.to(parameters.device).expand(len(parameters), -1, -1)
        return self.objective.predict(self.network.outputs(parameters, shown))


@dataclass(frozen=True)
class DropoutPool:
    """Members that are passes of dropout networks: the mask of a pass is a function of (pass, point).

    parameters: (network, parameter); member number = network · passes + pass. `repeats` splits the passes of a network
    into so many groups, each of which is drawn from by itself.
    """

    network: StackedMLP
    objective: Objective
    parameters: Tensor
    rate: float
    passes: int
    seed: int
    method: str
    repeats: int = 1
    plan: Plan = "prefix"

    @property
    def num_members(self) -> int:
        """Every pass of every network."""
        return len(self.parameters) * self.passes * self.repeats

    @property
    def group(self) -> tuple[int, ...]:
        """Passes belong to the network, or to one repeat of it."""
        return tuple(member // self.passes for member in range(self.num_members))

    def outputs(self, inputs: Tensor, members: slice, first: int = 0) -> dict[str, Tensor]:
        """What these passes predict."""
        count, found = self.passes * self.repeats, []
        for number in range(members.start // count, -(-members.stop // count)):
            passes = range(max(members.start - number * count, 0), min(members.stop - number * count, count))
            found.append(self._passes(number, passes, inputs.to(self.parameters.device), first))
        return self.objective.predict(torch.cat(found))

    def _passes(self, number: int, passes: range, inputs: Tensor, first: int) -> Tensor:
        """The raw outputs of some passes of one network, (pass, head, output, point)."""
        network, count = self.network, len(passes)
        keys = [randomness.key(self.seed, self.method, number, "pass", each) for each in passes]
        units, points = network.heads * network.hidden[0], len(inputs)
        uniform = randomness.uniform(torch.tensor(keys).to(inputs.device), first * units, points * units)
        uniform = uniform.view(count, points, network.heads, network.hidden[0]).permute(0, 2, 3, 1)
        keep = dropout_factor(uniform, self.rate).reshape(count * network.heads, network.hidden[0], points)
        parameters = self.parameters[number].expand(count, -1).contiguous()
        return network.outputs(parameters, inputs.T.expand(count, -1, -1), keep)
