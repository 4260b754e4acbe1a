"""Random colours, blur and noise of training images, so that a network does not learn how one camera sees the world.

Each is a function of the sample's key; a strength or probability of 0 leaves the image as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from epibench import randomness

# What happens at strength 1: factors are base^number for a random number from −1 to 1. Light is only taken away: more
# of it would turn sky and road white, and an exponent of gamma below 1 brightens without that.
GAMMA, CONTRAST, TEMPERATURE, HUE = 2.5, 2.0, 1.3, math.pi / 3
DARKEST = 0.33  # factor of the light
LARGEST_BLUR = 2.0  # standard deviation in pixels
LARGEST_NOISE = 20.0  # standard deviation in levels of 0 … 255
# Counters far behind those of the sample as a whole and of its sparse points.
_COLOURS, _NOISE = 2**40, 2**41
_NUMBERS = 11

# Luminance and two axes of chrominance (YIQ): saturation stretches the last two, hue turns them.
_TO_CHROMA = torch.tensor(
    [[0.299, 0.587, 0.114], [0.5959, -0.2746, -0.3213], [0.2115, -0.5227, 0.3112]], dtype=torch.float64
)
_FROM_CHROMA = torch.linalg.inv(_TO_CHROMA)


@dataclass(frozen=True)
class Colours:
    """How far colours are changed (0 … 1), and how likely an image is turned grey, blurred or made noisy."""

    strength: float = 0.0
    grey: float = 0.0
    blur: float = 0.0
    noise: float = 0.0

    def __call__(self, image: Tensor, key: int) -> Tensor:
        """The changed image, (3, height, width) uint8 as before; the same for the same key."""
        if self == UNCHANGED:
            return image
        numbers = randomness.uniform(torch.tensor([key]), _COLOURS, _NUMBERS)[0].tolist()
        values = self._coloured(image, numbers[:6], numbers[6] < self.grey)
        if numbers[7] < self.blur:
            values = blurred(values, LARGEST_BLUR * numbers[8])
        if numbers[9] < self.noise:
            values = values + LARGEST_NOISE * numbers[10] * _normal(values, key)
        return values.round_().clamp_(0, 255).to(torch.uint8)

    def _coloured(self, image: Tensor, numbers: list[float], grey: bool) -> Tensor:
        """Gamma by a table; all the rest is one matrix and one offset."""
        gamma, contrast, temperature, saturation, hue = (self.strength * (2 * number - 1) for number in numbers[:5])
        light = DARKEST ** (self.strength * numbers[5])
        table = 255 * torch.linspace(0, 1, 256).pow(GAMMA**gamma) if gamma else torch.arange(256.0)
        values = table[image.long()]
        matrix = light * colour_matrix(0.0 if grey else 1 + saturation, HUE * hue, TEMPERATURE**temperature)
        factor = CONTRAST**contrast
        # Contrast is about the mean level of what the matrix makes, so that it is kept.
        offset = (1 - factor) * float((matrix @ values.mean((1, 2))).mean())
        changed: Tensor = (factor * matrix) @ values.flatten(1) + offset
        return changed.view_as(values)


UNCHANGED = Colours()


def colour_matrix(saturation: float, hue: float, temperature: float) -> Tensor:
    """What saturation (1 as it is, 0 grey), a turn of the hue and a warmer light (factor of red over green) do to RGB.

    (3, 3) float32. Grey stays grey under the first two.
    """
    cosine, sine = saturation * math.cos(hue), saturation * math.sin(hue)
    turn = torch.tensor([[1, 0, 0], [0, cosine, -sine], [0, sine, cosine]], dtype=torch.float64)
    light = torch.tensor([temperature, 1, 1 / temperature], dtype=torch.float64)
    matrix: Tensor = light[:, None] * (_FROM_CHROMA @ turn @ _TO_CHROMA)
    return matrix.float()


def blurred(values: Tensor, deviation: float) -> Tensor:
    """A Gaussian blur of (channel, height, width) float32; edges are repeated outwards."""
    reach = math.ceil(2.5 * deviation)
    if reach == 0:
        return values
    weights = [math.exp(-0.5 * (place / deviation) ** 2) for place in range(-reach, reach + 1)]
    total = sum(weights)
    for axis, edges in ((1, (0, 0, reach, reach)), (2, (reach, reach, 0, 0))):
        # A sum of shifted images: for one channel at a time, convolutions are many times slower on CPUs.
        padded, size = functional.pad(values, edges, mode="replicate"), values.shape[axis]
        values = torch.zeros_like(values)
        for shift, weight in enumerate(weights):
            values.add_(padded.narrow(axis, shift, size), alpha=weight / total)
    return values


def _normal(values: Tensor, key: int) -> Tensor:
    """Standard normal numbers in the shape of the values."""
    count = values.numel()
    numbers = randomness.normal(torch.tensor([key]), _NOISE, -(-count // 2))
    return numbers.flatten()[:count].view_as(values)
