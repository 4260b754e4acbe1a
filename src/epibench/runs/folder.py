"""The folder of a run: `recipe.json`, `members/`, `evaluation/`, `results.json`, `report.html`.

It is the only truth: what is missing there is what is left to do. Every file is written in one step, and who works on
something holds a lock on a file beside it, so that several processes can share the work of one run.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from epibench.errors import InputError
from epibench.files import remove_leftovers, write_json
from epibench.progress import Reporter
from epibench.recipes import Recipe
from epibench.recipes.settings import differences, validated
from epibench.results import RESULTS_NAME

Item = TypeVar("Item")
WAIT_SECONDS = 0.5


@dataclass(frozen=True)
class RunFolder:
    """Where a run keeps what it has finished."""

    path: Path

    @property
    def results(self) -> Path:
        """Every number of the run."""
        return self.path / RESULTS_NAME

    @property
    def report(self) -> Path:
        """The page."""
        return self.path / "report.html"

    @property
    def recipe(self) -> Path:
        """All that was fixed."""
        return self.path / "recipe.json"

    @property
    def members(self) -> Path:
        """The trained weights, a folder for each method."""
        return self.path / "members"

    def claim(self, recipe: Recipe) -> None:
        """Write the recipe; where there is one already, it must train the same networks: then the run goes on."""
        try:
            self._claim(recipe)
            remove_leftovers(self.path)
        except OSError as error:
            raise InputError(f"--out {self.path}: cannot be used ({error.strerror})") from None

    def _claim(self, recipe: Recipe) -> None:
        wanted = recipe.model_dump(mode="json")
        if self.recipe.exists():
            there = self._read_recipe(type(recipe))
            if there.model_dump(mode="json") == wanted:
                return
            if (difference := self._other_training(there, recipe)) is not None:
                raise InputError(f"{self.path} holds a run of another recipe: {difference}; give another --out")
        elif self.path.exists() and not self.path.is_dir():
            raise InputError(f"--out {self.path} is a file: give a folder")
        elif self.path.exists() and any(not entry.name.startswith(".") for entry in self.path.iterdir()):
            raise InputError(f"--out {self.path} is not empty and holds no run: give a new folder")
        write_json(self.recipe, wanted)

    def _read_recipe(self, kind: type[Recipe]) -> Recipe:
        try:
            content: Any = json.loads(self.recipe.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise InputError(f"{self.recipe}: not a readable recipe ({error}); give another --out") from None
        if not isinstance(content, dict):
            raise InputError(f"{self.recipe}: not a recipe; give another --out")
        try:
            return validated(kind, content)
        except InputError as error:
            raise InputError(f"{self.path} holds a run of another recipe: {error}; give another --out") from None

    def _other_training(self, there: Recipe, wanted: Recipe) -> str | None:
        """The first setting by which networks that may be there would come out otherwise, with both values."""
        if there.problem != wanted.problem:
            return f'problem ("{there.problem}" there, "{wanted.problem}" now)'
        for name in (name for name in wanted.methods if name in there.methods and (self.members / name).exists()):
            for key, before, now in differences(there.training_settings(name), wanted.training_settings(name)):
                return f"{key} ({json.dumps(before)} there, {json.dumps(now)} now)"
        return None


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Whether this process has the lock on a file; it is given back at the end, and whenever the process dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with path.open("a+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
                return
            if not _is_same_file(path, file.fileno()):
                continue  # the one before has removed it meanwhile
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            file.flush()
            try:
                yield True
            finally:
                path.unlink(missing_ok=True)
            return


def _is_same_file(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def holder(path: Path) -> str:
    """Who holds the lock on a file, in words."""
    try:
        return path.read_text(encoding="utf-8").strip() or "another process"
    except OSError:
        return "another process"


def share_work(
    items: Sequence[Item],
    done: Callable[[Item], bool],
    lock: Callable[[Item], Path],
    work: Callable[[Sequence[Item]], Sequence[Item]],
    reporter: Reporter,
) -> None:
    """Do all items that are not done, unless another process does them: then wait for it, or take over if it dies.

    work: does what it can of some items, and returns those that another process holds.
    """
    waiting = False
    while todo := [item for item in items if not done(item)]:
        held = work(todo)
        if len(held) == len(todo):
            if not waiting:
                reporter.say(f"waiting for {holder(lock(held[0]))}, which works on {lock(held[0]).with_suffix('')}")
                waiting = True
            time.sleep(WAIT_SECONDS)
