"""What long work reports while it goes on: steps with their progress, and messages. Commands show it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, runtime_checkable


class Advance(Protocol):
    """Reports units of a step that are done, with a note to show beside them, as a loss or a speed."""

    def __call__(self, units: int, note: str = "", /) -> None:
        """Count so many units more as done."""


@runtime_checkable
class Reporter(Protocol):
    """Receives progress and messages of a run."""

    def step(self, name: str, total: int, done: int = 0) -> AbstractContextManager[Advance]:
        """Begin a step of `total` units, of which `done` are done already; the context gives its `Advance`."""

    def say(self, text: str) -> None:
        """Receive a message of one line."""


class Silent:
    """Reports to nobody."""

    @contextmanager
    def step(self, name: str, total: int, done: int = 0) -> Iterator[Advance]:
        """Begin a step that nobody follows."""

        def advance(units: int, note: str = "", /) -> None:
            """Nobody counts."""

        yield advance

    def say(self, text: str) -> None:
        """Say nothing."""
