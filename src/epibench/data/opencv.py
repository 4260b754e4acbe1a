"""Scaling of labels and 8-bit images as in OpenCV (`cv2.resize`, 3.4 to 5.0), bit for bit.

One exception: at factor 0.5, the last column or row of an image of odd width or height may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

ONE = 2048  # coefficients are integer multiples of 1/2048
Pairs = Sequence[tuple[Tensor, Tensor]]  # two neighbours, each with its coefficients


def nearest(length: int, wanted: int, factor: float) -> Tensor:
    """Return source pixels of `INTER_NEAREST`: ⌊place / factor⌋, (wanted,) int64."""
    # Multiplied by the reciprocal, as in OpenCV: a quotient would be rounded differently.
    return (torch.arange(wanted, dtype=torch.float64) * (1 / factor)).long().clamp_(max=length - 1)


def neighbours(places: Tensor, ratio: float | Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return two source pixels of `INTER_LINEAR`: the first, int64, at least −1, and both coefficients, int32.

    Args:
        places: Pixels of the scaled image, float64.
        ratio: 1 / factor.
    """
    position = ((places + 0.5) * ratio - 0.5).float()
    first = position.floor()
    behind = position - first
    return first.long(), (ONE * (1 - behind)).round().int(), (ONE * behind).round().int()


def bilinear(image: Tensor, across: Callable[[Tensor], Pairs], down: Callable[[Tensor], Pairs]) -> Tensor:
    """Return levels of `INTER_LINEAR`, uint8.

    Args:
        image: Levels.
        across: Returns neighbours of int32 values along columns.
        down: Returns neighbours of int32 values along rows.
    """
    (left, left_share), (right, right_share) = across(image.int())
    (upper, upper_share), (lower, lower_share) = down((left * left_share + right * right_share) >> 4)
    return (((upper * upper_share >> 16) + (lower * lower_share >> 16) + 2) >> 2).to(image.dtype)
