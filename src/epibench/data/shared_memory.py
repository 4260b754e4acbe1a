"""Memory that processes of one machine share, as a file without a name.

It exists while a process uses it, and is freed when the last one ends, in any way.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

NAME = "epibench"


class SharedMemory:
    """`size` bytes, which take memory only where something is written. `path` opens them in another process."""

    def __init__(self, size: int, path: str | None = None):
        if path is None:
            self.file = os.memfd_create(NAME)
            os.ftruncate(self.file, size)
        else:
            self.file = os.open(path, os.O_RDWR)
        self.path = f"/proc/{os.getpid()}/fd/{self.file}"
        self.bytes = mmap.mmap(self.file, size)

    def __del__(self) -> None:
        if hasattr(self, "file"):  # mapped memory stays mapped while something refers to it
            os.close(self.file)


def is_shared_memory(path: str, size: int) -> bool:
    """Return whether a path still leads to memory of this size. On another machine it may lead anywhere."""
    try:
        return os.readlink(path).startswith(f"/memfd:{NAME} ") and os.stat(path).st_size == size
    except OSError:
        return False


def can_share_memory() -> bool:
    """Return whether this system supports such memory (Linux)."""
    return hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir()
