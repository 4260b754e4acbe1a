"""Processes that tests watch."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def children_of(process: int) -> list[int]:
    """Return the processes that a process has started."""
    try:
        found = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii")
    except OSError:  # it has ended
        return []
    return [int(child) for child in found.split()]


def is_alive(process: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    return not any(line.startswith("State:") and "Z" in line.split()[1] for line in lines)


def wait_until(happened: Callable[[], Any], seconds: float = 60) -> Any:
    """Wait for a true value, and return it."""
    end = time.monotonic() + seconds
    while not (found := happened()):
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.05)
    return found
