"""Many small networks at once: one flat tensor of parameters, with gradients written out by hand.

Networks of ten units spend their time on calls of operations. So each operation acts on all members, and forward and
backward together take some thirty operations. Activations are (network, unit, point): points are innermost, where
matrix products of this size are four times as fast as with units innermost.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from epibench import randomness
from epibench.networks.last_layer import LastLayer, LastLayers, Place, Seen


class Layer(NamedTuple):
    """Views into flat parameters (or their gradient). weight: (network, out, in); bias: (network, out, 1)."""

    weight: Tensor
    bias: Tensor


@dataclass(frozen=True)
class StackedMLP:
    """Members with one or several `heads` each: separate ReLU networks of the same shape with the same inputs.

    Parameters are (member, parameter): head by head, layer by layer, weights before biases. Dropout with a rate above 0
    acts on the first hidden layer of every head.
    """

    num_inputs: int
    num_outputs: int
    heads: int = 1
    hidden: tuple[int, ...] = (10, 10)

    @cached_property
    def shapes(self) -> list[tuple[int, int]]:
        """(out, in) of each layer."""
        sizes = (self.num_inputs, *self.hidden, self.num_outputs)
        return [(after, before) for before, after in itertools.pairwise(sizes)]

    @cached_property
    def parameters_per_head(self) -> int:
        """The number of weights and biases of one head."""
        return sum(after * (before + 1) for after, before in self.shapes)

    @property
    def num_parameters(self) -> int:
        """The number of weights and biases of one member."""
        return self.heads * self.parameters_per_head

    @property
    def layer_names(self) -> list[str]:
        """Names of the layers, for members that share some of them."""
        return [f"layers.{number}" for number in range(len(self.shapes))]

    def layers(self, parameters: Tensor) -> list[Layer]:
        """Return the layers as views. A network is one head of one member."""
        flat = parameters.view(-1, self.parameters_per_head)
        layers, start = [], 0
        for after, before in self.shapes:
            middle, end = start + after * before, start + after * (before + 1)
            layers.append(Layer(flat[:, start:middle].view(-1, after, before), flat[:, middle:end, None]))
            start = end
        return layers

    def initialise(self, keys: Tensor) -> Tensor:
        """Return PyTorch's default for linear layers, U(−1/√in, 1/√in), (member, parameter)."""
        bounds = torch.cat(
            [torch.full((after * (before + 1),), 1 / math.sqrt(before)) for after, before in self.shapes]
        ).repeat(self.heads)
        uniform = randomness.uniform(keys, 0, self.num_parameters)
        return uniform.mul_(2).sub_(1).mul_(bounds.to(keys.device))

    def forward(self, layers: Sequence[Layer], inputs: Tensor, keep: Tensor | None = None) -> list[Tensor]:
        """Return the activations of every layer, inputs first, outputs last, each (network, unit, point).

        Args:
            layers: Layers of the networks.
            inputs: (member, feature, point), or repeated for each network.
            keep: Factors of the first hidden layer, (network, unit, point).
        """
        repeated = self.heads == 1 or len(inputs) == len(layers[0].weight)
        activations = [inputs if repeated else inputs.repeat_interleave(self.heads, 0)]
        for number, layer in enumerate(layers):
            output = _affine(layer, activations[-1])
            if number < len(layers) - 1:
                output.relu_()
            if number == 0 and keep is not None:
                output.mul_(keep)
            activations.append(output)
        return activations

    def backward(
        self,
        layers: Sequence[Layer],
        gradients: Sequence[Layer],
        activations: Sequence[Tensor],
        slope: Tensor,
        keep: Tensor | None = None,
    ) -> None:
        """Write the gradient of a loss into `gradients`, from its derivative by the outputs, (network, unit, point)."""
        for number in reversed(range(len(layers))):
            before = activations[number]
            torch.sum(slope, 2, keepdim=True, out=gradients[number].bias)
            _outer_sum(slope, before, gradients[number].weight)
            if number == 0:
                return
            slope = _product(layers[number].weight.transpose(1, 2), slope)
            slope = torch.ops.aten.threshold_backward(slope, before, 0)  # 0 where the ReLU was 0
            if number == 1 and keep is not None:
                slope.mul_(keep)

    def outputs(self, parameters: Tensor, inputs: Tensor, keep: Tensor | None = None) -> Tensor:
        """Return the outputs of members, (member, head, output, point)."""
        return self.forward(self.layers(parameters), inputs, keep)[-1].view(
            -1, self.heads, self.num_outputs, inputs.shape[-1]
        )

    def last_layers(self, parameters: Tensor) -> LastLayers:
        """Return the last layer of each head of a member, with points as images of one pixel.

        parameters: (parameter,).
        """

        def see(inputs: Tensor) -> Seen:
            activations = self.forward(self.layers(parameters[None]), inputs.T[None])
            features, raw = (each.permute(2, 0, 1)[..., None, None] for each in activations[-2:])
            return Seen(features.expand(-1, self.heads, -1, -1, -1).unbind(1), raw.flatten(1, 2))

        outputs, inputs = self.shapes[-1]
        layers = []
        for head in range(1, self.heads + 1):
            end = head * self.parameters_per_head
            middle, start = end - outputs, end - outputs * (inputs + 1)
            places = Place("parameters", start, middle), Place("parameters", middle, end)
            layers.append(LastLayer(*places, (1.0,) * outputs))
        return LastLayers(tuple(layers), see)


def _affine(layer: Layer, before: Tensor) -> Tensor:
    """weight × before + bias; products with a single unit are faster without a matrix product."""
    if layer.weight.shape[2] == 1:
        return torch.mul(layer.weight, before).add_(layer.bias)
    if layer.weight.shape[1] == 1:
        return torch.mul(layer.weight.transpose(1, 2), before).sum(1, keepdim=True).add_(layer.bias)
    return torch.baddbmm(layer.bias, layer.weight, before)


def _product(weight: Tensor, slope: Tensor) -> Tensor:
    """(network, in, out) × (network, out, point)."""
    return weight * slope if weight.shape[2] == 1 else torch.bmm(weight, slope)


def _outer_sum(slope: Tensor, before: Tensor, out: Tensor) -> None:
    """Σ over points of slope × before, (network, out, in)."""
    if before.shape[1] == 1:
        torch.sum(slope * before, 2, keepdim=True, out=out)
    elif slope.shape[1] == 1:
        torch.sum(slope * before, 2, out=out[:, 0])
    else:
        out.copy_(torch.bmm(slope, before.transpose(1, 2)))  # a product directly into a view takes five times as long
