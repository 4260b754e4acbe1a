"""Scaling of labels and 8-bit images as in OpenCV (`cv2.resize`, versions 3.4 to 5.0), bit for bit.

One exception: of an image of odd width or height, at factor 0.5, the last column or row may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

ONE = 2048  # coefficients are whole numbers of 2048ths
Pairs = Sequence[tuple[Tensor, Tensor]]  # two neighbours, each with its coefficients


def nearest(length: int, wanted: int, factor: float) -> Tensor:
    """Source pixels of `INTER_NEAREST`: ⌊place / factor⌋, (wanted,) int64."""
    # Times the reciprocal, as in OpenCV: a quotient would be rounded differently.
    return (torch.arange(wanted, dtype=torch.float64) * (1 / factor)).long().clamp_(max=length - 1)


def neighbours(places: Tensor, ratio: float | Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Two source pixels of `INTER_LINEAR`: the first, int64, from −1 on, and the coefficients of both, int32.

    places: float64, of pixels of the scaled image; ratio: 1 / factor.
    """
    position = ((places + 0.5) * ratio - 0.5).float()
    first = position.floor()
    behind = position - first
    return first.long(), (ONE * (1 - behind)).round().int(), (ONE * behind).round().int()


def bilinear(image: Tensor, across: Callable[[Tensor], Pairs], down: Callable[[Tensor], Pairs]) -> Tensor:
    """Levels of `INTER_LINEAR`, uint8; across, down: neighbours of int32 values along columns and along rows."""
    (left, left_share), (right, right_share) = across(image.int())
    (upper, upper_share), (lower, lower_share) = down((left * left_share + right * right_share) >> 4)
    return (((upper * upper_share >> 16) + (lower * lower_share >> 16) + 2) >> 2).to(image.dtype)
