"""Grids of numbers and photos that results carry as base64 of image files; None for what cannot be read."""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from epibench.report.numbers import finite

Grid = NDArray[np.float32]
Classes = NDArray[np.uint8]
MOST_PIXELS = 64_000_000
MEDIA_TYPES = {"PNG": "image/png", "JPEG": "image/jpeg"}
UNREADABLE = (OSError, ValueError, SyntaxError, binascii.Error, EOFError)  # what Pillow raises on damaged files


def read_grid(found: Any, zero_is_none: bool = False) -> Grid | None:
    """Numbers of a grey PNG in counts of a scale, (height, width); NaN where zero stands for none."""
    scale = finite(found.get("scale")) if isinstance(found, dict) else None
    counts = _pixels(found.get("png")) if scale is not None else None
    if counts is None or scale is None:
        return None
    values = counts.astype(np.float32) * np.float32(scale)
    return np.where(counts == 0, np.float32(np.nan), values) if zero_is_none else values


def read_classes(text: Any) -> Classes | None:
    """Classes of pixels from an 8-bit grey PNG, (height, width)."""
    found = _pixels(text)
    return found if found is not None and found.dtype == np.uint8 else None


def _pixels(text: Any) -> NDArray[Any] | None:
    """The pixels of a grey picture, (height, width)."""
    image = _opened(text)
    try:
        pixels = np.asarray(image) if image is not None else np.empty(0)
    except UNREADABLE:
        return None
    return pixels if pixels.ndim == 2 else None


def photo_uri(text: Any) -> str | None:
    """A photo as a data URI."""
    image = _opened(text)
    media_type = MEDIA_TYPES.get(image.format or "") if image is not None else None
    return f"data:{media_type};base64,{''.join(str(text).split())}" if media_type else None


def _opened(text: Any) -> Image.Image | None:
    try:
        image = Image.open(io.BytesIO(base64.b64decode("".join(text.split()), validate=True)))
    except (*UNREADABLE, AttributeError):
        return None
    return image if image.width * image.height <= MOST_PIXELS else None


def pooled(grids: Sequence[Grid | None]) -> Grid:
    """All numbers of some grids."""
    known = [grid[np.isfinite(grid)] for grid in grids if grid is not None]
    return np.concatenate(known) if known else np.empty(0, np.float32)


def shrunk(values: Grid, most: int, sparse: bool = False) -> Grid:
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
    count = known.sum(axis=(1, 3))
    total = np.where(known, blocks, 0.0).sum(axis=(1, 3))
    return np.where(count > 0, total / np.maximum(count, 1), np.nan).astype(np.float32)


def enlarged(values: Grid) -> Grid:
    """A grid whose single numbers are spread over their neighbours, so that they can be seen; the smallest wins."""
    filled = np.where(np.isfinite(values), values, np.inf)
    for axis in (0, 1):
        padded = np.pad(filled, [(1, 1) if side == axis else (0, 0) for side in (0, 1)], constant_values=np.inf)
        windows = [np.take(padded, range(shift, shift + values.shape[axis]), axis=axis) for shift in (0, 1, 2)]
        filled = np.minimum(np.minimum(windows[0], windows[1]), windows[2])
    return np.where(np.isfinite(filled), filled, np.nan).astype(np.float32)
