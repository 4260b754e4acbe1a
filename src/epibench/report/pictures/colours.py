"""Numbers as colours: palettes that are even for the eye, scales with their bars, and pictures of indices."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from epibench.oklab import from_oklab, in_bytes, to_oklab
from epibench.report.chart import tick_text
from epibench.report.numbers import magnitude

# From sure of class 1 over undecided to sure of class 0: as light at equal distance from the middle.
PROBABILITY = (0xBF5B17, 0xE6A66B, 0xF6F4F0, 0x8ABADF, 0x2C73B5)
# From near to far: viridis (van der Walt and Smith 2015), turned round.
DEPTH = (0xFDE725, 0xADDC30, 0x5EC962, 0x28AE80, 0x21918C, 0x2C728E, 0x3B528B, 0x472D7B, 0x440154)
# From nothing to much: inferno, of the same authors.
AMOUNT = (0x000004, 0x1B0C41, 0x4A0C6B, 0x781C6D, 0xA52C60, 0xCF4446, 0xED6925, 0xFB9B06, 0xF7D13D, 0xFCFFA4)
NUM_COLOURS = 256
TICK_SPACE = 34.0  # between the middles of two tick labels, at least

Anchors = tuple[int, ...]  # colours as 0xRRGGBB
GridValues = NDArray[np.float32]  # (height, width); NaN where unknown


@cache
def palette(anchors: Anchors) -> NDArray[np.uint8]:
    """The colours of 0 to 1, (256, 3), evenly spaced for the eye between the anchors."""
    points = np.array([to_oklab(*((anchor >> shift & 0xFF) / 255 for shift in (16, 8, 0))) for anchor in anchors])
    places = np.linspace(0, len(points) - 1, NUM_COLOURS)
    mixed = np.stack([np.interp(places, range(len(points)), part) for part in points.T], axis=1)
    return np.array([in_bytes(from_oklab(*colour)) for colour in mixed.tolist()], np.uint8)


def indexed(indices: NDArray[Any], colours: NDArray[np.uint8], first_is_clear: bool = False) -> Image.Image:
    """A picture whose pixels, (height, width), are indices of colours."""
    image = Image.fromarray(np.ascontiguousarray(indices, np.uint8))
    image.putpalette(colours.tobytes())
    if first_is_clear:
        image.info["transparency"] = 0
    return image


def data_uri(image: Image.Image) -> str:
    """A picture as a PNG in a data URI."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


@dataclass(frozen=True)
class ColourScale:
    """Colours from zero to an upper end. They follow the square root, as most numbers are small.

    lower: another lower end, for negative numbers. Then the colours follow the numbers themselves.
    """

    upper: float
    anchors: Anchors
    unit: str = ""
    lower: float = 0.0

    def image(self, values: GridValues) -> Image.Image:
        """A grid as a picture. Numbers beyond the ends have the colours of the ends; NaN is transparent."""
        known = np.isfinite(values)
        shares = np.clip((values - np.float32(self.lower)) / np.float32(self.upper - self.lower), 0.0, 1.0)
        scaled = np.where(known, np.sqrt(shares) if self.lower == 0 else shares, 0.0) * (NUM_COLOURS - 2) + 1
        return indexed(np.where(known, scaled.round(), 0), palette(self.anchors), first_is_clear=True)

    def place(self, value: float) -> float:
        """The place of a number on the bar, from 0 to 1."""
        share = min(max((value - self.lower) / (self.upper - self.lower), 0.0), 1.0)
        return float(share**0.5) if self.lower == 0 else share

    @property
    def bar(self) -> Image.Image:
        """All colours in a row."""
        return indexed(np.arange(1, NUM_COLOURS)[None], palette(self.anchors), first_is_clear=True)

    def ticks(self, width: float) -> list[float]:
        """Round numbers from end to end, as many as a bar has room for."""
        if self.lower != 0:
            return [self.lower, *([0.0] if 0.15 < self.place(0.0) < 0.75 else []), self.upper]
        step, ticks = 10.0 ** magnitude(self.upper), [self.upper]
        for value in sorted({factor * step * power for factor in (1, 2, 5) for power in (0.01, 0.1, 1)}, reverse=True):
            x = width * self.place(value)
            if value < self.upper and TICK_SPACE <= x <= width * self.place(ticks[0]) - TICK_SPACE:
                ticks.insert(0, value)
        return [0.0, *ticks]

    def labels(self, width: float) -> Iterator[tuple[float, str, str]]:
        """Texts below a bar: x, the words, and the end of the words that lies at x."""
        for value in self.ticks(width):
            text = tick_text(value, abs(value) or 1.0)
            if value == self.upper:
                yield width, f"≥ {text} {self.unit}".rstrip(), "end"
            elif value == self.lower:
                yield 0.0, f"≤ {text}" if value else text, "start"
            else:
                yield width * self.place(value), text, "middle"


def scale_end(values: GridValues, share: float) -> float:
    """A round number that this share of the numbers does not exceed; 1 without numbers."""
    known = values[np.isfinite(values)]
    end = float(np.quantile(known, share)) if known.size else 0.0
    if end <= 0:
        return 1.0
    power = 10.0 ** magnitude(end)
    return float(next(factor * power for factor in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if factor * power >= end * 0.999))
