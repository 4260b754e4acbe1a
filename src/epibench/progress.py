"""How long work tells what it does."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol


class Advance(Protocol):
    """Receives how many units of a step are done, and a note to show beside them."""

    def __call__(self, units: int, note: str = "", /) -> None:
        """So many units more."""


class Reporter(Protocol):
    """Receives progress and messages of a run."""

    def step(self, name: str, total: int, done: int = 0) -> AbstractContextManager[Advance]:
        """A step of `total` units, of which some may be done; within it, call the result for each further one."""

    def say(self, text: str) -> None:
        """Show one line."""
