"""Threads that each do a whole task, instead of PyTorch's threads within one operation.

PyTorch splits each operation among its threads. Operations on data that fits into the cache are short. Their threads
lose more time by waiting for each other than they gain, and several times more on a busy machine.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

# PyTorch keeps its number of threads for each calling thread; `before` holds the former number in the same way.
_silenced = threading.local()


@contextmanager
def silenced_torch_threads() -> Iterator[None]:
    """Let PyTorch use one thread for this caller. `in_threads` still uses the former number of threads."""
    import torch

    if hasattr(_silenced, "before"):
        yield
        return
    _silenced.before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(_silenced.before)
        del _silenced.before


@contextmanager
def in_this_thread() -> Iterator[None]:
    """Let `in_threads` run its tasks in the calling thread, because torch counts operations per thread."""
    with silenced_torch_threads():
        before, _silenced.before = _silenced.before, 1
        try:
            yield
        finally:
            _silenced.before = before


ARENA_MAX = -8  # the parameter M_ARENA_MAX of mallopt, from malloc.h


@cache
def keep_freed_memory() -> None:
    """Let the C library reuse freed memory, in at most one arena per thread (at least two).

    By default glibc returns large freed blocks to the system at once, and to request them again costs more than to
    compute in them. After a block of 30 MiB was freed once, glibc keeps blocks of up to that size. It keeps them in up
    to eight arenas for each core, and changing threads would fill all of them in time.
    """
    import torch

    torch.empty(30 * 2**20, dtype=torch.uint8)
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(ARENA_MAX, max(2, torch.get_num_threads()))


def in_threads(function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
    """Return [function(task) for task in tasks], computed by as many threads as PyTorch has."""
    import torch

    keep_freed_memory()
    inference = torch.is_inference_mode_enabled()

    def run(task: T) -> R:
        with torch.inference_mode(inference), torch.no_grad():  # a new thread does not inherit these modes
            return function(task)

    number = min(len(tasks), getattr(_silenced, "before", torch.get_num_threads()))
    with silenced_torch_threads():
        if number < 2:
            return [run(task) for task in tasks]
        with ThreadPoolExecutor(number, initializer=torch.set_num_threads, initargs=(1,)) as executor:
            return list(executor.map(run, tasks))
