"""How a run tells what it does."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol


class Advance(Protocol):
    """Hears of units that are done, and of what to say beside the bar."""

    def __call__(self, units: int, note: str = "", /) -> None:
        """So many units more."""


class Reporter(Protocol):
    """The world outside of a run."""

    def step(self, name: str, total: int, done: int = 0) -> AbstractContextManager[Advance]:
        """A step of `total` units, of which some may be done; the function that it gives hears of further ones."""

    def say(self, text: str) -> None:
        """One line."""
