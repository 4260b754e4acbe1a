"""Colours for classes that have none: distinct, and the same for every class number whatever else there is."""

from __future__ import annotations

import math

from epibench.oklab import from_oklab, in_bytes

Colour = tuple[int, int, int]

GOLDEN_ANGLE = math.pi * (3 - math.sqrt(5))
# Lightness and chroma in OKLCH (Ottosson 2020), one after another, so that near hues differ in lightness.
SHADES = ((0.68, 0.16), (0.50, 0.13), (0.83, 0.11))
AGAIN = 21  # 21 golden angles are 8 turns, nearly: from there on, hues come again, darker and paler
FADE = 0.87


def class_colours(number: int) -> tuple[Colour, ...]:
    """The colours of classes 0 … number − 1."""
    return tuple(class_colour(index) for index in range(number))


def class_colour(index: int) -> Colour:
    """The colour of a class."""
    lightness, chroma = SHADES[index % len(SHADES)]
    fade = FADE ** (index // AGAIN)
    hue, strength = 0.4 + index * GOLDEN_ANGLE, chroma * fade**3
    return in_bytes(from_oklab(lightness * fade, strength * math.cos(hue), strength * math.sin(hue)))
