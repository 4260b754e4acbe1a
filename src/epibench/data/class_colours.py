"""Colours for classes that have none: distinct, and the same for every class number whatever else there is."""

from __future__ import annotations

import math

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
    return _srgb(lightness * fade, chroma * fade**3, 0.4 + index * GOLDEN_ANGLE)


def _srgb(lightness: float, chroma: float, hue: float) -> Colour:
    """OKLCH as 8-bit sRGB; what lies outside of it is clipped."""
    a, b = chroma * math.cos(hue), chroma * math.sin(hue)
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    red = 4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short
    green = -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short
    blue = -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short
    return _byte(red), _byte(green), _byte(blue)


def _byte(linear: float) -> int:
    """A linear share as 8-bit sRGB."""
    share = min(max(linear, 0.0), 1.0)
    curved = 12.92 * share if share <= 0.0031308 else 1.055 * share ** (1 / 2.4) - 0.055
    return round(255 * curved)
