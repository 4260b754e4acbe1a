"""Plans, states and callbacks of training, for both trainers."""

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
SAVE_SHARE = 0.05  # largest share of the time for saving

# Weights of a network by name, for `load_state_dict`; a small network has one tensor `parameters`.
Weights = Mapping[str, "Tensor"]


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """A method's decisions about the training of its networks.

    Args:
        rule: Update rule.
        schedule: Schedule of the learning rate.
        num_epochs: Number of epochs.
        batch_size: Size of batches.
        keep: Epochs, from 1, whose final weights are kept.
        dropout: Dropout rate; 0 for none.
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
    """The state of a training.

    Args:
        step: Number of steps; for stacked networks, of epochs.
        parameters: Flat parameters, (parameter,) or (network, parameter).
        rule: State of the update rule, in the same shape.
        buffers: Buffers of a large network, by name.
        log: Log so far.
        sums: Sums for the next row of the log.
    """

    step: int
    parameters: Tensor
    rule: RuleState
    buffers: Weights = field(default_factory=dict)
    log: tuple[LogRow, ...] = ()
    sums: Weights = field(default_factory=dict)


@dataclass(frozen=True)
class TrainingCallbacks:
    """Receives progress with a note, rows of the log, states to resume from, and kept weights."""

    progress: Callable[[int, str], None] = lambda step, note: None
    log: Callable[[LogRow], None] = lambda row: None
    save: Callable[[TrainingState], None] = lambda state: None
    keep: Callable[[int, Weights], None] = lambda epoch, weights: None


class DivergedError(InputError):
    """The loss or parameters of networks are not finite. `networks`: their numbers within the training."""

    def __init__(self, networks: list[int], text: str):
        self.networks = networks
        super().__init__(text)


class StateMismatchError(InputError):
    """A saved state does not belong to this training."""


@dataclass
class Pacer:
    """Decides when to save: every ten seconds, or less often if saving takes long.

    `with pacer:` measures the time of a save. A save is also due after SIGTERM; the context then raises `Stopped`.
    """

    wait: float = SAVE_SECONDS
    last: float = field(default_factory=time.perf_counter)
    begun: float = 0.0

    def due(self) -> bool:
        """Return whether a save is due."""
        return time.perf_counter() - self.last > self.wait or stopping.asked()

    def __enter__(self) -> None:
        self.begun = time.perf_counter()

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self.last = time.perf_counter()
        self.wait = max(SAVE_SECONDS, (self.last - self.begun) / SAVE_SHARE)
        if error is None:
            stopping.check()
