"""Files that are whole or not there: text and JSON written in one step, and fingerprints of what decides a result."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from epibench.errors import InputError

Json = Any  # what json.dumps takes


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A stream that becomes the file once it was written to the end; a reader sees the old file or the whole new one.

    Written beside `path`, with the permissions that the user's umask gives, then renamed. A device or a pipe is
    written straight into.
    """
    path = path.resolve()
    if path.is_dir():
        raise InputError(f"{path}: a folder is where a file is to be written; remove it and run the same command again")
    if path.exists() and not path.is_file():
        with path.open("wb") as stream:
            yield stream
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = unfinished(path)
    try:
        with beside.open("wb") as stream:
            yield stream
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def unfinished(path: Path) -> Path:
    """Where this process writes what will become `path`; `remove_leftovers` finds those of processes that died."""
    return path.with_name(f".{path.name}.{os.getpid()}")


def remove_leftovers(folder: Path) -> None:
    """Remove what processes left below a folder that were killed while they wrote."""
    for path in folder.rglob(".*"):
        owner = path.name.rpartition(".")[2]
        if owner.isdecimal() and path.is_file() and not is_alive(int(owner)):
            path.unlink(missing_ok=True)


def is_alive(process: int) -> bool:
    """Whether there is a process of that number on this machine."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def write_text(path: Path, text: str) -> None:
    """Write a whole text in one step."""
    with replacing(path) as stream:
        stream.write(text.encode("utf-8"))


def write_json(path: Path, content: Json) -> None:
    """Write JSON in one step; what is not finite is refused."""
    write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def read_json(path: Path) -> dict[str, Json] | None:
    """A JSON object from a file, or None where there is none that can be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def fingerprint(*parts: Json | bytes) -> str:
    """A hash of everything that decides a result: plain data, and bytes as they are."""
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        found.update(part if isinstance(part, bytes) else json.dumps(part, sort_keys=True).encode())
    return found.hexdigest()
