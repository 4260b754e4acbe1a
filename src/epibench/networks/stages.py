"""A network as named stages, one after another, so that what several passes share is computed once.

A network that offers `stages()` is the same function as all of its stages in a row. What a stage hands on is a tuple of
tensors, (image, …) each; dropout after a stage acts on the last of them. A stage is named after the module whose output
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
Step = Callable[[Any], Any]  # the first step of a network takes its inputs, the last one gives its raw outputs


@runtime_checkable
class Staged(Protocol):
    """A network that can be run in parts."""

    def stages(self) -> dict[str, Step]:
        """Its stages in the order of forward, by name."""


def stages_up_to(names: Sequence[str], module: str) -> int | None:
    """How many stages there are up to the last one that is this module or lies in it; None if none does."""
    inside = [number for number, name in enumerate(names, 1) if f"{name}.".startswith(f"{module}.")]
    return inside[-1] if inside else None


def stages_before_dropout(names: Sequence[str], places: Sequence[str]) -> list[int] | None:
    """For each place, how many stages lie before its dropout, ascending; None if one lies within a stage."""
    ends = [stages_up_to(names, place) for place in places]
    return None if None in ends else sorted(end for end in ends if end is not None)


def first_modules(network: Staged, number: int) -> list[str]:
    """The names of the modules whose weights the first stages have.

    A stage has those of the module that it is named after, or of the modules that the network's `stage_modules` gives
    for it.
    """
    given: Mapping[str, Sequence[str]] = getattr(network, "stage_modules", {})
    return [module for name in list(network.stages())[:number] for module in given.get(name, (name,))]


@dataclass(frozen=True)
class Parts:
    """A network as its first stages, which several members may share, and the rest."""

    shared: Step
    rest: Step

    @classmethod
    def of(cls, network: Staged, number: int) -> Parts:
        """Cut after so many stages; with 0 what is shared are the inputs."""
        steps = list(network.stages().values())
        return cls(_in_a_row(steps[:number]), _in_a_row(steps[number:]))


@dataclass(frozen=True)
class DropoutPasses:
    """Passes of a network with dropout between its stages: the part before the first dropout, and the rest.

    parts: the stages between dropouts, each as one function; the first part is what all passes share. Masks are those
    of `SeededDropout` with the same keys: dropouts are numbered from 0 in the order in which they act.
    """

    parts: tuple[Step, ...]
    rate: float

    @classmethod
    def of(cls, network: nn.Module, rate: float) -> DropoutPasses | None:
        """With dropout after the network's `dropout_places`; None where it has no stages, or one is within a stage."""
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
        """What comes before the first dropout: the same in every pass."""
        state: State = self.parts[0](inputs)
        return state

    def rest(self, state: State, keys: Tensor) -> Tensor:
        """Raw outputs of the pass that the keys of its images name; the state is left as it was."""
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
    """The images of a state again and again, (time · image, …), laid out in memory as they were."""
    return state if times == 1 else tuple(torch.cat([each] * times) for each in state)
