"""Batch norm of a network that only predicts, folded into the convolution before it: the same function in less time."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import torch
from torch import nn

from epibench.networks.deeplabv3 import FarConv2d

Conv = nn.Conv2d | nn.ConvTranspose2d
PLAIN = (nn.Conv2d, nn.ConvTranspose2d, FarConv2d)  # exactly these: what derives from them may do anything


def fold_batch_norm(network: nn.Module) -> None:
    """Fold batch norm that follows a convolution in a Sequential, or where a module's `folds` names such a pair.

    Only plain convolutions that are used once: what is shared, has its weights made by something, or has a hook,
    as that of inserted dropout, is left as it is.
    """
    uses = Counter(id(child) for module in network.modules() for child in module._modules.values())
    for module in list(network.modules()):
        for first, second in _pairs(module):
            conv, norm = getattr(module, first), getattr(module, second)
            if uses[id(conv)] == uses[id(norm)] == 1 and _foldable(conv, norm):
                _fold(conv, norm)
                setattr(module, second, nn.Identity())


def _pairs(module: nn.Module) -> Iterator[tuple[str, str]]:
    """Names of children of which the second takes what the first gives, and nothing else does."""
    if type(module) is nn.Sequential:
        yield from itertools.pairwise(module._modules)
    else:
        yield from getattr(module, "folds", ())


def _foldable(conv: nn.Module, norm: nn.Module) -> bool:
    if not isinstance(conv, Conv) or type(conv) not in PLAIN or not isinstance(norm, nn.BatchNorm2d):
        return False
    hooks = conv._forward_hooks or conv._forward_pre_hooks or norm._forward_hooks or norm._forward_pre_hooks
    return not hooks and conv.groups == 1 and norm.running_var is not None and not norm.training


def _fold(conv: Conv, norm: nn.BatchNorm2d) -> None:
    """(w * x + b − mean) · scale + shift as one convolution, in float64 and rounded once."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    ones = torch.ones_like(norm.running_var)
    weight = ones if norm.weight is None else norm.weight
    scale = weight.double() / (norm.running_var.double() + norm.eps).sqrt()
    bias = 0.0 if conv.bias is None else conv.bias.double()
    shift = 0.0 if norm.bias is None else norm.bias.double()
    outputs = (1, -1, 1, 1) if isinstance(conv, nn.ConvTranspose2d) else (-1, 1, 1, 1)
    with torch.no_grad():
        conv.weight.copy_(conv.weight.double() * scale.view(outputs))
        folded = (bias - norm.running_mean.double()) * scale + shift
        conv.bias = nn.Parameter(folded.to(conv.weight.dtype), requires_grad=conv.weight.requires_grad)
