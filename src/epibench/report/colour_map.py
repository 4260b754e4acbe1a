"""Numbers as colours: palettes that are even for the eye, and PNG pictures made with them."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

# From sure of class 1 over undecided to sure of class 0: as light at equal distance from the middle.
ANCHORS = (0xBF5B17, 0xE6A66B, 0xF6F4F0, 0x8ABADF, 0x2C73B5)
# From near to far: viridis (van der Walt and Smith 2015), turned round.
DEPTH = (0xFDE725, 0xADDC30, 0x5EC962, 0x28AE80, 0x21918C, 0x2C728E, 0x3B528B, 0x472D7B, 0x440154)
# From nothing to much: inferno, of the same authors.
AMOUNT = (0x000004, 0x1B0C41, 0x4A0C6B, 0x781C6D, 0xA52C60, 0xCF4446, 0xED6925, 0xFB9B06, 0xF7D13D, 0xFCFFA4)
NUM_COLOURS = 256

Anchors = tuple[int, ...]  # colours as 0xRRGGBB
Colour = tuple[float, float, float]


def map_uri(rows: Sequence[Sequence[float | None]]) -> str:
    """Probabilities as a PNG in a data URI; what is no number counts as undecided."""
    return png_uri(indexed_png([bytes(_colour_index(value) for value in row) for row in rows], palette()))


def shares_uri(shares: NDArray[np.floating[Any]], anchors: Anchors) -> str:
    """Shares of a scale, from 0 to 1, as a PNG in a data URI; what is no number is transparent."""
    known = np.isfinite(shares)
    scaled = np.clip(np.where(known, shares, 0.0), 0.0, 1.0) * (NUM_COLOURS - 2) + 1
    indices = np.where(known, scaled.round(), 0).astype(np.uint8)
    return png_uri(indexed_png([row.tobytes() for row in indices], palette(anchors), first_is_clear=True))


def png_uri(picture: bytes) -> str:
    """A PNG as a data URI."""
    return f"data:image/png;base64,{base64.b64encode(picture).decode()}"


def _colour_index(value: float | None) -> int:
    return round((NUM_COLOURS - 1) * min(max(0.5 if value is None else value, 0.0), 1.0))


def indexed_png(rows: Sequence[bytes], colours: bytes, first_is_clear: bool = False) -> bytes:
    """A PNG of one byte per pixel that points into a palette of (red, green, blue) bytes, the first perhaps clear."""
    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 3, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\x00" + row for row in rows), 9)
    clear = [(b"tRNS", b"\x00")] if first_is_clear else []
    chunks = ((b"IHDR", header), (b"PLTE", colours), *clear, (b"IDAT", pixels), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )


@cache
def palette(anchors: Anchors = ANCHORS) -> bytes:
    """The colours of 0 to 1, by default of probabilities, evenly spaced for the eye between the anchors."""
    places = [_to_oklab(*((anchor >> shift & 0xFF) / 255 for shift in (16, 8, 0))) for anchor in anchors]
    colours = bytearray()
    for number in range(NUM_COLOURS):
        position = number / (NUM_COLOURS - 1) * (len(places) - 1)
        first = min(int(position), len(places) - 2)
        share = position - first
        mixed = [a + share * (b - a) for a, b in zip(places[first], places[first + 1], strict=True)]
        colours += bytes(min(max(round(255 * part), 0), 255) for part in _from_oklab(*mixed))
    return bytes(colours)


def _to_oklab(red: float, green: float, blue: float) -> Colour:
    """An sRGB colour in OKLab (Ottosson 2020), where equal distances look equal."""
    r, g, b = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in (red, green, blue))
    long = (0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b) ** (1 / 3)
    medium = (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b) ** (1 / 3)
    short = (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * medium - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * medium + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * medium - 0.8086757660 * short,
    )


def _from_oklab(lightness: float, green_red: float, blue_yellow: float) -> Colour:
    """An OKLab colour in sRGB."""
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
