"""Grids and photos that results carry as base64 of image files, and the panels that show them.

What cannot be read, as results may have been cut off or edited, is None, and its panel says so.
"""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from PIL import Image

from epibench.report.charts.svg import element, markup
from epibench.report.pictures.colours import GridValues
from epibench.results import Grid, Picture

ClassMap = NDArray[np.uint8]  # (height, width)

WIDTH = 380.0  # about as wide as three in a row are on a screen, so that text has its usual size
BAR_ROOM = 26.0
MOST_COLUMNS = 640  # of a picture; larger ones are shrunk, as the page has no room to show more
MOST_PIXELS = 64_000_000
MEDIA_TYPES = {"PNG": "image/png", "JPEG": "image/jpeg"}
UNREADABLE = (OSError, ValueError, SyntaxError, binascii.Error, EOFError)  # what Pillow raises on damaged files


@dataclass(frozen=True)
class Panel:
    """One picture and what it shows; None where it could not be drawn. One that stands alone has a method's style."""

    title: str
    chart: Markup | None
    style: int | None = None


@dataclass(frozen=True)
class PanelRow:
    """Pictures that belong together; those of a method carry its style."""

    title: str
    panels: list[Panel]
    style: int | None = None


def read_grid(grid: Grid | str | None, zero_is_none: bool = False) -> GridValues | None:
    """Numbers of a grey PNG in counts of a scale, (height, width); NaN where zero stands for none."""
    counts = _pixels(grid.png) if isinstance(grid, Grid) else None
    if counts is None or not isinstance(grid, Grid):
        return None
    values = counts.astype(np.float32) * np.float32(grid.scale)
    return np.where(counts == 0, np.float32(np.nan), values) if zero_is_none else values


def read_classes(png: Grid | str | None) -> ClassMap | None:
    """Classes of pixels from an 8-bit grey PNG, (height, width)."""
    pixels = _pixels(png) if isinstance(png, str) else None
    return pixels if pixels is not None and pixels.dtype == np.uint8 else None


def _pixels(text: str) -> NDArray[Any] | None:
    """The pixels of a grey picture, (height, width)."""
    image = _opened(text)
    try:
        pixels = np.asarray(image) if image is not None else np.empty(0)
    except UNREADABLE:
        return None
    return pixels if pixels.ndim == 2 else None


def _opened(text: str) -> Image.Image | None:
    try:
        image = Image.open(io.BytesIO(base64.b64decode("".join(text.split()), validate=True)))
    except UNREADABLE:
        return None
    return image if image.width * image.height <= MOST_PIXELS else None


def photo_uri(text: str) -> str | None:
    """A photo as a data URI."""
    image = _opened(text)
    media_type = MEDIA_TYPES.get(image.format or "") if image is not None else None
    return f"data:{media_type};base64,{''.join(text.split())}" if media_type else None


def known_values(grids: Sequence[GridValues | None]) -> GridValues:
    """All numbers of some grids."""
    known = [grid[np.isfinite(grid)] for grid in grids if grid is not None]
    return np.concatenate(known) if known else np.empty(0, np.float32)


def shrunk(values: GridValues, most: int, sparse: bool = False) -> GridValues:
    """A grid of at most so many columns: the mean of each block's numbers, or where these are sparse the smallest."""
    factor = -(-values.shape[1] // most)
    if factor <= 1:
        return values
    height, width = (size // factor * factor for size in values.shape)
    blocks = values[:height, :width].reshape(height // factor, factor, width // factor, factor)
    known = np.isfinite(blocks)
    if sparse:
        least = np.where(known, blocks, np.inf).min(axis=(1, 3))
        return np.where(np.isfinite(least), least, np.nan).astype(np.float32)
    number, total = known.sum(axis=(1, 3)), np.where(known, blocks, 0.0).sum(axis=(1, 3))
    return np.where(number > 0, total / np.maximum(number, 1), np.nan).astype(np.float32)


def enlarged(values: GridValues) -> GridValues:
    """A grid whose single numbers are spread over their neighbours, so that they can be seen; the smallest wins."""
    filled = np.where(np.isfinite(values), values, np.inf)
    for axis in (0, 1):
        padded = np.pad(filled, [(1, 1) if side == axis else (0, 0) for side in (0, 1)], constant_values=np.inf)
        windows = [np.take(padded, range(shift, shift + values.shape[axis]), axis=axis) for shift in (0, 1, 2)]
        filled = np.minimum(np.minimum(windows[0], windows[1]), windows[2])
    return np.where(np.isfinite(filled), filled, np.nan).astype(np.float32)


def picture_canvas(height: float, description: str, bar: bool = False) -> Element:
    """An empty drawing for a picture of some height, with room for a colour bar below."""
    box = f"0 0 {WIDTH:g} {height + (BAR_ROOM if bar else 0.0):.1f}"
    return element(None, "svg", viewBox=box, role="img", aria_label=description, class_="picture")


def draw_image(root: Element, uri: str, height: float) -> None:
    """An image that fills the drawing, less the room for a colour bar."""
    element(root, "image", href=uri, preserveAspectRatio="none", x=0, y=0, width=WIDTH, height=height)


def photo_chart(picture: Picture) -> Markup | None:
    """The photo of a picture; None where it cannot be read."""
    uri = photo_uri(picture.photo)
    if uri is None:
        return None
    height = WIDTH * picture.height / picture.width
    root = picture_canvas(height, f"Image {picture.image}")
    draw_image(root, uri, height)
    return markup(root)
