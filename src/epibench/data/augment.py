"""Random crops, flips, scales and thinner sparse depth of training samples, each a function of the sample's key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from epibench import randomness
from epibench.data.batch import Batch
from epibench.errors import InputError

DEPTH = "sparse_depth"
NUMBERS = 5  # random ones that decide about a sample as a whole


@dataclass(frozen=True)
class Augment:
    """Scale, crop and flip a sample, and thin out its sparse depth.

    crop: height and width, None keeps the size; scale: smallest and largest factor. An image that is enlarged shows
    things nearer: depth is divided by the factor. Depth and classes are never mixed between pixels. thin: smallest and
    largest share of the sparse points that is kept, so that a network meets scans of any density.
    """

    crop: tuple[int, int] | None = None
    flip: bool = True
    scale: tuple[float, float] = (1.0, 1.0)
    thin: tuple[float, float] = (1.0, 1.0)

    def __call__(self, sample: Batch, key: int) -> Batch:
        """The augmented sample; the same for the same key."""
        scale, row, column, flip, share = randomness.uniform(torch.tensor([key]), 0, NUMBERS)[0].tolist()
        sample = rescaled(sample, self.scale[0] + scale * (self.scale[1] - self.scale[0]))
        if self.crop is not None:
            sample = cropped(sample, self.crop, row, column)
        sample = thinned(sample, self.thin[0] + share * (self.thin[1] - self.thin[0]), key)
        return flipped(sample) if self.flip and flip < 0.5 else sample


def rescaled(sample: Batch, factor: float) -> Batch:
    """The sample enlarged by a factor; depth shrinks by it."""
    if factor == 1.0:
        return sample
    height, width = (max(1, round(factor * length)) for length in sample.target.shape[-2:])
    depth = sample.target.is_floating_point()

    def nearest(values: Tensor) -> Tensor:
        return _resized(values, (height, width), "nearest-exact")

    def resized(name: str, values: Tensor) -> Tensor:
        if name == DEPTH:
            return nearest(values) / factor
        smooth = functional.interpolate(
            values[None].float(), (height, width), mode="bilinear", align_corners=False, antialias=factor < 1
        )
        return smooth[0].round().clamp(0, 255).to(values.dtype)

    target = nearest(sample.target[None])[0]
    return Batch(
        {name: resized(name, values) for name, values in sample.inputs.items()},
        target / factor if depth else target,
        nearest(sample.valid[None])[0],
    )


def _resized(values: Tensor, size: tuple[int, int], mode: str) -> Tensor:
    """Pixels picked by their place, whatever their type."""
    rows, columns = (
        functional.interpolate(torch.arange(length, dtype=torch.float64).view(1, 1, -1), wanted, mode=mode)
        .long()
        .flatten()
        for length, wanted in zip(values.shape[-2:], size, strict=True)
    )
    return values[..., rows[:, None], columns]


def cropped(sample: Batch, size: tuple[int, int], row: float, column: float) -> Batch:
    """A part of that size; row and column in [0, 1) say where."""
    height, width = sample.target.shape[-2:]
    if size[0] > height or size[1] > width:
        raise InputError(
            f"a crop of {size[0]}×{size[1]} does not fit into an image of {height}×{width}; lower training.crop"
        )
    top, left = int(row * (height - size[0] + 1)), int(column * (width - size[1] + 1))
    return over(sample, lambda values: values[..., top : top + size[0], left : left + size[1]])


def thinned(sample: Batch, share: float, key: int) -> Batch:
    """The sample with about that share of its sparse points."""
    if share >= 1.0 or DEPTH not in sample.inputs:
        return sample
    sparse = sample.inputs[DEPTH]
    points = torch.nonzero(sparse, as_tuple=True)
    kept = randomness.uniform(torch.tensor([key], device=sparse.device), NUMBERS, len(points[0]))[0] < share
    fewer = torch.zeros_like(sparse)
    fewer[points] = torch.where(kept, sparse[points], 0)
    return Batch({**sample.inputs, DEPTH: fewer}, sample.target, sample.valid)


def flipped(sample: Batch) -> Batch:
    """Left and right exchanged."""
    return over(sample, lambda values: values.flip(-1))


def over(sample: Batch, function: Callable[[Tensor], Tensor]) -> Batch:
    """The same change to every tensor of a sample."""
    inputs: Mapping[str, Tensor] = {name: function(values) for name, values in sample.inputs.items()}
    return Batch(inputs, function(sample.target), function(sample.valid))
