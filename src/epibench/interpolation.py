"""Positions of an image's pixels on the coarse grid of a network's output.

Two conventions are common, and they differ by up to half a coarse cell. With aligned corners, the outermost grid points
lie on the outermost pixels. Otherwise cells tile the image, and each grid point is the centre of its cell. The latter
is the default of PyTorch, Hugging Face and mmsegmentation. The attribute `align_corners` of a network selects the
convention; a network without it has aligned corners.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def aligned_corners(network: nn.Module) -> bool:
    """Return whether the corners of a network's output lie on the corners of the image."""
    return bool(getattr(network, "align_corners", True))


def grid_positions(
    pixels: range, coarse: int, fine: int, align_corners: bool, device: torch.device | None = None
) -> Tensor:
    """Return positions of an axis's pixels on its coarse grid, float64, from 0 to coarse − 1."""
    numbers = torch.arange(pixels.start, pixels.stop, device=device, dtype=torch.float64)
    if align_corners:
        return numbers * ((coarse - 1) / max(1, fine - 1))
    return ((numbers + 0.5) * (coarse / fine) - 0.5).clamp(0, coarse - 1)
