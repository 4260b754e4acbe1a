"""Views of an image as a network's input, and their predictions mapped back onto the image."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from epibench.data.augment import IMAGE, scaled_length
from epibench.errors import InputError
from epibench.views import View


def seen(view: View, inputs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return a view of every image."""
    if view.scale != 1:
        inputs = {name: _scaled(values, view.scale, name) for name, values in inputs.items()}
    return {name: values.flip(-1) for name, values in inputs.items()} if view.flip else inputs


def mapped_back(view: View, outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Map the prediction for a view, (image, …, row, column), back onto the image.

    A map at another scale does not change here: its grid spans the image with more or fewer points. `members.maps`
    interpolates the raw outputs, i.e. logits and not probabilities.
    """
    return {name: values.flip(-1) for name, values in outputs.items()} if view.flip else dict(outputs)


def _scaled(values: Tensor, scale: float, name: str) -> Tensor:
    """Return images scaled by a factor, as in augmentation: smoothed before they become smaller."""
    if name != IMAGE or values.dim() != 4:
        raise InputError(f"views at other scales are for images alone, and there is '{name}'; leave out scale")
    height, width = (scaled_length(side, scale) for side in values.shape[-2:])
    smooth = functional.interpolate(values.float(), (height, width), mode="bilinear", antialias=scale < 1)
    if values.dtype == torch.uint8:
        smooth = smooth.round_().clamp_(0, 255)
    return smooth.to(values.dtype)
