"""Augmentation of training samples as a function of the sample's key: crops, flips, scales, colours, sparse depth."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional

from epibench import randomness
from epibench.data.batch import Batch
from epibench.data.classes import IGNORE
from epibench.data.images import ScaleRule
from epibench.data.opencv import Pairs, bilinear, nearest, neighbours
from epibench.errors import InputError

IMAGE, DEPTH = "image", "sparse_depth"
NUMBERS = 5  # random numbers of a sample as a whole

# Changes at strength 1: factors are base^number for a random number from −1 to 1. Light only decreases: more
# light would turn sky and road white, and a gamma exponent below 1 brightens without that.
GAMMA, CONTRAST, TEMPERATURE, HUE = 2.5, 2.0, 1.3, math.pi / 3
DARKEST = 0.33  # factor of the light
LARGEST_BLUR = 2.0  # standard deviation in pixels
LARGEST_NOISE = 20.0  # standard deviation in levels of 0 … 255
# Counters far beyond the counters of the sample as a whole and of its sparse points.
COLOUR_COUNTER, NOISE_COUNTER, SPARSE_COUNTER = 2**40, 2**41, 2**42
COLOUR_NUMBERS = 11

# Luminance and two axes of chrominance (YIQ): saturation stretches the last two, hue turns them.
_TO_CHROMA = torch.tensor(
    [[0.299, 0.587, 0.114], [0.5959, -0.2746, -0.3213], [0.2115, -0.5227, 0.3112]], dtype=torch.float64
)
_FROM_CHROMA = torch.linalg.inv(_TO_CHROMA)


@dataclass(frozen=True)
class Colours:
    """Strength of colour changes (0 … 1), and probabilities of a grey, blurred or noisy image.

    With colour changes a network does not learn the colours of one camera. With 0 the image is unchanged.
    """

    strength: float = 0.0
    grey: float = 0.0
    blur: float = 0.0
    noise: float = 0.0

    def drawn(self, key: int) -> ColourChange:
        """Return the colour change of a key."""
        numbers = randomness.uniform(torch.tensor([key]), COLOUR_COUNTER, COLOUR_NUMBERS)[0].tolist()
        gamma, contrast, temperature, saturation, hue = (self.strength * (2 * number - 1) for number in numbers[:5])
        light = DARKEST ** (self.strength * numbers[5])
        grey = numbers[6] < self.grey
        return ColourChange(
            gamma=GAMMA**gamma,
            matrix=light * colour_matrix(0.0 if grey else 1 + saturation, HUE * hue, TEMPERATURE**temperature),
            contrast=CONTRAST**contrast,
            blur=LARGEST_BLUR * numbers[8] if numbers[7] < self.blur else 0.0,
            noise=LARGEST_NOISE * numbers[10] if numbers[9] < self.noise else 0.0,
        )

    def __call__(self, image: Tensor, key: int) -> Tensor:
        """Return the changed image, (3, height, width) uint8; the same for the same key."""
        if self == UNCHANGED:
            return image
        change = self.drawn(key)
        values = blurred(change.coloured(image), change.blur)
        if change.noise:
            count = values.numel()
            normal = randomness.normal(torch.tensor([key]), NOISE_COUNTER, -(-count // 2)).flatten()[:count]
            values = values + change.noise * normal.view_as(values)
        return values.round_().clamp_(0, 255).to(torch.uint8)


@dataclass(frozen=True)
class ColourChange:
    """The colour change of a key, applied in this order.

    Args:
        gamma: Exponent of the levels.
        matrix: (3, 3), all linear changes.
        contrast: Factor about the mean level.
        blur: Standard deviation in pixels; 0 for none.
        noise: Standard deviation in levels; 0 for none.
    """

    gamma: float
    matrix: Tensor
    contrast: float
    blur: float
    noise: float

    def coloured(self, image: Tensor) -> Tensor:
        """Return the image after gamma, by a table, and the linear changes, by one matrix and one offset."""
        table = 255 * torch.linspace(0, 1, 256).pow(self.gamma) if self.gamma != 1 else torch.arange(256.0)
        values = table[image.long()]
        # Contrast is about the mean level after the matrix, so that this level does not change.
        offset = (1 - self.contrast) * float((self.matrix @ values.mean((1, 2))).mean())
        changed: Tensor = (self.contrast * self.matrix) @ values.flatten(1) + offset
        return changed.view_as(values)


UNCHANGED = Colours()


@dataclass(frozen=True)
class Augment:
    """Scale, crop and flip a sample, thin out its sparse depth, and change its colours.

    An enlarged image shows things nearer: depth is divided by the factor. Depth and classes of pixels are never mixed.

    Args:
        crop: Height and width; None keeps the size.
        flip: Whether half of the samples are mirrored.
        scale: Smallest and largest factor.
        thin: Smallest and largest share of the sparse points that is kept, so that scans have varying densities.
        scale_step: Step of factors from the smallest one; None: any factor.
        scale_rule: `centre` takes classes from the nearest centre and averages pixels of images that become smaller;
            `opencv` scales as OpenCV does.
        pad: Whether an image that is smaller than the crop lies anywhere in it, surrounded with invalid pixels of its
            mean colour.
        sparse_share: Probability of a target's pixel to become a sparse point, instead of the sample's sparse depth.
        colours: Colour changes.
    """

    crop: tuple[int, int] | None = None
    flip: bool = True
    scale: tuple[float, float] = (1.0, 1.0)
    thin: tuple[float, float] = (1.0, 1.0)
    scale_step: float | None = None
    scale_rule: ScaleRule = "centre"
    pad: bool = False
    sparse_share: float | None = None
    colours: Colours = UNCHANGED

    def __call__(self, sample: Batch, key: int) -> Batch:
        """Return the augmented sample; the same for the same key."""
        height, width = sample.target.shape[-2:]
        at = self.placed(height, width, key)
        sample = rescaled(sample, at.factor, at.rows, at.columns, self.scale_rule)
        sample = padded(sample, at.size, at.above, at.before)
        if self.sparse_share is not None:
            sample = sampled(sample, self.sparse_share, key)
        sample = thinned(sample, at.share, key)
        if IMAGE in sample.inputs:
            inputs = {**sample.inputs, IMAGE: self.colours(sample.inputs[IMAGE], key)}
            sample = Batch(inputs, sample.target, sample.valid)
        return sample.each(lambda values: values.flip(-1)) if at.flip else sample

    def placed(self, height: int, width: int, key: int) -> Placement:
        """Return the part of an image of this size that is used, and its place in the result.

        If the crop is larger than the image, the image lies at a random place in the crop.
        """
        scale, row, column, flip, share = randomness.uniform(torch.tensor([key]), 0, NUMBERS)[0].tolist()
        factor = self._factor(scale)
        height, width = scaled_length(height, factor), scaled_length(width, factor)
        size = self.crop or (height, width)
        if not self.pad and (size[0] > height or size[1] > width):
            raise InputError(
                f"a crop of {size[0]}×{size[1]} does not fit into an image of {height}×{width}; "
                f"lower training.crop, or set training.pad=true"
            )
        top, left = int(row * (abs(height - size[0]) + 1)), int(column * (abs(width - size[1]) + 1))
        return Placement(
            factor=factor,
            size=size,
            rows=slice(top, top + size[0]) if size[0] <= height else slice(0, height),
            columns=slice(left, left + size[1]) if size[1] <= width else slice(0, width),
            above=top if size[0] > height else 0,
            before=left if size[1] > width else 0,
            flip=self.flip and flip < 0.5,
            share=self.thin[0] + share * (self.thin[1] - self.thin[0]),
        )

    def _factor(self, number: float) -> float:
        low, high = self.scale
        if self.scale_step is None:
            return low + number * (high - low)
        # The tolerance includes the last step: 0.5 + 16 · 0.1 exceeds 2.1 in floating point.
        steps = 1 + int((high - low) / self.scale_step + 1e-6)
        return round(low + int(number * steps) * self.scale_step, 9)


@dataclass(frozen=True)
class Placement:
    """The decisions of a key about a sample, except its colours.

    Args:
        factor: Factor of the size.
        size: Size of the result.
        rows: Rows of the enlarged image that are used.
        columns: Columns of the enlarged image that are used.
        above: Rows of the result above the image.
        before: Columns of the result before the image.
        flip: Whether the sample is mirrored.
        share: Share of sparse points that is kept.
    """

    factor: float
    size: tuple[int, int]
    rows: slice
    columns: slice
    above: int
    before: int
    flip: bool
    share: float


def rescaled(
    sample: Batch,
    factor: float,
    rows: slice = slice(None),
    columns: slice = slice(None),
    rule: ScaleRule = "centre",
) -> Batch:
    """Return some rows and columns of the sample enlarged by a factor. Depth shrinks by the factor."""
    if factor == 1.0:
        return sample.each(lambda values: values[..., rows, columns])
    height, width = sample.target.shape[-2:]
    size, depth = (scaled_length(height, factor), scaled_length(width, factor)), sample.target.is_floating_point()
    rows_from, columns_from = nearest_pixels(height, factor, rule)[rows], nearest_pixels(width, factor, rule)[columns]

    def picked(values: Tensor) -> Tensor:
        return values[..., rows_from[:, None], columns_from]

    def resized(name: str, values: Tensor) -> Tensor:
        if name == DEPTH:
            return picked(values) / factor
        if rule == "opencv":
            return bilinear(values, _gather_along(-1, width, factor, columns), _gather_along(-2, height, factor, rows))
        smooth = values.float()
        # Many times faster than torch's, but it rounds one pixel in 10,000 differently. Depth keeps torch's results.
        if factor > 1 and not depth:  # of some rows and columns alone: a crop is a small part of a large image
            smooth = _between(_between(smooth, -2, size[0], rows), -1, size[1], columns)
        else:
            smooth = functional.interpolate(smooth[None], size, mode="bilinear", antialias=factor < 1)[0]
            smooth = smooth[..., rows, columns]
        return smooth.round().clamp(0, 255).to(values.dtype)

    target = picked(sample.target)
    return Batch(
        {name: resized(name, values) for name, values in sample.inputs.items()},
        target / factor if depth else target,
        picked(sample.valid),
    )


def scaled_length(length: int, factor: float) -> int:
    """Return the height or width of an image that is enlarged by a factor."""
    return max(1, round(factor * length))


def nearest_pixels(length: int, factor: float, rule: ScaleRule) -> Tensor:
    """Return the source pixel of each scaled pixel along one axis, int64."""
    wanted = scaled_length(length, factor)
    return nearest(length, wanted, factor) if rule == "opencv" else _nearest_centres(length, wanted)


@lru_cache(1024)
def _nearest_centres(length: int, wanted: int) -> Tensor:
    pixels = torch.arange(length, dtype=torch.float64).view(1, 1, -1)
    return functional.interpolate(pixels, wanted, mode="nearest-exact").long().flatten()


def _gather_along(axis: int, length: int, factor: float, part: slice) -> Callable[[Tensor], Pairs]:
    """Return a function that gathers the neighbours of OpenCV's interpolation along an axis."""
    places = torch.arange(scaled_length(length, factor), dtype=torch.float64)[part]
    first, *shares = neighbours(places, 1 / factor)

    def gather(values: Tensor) -> Pairs:
        one, other = (values.index_select(axis, (first + step).clamp_(0, length - 1)) for step in (0, 1))
        here, there = (share.view(-1, *[1] * (-1 - axis)) for share in shares)
        return (one, here), (other, there)

    return gather


def _between(values: Tensor, axis: int, wanted: int, part: slice) -> Tensor:
    """Interpolate along one axis, with pixels as areas: torch's `align_corners=False`."""
    length = values.shape[axis]
    positions = (torch.arange(wanted, dtype=torch.float32)[part] + 0.5) * (length / wanted) - 0.5
    before = positions.clamp_(0, length - 1).long()
    after = (before + 1).clamp_(max=length - 1)
    weights = (positions - before).view(-1, *[1] * (-1 - axis))
    return torch.lerp(values.index_select(axis, before), values.index_select(axis, after), weights)


def padded(sample: Batch, size: tuple[int, int], above: int, before: int) -> Batch:
    """Return the sample in a larger frame of the image's mean colour. Frame pixels are invalid."""
    height, width = sample.target.shape[-2:]
    if (height, width) == size:
        return sample
    edges = (before, size[1] - width - before, above, size[0] - height - above)

    def framed(name: str, values: Tensor) -> Tensor:
        if name == DEPTH:
            return functional.pad(values, edges)
        channels = zip(values, values.float().mean((1, 2)).round().tolist(), strict=True)
        return torch.stack([functional.pad(channel, edges, value=level) for channel, level in channels])

    return Batch(
        {name: framed(name, values) for name, values in sample.inputs.items()},
        functional.pad(sample.target, edges, value=0 if sample.target.is_floating_point() else IGNORE),
        functional.pad(sample.valid, edges, value=False),
    )


def sampled(sample: Batch, share: float, key: int) -> Batch:
    """Return the sample with sparse depth from its target: every valid pixel with this probability."""
    valid = sample.valid
    drawn = randomness.uniform(torch.tensor([key], device=valid.device), SPARSE_COUNTER, valid.numel())[0] < share
    sparse = torch.where(drawn.view_as(valid) & valid, sample.target, 0).to(sample.target.dtype)
    return Batch({**sample.inputs, DEPTH: sparse[None]}, sample.target, sample.valid)


def thinned(sample: Batch, share: float, key: int) -> Batch:
    """Return the sample with about this share of its sparse points."""
    if share >= 1.0 or DEPTH not in sample.inputs:
        return sample
    sparse = sample.inputs[DEPTH]
    points = torch.nonzero(sparse, as_tuple=True)
    kept = randomness.uniform(torch.tensor([key], device=sparse.device), NUMBERS, len(points[0]))[0] < share
    fewer = torch.zeros_like(sparse)
    fewer[points] = torch.where(kept, sparse[points], 0)
    return Batch({**sample.inputs, DEPTH: fewer}, sample.target, sample.valid)


def colour_matrix(saturation: float, hue: float, temperature: float) -> Tensor:
    """Return the matrix of saturation, hue and temperature for RGB, (3, 3) float32.

    Grey stays grey under the first two.

    Args:
        saturation: 1 for no change, 0 for grey.
        hue: Rotation of the hue in radians.
        temperature: Factor of red, and of 1/blue.
    """
    cosine, sine = saturation * math.cos(hue), saturation * math.sin(hue)
    turn = torch.tensor([[1, 0, 0], [0, cosine, -sine], [0, sine, cosine]], dtype=torch.float64)
    light = torch.tensor([temperature, 1, 1 / temperature], dtype=torch.float64)
    matrix: Tensor = light[:, None] * (_FROM_CHROMA @ turn @ _TO_CHROMA)
    return matrix.float()


def blurred(values: Tensor, deviation: float) -> Tensor:
    """Blur (channel, height, width) float32 by a Gaussian; edges are repeated outwards."""
    weights = blur_weights(deviation)
    reach = len(weights) // 2
    if reach == 0:
        return values
    for axis, edges in ((1, (0, 0, reach, reach)), (2, (reach, reach, 0, 0))):
        # A sum of shifted images: for one channel at a time, convolutions are many times slower on CPUs.
        repeated, size = functional.pad(values, edges, mode="replicate"), values.shape[axis]
        values = torch.zeros_like(values)
        for shift, weight in enumerate(weights):
            values.add_(repeated.narrow(axis, shift, size), alpha=weight)
    return values


def blur_weights(deviation: float) -> list[float]:
    """Return the odd number of weights of a Gaussian blur along one axis; their sum is 1."""
    reach = math.ceil(2.5 * deviation)
    weights = [math.exp(-0.5 * (offset / max(deviation, 1e-9)) ** 2) for offset in range(-reach, reach + 1)]
    total = sum(weights)
    return [weight / total for weight in weights]
