"""Pools of small networks: stacked networks with their own weights, and their dropout passes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from epibench import randomness
from epibench.data.batch import Points
from epibench.likelihoods import LIKELIHOODS
from epibench.members.draws import Draws
from epibench.members.pool import DrawnPart, Pixels, Pool, PoolOnData, parts_of
from epibench.methods.contract import MemberTable
from epibench.networks.mlp import StackedMLP
from epibench.training.stacked import Objective, dropout_factor

# Members × points whose outputs are computed at once.
OUTPUTS_AT_ONCE = 2**20


@dataclass(frozen=True)
class StackedPool(Pool):
    """Members that are stacked networks, or dropout passes of them if `rate` is above 0.

    The mask of a pass is a function of (seed, method, network, pass, point).

    Args:
        network: The stacked networks.
        objective: Loss of the networks.
        table: Table of members.
        parameters: (row, parameter).
        rows: Row of each member.
        seed: Seed of the masks.
        method: Name of the method, for masks.
        rate: Dropout rate.
    """

    network: StackedMLP
    objective: Objective
    table: MemberTable
    parameters: Tensor
    rows: tuple[int, ...]
    seed: int = 0
    method: str = ""
    rate: float = 0.0

    def outputs(self, inputs: Tensor, members: slice, first: int = 0) -> dict[str, Tensor]:
        """Return `mean` and `variance`, (member, point), or `probs`, (member, point, class).

        Args:
            inputs: (point, feature).
            members: Members to run.
            first: Index of the first point in its data set, so that random numbers do not depend on batches.
        """
        inputs = inputs.to(self.parameters.device)
        if self.rate:
            raw = [self._passes(numbers, inputs, first) for numbers in self._of_one_row(members)]
            return self.objective.predict(torch.cat(raw))
        parameters = self._stacked[members]
        return self.objective.predict(self.network.outputs(parameters, inputs.T.expand(len(parameters), -1, -1)))

    @cached_property
    def _stacked(self) -> Tensor:
        """The parameters of every member, (member, parameter)."""
        in_order = self.rows == tuple(range(len(self.parameters)))
        return self.parameters if in_order else self.parameters[list(self.rows)]

    def _of_one_row(self, members: slice) -> Iterator[range]:
        """Yield ranges of neighbouring members that share their parameters."""
        start = members.start
        for number in range(members.start + 1, members.stop + 1):
            if number == members.stop or self.rows[number] != self.rows[start]:
                yield range(start, number)
                start = number

    def _passes(self, members: range, inputs: Tensor, first: int) -> Tensor:
        """Return the raw outputs of some passes of one network, (pass, head, output, point)."""
        network, count = self.network, len(members)
        passes = [self.table.members[number] for number in members]
        keys = [randomness.key(self.seed, self.method, each.network, "pass", each.number) for each in passes]
        units, points = network.heads * network.hidden[0], len(inputs)
        uniform = randomness.uniform(torch.tensor(keys).to(inputs.device), first * units, points * units)
        uniform = uniform.view(count, points, network.heads, network.hidden[0]).permute(0, 2, 3, 1)
        keep = dropout_factor(uniform, self.rate).reshape(count * network.heads, network.hidden[0], points)
        parameters = self.parameters[self.rows[members.start]].expand(count, -1).contiguous()
        return network.outputs(parameters, inputs.T.expand(count, -1, -1), keep)


@dataclass(frozen=True)
class StackedOnPoints(PoolOnData):
    """Small networks and all points at once; metrics stay on the CPU."""

    pool: StackedPool
    points: Points

    @property
    def num_images(self) -> int:
        """The number of points: every point is an image of one pixel."""
        return len(self.points.target)

    @property
    def num_pixels(self) -> int:
        """The number of points, which are all valid."""
        return len(self.points.target)

    def portions(self, first: int, parts: Sequence[DrawnPart]) -> Iterator[StackedOnPoints]:
        """Yield all points at once."""
        yield self

    def blocks(self, part: DrawnPart) -> Iterator[Pixels]:
        """Yield the points with the outputs of a part's members."""
        target = self.points.target
        wanted = torch.float64 if target.is_floating_point() else torch.int64
        for points in point_slices(part, len(target)):
            outputs = self.pool.outputs(self.points.inputs[points], part.members, points.start)
            on_cpu = {name: output.cpu() for name, output in outputs.items()}
            yield Pixels(on_cpu, target[points].to(wanted), None, points.stop - points.start)


def point_slices(part: DrawnPart, num_points: int) -> Iterator[slice]:
    """Yield slices of points that bound the memory."""
    size = max(1, OUTPUTS_AT_ONCE // part.num_members)
    return (slice(start, min(start + size, num_points)) for start in range(0, num_points, size))


def predict(
    pool: StackedPool,
    draws: Draws,
    kind: str,
    inputs: Tensor,
    max_variance: float = math.inf,
    progress: Callable[[int], None] = lambda draws: None,
) -> dict[str, Tensor]:
    """Return the predictive of every draw: `mean`, `aleatoric`, `epistemic`, (draw, point), or `probs`, (draw, point,
    class).

    Args:
        pool: Members.
        draws: Draws.
        kind: Kind of the predictions.
        inputs: (point, feature).
        max_variance: Largest variance of a member.
        progress: Receives numbers of finished draws.
    """
    names = ("mean", "aleatoric", "epistemic") if kind == "gaussian" else ("probs",)
    predicted: dict[str, Tensor] = {}
    for part in parts_of(pool, draws):
        for points in point_slices(part, len(inputs)):
            outputs = pool.outputs(inputs[points], part.members, points.start)
            if kind == "gaussian":
                outputs["variance"] = outputs["variance"].clamp(max=max_variance)
            predictive = LIKELIHOODS[kind].combine(outputs, part.weights)
            for name in names:
                values = getattr(predictive, name).cpu()
                if name not in predicted:
                    predicted[name] = values.new_empty((len(draws.sets), len(inputs), *values.shape[2:]))
                predicted[name][part.draws, points] = values
        progress(len(part.draws))
    return predicted
