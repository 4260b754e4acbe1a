"""A reporter for tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Silent:
    """A reporter that notes the steps, and what was done of them."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.done: dict[str, int] = {}

    def say(self, text: str) -> None:
        pass

    @contextmanager
    def step(self, name: str, total: int, done: int = 0) -> Iterator[Any]:
        self.steps.append(name)
        self.done[name] = done
        yield lambda units, note="": None
