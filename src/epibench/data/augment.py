"""Random crops, flips, scales, colours and thinner sparse depth of training samples, a function of the sample's key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from epibench import randomness
from epibench.data.batch import Batch
from epibench.data.colour import UNCHANGED, Colours
from epibench.data.labels import IGNORE
from epibench.errors import InputError

IMAGE, DEPTH = "image", "sparse_depth"
NUMBERS = 5  # random ones that decide about a sample as a whole


@dataclass(frozen=True)
class Augment:
    """Scale, crop and flip a sample, thin out its sparse depth, and change its colours.

    crop: height and width, None keeps the size; pad: an image that is smaller than the crop is surrounded with its mean
    colour, where nothing is valid. scale: smallest and largest factor; scale_step: only these steps from the smallest
    on. An image that is enlarged shows things nearer: depth is divided by the factor. Depth and classes are never mixed
    between pixels. thin: smallest and largest share of the sparse points that is kept, so that a network meets scans of
    any density.
    """

    crop: tuple[int, int] | None = None
    flip: bool = True
    scale: tuple[float, float] = (1.0, 1.0)
    thin: tuple[float, float] = (1.0, 1.0)
    scale_step: float | None = None
    pad: bool = False
    colours: Colours = UNCHANGED

    def __call__(self, sample: Batch, key: int) -> Batch:
        """The augmented sample; the same for the same key."""
        scale, row, column, flip, share = randomness.uniform(torch.tensor([key]), 0, NUMBERS)[0].tolist()
        factor = self._factor(scale)
        if self.crop is None:
            sample = rescaled(sample, factor)
        else:
            sample = rescaled_crop(sample, factor, self.crop, row, column, self.pad)
        sample = thinned(sample, self.thin[0] + share * (self.thin[1] - self.thin[0]), key)
        sample = recoloured(sample, self.colours, key)
        return flipped(sample) if self.flip and flip < 0.5 else sample

    def _factor(self, number: float) -> float:
        low, high = self.scale
        if self.scale_step is None:
            return low + number * (high - low)
        # The last step counts though 0.5 + 16 · 0.1 lies above 2.1 in floating point.
        steps = 1 + int((high - low) / self.scale_step + 1e-6)
        return round(low + int(number * steps) * self.scale_step, 9)


def rescaled_crop(
    sample: Batch, factor: float, size: tuple[int, int], row: float, column: float, pad: bool = False
) -> Batch:
    """A part of that size of the enlarged sample; row and column in [0, 1) say where.

    pad: where the crop is larger than the image, they say where in it the image lies.
    """
    height, width = _scaled_size(sample, factor)
    if not pad and (size[0] > height or size[1] > width):
        raise InputError(
            f"a crop of {size[0]}×{size[1]} does not fit into an image of {height}×{width}; "
            f"lower training.crop, or set training.pad=true"
        )
    top, left = int(row * (abs(height - size[0]) + 1)), int(column * (abs(width - size[1]) + 1))
    rows = slice(top, top + size[0]) if size[0] <= height else slice(None)
    columns = slice(left, left + size[1]) if size[1] <= width else slice(None)
    part = rescaled(sample, factor, rows, columns)
    return padded(part, size, top if size[0] > height else 0, left if size[1] > width else 0)


def rescaled(sample: Batch, factor: float, rows: slice = slice(None), columns: slice = slice(None)) -> Batch:
    """The sample enlarged by a factor, and some rows and columns of it; depth shrinks by the factor."""
    if factor == 1.0:
        return over(sample, lambda values: values[..., rows, columns])
    size, depth = _scaled_size(sample, factor), sample.target.is_floating_point()
    nearest = [
        functional.interpolate(torch.arange(length, dtype=torch.float64).view(1, 1, -1), wanted, mode="nearest-exact")
        .long()
        .flatten()[part]
        for length, wanted, part in zip(sample.target.shape[-2:], size, (rows, columns), strict=True)
    ]

    def picked(values: Tensor) -> Tensor:
        return values[..., nearest[0][:, None], nearest[1]]

    def resized(name: str, values: Tensor) -> Tensor:
        if name == DEPTH:
            return picked(values) / factor
        # Many times faster than torch's, but one pixel in 10,000 is rounded differently: results of depth keep theirs.
        if factor > 1 and not depth:
            smooth = _enlarged(values.float(), size, rows, columns)
        else:
            smooth = _resized(values.float(), size, antialias=factor < 1)[..., rows, columns]
        return smooth.round().clamp(0, 255).to(values.dtype)

    target = picked(sample.target)
    return Batch(
        {name: resized(name, values) for name, values in sample.inputs.items()},
        target / factor if depth else target,
        picked(sample.valid),
    )


def _scaled_size(sample: Batch, factor: float) -> tuple[int, int]:
    height, width = (max(1, round(factor * length)) for length in sample.target.shape[-2:])
    return height, width


def _resized(values: Tensor, size: tuple[int, int], antialias: bool) -> Tensor:
    return functional.interpolate(values[None], size, mode="bilinear", align_corners=False, antialias=antialias)[0]


def _enlarged(values: Tensor, size: tuple[int, int], rows: slice, columns: slice) -> Tensor:
    """The same without antialiasing, of some rows and columns alone: a crop is a small part of a large image."""
    return _between(_between(values, -2, size[0], rows), -1, size[1], columns)


def _between(values: Tensor, axis: int, wanted: int, part: slice) -> Tensor:
    """Interpolated along one axis, where pixels are areas: `align_corners=False` of torch."""
    length = values.shape[axis]
    places = ((torch.arange(wanted, dtype=torch.float32)[part] + 0.5) * (length / wanted) - 0.5).clamp_(0, length - 1)
    before = places.long()
    after = (before + 1).clamp_(max=length - 1)
    weights = (places - before).view(-1, *[1] * (-1 - axis))
    return torch.lerp(values.index_select(axis, before), values.index_select(axis, after), weights)


def padded(sample: Batch, size: tuple[int, int], above: int, before: int) -> Batch:
    """The sample in a larger frame of that size: the image's mean colour, no depth, no class, nothing that is valid."""
    height, width = sample.target.shape[-2:]
    if (height, width) == size:
        return sample
    edges = (before, size[1] - width - before, above, size[0] - height - above)

    def framed(name: str, values: Tensor) -> Tensor:
        if name == DEPTH:
            return functional.pad(values, edges)
        colours = values.float().mean((1, 2)).round().tolist()
        return torch.stack(
            [functional.pad(one, edges, value=colour) for one, colour in zip(values, colours, strict=True)]
        )

    return Batch(
        {name: framed(name, values) for name, values in sample.inputs.items()},
        functional.pad(sample.target, edges, value=0 if sample.target.is_floating_point() else IGNORE),
        functional.pad(sample.valid, edges, value=False),
    )


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


def recoloured(sample: Batch, colours: Colours, key: int) -> Batch:
    """The sample with other colours; everything stays in its place."""
    if colours == UNCHANGED or IMAGE not in sample.inputs:
        return sample
    image = colours(sample.inputs[IMAGE], key)
    return Batch({**sample.inputs, IMAGE: image}, sample.target, sample.valid)


def flipped(sample: Batch) -> Batch:
    """Left and right exchanged."""
    return over(sample, lambda values: values.flip(-1))


def over(sample: Batch, function: Callable[[Tensor], Tensor]) -> Batch:
    """The same change to every tensor of a sample."""
    inputs: Mapping[str, Tensor] = {name: function(values) for name, values in sample.inputs.items()}
    return Batch(inputs, function(sample.target), function(sample.valid))
