"""Statistics of batch norm for given weights, from training data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from epibench.training.state import Weights


@torch.no_grad()
def batch_norm_statistics(network: nn.Module, inputs: Iterable[Any]) -> Weights:
    """Return means and variances of each batch norm, averaged over batches; empty without batch norm.

    Each batch is normalised with its own statistics, as in training. Dropout is off. The network's own statistics are
    overwritten.
    """
    norms = {name: each for name, each in network.named_modules() if isinstance(each, _BatchNorm)}
    network.eval()
    for norm in norms.values():
        norm.reset_running_stats()
        norm.train()
        norm.momentum = None  # the mean of all batches, instead of a moving average
    if norms:
        for batch in inputs:
            network(batch)
    return {f"{name}.{key}": each for name, norm in norms.items() for key, each in norm.named_buffers()}
