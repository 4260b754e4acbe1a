"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from epibench.errors import InputError

UNFINISHED = ".unfinished"


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A stream whose bytes become the file when the block ends; on an error nothing changes. Folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        path.lstat()  # complains of names that are too long
    # Each writer has a name of its own: whoever is last replaces the same by the same. Not by tempfile, whose files
    # nobody else could read.
    unfinished = path.with_name(f".{uuid4().hex}{UNFINISHED}")
    try:
        with unfinished.open("xb") as stream:
            yield stream
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


@contextmanager
def writing_to(what: str) -> Iterator[None]:
    """Turn errors of the file system into a message that names what was to be written."""
    try:
        yield
    except OSError as error:
        in_the_way = isinstance(error, FileExistsError | NotADirectoryError)
        reason = "a file is in its path" if in_the_way else error.strerror or str(error)
        raise InputError(f"{what}: cannot be written to ({reason}); give another place") from None
