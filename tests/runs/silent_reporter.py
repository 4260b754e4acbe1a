"""A reporter for tests, and a whole run as the tests look at it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from by_name import by_name
from epibench.recipes import Recipe
from epibench.runs.folder import RunFolder
from epibench.runs.machine import Machine, Run
from epibench.runs.run import train_and_evaluate


class Silent:
    """A reporter that notes the steps, what was done of them, and what was said."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.done: dict[str, int] = {}
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    @contextmanager
    def step(self, name: str, total: int, done: int = 0) -> Iterator[Any]:
        self.steps.append(name)
        self.done[name] = done

        def advance(units: int, note: str = "") -> None:
            assert units >= 0

        yield advance

    @property
    def trained(self) -> list[str]:
        """The steps that trained anything."""
        return [name for name in self.steps if name.startswith("train ")]


def run_in(path: Path, recipe: Recipe, jobs: int = 1, reporter: Silent | None = None) -> dict[str, Any]:
    """All results of a run in a folder, as they stand in its file."""
    machine = Machine.of(torch.device("cpu"), jobs)
    results = train_and_evaluate(Run(recipe, RunFolder(path), machine, reporter or Silent()))
    written: dict[str, Any] = json.loads((path / "results.json").read_text())
    checksum = written.pop("checksum")
    assert len(checksum) == 32
    assert written == results.model_dump(mode="json")
    return by_name(written)
