"""Remove the smallest weights of a trained network: whole channels, which makes it smaller, or single weights.

A channel counts by the effective norm of its filters, ‖filter‖ · |scale| / √(variance + ε), with scale and variance of
the batch norm behind it. A filter's own norm has no meaning there: batch norm cancels any factor of it. If several
filters add to a channel, e.g. between residual blocks, their squares are added.
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
OF_CHANNELS = ("weight", "bias", "running_mean", "running_var")  # entries of batch norm for each channel


def num_kept(size: int, share: float, multiple: int = 1) -> int:
    """Return how many channels of a group remain.

    It is the multiple nearest to 1 − share, at least 8. For share 0 all channels remain.
    """
    if not share:
        return size
    kept = multiple * max(1, round((1 - share) * size / multiple))
    return min(size, max(NARROWEST, kept))


def prune_channels(weights: Weights, network: nn.Module, share: float, multiple: int = 1) -> Weights:
    """Return smaller weights, without a share of the channels of every group: the channels that count least.

    The number of remaining channels depends only on sizes, so that equal networks stay equal. The network gets the
    shape of the given weights, which may have lost channels before.
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
    """Return the importance of each channel of a group, (channel,) float64: its squared effective norm."""
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
    """Return the axis of a convolution's weights that counts its outputs."""
    return 1 if isinstance(network.get_submodule(place.conv), nn.ConvTranspose2d) else 0


def _largest(values: Tensor, number: int) -> Tensor:
    """Return which entries of the last axis are among the largest, bool; of equal ones the first."""
    order = values.argsort(dim=-1, descending=True, stable=True)
    return torch.zeros_like(values, dtype=torch.bool).scatter_(-1, order[..., :number], True)


def prune_weights(weights: Weights, network: nn.Module, share: float) -> Weights:
    """Return the weights with the smallest entries of every kernel and matrix set to 0.

    Each layer loses the same share: sizes of weights in different layers are not comparable. Output layers have the
    smallest weights and would lose all of them. Scales and biases remain. Nothing becomes faster.
    """
    matrices = {name for name, each in network.named_parameters() if each.ndim > 1}
    return {name: _without_smallest(each, share) if name in matrices else each for name, each in weights.items()}


def prune_stacked_weights(parameters: Tensor, network: StackedMLP, share: float) -> Tensor:
    """Return the parameters of a small network, (parameter,), with the smallest weights of each layer and head 0."""
    pruned = parameters.clone()
    for layer in network.layers(pruned):
        for matrix in layer.weight:
            matrix.copy_(_without_smallest(matrix, share))
    return pruned


def prune_units(parameters: Tensor, network: StackedMLP, share: float) -> Tensor:
    """Return the parameters of a small network, (parameter,), with a share of each hidden layer's units 0.

    Units with the smallest norm of incoming weights lose all their weights and biases. One unit of a layer remains.
    Networks remain stacked and keep their shape. A unit whose weights are all 0 has no gradient, so that training does
    not change it.
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
    """Return the values with the smallest share of entries 0; of equal ones the last. One entry always remains."""
    sizes = values.abs().flatten()
    kept = _largest(sizes, max(1, len(sizes) - round(share * len(sizes))))
    return values.masked_fill(~kept.view(values.shape), 0)
