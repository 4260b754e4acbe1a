"""Stacked networks against plain ones of torch.nn, one member and one head at a time."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from epibench import randomness
from epibench.networks.mlp import StackedMLP

SHAPES = [
    StackedMLP(1, 1, heads=2),
    StackedMLP(2, 2),
    StackedMLP(2, 3, heads=2, hidden=(7,)),
    StackedMLP(3, 1, hidden=(4, 5, 6)),
    StackedMLP(1, 1, heads=3, hidden=(1, 4)),
    StackedMLP(4, 2, hidden=()),
    StackedMLP(1, 1, hidden=()),
]
ids = [f"{net.num_inputs}-{'-'.join(map(str, net.hidden))}-{net.num_outputs}x{net.heads}" for net in SHAPES]
every_shape = pytest.mark.parametrize("network", SHAPES, ids=ids)
MEMBERS, POINTS = 3, 11


def random_parameters(network: StackedMLP, members: int = MEMBERS) -> Tensor:
    return torch.from_numpy(np.random.default_rng(0).normal(size=(members, network.num_parameters)))


def random_inputs(network: StackedMLP, points: int = POINTS) -> Tensor:
    """A batch of its own for each member, (member, feature, point)."""
    return torch.from_numpy(np.random.default_rng(1).normal(size=(MEMBERS, network.num_inputs, points)))


def random_mask(network: StackedMLP, points: int = POINTS) -> Tensor:
    """0 or 2 for each unit of the first hidden layer, (network, unit, point)."""
    shape = (MEMBERS * network.heads, network.hidden[0], points)
    return torch.from_numpy(np.random.default_rng(2).integers(0, 2, shape) * 2.0)


class Mask(nn.Module):
    """Dropout with a given mask, (point, unit)."""

    def __init__(self, mask: Tensor):
        super().__init__()
        self.mask = mask

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * self.mask


def plain_network(network: StackedMLP, flat: Tensor, mask: Tensor | None = None) -> nn.Sequential:
    """One head as anybody would write it, its weights out of flat parameters: each layer's weights, then biases."""
    modules: list[nn.Module] = []
    sizes = [network.num_inputs, *network.hidden, network.num_outputs]
    values = iter(flat.tolist())
    for before, after in itertools.pairwise(sizes):
        layer = nn.Linear(before, after).double()
        with torch.no_grad():
            for entry in (*layer.weight, layer.bias):
                entry.copy_(torch.tensor([next(values) for _ in entry], dtype=torch.float64))
        modules += [layer, nn.ReLU()]
        if mask is not None and len(modules) == 2:
            modules.append(Mask(mask.T))
    assert next(values, None) is None
    return nn.Sequential(*modules[:-1])  # no ReLU on the outputs


def plain_networks(network: StackedMLP, parameters: Tensor, keep: Tensor | None = None) -> list[list[nn.Sequential]]:
    """[member][head]."""
    heads = parameters.view(len(parameters), network.heads, -1)
    masks = None if keep is None else keep.view(len(parameters), network.heads, *keep.shape[1:])
    return [
        [
            plain_network(network, heads[member, head], None if masks is None else masks[member, head])
            for head in range(network.heads)
        ]
        for member in range(len(parameters))
    ]


def gradient_of(network: StackedMLP, parameters: Tensor, inputs: Tensor, slope: Tensor, keep: Tensor | None) -> Tensor:
    gradient = torch.full_like(parameters, torch.nan)
    layers = network.layers(parameters)
    activations = network.forward(layers, inputs, keep)
    network.backward(layers, network.layers(gradient), activations, slope.clone(), keep)
    return gradient


def autograd_of(network: StackedMLP, parameters: Tensor, inputs: Tensor, slope: Tensor, keep: Tensor | None) -> Tensor:
    rows = []
    slopes = slope.view(MEMBERS, network.heads, network.num_outputs, -1)
    for member, heads in enumerate(plain_networks(network, parameters, keep)):
        for head, plain in enumerate(heads):
            (plain(inputs[member].T) * slopes[member, head].T).sum().backward()
            rows += [weight.grad.flatten() for weight in plain.parameters()]
    return torch.cat(rows).view(MEMBERS, -1)


def masks_of(network: StackedMLP) -> list[Tensor | None]:
    return [None, random_mask(network)] if network.hidden else [None]


@every_shape
def test_the_number_of_parameters_is_that_of_plain_networks(network: StackedMLP) -> None:
    (heads,) = plain_networks(network, random_parameters(network, 1))
    assert network.num_parameters == sum(weight.numel() for plain in heads for weight in plain.parameters())


@every_shape
def test_outputs_equal_those_of_plain_networks(network: StackedMLP) -> None:
    parameters, inputs = random_parameters(network), random_inputs(network)
    for keep in masks_of(network):
        found = network.outputs(parameters, inputs, keep)
        assert found.shape == (MEMBERS, network.heads, network.num_outputs, POINTS)
        for member, heads in enumerate(plain_networks(network, parameters, keep)):
            for head, plain in enumerate(heads):
                torch.testing.assert_close(found[member, head], plain(inputs[member].T).T, rtol=1e-12, atol=1e-12)


@every_shape
@pytest.mark.parametrize("points", [1, POINTS])
def test_the_gradient_equals_autograd(network: StackedMLP, points: int) -> None:
    parameters, inputs = random_parameters(network), random_inputs(network, points)
    shape = (MEMBERS * network.heads, network.num_outputs, points)
    slope = torch.from_numpy(np.random.default_rng(3).normal(size=shape))
    found = gradient_of(network, parameters, inputs, slope, None)
    torch.testing.assert_close(found, autograd_of(network, parameters, inputs, slope, None), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("network", [net for net in SHAPES if net.hidden])
def test_the_gradient_with_dropout_equals_autograd(network: StackedMLP) -> None:
    parameters, inputs, keep = random_parameters(network), random_inputs(network), random_mask(network)
    shape = (MEMBERS * network.heads, network.num_outputs, POINTS)
    slope = torch.from_numpy(np.random.default_rng(3).normal(size=shape))
    found = gradient_of(network, parameters, inputs, slope, keep)
    torch.testing.assert_close(found, autograd_of(network, parameters, inputs, slope, keep), rtol=1e-11, atol=1e-11)


@every_shape
def test_layers_are_views(network: StackedMLP) -> None:
    parameters = random_parameters(network)
    for layer in network.layers(parameters):
        layer.weight.zero_()
        layer.bias.zero_()
    assert (parameters == 0).all()


class TestInitialise:
    network = StackedMLP(2, 3, heads=2, hidden=(10, 5))
    parameters = network.initialise(torch.tensor([randomness.key(0, member) for member in range(2000)]))

    def test_weights_and_biases_are_uniform_within_one_over_the_root_of_the_inputs(self) -> None:
        for layer, before in zip(self.network.layers(self.parameters), (2, 10, 5), strict=True):
            for values in layer:
                scaled = values.flatten().double() * math.sqrt(before)
                assert stats.kstest(scaled, stats.uniform(-1, 2).cdf).pvalue > 1e-3

    def test_it_is_what_pytorch_does(self) -> None:
        torch.manual_seed(0)
        for layer, (after, before) in zip(
            self.network.layers(self.parameters), [(10, 2), (5, 10), (3, 5)], strict=True
        ):
            plain = [nn.Linear(before, after) for _ in range(2000)]
            for ours, name in zip(layer, ("weight", "bias"), strict=True):
                theirs = torch.stack([getattr(each, name).detach() for each in plain])
                assert stats.ks_2samp(ours.flatten().numpy(), theirs.flatten().numpy()).pvalue > 1e-3

    def test_parameters_are_uncorrelated(self) -> None:
        between = np.corrcoef(self.parameters.double().T)[np.triu_indices(self.network.num_parameters, 1)]
        assert np.abs(between).max() < 5.5 / math.sqrt(2000)  # the largest of some 20,000

    def test_a_member_is_the_same_alone(self) -> None:
        keys = torch.tensor([randomness.key(0, 7)])
        assert torch.equal(self.network.initialise(keys), self.parameters[7:8])
