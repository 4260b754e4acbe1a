"""Photos, grids of numbers and maps of classes as base64 of small image files, for the results of a dense run."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

MAX_WIDTH = 512
COUNTS = 2**16 - 1


def step_for(width: int) -> int:
    """Every how many-th pixel of an image of some width is shown."""
    return -(-width // MAX_WIDTH)


def thinned(values: Tensor, step: int) -> Tensor:
    """Every so many-th pixel of the last two axes, in the memory of the CPU."""
    return values[..., ::step, ::step].cpu().clone()


def nearest(depth: Tensor, step: int) -> Tensor:
    """A smaller map of sparse depth: the nearest point of each square that has one."""
    if step == 1:
        return depth
    far = torch.where(depth > 0, -depth, -torch.inf)
    found = torch.nn.functional.max_pool2d(far[None, None], step, ceil_mode=True)[0, 0]
    return torch.where(torch.isfinite(found), -found, 0.0)


def photo(image: Tensor) -> str:
    """A colour picture, (channel, height, width) uint8, as text."""
    return _encoded(Image.fromarray(np.ascontiguousarray(image.permute(1, 2, 0).numpy())), "JPEG", quality=88)


def grid(values: Tensor, scale: float) -> dict[str, Any]:
    """Numbers as a 16-bit grey picture, and what one count stands for; a finer scale than they have room for grows."""
    scale = max(scale, float(values.max()) / COUNTS)
    counts = (values.double() / scale).round().clamp(0, COUNTS).numpy().astype(np.uint16)
    return {"scale": scale, "png": _encoded(Image.fromarray(counts), "PNG")}


def class_map(classes: Tensor) -> str:
    """Classes of pixels as an 8-bit grey picture."""
    return _encoded(Image.fromarray(classes.numpy().astype(np.uint8)), "PNG", optimize=True)


def _encoded(picture: Image.Image, layout: str, **options: Any) -> str:
    stream = io.BytesIO()
    picture.save(stream, layout, **options)
    return base64.b64encode(stream.getvalue()).decode("ascii")
