"""What both trainers share: how a method has networks trained, where a training stands, and who follows it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from epibench import stopping
from epibench.errors import InputError
from epibench.training.rules import Rule, RuleState, Schedule

if TYPE_CHECKING:
    from torch import Tensor

SAVE_SECONDS = 10.0
SAVE_SHARE = 0.05  # of the time may go into saving

# Of a network by name, as `load_state_dict` takes them; of a small one, all of them as `parameters`.
Weights = Mapping[str, "Tensor"]


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """What a method decides about the training of its networks, whatever these are.

    keep: epochs, from 1, at whose ends weights are kept; dropout: its rate, 0 for none.
    """

    rule: Rule
    schedule: Schedule
    num_epochs: int
    batch_size: int
    keep: tuple[int, ...]
    dropout: float = 0.0


class LogRow(NamedTuple):
    """The mean loss of the last steps up to `step`, and the learning rate there."""

    step: int
    loss: float
    rate: float


@dataclass(frozen=True)
class TrainingState:
    """Where a training stands.

    step: steps taken; of stacked networks, epochs. parameters: flat, (parameter,) or (network, parameter); rule: what
    the update rule remembers, in the same shape; buffers: of a large network, by name; log: losses so far; sums:
    what its next row will be made of.
    """

    step: int
    parameters: Tensor
    rule: RuleState
    buffers: Weights = field(default_factory=dict)
    log: tuple[LogRow, ...] = ()
    sums: Weights = field(default_factory=dict)


@dataclass(frozen=True)
class TrainingCallbacks:
    """Receives what happens in a training: progress with a note, states to go on from, and weights that are kept."""

    progress: Callable[[int, str], None] = lambda step, note: None
    log: Callable[[LogRow], None] = lambda row: None
    save: Callable[[TrainingState], None] = lambda state: None
    keep: Callable[[int, Weights], None] = lambda epoch, weights: None


class DivergedError(InputError):
    """Networks whose loss or parameters are no longer finite. networks: their numbers within the training."""

    def __init__(self, networks: list[int], text: str):
        self.networks = networks
        super().__init__(text)


class StateMismatchError(InputError):
    """A saved state does not belong to this training."""


@dataclass
class Pacer:
    """When to save: every ten seconds, or less often where saving itself takes long; `with pacer:` measures that.

    Also when SIGTERM has come; work then stops after the save.
    """

    wait: float = SAVE_SECONDS
    last: float = field(default_factory=time.perf_counter)
    begun: float = 0.0

    def due(self) -> bool:
        """Whether it is time to save."""
        return time.perf_counter() - self.last > self.wait or stopping.asked()

    def __enter__(self) -> None:
        self.begun = time.perf_counter()

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self.last = time.perf_counter()
        self.wait = max(SAVE_SECONDS, (self.last - self.begun) / SAVE_SHARE)
        if error is None:
            stopping.check()
