"""A scale of colours for pictures: what number has which colour, and the bar that says so."""

from __future__ import annotations

from dataclasses import dataclass
from xml.etree.ElementTree import Element

import numpy as np

from epibench.report.colour_map import NUM_COLOURS, Anchors, shares_uri
from epibench.report.grids import Grid
from epibench.report.numbers import magnitude
from epibench.report.svg import element, tick_text

BAR_HEIGHT = 7.0
TICK_SPACE = 34.0  # between the middles of two tick labels, at least


@dataclass(frozen=True)
class ColourScale:
    """Colours from zero to an upper end; they follow the square root, as most numbers are small and a few are large."""

    upper: float
    anchors: Anchors
    unit: str = ""

    def uri(self, values: Grid) -> str:
        """A grid as a picture; what lies above the upper end has its colour."""
        return shares_uri(self.shares(values), self.anchors)

    def shares(self, values: Grid) -> Grid:
        """Where numbers lie on the scale, from 0 to 1; NaN for what is none."""
        found: Grid = np.sqrt(np.clip(values / np.float32(self.upper), 0.0, 1.0))
        return found

    def ticks(self, width: float) -> list[tuple[float, str]]:
        """Round numbers with their texts, from zero to the upper end, as many as there is room for."""
        step = 10.0 ** magnitude(self.upper)
        candidates = sorted({factor * step * power for factor in (1, 2, 5) for power in (0.01, 0.1, 1)} | {0.0})
        kept = [self.upper]
        for value in sorted((c for c in candidates if c < self.upper), reverse=True):
            gap = np.sqrt(kept[-1] / self.upper) - np.sqrt(value / self.upper)
            if gap * width >= TICK_SPACE and (value == 0 or np.sqrt(value / self.upper) * width >= TICK_SPACE):
                kept.append(value)
        return [(value, tick_text(value, value or 1.0)) for value in reversed(kept)]


def scale_end(values: Grid, share: float) -> float:
    """A round number that so large a share of the numbers does not exceed; 1 where there are none."""
    known = values[np.isfinite(values)]
    end = float(np.quantile(known, share)) if known.size else 0.0
    if end <= 0:
        return 1.0
    power = 10.0 ** magnitude(end)
    return float(next(factor * power for factor in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if factor * power >= end * 0.999))


def draw_bar(parent: Element, scale: ColourScale, width: float, top: float) -> None:
    """The scale below a picture: its colours, and ticks with the unit at the last."""
    shades = np.linspace(0.0, 1.0, NUM_COLOURS - 1, dtype=np.float32)[None, :]
    uri = shares_uri(shades, scale.anchors)
    element(parent, "image", href=uri, preserveAspectRatio="none", x=0, y=top, width=width, height=BAR_HEIGHT)
    for value, text in scale.ticks(width):
        last = value == scale.upper
        anchor = "start" if value == 0 else "end" if last else "middle"
        words = f"≥ {text} {scale.unit}".rstrip() if last else text
        x = width * float(np.sqrt(value / scale.upper))
        element(parent, "text", words, x=x, y=top + BAR_HEIGHT + 11, text_anchor=anchor)
