"""A network as named stages in a row, so that several passes compute their common stages once.

A network with `stages()` is the same function as its stages in a row. A stage passes a tuple of tensors, (image, …)
each, to the next one. Dropout after a stage acts on the last tensor. A stage is named after the module whose output
ends it, so that places of dropout are found among stages.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from epibench.networks.dropout import compilable_drop

State = tuple[Tensor, ...]
Step = Callable[[Any], Any]  # the first step takes the network's inputs, the last one returns raw outputs


@runtime_checkable
class Staged(Protocol):
    """A network that can run in parts."""

    def stages(self) -> dict[str, Step]:
        """Return the stages in the order of forward, by name."""


def stages_up_to(names: Sequence[str], module: str) -> int | None:
    """Return the number of stages up to the last that is or contains this module; None if none does."""
    inside = [number for number, name in enumerate(names, 1) if f"{name}.".startswith(f"{module}.")]
    return inside[-1] if inside else None


def stages_before_dropout(names: Sequence[str], places: Sequence[str]) -> list[int] | None:
    """Return for each place the number of stages before its dropout, ascending.

    None if a place lies within a stage.
    """
    ends = [stages_up_to(names, place) for place in places]
    return None if None in ends else sorted(end for end in ends if end is not None)


def first_modules(network: Staged, number: int) -> list[str]:
    """Return the names of the modules with the weights of the first stages.

    A stage has the weights of the module that it is named after, or of its modules in `stage_modules`.
    """
    given: Mapping[str, Sequence[str]] = getattr(network, "stage_modules", {})
    return [module for name in list(network.stages())[:number] for module in given.get(name, (name,))]


@dataclass(frozen=True)
class Parts:
    """A network in two parts: its first stages, which several members may share, and the rest."""

    shared: Step
    rest: Step

    @classmethod
    def of(cls, network: Staged, number: int) -> Parts:
        """Split after `number` stages; with 0, members share only the inputs."""
        steps = list(network.stages().values())
        return cls(_in_a_row(steps[:number]), _in_a_row(steps[number:]))


@dataclass(frozen=True)
class DropoutPasses:
    """Passes of a network with dropout between its stages: the part before the first dropout, and the rest.

    Masks equal the masks of `SeededDropout` with the same keys: dropouts are numbered from 0 in their order.

    Args:
        parts: The stages between dropouts, each as one function. All passes share the first part.
        rate: Dropout rate.
    """

    parts: tuple[Step, ...]
    rate: float

    @classmethod
    def of(cls, network: nn.Module, rate: float) -> DropoutPasses | None:
        """Return passes with dropout after `dropout_places`; None without stages, or if a place is within a stage."""
        places: Sequence[str] = getattr(network, "dropout_places", ())
        if not isinstance(network, Staged) or not places or not 0 < rate < 1:
            return None
        named = network.stages()
        ends = stages_before_dropout(list(named), places)
        if ends is None or ends[-1] == len(named):
            return None
        steps, cuts = list(named.values()), [0, *ends, len(named)]
        return cls(tuple(_in_a_row(steps[a:b]) for a, b in itertools.pairwise(cuts)), rate)

    def shared(self, inputs: Mapping[str, Tensor]) -> State:
        """Return the state before the first dropout, which all passes share."""
        state: State = self.parts[0](inputs)
        return state

    def rest(self, state: State, keys: Tensor) -> Tensor:
        """Return raw outputs of the pass with these keys of its images; the state does not change."""
        for place, part in enumerate(self.parts[1:]):
            *others, last = state
            state = part((*others, compilable_drop(last, keys, place, self.rate)))
        raw: Tensor = state  # type: ignore[assignment]  # the last part ends in raw outputs
        return raw


def _in_a_row(steps: Sequence[Step]) -> Step:
    def run(state: Any) -> Any:
        for step in steps:
            state = step(state)
        return state

    return run


def repeated(state: State, times: int) -> State:
    """Repeat the images of a state, (time · image, …), in the same memory layout."""
    return state if times == 1 else tuple(torch.cat([each] * times) for each in state)
