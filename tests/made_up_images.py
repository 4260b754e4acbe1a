"""Made-up images with sparse depth, and depth or classes as their target."""

from __future__ import annotations

import torch

from epibench.data.batch import Batch


def made_up_images(number: int, size: tuple[int, int] = (32, 64), classes: int | None = None) -> list[Batch]:
    """Samples with a valid target everywhere; classes: their number, None for depth in metres."""
    return [_image(index, size, classes) for index in range(number)]


def _image(index: int, size: tuple[int, int], classes: int | None) -> Batch:
    generator = torch.Generator().manual_seed(index)
    image = torch.randint(0, 256, (3, *size), dtype=torch.uint8, generator=generator)
    depth = 1 + 9 * torch.rand(size, generator=generator)
    sparse = torch.where(torch.rand(size, generator=generator) < 0.2, depth, 0.0)[None]
    target = depth if classes is None else torch.randint(classes, size, generator=generator)
    return Batch({"image": image, "sparse_depth": sparse}, target, torch.ones(size, dtype=torch.bool))
