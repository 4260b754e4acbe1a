"""Where the pixels of an image lie on the coarse grid that a network predicts: corners on corners, or not.

Two ways are common, and they differ by up to half a coarse cell. Aligned: the outermost grid points lie on the
outermost pixels. Otherwise the grid is made of cells that tile the image, and a point is the centre of its cell: what
PyTorch, Hugging Face and mmsegmentation do unless they are told otherwise. A network says which, as its attribute
`align_corners`; without one, its corners are aligned.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def aligned_corners(network: nn.Module) -> bool:
    """Whether the corners of what a network predicts lie on those of the image."""
    return bool(getattr(network, "align_corners", True))


def grid_positions(
    pixels: range, coarse: int, fine: int, align_corners: bool, device: torch.device | None = None
) -> Tensor:
    """Positions of pixels of one axis on its coarse grid, float64, from 0 to coarse − 1."""
    numbers = torch.arange(pixels.start, pixels.stop, device=device, dtype=torch.float64)
    if align_corners:
        return numbers * ((coarse - 1) / max(1, fine - 1))
    return ((numbers + 0.5) * (coarse / fine) - 0.5).clamp(0, coarse - 1)
