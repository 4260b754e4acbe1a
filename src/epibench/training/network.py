"""Train one large network; a stopped training resumes from its last saved step with the same numbers.

All random numbers are a function of the network's keys and the step: initial weights, the order of the data, crops,
dropout, noise. So a network is the same alone, in an ensemble, or on another machine; on a CPU bit for bit.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from epibench import randomness, stopping
from epibench.data import batched
from epibench.data.augment import Augment
from epibench.data.batch import Batch, Samples
from epibench.data.decoded import widened
from epibench.data.loading import Augmentation, Stream, packed_batches
from epibench.devices import Precision
from epibench.errors import InputError
from epibench.interpolation import aligned_corners, grid_positions
from epibench.networks.dropout import SeededDropout, insert_dropout
from epibench.networks.shaping import shape_like
from epibench.training.rules import Step, decay
from epibench.training.state import (
    DivergedError,
    LogRow,
    Pacer,
    StateMismatchError,
    TrainingCallbacks,
    TrainingPlan,
    TrainingState,
    Weights,
)

Loss = Callable[[Tensor, Tensor], Tensor]
LOG_EVERY = 20  # steps; a loss that is not finite is detected after at most LOG_EVERY steps
ALIGNED = 16  # entries: parameters begin at multiples of 64 bytes, as in separate tensors


@dataclass(frozen=True, kw_only=True)
class NetworkTraining(TrainingPlan):
    """Everything that fixes the training of a large network, except its keys.

    The mean loss over valid pixels is U/N without the prior, where N is the number of images. Pixels of an image depend
    on each other, so an image counts as one observation. Coarse outputs are interpolated to the image. Losses of
    several heads, (head · image, …), are added. Dropout acts after the network's `dropout_places`.

    Args:
        build: Returns the network.
        loss: Returns the loss of every pixel for raw outputs (image, output, height, width) and targets (image, height,
            width).
        samples: Training data.
        augment: Augmentation of samples.
        epoch_steps: Steps of an epoch, for any size of the data.
        weight_decay: Weight decay of U/N.
        decay_all: Whether weight decay acts on scales and biases, too.
        clip: Largest norm of a gradient.
        class_weights: Weights of classes.
        loss_parts: Number of equal parts of a batch (see `mean_loss`).
        channels_last: Whether tensors have channels last in memory.
        compile: Whether torch.compile compiles the network.
        precision: Precision of the network's passes.
        whole_batches: Whether an `Augment` augments whole batches on the device.
        start: Returns initial weights for the network; None: the network's own.
    """

    build: Callable[[], nn.Module]
    loss: Loss
    samples: Samples
    augment: Augmentation
    epoch_steps: int
    weight_decay: float = 0.0
    decay_all: bool = False  # weight decay acts on scales and biases too
    clip: float | None = None  # the largest norm of a gradient
    class_weights: tuple[float, ...] | None = None
    loss_parts: int = 1
    channels_last: bool = False
    compile: bool = False
    precision: Precision = "32-true"
    whole_batches: bool = False
    start: Callable[[nn.Module], Weights] | None = None

    @property
    def num_steps(self) -> int:
        """Steps of all epochs."""
        return self.num_epochs * self.epoch_steps

    @property
    def last_step(self) -> int:
        """The last step: the end of the last kept epoch."""
        return self.keep[-1] * self.epoch_steps if self.keep else self.num_steps


@dataclass(frozen=True)
class NetworkKeys:
    """The keys of one network for each purpose."""

    initial: int
    order: int
    change: int
    dropout: int
    noise: int

    @classmethod
    def of(cls, seed: int, method: str, network: int, one_start: bool = False) -> NetworkKeys:
        """Return the keys of a method's network. With `one_start` it has the initial weights of network 0."""
        purposes = ("order", "change", "dropout", "noise")
        initial = randomness.key(seed, method, 0 if one_start else network, "initial")
        return cls(initial, *(randomness.key(seed, method, network, purpose) for purpose in purposes))


def build_network(build: Callable[[], nn.Module], key: int) -> nn.Module:
    """Return a network whose initial weights are a function of the key. The caller's generators do not change."""
    with torch.random.fork_rng():
        torch.manual_seed(key)
        return build()


def train_network(
    training: NetworkTraining,
    keys: NetworkKeys,
    device: torch.device,
    state: TrainingState | None = None,
    callbacks: TrainingCallbacks | None = None,
    workers: int = 0,
) -> tuple[LogRow, ...]:
    """Train to the last kept epoch, from the start or from a saved state, and return the log."""
    callbacks = TrainingCallbacks() if callbacks is None else callbacks
    run, pacer = _Run(training, keys, device, state), Pacer()
    if run.step == 0 and 0 in training.keep:
        callbacks.keep(0, run.weights())
    if not training.last_step:
        return ()
    for batch in run.batches(workers):
        run.take_step(batch)
        if run.step % LOG_EVERY == 0 or run.step % training.epoch_steps == 0:
            row = run.note()
            callbacks.log(row)
            callbacks.progress(row.step, f"loss {row.loss:.3g}, rate {row.rate:.2g}")
        if run.step % training.epoch_steps == 0 and run.step // training.epoch_steps in training.keep:
            callbacks.keep(run.step // training.epoch_steps, run.weights())
        if run.step < training.last_step and (stopping.asked() or (run.step % LOG_EVERY == 0 and pacer.due())):
            with pacer:
                callbacks.save(run.state())
    return tuple(run.log)


class _Run:
    """A network in training."""

    def __init__(self, training: NetworkTraining, keys: NetworkKeys, device: torch.device, state: TrainingState | None):
        self.training, self.keys, self.device = training, keys, device
        if device.type == "cuda":
            torch.cuda.set_device(device)  # kernels run on the current device
        self.network = build_network(training.build, keys.initial)
        if training.start is not None:
            begun = dict(training.start(self.network))
            shape_like(self.network, begun).load_state_dict(begun)
        self.network.to(device)
        if training.channels_last:
            self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.network.train()
        places = getattr(self.network, "dropout_places", ())
        if training.dropout and places:
            insert_dropout(self.network, places, training.dropout)
        # Without named places, the network's own dropout acts at the method's rate.
        self.rate = training.dropout if training.dropout and not places else None
        dropouts = (module for module in self.network.modules() if isinstance(module, _DropoutNd))
        self.drops = training.dropout > 0 or any(module.p for module in dropouts)
        weights = training.class_weights
        self.class_weights = None if weights is None else torch.tensor(weights, device=device)
        self.flat = FlatParameters(self.network, training.decay_all)
        self.rule_state = training.rule.start(self.flat.values)
        self.step, self.log = 0, list[LogRow]()
        if state is not None:
            self._resume(state)
        self.module = cast(nn.Module, torch.compile(self.network)) if training.compile else self.network
        sums, self.since = {} if state is None else state.sums, self.log[-1].step if self.log else 0
        zero = torch.zeros((), device=device)
        self.summed = zero + sums.get("loss", zero).to(device)  # over the steps since the last row of the log
        self.counted = zero + sums.get("counted", zero).to(device)  # steps in which a pixel counted

    def _resume(self, state: TrainingState) -> None:
        buffers = dict(self.network.named_buffers())
        pairs: list[tuple[Tensor, Tensor | None]] = [(self.flat.values, state.parameters)]
        pairs += [(own, state.rule.get(name)) for name, own in self.rule_state.items()]
        pairs += [(own, state.buffers.get(name)) for name, own in buffers.items()]
        fits = all(saved is not None and saved.shape == own.shape for own, saved in pairs)
        if not fits or not 0 < state.step < self.training.last_step:
            raise StateMismatchError("what is saved there is not the state of this training")
        with torch.no_grad():
            self.flat.values.copy_(state.parameters)
            for name, own in self.rule_state.items():
                own.copy_(state.rule[name])
            copy_buffers(self.network, state.buffers)
        self.step, self.log = state.step, list(state.log)

    def batches(self, workers: int) -> Iterator[Batch]:
        """Yield the batches of all remaining steps, augmented, on the device."""
        training, augment, device = self.training, self.training.augment, self.device
        size, pin = training.batch_size, device.type == "cuda"
        numbers = range(self.step * size, training.last_step * size)
        if not training.whole_batches:
            stream = Stream(training.samples, augment, self.keys.order, self.keys.change)
            for packed in packed_batches(stream, numbers, size, workers, pin, reuse=True):
                batch = packed.to(device).batch
                yield Batch(batch.inputs, widened(batch.target), batch.valid)
            return
        assert isinstance(augment, Augment)
        stream = Stream(training.samples, batched.Cut(augment), self.keys.order, self.keys.change)
        finish = batched.Finisher(augment, device)
        cuts = packed_batches(stream, numbers, size, workers, pin, join=batched.joined, same=batched.sizes, reuse=True)
        for cut in cuts:
            yield finish(cut)

    def take_step(self, batch: Batch) -> None:
        """Take one step on a batch."""
        training = self.training
        self.flat.gradient.zero_()
        with self._dropout(len(batch.target)):
            raw = self._outputs(batch.inputs)
        # On pixels that do not count, the target may be NaN or no class, and outputs must not reach the gradient.
        target = batch.target.masked_fill(~batch.valid, 0)
        weights = batch.valid if self.class_weights is None else batch.valid * self.class_weights[target]
        heads = torch.split(raw, len(target))
        loss = functools.reduce(Tensor.add, (self._loss(each, target, batch.valid, weights) for each in heads))
        loss.backward()  # type: ignore[no-untyped-call]
        if training.clip is not None:
            norm = torch.linalg.vector_norm(self.flat.gradient)
            self.flat.gradient.mul_((training.clip / (norm + 1e-6)).clamp(max=1.0))
        self.step += 1
        pace = training.schedule(self.step, training.num_steps)
        decay(*self.flat.decayed, training.weight_decay, training.rule, pace)
        noise = self._noise(pace.temperature)
        step = Step(self.step, pace, len(training.samples), noise, training.epoch_steps)
        training.rule.update(self.flat.values, self.flat.gradient, self.rule_state, step)
        self.summed += loss.detach() / len(heads)
        self.counted += (weights > 0).any()

    def _outputs(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return raw outputs of the network in float32. Mixed precision also rounds its inputs."""
        if self.training.precision == "32-true":
            return cast(Tensor, self.module(inputs))
        floating = {name: each.bfloat16() if each.is_floating_point() else each for name, each in inputs.items()}
        with torch.autocast(self.device.type, torch.bfloat16):
            return cast(Tensor, self.module(floating)).float()

    def _loss(self, raw: Tensor, target: Tensor, valid: Tensor, weights: Tensor) -> Tensor:
        """Return the mean loss of one head. `weights`: of pixels."""
        raw = upsampled(raw, target.shape[1:], aligned_corners(self.network))
        raw = torch.where(valid[:, None], raw, torch.zeros((), device=raw.device, dtype=raw.dtype))
        return mean_loss(self.training.loss(raw, target), weights, self.training.loss_parts)

    def _dropout(self, num_images: int) -> AbstractContextManager[object]:
        if self.training.compile and not self.drops:
            return nullcontext()  # would be compiled without effect
        first = self.step * self.training.batch_size
        keys = randomness.bits(torch.tensor([self.keys.dropout]), first, num_images)[0]
        return SeededDropout(keys.to(self.device), self.rate)

    def _noise(self, temperature: float) -> Tensor | None:
        if not self.training.rule.noisy or not temperature:
            return None
        key = torch.tensor([self.keys.noise], device=self.device)
        pairs = -(-len(self.flat.values) // 2)
        noise = randomness.normal(key, (self.step - 1) * pairs, pairs)
        return noise.flatten()[: len(self.flat.values)]

    def note(self) -> LogRow:
        """Add the mean loss since the last note to the log."""
        if self.step > self.since:
            mean = float(self.summed) / (self.step - self.since)
            if not float(self.counted):
                raise InputError(f"no pixel counted in the training up to step {self.step}: are there targets?")
            if not math.isfinite(mean):
                raise DivergedError([0], f"the loss became NaN or infinite by step {self.step}")
            rate = self.training.schedule(self.step, self.training.num_steps).rate
            self.log.append(LogRow(self.step, mean, rate))
            self.summed.zero_()
            self.since = self.step
        return self.log[-1]

    def weights(self) -> Weights:
        """Parameters and buffers by name."""
        weights = {name: tensor.detach() for name, tensor in self.network.state_dict().items()}
        for name, tensor in weights.items():
            if not bool(torch.isfinite(tensor).all()):
                raise DivergedError([0], f"the weights '{name}' became NaN or infinite by step {self.step}")
        return weights

    def state(self) -> TrainingState:
        """Return the state of training, which shares its tensors."""
        buffers = dict(self.network.named_buffers())
        sums = {"loss": self.summed, "counted": self.counted}
        return TrainingState(self.step, self.flat.values, self.rule_state, buffers, tuple(self.log), sums)


def mean_loss(losses: Tensor, weights: Tensor, parts: int = 1) -> Tensor:
    """Return the weighted mean over pixels, averaged over equal parts of the batch.

    A part whose weights are all 0 has the loss 0. Boolean weights select pixels.
    """
    means = []
    for part, counts in zip(losses.chunk(parts), weights.chunk(parts), strict=True):
        total = counts.sum()
        summed = torch.where(counts > 0, counts * part, part.new_zeros(())).sum()
        means.append(summed / torch.where(total > 0, total, torch.ones_like(total)))
    return torch.stack(means).mean()


def upsampled(raw: Tensor, size: Sequence[int], align_corners: bool = True) -> Tensor:
    """Return coarse outputs, (image, output, row, column), at the size of the image.

    Bilinear, as products with two matrices: on a GPU, torch sums the gradient of its own interpolation in a varying
    order.
    """
    if raw.shape[-2:] == tuple(size):
        return raw
    matrices = []
    for coarse, fine in zip(raw.shape[-2:], size, strict=True):
        positions = grid_positions(range(fine), coarse, fine, align_corners, raw.device)
        distances = (positions[:, None] - torch.arange(coarse, device=raw.device)).abs()
        matrices.append((1 - distances).clamp(min=0).to(raw.dtype))
    return matrices[0] @ raw @ matrices[1].T


class FlatParameters:
    """The parameters of a network, and their gradients, as views of two flat tensors.

    Parameters with two or more axes come first: weight decay, or a prior, acts on them. Scales and biases are excluded,
    unless it acts on all.
    """

    def __init__(self, network: nn.Module, decay_all: bool = False):
        named = [(name, each) for name, each in network.named_parameters() if each.requires_grad]
        if not named:
            raise InputError(f"{type(network).__name__} has no parameters to train")
        named.sort(key=lambda pair: pair[1].ndim < 2)  # stable: otherwise in the network's order
        self.parameters = [each for _, each in named]
        self.num_decayed = sum(_room(each) for each in self.parameters if decay_all or each.ndim > 1)
        first, total = self.parameters[0], sum(_room(each) for each in self.parameters)
        self.values = torch.zeros(total, device=first.device, dtype=first.dtype)
        self.gradient = torch.zeros_like(self.values)
        start = 0
        for parameter in self.parameters:
            place = slice(start, start + parameter.numel())
            with torch.no_grad():
                view = _laid_out_like(self.values[place], parameter)
                view.copy_(parameter)
                parameter.data = view
            parameter.grad = _laid_out_like(self.gradient[place], parameter)
            start += _room(parameter)

    @property
    def decayed(self) -> tuple[Tensor, Tensor]:
        """Values and gradients of the parameters under weight decay."""
        return self.values[: self.num_decayed], self.gradient[: self.num_decayed]


def _room(parameter: Tensor) -> int:
    """Return the entries of a parameter, with an unused gap that aligns the next parameter."""
    return -(-parameter.numel() // ALIGNED) * ALIGNED


def _laid_out_like(flat: Tensor, parameter: Tensor) -> Tensor:
    """Return a view with the shape of a parameter and its layout in memory."""
    if parameter.ndim == 4 and parameter.is_contiguous(memory_format=torch.channels_last):
        outputs, inputs, height, width = parameter.shape
        return flat.view(outputs, height, width, inputs).permute(0, 3, 1, 2)
    return flat.view(parameter.shape)


def copy_buffers(network: nn.Module, saved: Mapping[str, Tensor]) -> None:
    """Copy saved buffers, e.g. the running statistics of batch norm, into the network."""
    for name, buffer in network.named_buffers():
        buffer.copy_(saved[name])
