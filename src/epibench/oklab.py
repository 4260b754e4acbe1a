"""Colours in OKLab, where equal distances look equal (Ottosson 2020)."""

from __future__ import annotations

Shares = tuple[float, float, float]  # red, green and blue of sRGB, from 0 to 1
RGB = tuple[int, int, int]


def to_oklab(red: float, green: float, blue: float) -> Shares:
    """Lightness, green to red, and blue to yellow of an sRGB colour."""
    r, g, b = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in (red, green, blue))
    long = (0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b) ** (1 / 3)
    medium = (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b) ** (1 / 3)
    short = (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * medium - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * medium + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * medium - 0.8086757660 * short,
    )


def from_oklab(lightness: float, green_red: float, blue_yellow: float) -> Shares:
    """An OKLab colour in sRGB; what lies outside of it has shares below 0 or above 1."""
    long = (lightness + 0.3963377774 * green_red + 0.2158037573 * blue_yellow) ** 3
    medium = (lightness - 0.1055613458 * green_red - 0.0638541728 * blue_yellow) ** 3
    short = (lightness - 0.0894841775 * green_red - 1.2914855480 * blue_yellow) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )
    r, g, b = (12.92 * part if part <= 0.0031308 else 1.055 * part ** (1 / 2.4) - 0.055 for part in linear)
    return r, g, b


def in_bytes(shares: Shares) -> RGB:
    """An sRGB colour in 8 bits; shares outside of it are clipped."""
    red, green, blue = (min(max(round(255 * part), 0), 255) for part in shares)
    return red, green, blue
