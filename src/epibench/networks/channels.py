"""Which channels of a network belong together: whatever makes a channel, and whatever reads it, loses it together.

A network that offers `channel_groups()` can be made narrower (`networks.pruning`). `Channels` helps to write it: going
through the layers as `forward` does, it notes who makes and who reads the channels of every feature map.
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
    """Where the channels of a group lie in a convolution: from which of its outputs, or of its inputs, on.

    conv, norm: their names in the network; norm: the batch norm that follows a convolution whose outputs they are.
    """

    conv: str
    first: int
    norm: str | None = None


@dataclass
class ChannelGroup:
    """Channels of a feature map, of which the same can be taken from every convolution that makes or reads them.

    makers: those whose outputs they are, or are added to; readers: those whose inputs they are.
    """

    size: int
    makers: list[Place] = field(default_factory=list)
    readers: list[Place] = field(default_factory=list)


Features = Sequence[ChannelGroup]  # the channels of a feature map: groups, one after another


@runtime_checkable
class Prunable(Protocol):
    """A network that says which of its channels can go."""

    def channel_groups(self) -> list[ChannelGroup]:
        """Every group of channels that can go, by the sizes that the network has now."""


class Channels:
    """The channels of a network, noted layer by layer."""

    def __init__(self, network: nn.Module):
        self.groups: list[ChannelGroup] = []
        self._names = {module: name for name, module in network.named_modules()}

    def through(self, conv: nn.Module, norm: nn.Module | None, inputs: Features = ()) -> Features:
        """What a convolution, and batch norm after it, makes of its inputs; without inputs it reads what must stay."""
        self.read(conv, inputs)
        made = ChannelGroup(_plain(conv).out_channels)
        self.groups.append(made)
        self._make(conv, norm, (made,))
        return (made,)

    def layer(self, layer: nn.Module, inputs: Features = ()) -> Features:
        """The same of a module whose first children are a convolution and batch norm."""
        conv, norm, *_ = layer.children()
        return self.through(conv, norm, inputs)

    def add(self, conv: nn.Module, norm: nn.Module | None, inputs: Features, to: Features) -> Features:
        """A convolution whose outputs are added to features, channel by channel: those remain one."""
        self.read(conv, inputs)
        self._make(conv, norm, to)
        return to

    def read(self, conv: nn.Module, inputs: Features) -> None:
        """A convolution that takes features, or several side by side."""
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
    """A convolution every output of which sees every input."""
    if not isinstance(conv, Conv) or conv.groups != 1:
        raise InputError(f"channel_groups: {conv} is no convolution with groups=1; leave its channels as they are")
    return conv
