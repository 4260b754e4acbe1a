"""Let a network see a view of an image, and map what it predicts back onto the image."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from epibench.data.augment import IMAGE, scaled_length
from epibench.errors import InputError
from epibench.views import View


def seen(view: View, inputs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Every image, seen this way."""
    if view.scale != 1:
        inputs = {name: _scaled(values, view.scale, name) for name, values in inputs.items()}
    return {name: values.flip(-1) for name, values in inputs.items()} if view.flip else inputs


def mapped_back(view: View, outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What is predicted of a view, (image, …, row, column), as of the image.

    A map at another scale stays as it is: its grid spans the image, finer or coarser than that of the image itself, and
    is interpolated wherever pixels are asked for (`members.maps`): raw outputs, logits and not probabilities.
    """
    return {name: values.flip(-1) for name, values in outputs.items()} if view.flip else dict(outputs)


def _scaled(values: Tensor, scale: float, name: str) -> Tensor:
    """Images enlarged by a factor, as augmentation does it: smoothed first where they become smaller."""
    if name != IMAGE or values.dim() != 4:
        raise InputError(f"views at other scales are for images alone, and there is '{name}'; leave out scale")
    height, width = (scaled_length(side, scale) for side in values.shape[-2:])
    smooth = functional.interpolate(values.float(), (height, width), mode="bilinear", antialias=scale < 1)
    if values.dtype == torch.uint8:
        smooth = smooth.round_().clamp_(0, 255)
    return smooth.to(values.dtype)
