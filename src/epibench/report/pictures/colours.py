"""Numbers as colours: palettes that are even for the eye, scales with their bars, and PNG pictures made with them."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from epibench.oklab import from_oklab, in_bytes, to_oklab
from epibench.report.chart import tick_text
from epibench.report.charts.svg import element
from epibench.report.numbers import magnitude

# From sure of class 1 over undecided to sure of class 0: as light at equal distance from the middle.
PROBABILITY = (0xBF5B17, 0xE6A66B, 0xF6F4F0, 0x8ABADF, 0x2C73B5)
# From near to far: viridis (van der Walt and Smith 2015), turned round.
DEPTH = (0xFDE725, 0xADDC30, 0x5EC962, 0x28AE80, 0x21918C, 0x2C728E, 0x3B528B, 0x472D7B, 0x440154)
# From nothing to much: inferno, of the same authors.
AMOUNT = (0x000004, 0x1B0C41, 0x4A0C6B, 0x781C6D, 0xA52C60, 0xCF4446, 0xED6925, 0xFB9B06, 0xF7D13D, 0xFCFFA4)
NUM_COLOURS = 256
BAR_HEIGHT = 7.0
TICK_SPACE = 34.0  # between the middles of two tick labels, at least

Anchors = tuple[int, ...]  # colours as 0xRRGGBB
Shares = NDArray[np.floating[Any]]
GridValues = NDArray[np.float32]  # (height, width); NaN for what is not known


@cache
def palette(anchors: Anchors) -> bytes:
    """The colours of 0 to 1 as red, green and blue bytes, evenly spaced for the eye between the anchors."""
    points = [to_oklab(*((anchor >> shift & 0xFF) / 255 for shift in (16, 8, 0))) for anchor in anchors]
    colours = bytearray()
    for number in range(NUM_COLOURS):
        position = number / (NUM_COLOURS - 1) * (len(points) - 1)
        first = min(int(position), len(points) - 2)
        share = position - first
        lightness, green_red, blue_yellow = (
            a + share * (b - a) for a, b in zip(points[first], points[first + 1], strict=True)
        )
        colours += bytes(in_bytes(from_oklab(lightness, green_red, blue_yellow)))
    return bytes(colours)


def indexed_uri(indices: NDArray[Any], colours: bytes, first_is_clear: bool = False) -> str:
    """A data URI of a PNG whose pixels, (height, width), point into a palette, whose first colour is perhaps clear."""
    height, width = indices.shape
    image = Image.frombytes("P", (width, height), np.ascontiguousarray(indices, np.uint8).tobytes())
    image.putpalette(colours)
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True, **({"transparency": 0} if first_is_clear else {}))
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def probabilities_uri(probs: Shares) -> str:
    """Probabilities as a PNG in a data URI; what is no number counts as undecided."""
    shares = np.clip(np.nan_to_num(probs, nan=0.5), 0.0, 1.0)
    return indexed_uri((shares * (NUM_COLOURS - 1)).round(), palette(PROBABILITY))


def shares_uri(shares: Shares, anchors: Anchors) -> str:
    """Shares of a scale, from 0 to 1, as a PNG in a data URI; what is no number is transparent."""
    known = np.isfinite(shares)
    scaled = np.clip(np.where(known, shares, 0.0), 0.0, 1.0) * (NUM_COLOURS - 2) + 1
    return indexed_uri(np.where(known, scaled.round(), 0), palette(anchors), first_is_clear=True)


@dataclass(frozen=True)
class ColourScale:
    """Colours from zero to an upper end. They follow the square root, as most numbers are small.

    lower: another lower end, for negative numbers. Then the colours follow the numbers themselves.
    """

    upper: float
    anchors: Anchors
    unit: str = ""
    lower: float = 0.0

    def uri(self, values: GridValues) -> str:
        """A grid as a picture; what lies above the upper end has its colour."""
        return shares_uri(self.shares(values), self.anchors)

    def shares(self, values: GridValues) -> GridValues:
        """Where numbers lie on the scale, from 0 to 1; NaN for what is none."""
        shares: GridValues = np.clip((values - np.float32(self.lower)) / np.float32(self.upper - self.lower), 0.0, 1.0)
        return np.sqrt(shares) if self.lower == 0 else shares

    def place(self, value: float) -> float:
        """Where a number lies on the bar, from 0 to 1."""
        return float(self.shares(np.array([value], dtype=np.float32))[0])

    @property
    def bar_uri(self) -> str:
        """All colours in a row, as a picture."""
        return shares_uri(np.linspace(0.0, 1.0, NUM_COLOURS - 1, dtype=np.float32)[None, :], self.anchors)

    def labels(self, width: float) -> Iterator[tuple[float, str, str]]:
        """What stands below a bar: where, the words, and which end of them is there."""
        for value, text in self.ticks(width):
            last = value == self.upper
            anchor = "start" if value == self.lower else "end" if last else "middle"
            words = f"≥ {text} {self.unit}".rstrip() if last else f"≤ {text}" if value == self.lower != 0 else text
            yield width * self.place(value), words, anchor

    def ticks(self, width: float) -> list[tuple[float, str]]:
        """Round numbers with their texts, from zero to the upper end, as many as there is room for."""
        if self.lower != 0:
            middle = [0.0] if 0.15 < self.place(0.0) < 0.75 else []
            return [(value, tick_text(value, abs(value) or 1.0)) for value in (self.lower, *middle, self.upper)]
        step = 10.0 ** magnitude(self.upper)
        candidates = sorted({factor * step * power for factor in (1, 2, 5) for power in (0.01, 0.1, 1)} | {0.0})
        kept = [self.upper]
        for value in sorted((c for c in candidates if c < self.upper), reverse=True):
            gap = np.sqrt(kept[-1] / self.upper) - np.sqrt(value / self.upper)
            if gap * width >= TICK_SPACE and (value == 0 or np.sqrt(value / self.upper) * width >= TICK_SPACE):
                kept.append(value)
        return [(value, tick_text(value, value or 1.0)) for value in reversed(kept)]


def scale_end(values: GridValues, share: float) -> float:
    """A round number that so large a share of the numbers does not exceed; 1 where there are none."""
    known = values[np.isfinite(values)]
    end = float(np.quantile(known, share)) if known.size else 0.0
    if end <= 0:
        return 1.0
    power = 10.0 ** magnitude(end)
    return float(next(factor * power for factor in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if factor * power >= end * 0.999))


def draw_bar(parent: Element, scale: ColourScale, width: float, top: float) -> None:
    """The scale below a picture: its colours, and ticks with the unit at the last."""
    uri = scale.bar_uri
    element(parent, "image", href=uri, preserveAspectRatio="none", x=0, y=top, width=width, height=BAR_HEIGHT)
    for x, words, anchor in scale.labels(width):
        element(parent, "text", words, x=x, y=top + BAR_HEIGHT + 11, text_anchor=anchor)
