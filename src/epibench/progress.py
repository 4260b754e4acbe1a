"""Progress and messages of long work, for commands to show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, runtime_checkable


class Advance(Protocol):
    """Reports finished units of a step, with a note to show beside them, e.g. a loss or a speed."""

    def __call__(self, units: int, note: str = "", /) -> None:
        """Add `units` to the finished units."""


@runtime_checkable
class Reporter(Protocol):
    """Receives progress and messages of a run."""

    def step(self, name: str, total: int, done: int = 0) -> AbstractContextManager[Advance]:
        """Begin a step of `total` units, of which `done` are finished. The context gives its `Advance`."""

    def say(self, text: str) -> None:
        """Receive a message of one line."""


class Silent:
    """A reporter without output."""

    @contextmanager
    def step(self, name: str, total: int, done: int = 0) -> Iterator[Advance]:
        """Begin a step without output."""

        def advance(units: int, note: str = "", /) -> None:
            """Ignore the units."""

        yield advance

    def say(self, text: str) -> None:
        """Ignore the message."""
