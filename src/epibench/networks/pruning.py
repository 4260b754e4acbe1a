"""Take from a trained network what has the smallest weights: whole channels, so that it is smaller, or single weights.

A channel counts as much as the filters that make it, each as it acts: ‖filter‖ · |scale| / √(variance + ε), with the
scale and the variance of the batch norm behind it. A filter's own norm says nothing there: batch norm undoes any factor
of it. Of channels that several filters add to, as those between residual blocks, all squares are added up.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from epibench.errors import InputError
from epibench.networks.batch_norm import scale_of
from epibench.networks.channels import ChannelGroup, Place, Prunable
from epibench.networks.mlp import StackedMLP
from epibench.networks.resnet import NARROWEST
from epibench.networks.shaping import shape_like

Weights = dict[str, Tensor]
OF_CHANNELS = ("weight", "bias", "running_mean", "running_var")  # what batch norm has for each channel


def num_kept(size: int, share: float, multiple: int = 1) -> int:
    """How many channels of a group stay: the multiple nearest to all but the share, at least 8; all of share 0."""
    if not share:
        return size
    kept = multiple * max(1, round((1 - share) * size / multiple))
    return min(size, max(NARROWEST, kept))


def prune_channels(weights: Weights, network: nn.Module, share: float, multiple: int = 1) -> Weights:
    """The weights without a share of the channels of every group, those that count least: the tensors are smaller.

    The number that stays depends on sizes alone, so that networks that were alike remain so. The network is given the
    shape of the weights that come in, which may have lost channels before.
    """
    if not isinstance(network, Prunable):
        raise InputError(
            f"{type(network).__name__} does not say which channels can go (channel_groups, docs/networks.md); prune "
            "single weights instead: structure=weights"
        )
    shape_like(network, weights)
    kept: dict[tuple[str, int], Tensor] = {}  # of an axis of a tensor, (channel,) bool

    def note(name: str, axis: int, first: int, channels: Tensor) -> None:
        every = kept.setdefault((name, axis), torch.ones(weights[name].shape[axis], dtype=torch.bool))
        every[first : first + len(channels)] = channels

    for group in network.channel_groups():
        channels = _largest(importance(weights, network, group), num_kept(group.size, share, multiple))
        for place in group.makers:
            note(f"{place.conv}.weight", _output_axis(network, place), place.first, channels)
            for name in (f"{place.conv}.bias", *(f"{place.norm}.{each}" for each in OF_CHANNELS)):
                if name in weights:
                    note(name, 0, place.first, channels)
        for place in group.readers:
            note(f"{place.conv}.weight", 1 - _output_axis(network, place), place.first, channels)
    pruned = dict(weights)
    for (name, axis), every in kept.items():
        pruned[name] = pruned[name].index_select(axis, every.nonzero().squeeze(1))
    return pruned


def importance(weights: Weights, network: nn.Module, group: ChannelGroup) -> Tensor:
    """How much each channel of a group counts, (channel,) float64: the squared norm of its filters as they act."""
    total = torch.zeros(group.size, dtype=torch.float64)
    for place in group.makers:
        channels = slice(place.first, place.first + group.size)
        filters = weights[f"{place.conv}.weight"].double().movedim(_output_axis(network, place), 0)[channels]
        squared = filters.flatten(1).square().sum(1)
        if place.norm is not None:
            weight, variance = (weights[f"{place.norm}.{name}"].double() for name in ("weight", "running_var"))
            norm = cast(nn.BatchNorm2d, network.get_submodule(place.norm))
            squared *= (scale_of(norm, weight).square() / (variance + norm.eps))[channels]
        total += squared
    return total


def _output_axis(network: nn.Module, place: Place) -> int:
    """The axis of a convolution's weights that counts its outputs."""
    return 1 if isinstance(network.get_submodule(place.conv), nn.ConvTranspose2d) else 0


def _largest(values: Tensor, number: int) -> Tensor:
    """Which entries of the last axis are among the largest, bool; of equal ones the first."""
    order = values.argsort(dim=-1, descending=True, stable=True)
    return torch.zeros_like(values, dtype=torch.bool).scatter_(-1, order[..., :number], True)


def prune_weights(weights: Weights, network: nn.Module, share: float) -> Weights:
    """The weights with a share of the entries of every kernel and matrix 0, its smallest.

    Each layer loses the same share: how large its weights are says nothing of what it is worth beside others. Output
    layers, which have the smallest, would lose all of theirs. Scales and biases stay. Nothing becomes faster by it.
    """
    matrices = {name for name, each in network.named_parameters() if each.ndim > 1}
    return {name: _without_smallest(each, share) if name in matrices else each for name, each in weights.items()}


def prune_stacked_weights(parameters: Tensor, network: StackedMLP, share: float) -> Tensor:
    """The parameters of one small network, (parameter,), with the smallest weights of every layer of every head 0."""
    pruned = parameters.clone()
    for layer in network.layers(pruned):
        for matrix in layer.weight:
            matrix.copy_(_without_smallest(matrix, share))
    return pruned


def prune_units(parameters: Tensor, network: StackedMLP, share: float) -> Tensor:
    """The parameters of one small network, (parameter,), with a share of the units of every hidden layer all 0.

    Those go whose incoming weights have the smallest norm, with these, their biases and their outgoing weights; one of
    a layer stays. Networks remain stacked and keep their shape. A unit whose weights are all 0 has no gradient: it
    stays as it is in training.
    """
    pruned = parameters.clone()
    layers = network.layers(pruned)
    lost = []
    for layer in layers[:-1]:
        size = layer.weight.shape[1]
        lost.append(~_largest(layer.weight.norm(dim=2), max(1, size - round(share * size))))
    for layer, following, units in zip(layers, layers[1:], lost, strict=False):
        layer.weight[units], layer.bias[units] = 0, 0
        following.weight.transpose(1, 2)[units] = 0
    return pruned


def _without_smallest(values: Tensor, share: float) -> Tensor:
    """The same with a share of all entries 0, those of the smallest size; of equal ones the last. One always stays."""
    sizes = values.abs().flatten()
    kept = _largest(sizes, max(1, len(sizes) - round(share * len(sizes))))
    return values.masked_fill(~kept.view(values.shape), 0)
