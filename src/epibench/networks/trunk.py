"""Several networks that share their first stages: a trunk with heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn

from epibench.errors import InputError, some_of
from epibench.interpolation import aligned_corners
from epibench.networks.stages import Parts, Staged, first_modules

NAMES_SHOWN = 3


class TrunkWithHeads(nn.Module):
    """Networks of one shape that share their first stages and are trained together.

    The `shared` first stages are the first network's. Outputs are of all heads, (head · image, …), head by head.
    The trunk gets the mean of the heads' gradients instead of their sum, so that a rate means the same for the trunk
    and for a head. Each head has the same gradient as alone. In the state dict, `heads.0.` has all names of a plain
    network, and `heads.1.` etc. only the names of the head; see `head_weights`.

    Args:
        networks: The networks.
        shared: Number of shared stages.
        fixed: Whether the trunk has no gradient, and its batch norm keeps its statistics.
    """

    def __init__(self, networks: Sequence[nn.Module], shared: int, fixed: bool = False):
        super().__init__()
        first = networks[0]
        assert isinstance(first, Staged)
        self.shared, self.fixed = shared, fixed
        self.trunk = first_modules(first, shared)
        if shared:
            check_modules(first)
        for network in networks[1:]:
            for name in self.trunk:
                network.set_submodule(name, nn.Identity())
        self.heads = nn.ModuleList(networks)
        self.align_corners = aligned_corners(first)
        if fixed:
            for name in self.trunk:
                first.get_submodule(name).requires_grad_(False)

    def train(self, mode: bool = True) -> TrunkWithHeads:
        """Set the mode; a fixed trunk stays in eval mode."""
        super().train(mode)
        for name in self.trunk if self.fixed else ():
            self.heads[0].get_submodule(name).eval()
        return self

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return (head · image, …)."""
        parts = [Parts.of(cast(Staged, network), self.shared) for network in self.heads]
        with torch.no_grad() if self.fixed else nullcontext():
            state = parts[0].shared(inputs)
        if self.shared:
            state = tuple(_MeanGradient.apply(each, len(parts)) for each in state)  # type: ignore[no-untyped-call]
        return torch.cat([part.rest(state) for part in parts])

    def with_trunk(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the state dict with the trunk of a plain network."""
        own = self.state_dict()
        names = [name for name in _names_of(self.heads[0]) if _in(name, self.trunk)]
        if missing := [name for name in names if name not in weights]:
            raise InputError(
                f"the networks that heads are to start from have no {some_of(missing, NAMES_SHOWN)}: they are no plain "
                "networks; set `of` to a method that trains such, as ensemble"
            )
        if others := [name for name in names if weights[name].shape != own[f"heads.0.{name}"].shape]:
            raise InputError(
                f"the networks that heads are to start from have other sizes ({some_of(others, NAMES_SHOWN)}), so that "
                "heads do not fit behind them; set `of` to a method whose networks are whole, as ensemble"
            )
        return own | {f"heads.0.{name}": weights[name] for name in names}


class _MeanGradient(torch.autograd.Function):
    """The identity, with the gradient, a sum over heads, divided by their number."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, number: int) -> Tensor:
        ctx.number = number
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] / ctx.number, None


def head_weights(weights: Mapping[str, Tensor], head: int) -> dict[str, Tensor]:
    """Return the weights of a plain network from a `TrunkWithHeads`: the trunk and one head."""
    first, own = (
        {name.removeprefix(prefix): each for name, each in weights.items() if name.startswith(prefix)}
        for prefix in ("heads.0.", f"heads.{head}.")
    )
    return first | own


def check_modules(network: Staged) -> None:
    """Raise an InputError unless every weight of a network belongs to a stage."""
    modules = first_modules(network, len(network.stages()))
    if others := [name for name in _names_of(cast(nn.Module, network)) if not _in(name, modules)]:
        raise InputError(
            f"{type(network).__name__}: no stage has {some_of(others, NAMES_SHOWN)}; let its `stage_modules` name the "
            "modules of each stage that has others than the one it is named after (docs/networks.md)"
        )


def _names_of(network: nn.Module) -> list[str]:
    return list(network.state_dict())


def _in(name: str, modules: Sequence[str]) -> bool:
    """Return whether a weight belongs to one of these modules."""
    return any(name.startswith(f"{module}.") for module in modules)
