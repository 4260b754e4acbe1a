"""Give a network the shape of weights with fewer channels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


def shape_like(network: nn.Module, weights: Mapping[str, Tensor]) -> nn.Module:
    """Change a network in place so that it accepts these weights. Fitting layers do not change.

    Layers may only have fewer channels. Other differences fail at loading. Changed layers have no values until weights
    are loaded.
    """
    for name, module in network.named_modules():
        prefix, changed = f"{name}." if name else "", False
        for own in (module._parameters, module._buffers):
            for key, tensor in own.items():
                wanted = weights.get(prefix + key)
                if tensor is None or wanted is None or not _is_part(wanted.shape, tensor.shape):
                    continue
                empty = tensor.new_empty(wanted.shape)
                cast(dict[str, Tensor], own)[key] = (
                    nn.Parameter(empty, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else empty
                )
                changed = True
        if changed:
            _say_channels(module)
    return network


def _is_part(wanted: torch.Size, whole: torch.Size) -> bool:
    """Return whether a layer has fewer channels and kernels of the same size."""
    if len(wanted) != len(whole) or wanted == whole or wanted[2:] != whole[2:]:
        return False
    return all(few <= many for few, many in zip(wanted, whole, strict=True))


def _say_channels(module: nn.Module) -> None:
    """Set a layer's attributes to the sizes of its weights."""
    if isinstance(module, _BatchNorm):
        module.num_features = len(cast(Tensor, module.running_mean if module.weight is None else module.weight))
    elif isinstance(module, nn.Linear):
        module.out_features, module.in_features = module.weight.shape
    elif isinstance(module, nn.ConvTranspose2d):
        module.in_channels, module.out_channels = module.weight.shape[0], module.weight.shape[1] * module.groups
    elif isinstance(module, nn.Conv2d):
        module.out_channels, module.in_channels = module.weight.shape[0], module.weight.shape[1] * module.groups
