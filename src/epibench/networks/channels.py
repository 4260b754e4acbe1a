"""Groups of channels: all layers that produce or read a channel lose it together.

A network with `channel_groups()` can be made narrower (`networks.pruning`). `Channels` helps to write this method: it
goes through the layers in the order of `forward`, and notes which layers produce and read the channels of every feature
map.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from torch import nn

from epibench.errors import InputError

Conv = nn.Conv2d | nn.ConvTranspose2d


@dataclass(frozen=True)
class Place:
    """The place of a group's channels in a convolution: its first output or input channel.

    Args:
        conv: Name of the convolution.
        first: First channel of the group.
        norm: Name of the batch norm after the convolution, if the channels are its outputs.
    """

    conv: str
    first: int
    norm: str | None = None


@dataclass
class ChannelGroup:
    """Channels of a feature map, of which all their convolutions can lose the same ones.

    Args:
        size: Number of channels.
        makers: Convolutions whose outputs they are, or are added to.
        readers: Convolutions whose inputs they are.
    """

    size: int
    makers: list[Place] = field(default_factory=list)
    readers: list[Place] = field(default_factory=list)


Features = Sequence[ChannelGroup]  # the channels of a feature map: groups, one after another


@runtime_checkable
class Prunable(Protocol):
    """A network that declares which channels can be removed."""

    def channel_groups(self) -> list[ChannelGroup]:
        """Return every group of removable channels, with its present size."""


class Channels:
    """The channels of a network, noted layer by layer."""

    def __init__(self, network: nn.Module):
        self.groups: list[ChannelGroup] = []
        self._names = {module: name for name, module in network.named_modules()}

    def through(self, conv: nn.Module, norm: nn.Module | None, inputs: Features = ()) -> Features:
        """Note a convolution with batch norm, and return its outputs. Without inputs it reads fixed channels."""
        self.read(conv, inputs)
        made = ChannelGroup(_plain(conv).out_channels)
        self.groups.append(made)
        self._make(conv, norm, (made,))
        return (made,)

    def layer(self, layer: nn.Module, inputs: Features = ()) -> Features:
        """Note a module whose first children are a convolution and batch norm, and return its outputs."""
        conv, norm, *_ = layer.children()
        return self.through(conv, norm, inputs)

    def add(self, conv: nn.Module, norm: nn.Module | None, inputs: Features, to: Features) -> Features:
        """Note a convolution whose outputs are added to features, channel by channel, and return the features."""
        self.read(conv, inputs)
        self._make(conv, norm, to)
        return to

    def read(self, conv: nn.Module, inputs: Features) -> None:
        """Note a convolution that reads features, or several concatenated ones."""
        first, name = 0, self._names[_plain(conv)]
        for group in inputs:
            group.readers.append(Place(name, first))
            first += group.size

    def _make(self, conv: nn.Module, norm: nn.Module | None, outputs: Features) -> None:
        first, name = 0, self._names[conv]
        if norm is not None and not (isinstance(norm, nn.BatchNorm2d) and norm.affine and norm.track_running_stats):
            raise InputError(
                f"channel_groups: {norm} is no batch norm with weights and statistics; leave the channels as they are"
            )
        for group in outputs:
            group.makers.append(Place(name, first, None if norm is None else self._names[norm]))
            first += group.size


def _plain(conv: nn.Module) -> Conv:
    """Return a convolution; raise an InputError unless each output depends on every input."""
    if not isinstance(conv, Conv) or conv.groups != 1:
        raise InputError(f"channel_groups: {conv} is no convolution with groups=1; leave its channels as they are")
    return conv
