"""Reports of long work: steps with their progress, and messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, TypeVar, runtime_checkable

T = TypeVar("T")


class Advance(Protocol):
    """Reports finished units of a step, with a note, e.g. a loss or a speed."""

    def __call__(self, units: int, note: str = "", /) -> None:
        """Count further units as done."""


@runtime_checkable
class Reporter(Protocol):
    """Receives progress and messages of a run."""

    def step(self, name: str, total: int, done: int = 0) -> AbstractContextManager[Advance]:
        """Begin a step of `total` units, of which `done` are finished. The context gives its `Advance`."""

    def say(self, text: str) -> None:
        """Receive a message of one line."""


class Silent:
    """Discards reports."""

    @contextmanager
    def step(self, name: str, total: int, done: int = 0) -> Iterator[Advance]:
        """Begin a step without a reader."""

        def advance(units: int, note: str = "", /) -> None:
            """Do nothing."""

        yield advance

    def say(self, text: str) -> None:
        """Say nothing."""


def show(reporter: Reporter, *results: Any) -> None:
    """Pass results to the `show` of a reporter, if it has one: a command prints tables."""
    shown = getattr(reporter, "show", None)
    if shown is not None:
        shown(*results)


def progress_of(reporter: Reporter, name: str, total: int) -> AbstractContextManager[Advance]:
    """A step without a line at its end, where the reporter has `progress`."""
    step: AbstractContextManager[Advance] = getattr(reporter, "progress", reporter.step)(name, total)
    return step


def counted(reporter: Reporter, items: Iterable[T], name: str, total: int) -> Iterator[T]:
    """The same items, counted as they are taken."""
    with progress_of(reporter, name, total) as advance:
        for item in items:
            yield item
            advance(1)
