"""All parameters of a network as one flat tensor, so that an update rule is a handful of operations."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from epibench.errors import InputError

ALIGNED = 16  # entries: parameters begin at multiples of 64 bytes, as if each had memory of its own


class FlatParameters:
    """The parameters of a network, and their gradients, as views of two flat tensors.

    Parameters with two or more axes lie first: they are what weight decay, or a prior, acts on; scales and biases are
    left alone.
    """

    def __init__(self, network: nn.Module):
        named = [(name, each) for name, each in network.named_parameters() if each.requires_grad]
        if not named:
            raise InputError(f"{type(network).__name__} has no parameters to train")
        named.sort(key=lambda pair: pair[1].ndim < 2)  # stable: otherwise in the network's order
        self.parameters = [each for _, each in named]
        self.num_decayed = sum(_room(each) for each in self.parameters if each.ndim > 1)
        first, total = self.parameters[0], sum(_room(each) for each in self.parameters)
        self.values = torch.zeros(total, device=first.device, dtype=first.dtype)
        self.gradient = torch.zeros_like(self.values)
        start = 0
        for parameter in self.parameters:
            place = slice(start, start + parameter.numel())
            with torch.no_grad():
                view = _laid_out_like(self.values[place], parameter)
                view.copy_(parameter)
                parameter.data = view
            parameter.grad = _laid_out_like(self.gradient[place], parameter)
            start += _room(parameter)

    @property
    def decayed(self) -> tuple[Tensor, Tensor]:
        """Values and gradient of what weight decay acts on."""
        return self.values[: self.num_decayed], self.gradient[: self.num_decayed]


def _room(parameter: Tensor) -> int:
    """Entries that a parameter takes up, with a gap so that the next one is aligned; nobody reads the gaps."""
    return -(-parameter.numel() // ALIGNED) * ALIGNED


def _laid_out_like(flat: Tensor, parameter: Tensor) -> Tensor:
    """A view with the shape of a parameter and its layout in memory."""
    if parameter.ndim == 4 and parameter.is_contiguous(memory_format=torch.channels_last):
        outputs, inputs, height, width = parameter.shape
        return flat.view(outputs, height, width, inputs).permute(0, 3, 1, 2)
    return flat.view(parameter.shape)


def copy_buffers(network: nn.Module, saved: Mapping[str, Tensor]) -> None:
    """Put saved buffers, such as the running statistics of batch norm, in their places."""
    for name, buffer in network.named_buffers():
        buffer.copy_(saved[name])
