"""The folder of a run: `recipe.json`, `members/`, `evaluation/`, `results.json`, `report.html`.

The folder is the only record of a run: a missing file is work to do. Every file is written atomically. A process holds
a lock beside the file that it makes, so that several processes can share one run.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from epibench.errors import InputError
from epibench.files import (
    DENIED,
    FULL,
    DamagedError,
    json_text,
    naming,
    read_verified,
    remove_leftovers,
    with_checksum,
    write_text,
)
from epibench.methods import METHODS
from epibench.progress import Reporter
from epibench.recipes import RECIPE_NAME, Recipe
from epibench.recipes.dense import DenseRecipe
from epibench.recipes.settings import differences, known_keys, validated
from epibench.results import RESULTS_NAME

Item = TypeVar("Item")
WAIT_SECONDS = 0.5
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)  # errors of a file system without locks


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run."""

    path: Path

    @property
    def results_file(self) -> Path:
        """The file of results."""
        return self.path / RESULTS_NAME

    @property
    def report_file(self) -> Path:
        """The file of the report."""
        return self.path / "report.html"

    @property
    def recipe_file(self) -> Path:
        """The file of the recipe."""
        return self.path / RECIPE_NAME

    @property
    def members(self) -> Path:
        """The folder of trained weights, with a folder for each method."""
        return self.path / "members"

    def claim(self, recipe: Recipe, evaluate_only: bool = False) -> None:
        """Write the recipe and remove leftovers of killed processes.

        A run continues if its recipe trains the same networks.

        Args:
            recipe: Recipe of the run.
            evaluate_only: Whether to keep the evaluation options of the folder's recipe.

        Raises:
            InputError: The folder holds another run or other files, or is not writable.
        """
        with self._usable():
            self._check_free(recipe)
            for path in (self.members, self.path / "evaluation", self.path / "predictions"):
                if path.exists() and not path.is_dir():
                    raise InputError(f"{path}: a file is where a folder belongs; remove it, and it is made anew")
                if path.is_symlink() and not path.exists():
                    raise InputError(f"{path}: a link to nowhere. Fix: make the folder that it names, or remove it.")
            there = self._read_recipe(type(recipe)) if self.recipe_file.exists() else None
            if evaluate_only and isinstance(there, DenseRecipe):
                recipe = recipe.model_copy(update={"evaluation": there.evaluation})
            if there != recipe:
                write_text(self.recipe_file, with_checksum(json_text(recipe.model_dump(mode="json"))))
            if not os.access(self.path, os.W_OK):
                raise InputError(f"--out {self.path}: cannot be written to; give another --out")
            remove_leftovers(self.path)

    @contextmanager
    def _usable(self) -> Iterator[None]:
        """Turn errors of the file system into an InputError, except for a full disk."""
        try:
            yield
        except OSError as error:
            if error.errno in FULL:
                raise
            path = error.filename or self.path
            raise InputError(f"--out {path}: cannot be used ({error.strerror}); give another --out") from None

    def check_free(self, recipe: Recipe) -> None:
        """Raise an InputError unless the folder is empty, or its run's networks fit the recipe."""
        with self._usable():
            self._check_free(recipe)

    def _check_free(self, recipe: Recipe) -> None:
        if self.recipe_file.exists():
            if self.is_damaged() and not self.members.is_dir():
                raise InputError(f"{self.recipe_file}: damaged, or of no run, without networks; give another --out")
            if (difference := self.other_training(recipe)) is not None:
                raise InputError(f"{self.path} holds a run of another recipe: {difference}; give another --out")
        elif self.path.exists() and not self.path.is_dir():
            raise InputError(f"--out {self.path} is a file: give a folder")
        elif self.path.exists() and any(not entry.name.startswith(".") for entry in self.path.iterdir()):
            raise InputError(f"--out {self.path} is not empty and holds no run: give a new folder")

    def is_damaged(self) -> bool:
        """Return whether the recipe has changed since it was written. Weights have their own fingerprints."""
        try:
            return self.recipe_file.exists() and not read_verified(self.recipe_file)
        except DamagedError:
            return True

    def _read_recipe(self, kind: type[Recipe]) -> Recipe | None:
        """Return the recipe of the run; None if its file is damaged."""
        try:
            content: Any = json.loads(read_verified(self.recipe_file))
        except DamagedError:
            return None
        except (ValueError, RecursionError) as error:
            raise InputError(f"{self.recipe_file}: not a recipe ({error}); give another --out") from None
        try:
            recipe = validated(kind, content)
        except InputError as error:
            raise InputError(f"{self.path} holds a run of another recipe: {error}; give another --out") from None
        if lacking := set(known_keys(recipe.model_dump(mode="json"))) - set(known_keys(content)):
            raise InputError(
                f"{self.recipe_file}: {min(lacking)} is missing, another version wrote it. Fix: give another --out."
            )
        return recipe

    def other_training(self, wanted: Recipe) -> str | None:
        """Return the first setting that would change existing networks, with both values; None if none would."""
        there = self._read_recipe(type(wanted))
        if there is None:
            return None
        if there.problem != wanted.problem:
            return f'problem ("{there.problem}" there, "{wanted.problem}" now)'
        # Compare every method with weights, also methods that the recipe lacks or that other methods start from.
        trained = {path.parent.name for path in self.members.glob("*/*.safetensors")}
        for name in sorted(trained, key=[*wanted.methods, *sorted(trained)].index):
            if name in METHODS or (name in there.variants and name in wanted.variants):
                for key, before, now in differences(there.training_settings(name), wanted.training_settings(name)):
                    if key.startswith("network.") and name in wanted.variants and wanted.variants[name].network:
                        key = f"variants.{name}.{key}"
                    return f"{key} ({json.dumps(before)} there, {json.dumps(now)} now)"
        return None


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Hold the lock on a file until the context or the process ends.

    Yields whether this process has the lock: False if another process holds it.
    """
    with ExitStack() as opened:
        file = _take(path, opened)
        try:
            yield file is not None
        finally:
            if file is not None:
                path.unlink(missing_ok=True)


def _take(path: Path, opened: ExitStack) -> int | None:
    """Return the handle of the locked file; None if another process has the lock."""
    try:
        with naming(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            while True:
                file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
                opened.callback(os.close, file)
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError as error:
                    if error.errno not in NO_LOCKS:
                        raise
                    return file  # without locks two processes may do the same work: the first complete file wins
                if _is_same_file(path, file):
                    break  # otherwise the former holder has removed the file meanwhile
            os.truncate(file, 0)
            os.write(file, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno in FULL:
            raise
        remedy = "give yourself write access" if error.errno in DENIED else "remove it"
        raise InputError(
            f"{path}: cannot be locked ({error.strerror}). Fix: {remedy}, or give another --out."
        ) from None
    return file


def _is_same_file(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def is_locked(path: Path) -> bool:
    """Return whether a process has the lock on a file."""
    try:
        with path.open(encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no such file, or an error that `locked` reports
        return False
    return False


def holder(path: Path) -> str:
    """Return the process that holds the lock on a file, for messages."""
    try:
        return path.read_text(encoding="utf-8").strip() or "another process"
    except (OSError, ValueError):
        return "another process"


def share_work(
    items: Sequence[Item],
    done: Callable[[Item], bool],
    lock: Callable[[Item], Path],
    work: Callable[[Sequence[Item]], None],
    reporter: Reporter,
) -> None:
    """Do all items that are not done. Wait for items of other processes, and do them if their process dies.

    Args:
        items: Items of work.
        done: Returns whether an item is done.
        lock: Returns the lock file of an item.
        work: Takes the lock of each item and does the item, unless another process has done it meanwhile.
        reporter: Receives a message about the other process.
    """
    said = set[str]()
    while todo := [item for item in items if not done(item)]:
        held = [is_locked(lock(item)) for item in todo]
        if any(held):
            word = "waiting for" if all(held) else "sharing the work with"
            path = lock(todo[held.index(True)])
            if word not in said:
                reporter.say(f"{word} {holder(path)}, which works on {path.with_suffix('')}")
            said.add(word)
        if all(held):
            time.sleep(WAIT_SECONDS)
        else:
            work([item for item, elsewhere in zip(todo, held, strict=True) if not elsewhere])
