"""How much memory processes can still take, of the machine or of the container that they are in."""

from __future__ import annotations

import os
from pathlib import Path

MEMORY_FILES = (  # the limit of a container, and what is used of it
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def free_memory() -> int:
    """Bytes of memory that processes can still take: of the machine, or of the container that this is."""
    free = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")]
    for line in _read(Path("/proc/meminfo")).splitlines():
        if line.startswith("MemAvailable:"):
            free = [int(line.split()[1]) * 1024]
    for limit, used in MEMORY_FILES:
        words = _read(Path(limit)).strip(), _read(Path(used)).strip()
        if all(word.isdigit() for word in words):  # or `max`, where there is none
            free.append(int(words[0]) - int(words[1]))
    return max(0, min(free))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
