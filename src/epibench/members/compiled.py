"""One compiled network that serves all members: it is compiled, or recorded as a CUDA graph, once.

Each member's weights are copied into it before its passes, which takes about a hundredth of a pass. So the number and
order of members cause no new compilation.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from epibench.cuda_graphs import Graph
from epibench.errors import InputError
from epibench.networks.stages import DropoutPasses, Parts, Staged, State

# Largest allowed ‖difference‖ / ‖output‖ to the plain network.
TOLERANCES = {("cpu", torch.float32): 1e-5, ("cuda", torch.float32): 1e-3}
MIXED_TOLERANCE = 5e-2
OPTIONS = "evaluation.compile and evaluation.cuda_graphs"
MOST_GRAPHS = 4  # sizes of images that are recorded; other sizes run without graphs
WARM_UP = 3


@dataclass(frozen=True)
class Speed:
    """Options for faster passes. `backend`: of torch.compile, None for none; `graphs`: record CUDA graphs."""

    backend: str | Callable[..., Any] | None = None
    graphs: bool = False

    @property
    def any(self) -> bool:
        """Whether any option is set."""
        return self.backend is not None or self.graphs


PLAIN = Speed()


@dataclass
class CompiledNetwork:
    """A network and its parts, compiled or recorded, with the weights of one member at a time."""

    network: nn.Module
    speed: Speed
    passes: DropoutPasses | Parts | None = None  # of the network, if members share a part of it
    _holds: object = None
    _tensors: WeakKeyDictionary[nn.Module, list[Tensor]] = field(default_factory=WeakKeyDictionary)

    @classmethod
    def like(cls, network: nn.Module, rate: float, speed: Speed, shared: int = 0) -> CompiledNetwork:
        """Return a compiled copy of a network that is ready to predict.

        Args:
            network: Network to copy.
            rate: Dropout rate after its places.
            speed: Options.
            shared: Number of first stages that members share.
        """
        own = copy.deepcopy(network)
        if shared:
            assert isinstance(own, Staged)
            return cls(own, speed, Parts.of(own, shared))
        return cls(own, speed, DropoutPasses.of(own, rate))

    def __post_init__(self) -> None:
        self.forward: Callable[[Mapping[str, Tensor]], Tensor] = self._fast(self.network)
        if self.passes is not None:
            self.shared: Callable[[Mapping[str, Tensor]], State] = self._fast(self.passes.shared)
            self.rest: Callable[..., Tensor] = self._fast(self.passes.rest)

    def hold(self, name: object, network: nn.Module) -> None:
        """Copy the weights of a member's network, unless they are loaded already."""
        if self._holds != name:
            torch._foreach_copy_(self._numbers(self.network), self._numbers(network))
            self._holds = name

    def _numbers(self, network: nn.Module) -> list[Tensor]:
        """Return all tensors that differ between members. Counters of batches are not needed."""
        if network not in self._tensors:
            self._tensors[network] = [each for each in network.state_dict().values() if each.is_floating_point()]
        return self._tensors[network]

    def _fast(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if self.speed.backend is not None:
            function = torch.compile(function, backend=self.speed.backend)
        return Recorded(function) if self.speed.graphs else function


@dataclass
class Recorded:
    """A function of tensors as CUDA graphs, one for each size of its inputs.

    Inputs of further sizes than MOST_GRAPHS call the function itself.
    """

    function: Callable[..., Any]
    _graphs: dict[object, _Graph] = field(default_factory=dict)

    def __call__(self, *inputs: Any) -> Any:
        """Return the function's result."""
        tensors, form = pytree.tree_flatten(inputs)
        key = (repr(form), *((each.shape, each.stride(), each.dtype) for each in tensors))
        if key not in self._graphs:
            if len(self._graphs) >= MOST_GRAPHS:
                return self.function(*inputs)
            self._graphs[key] = _Graph(self.function, tensors, form)
        return self._graphs[key](tensors)


class _Graph:
    """One recording, with copies of inputs before it and of outputs after it."""

    def __init__(self, function: Callable[..., Any], tensors: list[Tensor], form: pytree.TreeSpec):
        self.inputs = [each.clone(memory_format=torch.preserve_format) for each in tensors]
        own = pytree.tree_unflatten(self.inputs, form)
        self.graph = Graph(lambda: function(*own), tensors[0].device, WARM_UP)

    def __call__(self, tensors: list[Tensor]) -> Any:
        torch._foreach_copy_(self.inputs, tensors)
        return pytree.tree_map(lambda each: each.clone(memory_format=torch.preserve_format), self.graph())


def negative(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return other inputs of the same form."""
    return {name: values / 2 if values.is_floating_point() else ~values for name, values in inputs.items()}


def check_equal(found: Mapping[str, Tensor], plain: Mapping[str, Tensor], precision: torch.dtype, image: str) -> None:
    """Raise an InputError if outputs differ from the plain network's by more than the documented tolerance.

    `image` names the image in the message.
    """
    for name, expected in plain.items():
        tolerance = TOLERANCES.get((expected.device.type, precision), MIXED_TOLERANCE)
        size = float(expected.double().norm())
        distance = float((found[name].double() - expected.double()).norm())
        if math.isfinite(size) and not distance <= tolerance * size:  # other values fail elsewhere
            raise InputError(
                f"{OPTIONS}: on {image} the {name} of the first network differ from those of the plain one "
                f"by {distance / max(size, 1e-300):.2g} of their size, more than {tolerance:g}; leave these options out"
            )


def failure(error: Exception) -> InputError:
    """Return the error for a failed compilation or recording."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = ": ".join([type(error).__name__, " ".join(lines[:2])])  # the first line may only introduce the next one
    return InputError(
        f"{OPTIONS}: this network cannot be compiled or recorded here ({reason}); leave these options out"
    )
