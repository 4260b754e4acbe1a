"""Augmentation of whole batches on the training device, with the decisions of `augment.py` for each key.

Loading processes cut out the pixels that a crop needs (`Cut`), and send them with a plan: the numbers that the key
decides. `finish` then resamples, pads, recolours and flips all samples of a batch at once, and chooses sparse points.
On a GPU it is one graph of kernels, because single launches take the host longer than the GPU's work.

Classes, depth, sparse points and valid pixels equal the CPU's, bit for bit. Levels of images may be rounded to the
neighbouring level, because sums have another order. With noise, the noise may be rounded differently, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from epibench import randomness
from epibench.cuda_graphs import Graph
from epibench.data.augment import (
    DEPTH,
    IMAGE,
    LARGEST_BLUR,
    NOISE_COUNTER,
    NUMBERS,
    SPARSE_COUNTER,
    UNCHANGED,
    Augment,
    ColourChange,
    Colours,
    blur_weights,
    nearest_pixels,
    scaled_length,
)
from epibench.data.batch import Batch, Packed
from epibench.data.classes import IGNORE
from epibench.data.decoded import widened
from epibench.data.images import ScaleRule
from epibench.data.opencv import bilinear, neighbours

PLAN, ROWS, COLUMNS = "plan", "rows", "columns"  # inputs that accompany the pixels
# The numbers of a plan, float64: of rows, of columns, of the sample, of its colours and their matrix.
OF_AXIS = ("length", "ratio", "start", "used", "margin", "corner")
OF_SAMPLE = ("factor", "share", "flip", "key_high", "key_low", "gamma", "contrast", "noise")
UNCOLOURED = ColourChange(1.0, torch.eye(3), 1.0, 0.0, 0.0)
REACH = len(blur_weights(LARGEST_BLUR)) // 2
EVEN = 64  # windows of different sizes are padded to multiples of it, so that few sizes occur
MOST_GRAPHS = 8  # largest number of graphs, one for each size


@dataclass(frozen=True)
class Axis:
    """The resampling along one axis: a `part` of the scaled pixels lies behind a `margin` in the result.

    Args:
        length: Pixels of the image.
        factor: Factor of the size.
        rule: Rule of the resampling.
        part: Part of the scaled image that is used.
        margin: Pixels of the result before the image.
        wanted: Pixels of the result.
    """

    length: int
    factor: float
    rule: ScaleRule
    part: slice
    margin: int
    wanted: int

    @property
    def ratio(self) -> float:
        """Pixels of the image for one pixel of the scaled image."""
        return 1 / self.factor if self.rule == "opencv" else self.length / scaled_length(self.length, self.factor)

    @property
    def needed(self) -> slice:
        """The pixels that the part needs, and at most a few more."""
        if self.factor == 1:
            return self.part
        reach = 1 + max(1.0, self.ratio)
        low, high = (self.part.start + 0.5) * self.ratio - reach, (self.part.stop - 0.5) * self.ratio + reach
        return slice(max(0, math.floor(low)), min(self.length, math.ceil(high)))

    @property
    def nearest(self) -> Tensor:
        """For every pixel of the result the nearest needed pixel, (wanted,) int64; 0 in the margins."""
        found = torch.zeros(self.wanted, dtype=torch.int64)
        used = nearest_pixels(self.length, self.factor, self.rule)[self.part] - self.needed.start
        found[self.margin : self.margin + len(used)] = used
        return found

    @property
    def numbers(self) -> tuple[float, ...]:
        """The axis' numbers in a plan."""
        used = self.part.stop - self.part.start
        return self.length, self.ratio, self.part.start, used, self.margin, self.needed.start


@dataclass(frozen=True)
class Cut:
    """The first part of an augmentation: cuts out the pixels that a sample needs, and adds a plan."""

    augment: Augment

    def __call__(self, sample: Batch, key: int) -> Batch:
        """Return the needed pixels of every tensor, with plan, nearest rows and columns as further inputs."""
        augment, (height, width) = self.augment, sample.target.shape[-2:]
        at = augment.placed(height, width, key)
        rows = Axis(height, at.factor, augment.scale_rule, at.rows, at.above, at.size[0])
        columns = Axis(width, at.factor, augment.scale_rule, at.columns, at.before, at.size[1])
        change = UNCOLOURED if augment.colours == UNCHANGED else augment.colours.drawn(key)
        numbers = [*rows.numbers, *columns.numbers, at.factor, at.share, at.flip, key >> 32, key & (2**32 - 1)]
        numbers += [change.gamma, change.contrast, change.noise, *change.matrix.flatten().tolist()]
        blur = blur_weights(change.blur)
        numbers += [0.0] * (REACH - len(blur) // 2) + blur + [0.0] * (REACH - len(blur) // 2)
        window = sample.each(lambda values: values[..., rows.needed, columns.needed])
        beside = {PLAN: torch.tensor(numbers, dtype=torch.float64), ROWS: rows.nearest, COLUMNS: columns.nearest}
        return Batch({**window.inputs, **beside}, window.target, window.valid)


def sizes(cut: Batch) -> list[tuple[int, ...]]:
    """Return the size of the result, which joined samples have in common."""
    return [(len(cut.inputs[ROWS]), len(cut.inputs[COLUMNS]))]


def joined(cuts: Sequence[Batch]) -> Batch:
    """Join the cut parts of several samples into a batch. Smaller windows are padded with unused pixels."""
    names = cuts[0].inputs
    return Batch(
        {name: _stacked([cut.inputs[name] for cut in cuts]) for name in names},
        _stacked([cut.target for cut in cuts]),
        _stacked([cut.valid for cut in cuts]),
    )


def _stacked(tensors: Sequence[Tensor]) -> Tensor:
    if len({tensor.shape for tensor in tensors}) == 1:
        return torch.stack(list(tensors))
    *front, height, width = (max(lengths) for lengths in zip(*(tensor.shape for tensor in tensors), strict=True))
    shape = (*front, -(-height // EVEN) * EVEN, -(-width // EVEN) * EVEN)
    together = tensors[0].new_zeros((len(tensors), *shape))
    for place, tensor in zip(together, tensors, strict=True):
        place[tuple(slice(length) for length in tensor.shape)] = tensor
    return together


class Plan:
    """The numbers of a batch by name, (sample,) each."""

    def __init__(self, numbers: Tensor):
        self.numbers, self.device = numbers, numbers.device

    def axis(self, axis: int) -> dict[str, Tensor]:
        """Return the numbers of rows (0) or columns (1), (sample, 1)."""
        first = axis * len(OF_AXIS)
        return {name: self.numbers[:, first + place, None] for place, name in enumerate(OF_AXIS)}

    def of(self, name: str, axes: int = 0) -> Tensor:
        """Return a number of every sample, with `axes` more axes."""
        return self.numbers[:, 2 * len(OF_AXIS) + OF_SAMPLE.index(name)].view(-1, *[1] * axes)

    @property
    def keys(self) -> Tensor:
        """The keys of the samples, int64."""
        return (self.of("key_high").long() << 32) + self.of("key_low").long()

    @property
    def matrix(self) -> Tensor:
        """The colour matrices, (sample, 3, 3) float32."""
        first = 2 * len(OF_AXIS) + len(OF_SAMPLE)
        return self.numbers[:, first : first + 9].view(-1, 3, 3).float()

    @property
    def blur(self) -> Tensor:
        """The weights of the blur along one axis, (2 · REACH + 1, sample) float32."""
        return self.numbers[:, -(2 * REACH + 1) :].T.float()


class Finisher:
    """`finish` on a device, for packed batches. On a GPU the next call overwrites the result."""

    def __init__(self, augment: Augment, device: torch.device):
        self.augment, self.device = augment, device
        self.graphs: dict[object, tuple[Packed, Graph[Batch]]] = {}

    def __call__(self, cut: Packed) -> Batch:
        """Return the augmented batch."""
        if cut.layout not in self.graphs:
            there = cut.to(self.device)
            if self.device.type != "cuda" or len(self.graphs) == MOST_GRAPHS:
                return finish(self.augment, there.batch)
            self.graphs[cut.layout] = there, Graph(lambda: finish(self.augment, there.batch), there.content.device)
        there, graph = self.graphs[cut.layout]
        there.content.copy_(cut.content, non_blocking=True)
        return graph()


def finish(augment: Augment, cut: Batch) -> Batch:
    """Return the augmented batch of cut samples: each sample equals the result of `augment`."""
    plan = Plan(cut.inputs[PLAN])
    batch = _resampled(augment, cut, plan)
    inputs, keys = dict(batch.inputs), plan.keys
    if augment.sparse_share is not None:
        drawn = randomness.uniform(keys, SPARSE_COUNTER, batch.valid[0].numel()).view_as(batch.valid)
        inputs[DEPTH] = torch.where((drawn < augment.sparse_share) & batch.valid, batch.target, 0)[:, None]
    if DEPTH in inputs and augment.thin != (1.0, 1.0):
        inputs[DEPTH] = thinned(inputs[DEPTH], plan.of("share", 1), keys)
    if IMAGE in inputs and augment.colours != UNCHANGED:
        inputs[IMAGE] = recoloured(inputs[IMAGE], augment.colours, plan, keys)
    batch = Batch(inputs, batch.target, batch.valid)
    if augment.flip:
        flip = plan.of("flip") > 0
        batch = batch.each(lambda each: torch.where(flip.view(-1, *[1] * (each.ndim - 1)), each.flip(-1), each))
    return batch


def _resampled(augment: Augment, cut: Batch, plan: Plan) -> Batch:
    """Return padded crops of their final size. Depth is divided by the factor; depth and classes are not mixed."""
    rows, columns = cut.inputs[ROWS], cut.inputs[COLUMNS]
    inputs = {name: values for name, values in cut.inputs.items() if name not in (PLAN, ROWS, COLUMNS)}
    target = widened(cut.target)
    if augment.scale == (1.0, 1.0) and not augment.pad:
        return Batch(inputs, target, cut.valid)  # the cut parts are the crops
    sample = torch.arange(len(rows), device=plan.device)[:, None, None]
    factor = plan.of("factor", 2).float()
    inside = _inside(plan, 0, rows.shape[1])[:, :, None] & _inside(plan, 1, columns.shape[1])[:, None, :]
    smooth = {name: values for name, values in inputs.items() if name != DEPTH}
    taps = [Taps.of(augment, plan.axis(axis), each.shape[1]) for axis, each in enumerate((rows, columns))]

    def picked(values: Tensor) -> Tensor:
        return values[sample, rows[:, :, None], columns[:, None, :]]

    changed = {
        name: _framed(_interpolated(each, taps, augment.scale_rule), inside, augment) for name, each in smooth.items()
    }
    if DEPTH in inputs:
        changed[DEPTH] = torch.where(inside, picked(inputs[DEPTH][:, 0]) / factor, 0)[:, None]
    target = picked(target)
    target = torch.where(inside, target / factor, 0) if target.is_floating_point() else target.where(inside, IGNORE)
    return Batch(changed, target, picked(cut.valid) & inside)


def _inside(plan: Plan, axis: int, wanted: int) -> Tensor:
    """Return which rows or columns show the image, not a margin, (sample, wanted) bool."""
    numbers = plan.axis(axis)
    place = torch.arange(wanted, device=plan.device) - numbers["margin"]
    return (place >= 0) & (place < numbers["used"])


@dataclass(frozen=True)
class Taps:
    """The pixels of each wanted pixel along an axis, and their weights, (sample, wanted, tap)."""

    pixels: Tensor
    weights: Tensor

    @classmethod
    def of(cls, augment: Augment, axis: dict[str, Tensor], wanted: int) -> Taps:
        """Return two neighbours; for images that become smaller, all pixels under a triangle."""
        place = torch.arange(wanted, device=axis["length"].device) - axis["margin"]
        place = torch.minimum(place.clamp(min=0), axis["used"] - 1) + axis["start"]
        last, corner = axis["length"].long() - 1, axis["corner"].long()[..., None]
        if augment.scale_rule == "opencv":
            first, *shares = neighbours(place, axis["ratio"])
            pixels = torch.stack((first.clamp(min=0), first + 1), 2)
            return cls(torch.minimum(pixels, last[..., None]) - corner, torch.stack(shares, 2))
        ratio = axis["ratio"].float()
        centre = (place.float() + 0.5) * ratio  # in float32, as on the CPU
        position = torch.minimum((centre - 0.5).clamp(min=0), last)
        before = position.long()
        behind = position - before
        pixels, weights = torch.stack((before, before + 1), 2), torch.stack((1 - behind, behind), 2)
        if augment.scale[0] < 1:
            number = 2 * math.ceil(1 / augment.scale[0]) + 3
            tap = torch.arange(number, device=place.device)
            first = (centre - ratio + 0.5).long().clamp(min=0)
            end = torch.minimum((centre + ratio + 0.5).long(), last + 1)
            covered = first[..., None] + tap
            triangle = 1 - ((covered - centre[..., None] + 0.5) / ratio[..., None]).abs()
            triangle = torch.where(covered < end[..., None], triangle.clamp(min=0), 0)
            averaged = (ratio > 1)[..., None]
            pixels = torch.where(averaged, covered, before[..., None] + tap)
            few = functional.pad(weights, (0, number - 2))
            weights = torch.where(averaged, triangle / triangle.sum(2, keepdim=True), few)
        return cls(torch.minimum(pixels, last[..., None]) - corner, weights)

    def gather(self, values: Tensor, axis: int) -> list[tuple[Tensor, Tensor]]:
        """Return the values of each tap along one axis (2 or 3), with its weights.

        values: (sample, channel, row, column).
        """
        shape, wanted = list(values.shape), self.pixels.shape[1]
        shape[axis] = wanted
        form = (-1, 1, wanted, 1) if axis == 2 else (-1, 1, 1, wanted)
        inside = self.pixels.clamp(max=values.shape[axis] - 1)  # a tap outside the cut part has the weight 0
        parts = [values.gather(axis, pixels.view(form).expand(shape)) for pixels in inside.unbind(2)]
        return list(zip(parts, [each.view(form) for each in self.weights.unbind(2)], strict=True))

    def along(self, values: Tensor, axis: int) -> Tensor:
        """Return float32 values at the wanted places of one axis."""
        parts = self.gather(values, axis)
        if len(parts) == 2:
            (one, _), (other, weight) = parts
            return torch.lerp(one, other, weight)
        return torch.stack([part * weight for part, weight in parts]).sum(0)


def _interpolated(values: Tensor, taps: Sequence[Taps], rule: ScaleRule) -> Tensor:
    rows, columns = taps
    if rule == "opencv":
        return bilinear(values, partial(columns.gather, axis=3), partial(rows.gather, axis=2))
    smooth = columns.along(rows.along(values.float(), 2), 3)
    return smooth.round_().clamp_(0, 255).to(values.dtype)


def _framed(image: Tensor, inside: Tensor, augment: Augment) -> Tensor:
    """Fill the margins with the image's mean colour."""
    if not augment.pad:
        return image
    shown = inside[:, None]
    total = torch.where(shown, image, 0).sum((2, 3), dtype=torch.float32)
    colour = (total / inside.sum((1, 2))[:, None]).round()
    return torch.where(shown, image, colour.to(image.dtype)[..., None, None])


def thinned(sparse: Tensor, share: Tensor, keys: Tensor) -> Tensor:
    """Return the sparse depth of samples, (sample, 1, height, width), with a share of its points, (sample, 1)."""
    points = (sparse != 0).flatten(1)
    number = points.cumsum(1) - 1  # of a point within its sample
    kept = randomness.uniform_at(keys[:, None], NUMBERS + number) < share.float()
    return torch.where(kept.view_as(sparse), sparse, 0)


def recoloured(image: Tensor, colours: Colours, plan: Plan, keys: Tensor) -> Tensor:
    """Return recoloured images, (sample, 3, height, width) uint8, as `ColourChange` does."""
    values = 255 * (image.float() / 255).pow(plan.of("gamma", 3).float())
    contrast, matrix = plan.of("contrast").float(), plan.matrix
    level = (matrix * values.mean((2, 3))[:, None]).sum(2).mean(1)
    matrix = contrast[:, None, None] * matrix
    changed = ((1 - contrast) * level).view(-1, 1, 1, 1).expand_as(values).contiguous()
    for channel in range(3):  # a matrix product might be rounded to ten bits
        changed.addcmul_(matrix[:, :, channel, None, None], values[:, channel, None])
    if colours.blur:
        changed = _blurred(changed, plan.blur[..., None, None, None])
    if colours.noise:
        count = changed[0].numel()
        normal = randomness.normal(keys, NOISE_COUNTER, -(-count // 2)).flatten(1)[:, :count].view_as(changed)
        changed = changed + plan.of("noise", 3).float() * normal
    return changed.round_().clamp_(0, 255).to(torch.uint8)


def _blurred(values: Tensor, weights: Tensor) -> Tensor:
    for axis, edges in ((2, (0, 0, REACH, REACH)), (3, (REACH, REACH, 0, 0))):
        repeated, size = functional.pad(values, edges, mode="replicate"), values.shape[axis]
        values = torch.zeros_like(values)
        for shift, weight in enumerate(weights):
            values.addcmul_(repeated.narrow(axis, shift, size), weight)
    return values
