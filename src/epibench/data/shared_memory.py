"""Memory that processes of one machine share, as a file without a name.

It is there as long as one of the processes that use it, and is given back when the last one ends, however it ends.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

NAME = "epibench"


class SharedMemory:
    """So many bytes, which take memory where something was written; `path` opens them in another process."""

    def __init__(self, size: int, path: str | None = None):
        if path is None:
            self.file = os.memfd_create(NAME)
            os.ftruncate(self.file, size)
        else:
            self.file = os.open(path, os.O_RDWR)
        self.path = f"/proc/{os.getpid()}/fd/{self.file}"
        self.bytes = mmap.mmap(self.file, size)

    def __del__(self) -> None:
        if hasattr(self, "file"):  # what is mapped stays mapped, as long as something refers to it
            os.close(self.file)


def is_shared_memory(path: str, size: int) -> bool:
    """Whether a path still leads to memory of that size: on another machine it may lead anywhere."""
    try:
        return os.readlink(path).startswith(f"/memfd:{NAME} ") and os.stat(path).st_size == size
    except OSError:
        return False


def can_share_memory() -> bool:
    """Whether this system has such memory (Linux)."""
    return hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir()
