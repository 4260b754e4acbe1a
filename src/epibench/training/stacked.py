"""Train many small networks at once.

Member i is the same, bit for bit, alone or among a thousand. Every member has its own initial weights, order of the
data and noise, each a function of the member's keys and the step (see `randomness`). On a CPU, threads train blocks of
members that fit into the cache. After each segment of epochs, progress is reported and the state can be saved.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from epibench import randomness
from epibench.data.batch import Points
from epibench.likelihoods import categorical, gaussian
from epibench.networks.mlp import StackedMLP
from epibench.parallel import in_threads
from epibench.training.rules import Pace, Step, decay
from epibench.training.state import DivergedError, TrainingCallbacks, TrainingPlan, TrainingState

BLOCK = 256  # networks of a block, so that its tensors fit into the cache
SEGMENT_SECONDS = 1.0
NOISE = 2**16  # largest number of normal numbers that a block makes at once, for several steps
EVEN = 8  # batches are padded to a multiple of it: products of matrices at odd addresses round differently


@dataclass(frozen=True)
class Objective:
    """A loss on the raw outputs of stacked networks, (member, head, output, point).

    Args:
        heads: Heads of a member.
        slope: Returns the derivative of the loss for every point, given raw outputs and targets (member, point).
        predict: Returns members' outputs by name from raw outputs: (member, point) or (member, point, class).
    """

    heads: int
    slope: Callable[[Tensor, Tensor], Tensor]
    predict: Callable[[Tensor], dict[str, Tensor]]


def _gaussian_slope(raw: Tensor, target: Tensor) -> Tensor:
    return torch.stack(gaussian.slope(raw[:, 0], raw[:, 1], target[:, None]), 1)


def _gaussian_predict(raw: Tensor) -> dict[str, Tensor]:
    return {"mean": raw[:, 0, 0], "variance": raw[:, 1, 0].double().exp()}


def _categorical_slope(raw: Tensor, target: Tensor) -> Tensor:
    return categorical.slope(raw[:, 0], target)[:, None]


def _categorical_predict(raw: Tensor) -> dict[str, Tensor]:
    return {"probs": torch.softmax(raw[:, 0].double(), 1).movedim(1, 2)}


def _direct_slope(raw: Tensor, target: Tensor) -> Tensor:
    return raw - target[:, None, None]


def _direct_predict(raw: Tensor) -> dict[str, Tensor]:
    return {"mean": raw[:, 0, 0]}


OBJECTIVES = {
    "gaussian": Objective(2, _gaussian_slope, _gaussian_predict),  # mean and log variance
    "categorical": Objective(1, _categorical_slope, _categorical_predict),  # logits
    "direct": Objective(1, _direct_slope, _direct_predict),  # the target itself: half the squared error
}


@dataclass(frozen=True)
class Tied:
    """Members that are trained as one network: they have the same batches and share their first layers.

    Args:
        members: Number of members in each row of parameters, one after another.
        layers: Number of shared layers. They are equal in every member, and move by the mean of the members' gradients.
        fixed: Whether the shared layers do not move.
    """

    members: int = 1
    layers: int = 0
    fixed: bool = False

    def views(self, network: StackedMLP, parameters: Tensor) -> list[Tensor]:
        """Return shared weights and biases, (row, member, head, …), of parameters or their gradient."""
        sizes = (-1, self.members, network.heads // self.members)
        shared = network.layers(parameters)[: self.layers]
        return [each.view(*sizes, *each.shape[1:]) for layer in shared for each in layer]


@dataclass(frozen=True, kw_only=True)
class StackedTraining(TrainingPlan):
    """Everything that fixes the training of stacked networks, except their number.

    Args:
        network: The stacked networks, with the heads of all tied members.
        objective: Loss.
        data: Training points.
        prior_precision: 1/σ² of the Gaussian prior; 0 for none.
        drop_diverged: Whether training continues without networks that become NaN.
        tied: Members that form one network.
    """

    network: StackedMLP
    objective: Objective
    data: Points
    prior_precision: float = 1.0
    drop_diverged: bool = False
    tied: Tied = Tied()

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches in an epoch. The last one may be smaller."""
        return -(-len(self.data.target) // self.batch_size)

    def count_steps_as_published(self, extra: int = 0) -> StackedTraining:
        """Return the training with t and T of the published toy code, which counts only full batches.

        t = epoch·⌊N/batch⌋ + batch, both counted from 0; T = epochs·⌊N/batch⌋ + extra. So a smaller last batch has
        the same t as the first batch of the next epoch.
        """
        schedule, steps = self.schedule, self.steps_per_epoch
        full = max(1, len(self.data.target) // self.batch_size)

        def pace(step: int, total: int) -> Pace:
            epoch, batch = divmod(step - 1, steps)
            return schedule(epoch * full + batch, total // steps * full + extra)

        return replace(self, schedule=pace)

    @property
    def last_epoch(self) -> int:
        """The last kept epoch."""
        return self.keep[-1] if self.keep else self.num_epochs


@dataclass(frozen=True)
class Keys:
    """The keys of every member for each purpose, (member,) each."""

    initial: Tensor
    order: Tensor
    noise: Tensor
    dropout: Tensor

    @classmethod
    def of(cls, seed: int, method: str, members: Sequence[int], device: torch.device, one_start: bool = False) -> Keys:
        """Return the keys of these members of a method. With `one_start` all have the initial weights of member 0."""
        starts = [0] * len(members) if one_start else members
        purposes = {"initial": starts, "order": members, "noise": members, "dropout": members}
        keys = (randomness.member_keys(seed, method, purpose, of).to(device) for purpose, of in purposes.items())
        return cls(*keys)

    def part(self, members: slice) -> Keys:
        """Return the keys of some members."""
        return Keys(self.initial[members], self.order[members], self.noise[members], self.dropout[members])


def start(training: StackedTraining, keys: Keys, parameters: Tensor | None = None) -> TrainingState:
    """Return the state before the first epoch, with random or given parameters.

    For tied members, parameters of a single member set the shared layers.
    """
    network, tied = training.network, training.tied
    if parameters is None or parameters.shape[1] < network.num_parameters:
        given, parameters = parameters, network.initialise(keys.initial)
        own = begun = tied.views(network, parameters)
        if given is not None:
            plain = replace(network, heads=network.heads // tied.members)
            begun = replace(tied, members=1).views(plain, given)
        for each, first in zip(own, begun, strict=True):
            each.copy_(first[:, :1].clone())
    return TrainingState(0, parameters, training.rule.start(parameters))


def train(
    training: StackedTraining,
    keys: Keys,
    state: TrainingState | None = None,
    callbacks: TrainingCallbacks | None = None,
) -> None:
    """Train all networks to the last kept epoch; kept weights go to `callbacks.keep`."""
    callbacks = TrainingCallbacks() if callbacks is None else callbacks
    state = start(training, keys) if state is None else state
    device = state.parameters.device
    data = Points(training.data.inputs.to(device), training.data.target.to(device))
    training = replace(training, data=data)
    blocks = block_slices(len(state.parameters), training.network.heads, device)
    epochs = 1
    if state.step == 0 and 0 in training.keep:
        callbacks.keep(0, {"parameters": state.parameters})
    while state.step < training.last_epoch:
        last = min(state.step + epochs, training.last_epoch)
        begun = time.perf_counter()
        kept = {e: torch.empty_like(state.parameters) for e in training.keep if state.step < e <= last}
        tasks = []
        for part in blocks:
            rows = {epoch: parameters[part] for epoch, parameters in kept.items()}
            tasks.append(Block(training, keys.part(part), part_of(state, part), rows))
        in_threads(partial(Block.run, last=last), tasks)
        state = replace(state, step=last)
        check_finite(state, training.drop_diverged)
        for epoch, parameters in kept.items():
            callbacks.keep(epoch, {"parameters": parameters})
        callbacks.progress(state.step, "")
        callbacks.save(state)
        epochs = next_segment(epochs, time.perf_counter() - begun)


def trained(training: StackedTraining, keys: Keys) -> Tensor:
    """Train from the start, and return the kept weights, (network, snapshot, parameter)."""
    kept: list[Tensor] = []
    train(training, keys, callbacks=TrainingCallbacks(keep=lambda epoch, weights: kept.append(weights["parameters"])))
    return torch.stack(kept, 1)


def block_slices(num_members: int, heads: int, device: torch.device) -> list[slice]:
    """Split the members into blocks. A GPU has one block."""
    size = num_members if device.type != "cpu" else max(1, BLOCK // heads)
    return [slice(first, min(first + size, num_members)) for first in range(0, num_members, size)]


def part_of(state: TrainingState, members: slice) -> TrainingState:
    """Return views of some members' state, so that changes apply to the whole state."""
    rule = {name: tensor[members] for name, tensor in state.rule.items()}
    return TrainingState(state.step, state.parameters[members], rule)


def next_segment(epochs: int, seconds: float) -> int:
    """Return the epochs of the next segment, for about SEGMENT_SECONDS. They grow at most fourfold."""
    return max(1, min(4 * epochs, int(epochs * SEGMENT_SECONDS / max(seconds, 1e-3))))


def check_finite(state: TrainingState, drop: bool) -> None:
    """Raise an error if networks have diverged; with `drop`, only if all have."""
    broken = ~torch.isfinite(state.parameters).all(1)
    if broken.all() or (broken.any() and not drop):
        numbers = torch.nonzero(broken).flatten().tolist()
        raise DivergedError(numbers, f"NaN or infinite weights by epoch {state.step}")


class Block:
    """Members that one thread trains. `kept`: their rows of the kept weights, by epoch."""

    def __init__(self, training: StackedTraining, keys: Keys, state: TrainingState, kept: Mapping[int, Tensor]):
        self.training, self.keys, self.state, self.kept = training, keys, state, kept
        self.filled = -(-min(training.batch_size, len(training.data.target)) // EVEN) * EVEN
        self.gradient = torch.empty_like(state.parameters)
        self.layers = training.network.layers(state.parameters)
        self.gradients = training.network.layers(self.gradient)
        tied = training.tied
        self.averaged = [] if tied.members == 1 or tied.fixed else tied.views(training.network, self.gradient)
        self.fixed = tied.views(training.network, state.parameters) if tied.fixed else []
        self.noise: Tensor | None = None
        self.noise_from = -1

    def run(self, last: int) -> None:
        """Train from the current state to the end of epoch `last`."""
        training = self.training
        for epoch in range(self.state.step, last):
            order, sizes = self.batches(epoch)
            inputs = training.data.inputs[order].transpose(1, 2)  # (member, feature, point)
            inputs = inputs.repeat_interleave(training.network.heads, 0)
            target = training.data.target[order]
            batches = zip(sizes, torch.split(inputs, self.filled, 2), torch.split(target, self.filled, 1), strict=True)
            for number, batch in enumerate(batches, epoch * training.steps_per_epoch):
                self.step(number, *batch)
            if epoch + 1 in self.kept:
                self.kept[epoch + 1].copy_(self.state.parameters)

    def batches(self, epoch: int) -> tuple[Tensor, list[int]]:
        """Return the padded points of all batches, (member, point), and the sizes of the batches."""
        num_points, size = len(self.training.data.target), self.training.batch_size
        order = randomness.permutations(self.keys.order, epoch, num_points)
        sizes = [min(size, num_points - first) for first in range(0, num_points, size)]
        if any(size % EVEN for size in sizes):
            pieces = [nn.functional.pad(piece, (0, -piece.shape[1] % EVEN)) for piece in torch.split(order, size, 1)]
            order = torch.cat(pieces, 1)
        return order, sizes

    def step(self, number: int, points: int, inputs: Tensor, target: Tensor) -> None:
        """Take one step of every member on its own batch. Only the first `points` points count.

        inputs: (network, feature, point); target: (member, point).
        """
        training, parameters = self.training, self.state.parameters
        network, filled, together = training.network, target.shape[1], training.tied.members
        keep = self.dropout(number, filled) if training.dropout else None
        activations = network.forward(self.layers, inputs, keep)
        raw = activations[-1].view(-1, network.heads // together, network.num_outputs, filled)
        target = target if together == 1 else target.repeat_interleave(together, 0)
        slope = training.objective.slope(raw, target).div_(points)
        if filled > points:
            slope[..., points:] = 0
        network.backward(self.layers, self.gradients, activations, slope.view_as(activations[-1]), keep)
        for gradient in self.averaged:
            gradient.copy_(gradient.mean(1, keepdim=True))
        num_points, fixed = len(training.data.target), [each.clone() for each in self.fixed]
        pace = training.schedule(number + 1, training.num_epochs * training.steps_per_epoch)
        decay(parameters, self.gradient, training.prior_precision / num_points, training.rule, pace)
        noise = self.next_noise(number) if training.rule.noisy and pace.temperature else None
        step = Step(number + 1, pace, num_points, noise, training.steps_per_epoch)
        training.rule.update(parameters, self.gradient, self.state.rule, step)
        for own, before in zip(self.fixed, fixed, strict=True):
            own.copy_(before)

    def next_noise(self, number: int) -> Tensor:
        """Return standard normal noise for a step, (member, parameter), made for several steps at a time."""
        members, parameters = self.state.parameters.shape
        pairs = -(-parameters // 2)
        steps = max(1, NOISE // (members * pairs))
        first = number - number % steps
        if self.noise is None or self.noise_from != first:
            noise = randomness.normal(self.keys.noise, first * pairs, steps * pairs)
            noise = noise.view(members, 2, steps, pairs).permute(2, 0, 1, 3)
            self.noise, self.noise_from = noise.reshape(steps, members, 2 * pairs)[:, :, :parameters], first
        return self.noise[number - first]

    def dropout(self, number: int, points: int) -> Tensor:
        """Return the factors of the first hidden layer in a step, (network, unit, point)."""
        network = self.training.network
        count = network.heads * network.hidden[0] * self.filled
        uniform = randomness.uniform(self.keys.dropout, number * count, count)
        uniform = uniform.view(-1, network.hidden[0], self.filled)[:, :, :points]
        return dropout_factor(uniform, self.training.dropout)


def dropout_factor(uniform: Tensor, rate: float) -> Tensor:
    """Return 0 with probability `rate`, otherwise 1 / (1 − rate)."""
    return (uniform >= rate).to(uniform.dtype).mul_(1 / (1 - rate))
