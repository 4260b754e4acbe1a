"""The last layer of a network: its weights, its inputs, and their relation to raw outputs.

The attribute `last_layers` of a network names the 1×1 convolutions behind its raw outputs, in the order of the outputs.
Without it, the last convolution that runs is used. Later operations may scale, shift and crop: the factors are
measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from epibench.errors import InputError
from epibench.interpolation import aligned_corners
from epibench.networks.stages import Staged, first_modules

LARGEST_MISFIT = 1e-3  # relative error of an affine function in float32, for means of a hundred metres
SMALLEST_CHANGE = 0.01  # must exceed the rounding of raw outputs
DIGITS = 5  # of a measured factor; further digits are rounding errors


class Place(NamedTuple):
    """A range of entries of a named, flattened tensor."""

    name: str
    start: int
    stop: int


@dataclass(frozen=True)
class LastLayer:
    """A linear map to raw outputs: raw = scale · (weight · features + bias) + constant in θ.

    Args:
        weight: Place of the weight in the network's weights.
        bias: Place of the bias, if any.
        scale: Factor of every output.
    """

    weight: Place
    bias: Place | None
    scale: tuple[float, ...]

    @property
    def num_inputs(self) -> int:
        """The number of features, without the constant feature of the bias."""
        return (self.weight.stop - self.weight.start) // len(self.scale)

    @property
    def shape(self) -> tuple[int, int]:
        """The number of outputs, and of features including the constant feature of the bias."""
        return len(self.scale), self.num_inputs + (self.bias is not None)

    def read(self, weights: Mapping[str, Tensor]) -> Tensor:
        """Return the weights, (output, feature) float64. The bias is the weight of a last, constant feature 1."""
        parts = [place for place in (self.weight, self.bias) if place is not None]
        columns = [weights[name].flatten()[start:stop].view(len(self.scale), -1) for name, start, stop in parts]
        return torch.cat(columns, 1).double()

    def write(self, weights: Mapping[str, Tensor], values: Tensor) -> dict[str, Tensor]:
        """Return the network's weights with other values in this layer, in the format of `read`."""
        changed, size = dict(weights), self.num_inputs
        for place, part in ((self.weight, values[:, :size]), (self.bias, values[:, size:])):
            if place is not None:
                flat = changed[place.name].flatten().clone()
                flat[place.start : place.stop] = part.flatten().to(flat)
                changed[place.name] = flat.view_as(changed[place.name])
        return changed

    def outputs(self) -> Iterator[LastLayer]:
        """Yield each output as a separate layer."""
        size = self.num_inputs
        for number, scale in enumerate(self.scale):
            start = self.weight.start + number * size
            bias = None
            if self.bias is not None:
                bias = Place(self.bias.name, self.bias.start + number, self.bias.start + number + 1)
            yield LastLayer(Place(self.weight.name, start, start + size), bias, (scale,))


class Seen(NamedTuple):
    """The inputs of the last layers and raw outputs.

    features: (image, feature, row, column) for each layer; raw: (image, output, row, column).
    """

    features: tuple[Tensor, ...]
    raw: Tensor


@dataclass(frozen=True)
class LastLayers:
    """A network's last layers, in the order of its raw outputs, and a function to their inputs."""

    layers: tuple[LastLayer, ...]
    see: Callable[[Any], Seen]
    align_corners: bool = True

    def apart(self) -> LastLayers:
        """Return the same layers with every output as a separate layer."""
        sizes = [len(layer.scale) for layer in self.layers]

        def see(inputs: Any) -> Seen:
            features, raw = self.see(inputs)
            return Seen(tuple(each for each, size in zip(features, sizes, strict=True) for _ in range(size)), raw)

        return replace(self, layers=tuple(each for layer in self.layers for each in layer.outputs()), see=see)


def last_layers_of(network: nn.Module, inputs: Any) -> LastLayers:
    """Return the last layers of a network for images, tried on some inputs; raise an InputError without them."""
    names: Sequence[str] = getattr(network, "last_layers", None) or (_last_convolution(network, inputs),)
    modules = [_convolution(network, name) for name in names]
    _check_stages(network, names)
    outputs = [module.out_channels for module in modules]

    def see(inputs: Any) -> Seen:
        with torch.no_grad(), _watched(modules) as features:
            raw = network(inputs)
        return Seen(tuple(each[..., : raw.shape[-2], : raw.shape[-1]] for each in features), raw)

    scales = torch.split(_measured_scales(network, names, modules, inputs), outputs)
    layers = tuple(_layer(name, module, scale) for name, module, scale in zip(names, modules, scales, strict=True))
    return LastLayers(layers, see, aligned_corners(network))


def _layer(name: str, module: nn.Conv2d, scale: Tensor) -> LastLayer:
    bias = None if module.bias is None else Place(f"{name}.bias", 0, module.bias.numel())
    return LastLayer(Place(f"{name}.weight", 0, module.weight.numel()), bias, tuple(scale.tolist()))


def _convolution(network: nn.Module, name: str) -> nn.Conv2d:
    module = dict(network.named_modules()).get(name)
    if not isinstance(module, nn.Conv2d) or module.weight.shape[2:] != (1, 1):
        found = "is not there" if module is None else f"is {module}"
        raise InputError(f"{type(network).__name__}: its last layer '{name}' {found}, not a 1×1 convolution; {_REMEDY}")
    if module.groups != 1 or module.stride != (1, 1) or module.padding != (0, 0):
        raise InputError(f"{type(network).__name__}: its last layer '{name}' is {module}, not a plain one; {_REMEDY}")
    return module


def _check_stages(network: nn.Module, names: Sequence[str]) -> None:
    """Raise an InputError unless the last layers lie in the last stage: members share all other stages."""
    before = first_modules(network, len(network.stages()) - 1) if isinstance(network, Staged) else []
    for name in names:
        if any(f"{name}.".startswith(f"{module}.") for module in before):
            raise InputError(f"{type(network).__name__}: its last layer '{name}' is not in its last stage; {_REMEDY}")


_REMEDY = (
    "give the network an attribute `last_layers`: the names of the 1×1 convolutions that its raw outputs come from, in "
    "the order of the outputs"
)


def _last_convolution(network: nn.Module, inputs: Any) -> str:
    run = list[str]()
    named = [(name, each) for name, each in network.named_modules() if isinstance(each, nn.Conv2d)]
    hooks = [each.register_forward_hook(lambda *_, name=name: run.append(name)) for name, each in named]
    try:
        with torch.no_grad():
            network(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    if not run:
        raise InputError(f"{type(network).__name__} runs no convolution that could be its last layer; {_REMEDY}")
    return run[-1]


@contextmanager
def _watched(modules: Sequence[nn.Module], changes: Sequence[Tensor] | None = None) -> Iterator[list[Tensor]]:
    """Record the inputs of modules within the context, and add `changes` to their outputs."""
    features = [torch.empty(0)] * len(modules)

    def hook_of(number: int) -> Callable[..., Tensor | None]:
        def hook(module: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
            features[number] = given[0]
            return None if changes is None else output + changes[number].to(output)

        return hook

    hooks = [module.register_forward_hook(hook_of(number)) for number, module in enumerate(modules)]
    try:
        yield features
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def _measured_scales(network: nn.Module, names: Sequence[str], modules: Sequence[nn.Conv2d], inputs: Any) -> Tensor:
    """Return the ratio of each raw output's change to its layer's change, (output,) float64.

    Random changes at every point of the layers' outputs must change each raw output by one factor.

    Raises:
        InputError: A raw output is not such a function.
    """
    with _watched(modules) as features:
        raw = network(inputs)
    random, changes = torch.Generator().manual_seed(0), []
    for each, module in zip(features, modules, strict=True):
        output = module(each)
        # Changes have the size of the outputs: a network may treat other values differently, e.g. clamp them.
        size = max(float(output.abs().mean()), SMALLEST_CHANGE)
        changes.append(size * torch.randn(output.shape, generator=random))
    with _watched(modules, changes):
        difference = (network(inputs).double() - raw.double()).cpu()
    changed = torch.cat([each[..., : raw.shape[-2], : raw.shape[-1]] for each in changes], 1).double()
    if difference.shape == changed.shape:
        scales = (difference * changed).sum((0, 2, 3)) / changed.square().sum((0, 2, 3))
        misfit = (difference - scales.view(1, -1, 1, 1) * changed).square().sum((0, 2, 3)).sqrt()
        if bool((misfit < LARGEST_MISFIT * difference.square().sum((0, 2, 3)).sqrt()).all()):
            return torch.tensor([float(f"{scale:.{DIGITS}g}") for scale in scales.tolist()], dtype=torch.float64)
    raise InputError(
        f"{type(network).__name__}: its raw outputs are not those of its last layers ({', '.join(names)}), up to a "
        f"factor and a shift; {_REMEDY}, and let these be at the resolution of the layers"
    )
