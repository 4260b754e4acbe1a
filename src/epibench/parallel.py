"""Threads of our own instead of PyTorch's.

PyTorch shares out single operations among its threads. Operations on pieces that fit into the cache are short, and
waiting for each other after each of them costs more than it gains; on a machine that is busy with other work as well,
several times more. So each thread here does a whole piece of work alone.
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

# How many threads PyTorch has for each caller is a setting of the calling thread; so is what it was before.
_silenced = threading.local()


@contextmanager
def silenced_torch_threads() -> Iterator[None]:
    """Let PyTorch work with one thread for this caller; `in_threads` still uses as many as it had."""
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
    """Let `in_threads` do all of its tasks in the calling thread: whoever counts operations sees those of no other."""
    with silenced_torch_threads():
        before, _silenced.before = _silenced.before, 1
        try:
            yield
        finally:
            _silenced.before = before


ARENA_MAX = -8  # of mallopt, as malloc.h has it


@cache
def keep_freed_memory() -> None:
    """Let the C library keep the memory of temporaries for the next ones, in no more pools than there are threads.

    glibc gives it back to the system at once, and fetching it anew costs more than what is computed in it, until a
    block of this size has been freed: from then on it keeps that much. It keeps it in up to eight arenas for each core;
    as threads come and go, all of these would fill up in time.
    """
    import torch

    torch.empty(30 * 2**20, dtype=torch.uint8)
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(ARENA_MAX, max(2, torch.get_num_threads()))


def in_threads(function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
    """[function(task) for task in tasks], by as many threads as PyTorch has; each does its part alone."""
    import torch

    keep_freed_memory()
    inference = torch.is_inference_mode_enabled()

    def run(task: T) -> R:
        with torch.inference_mode(inference), torch.no_grad():  # modes belong to a thread
            return function(task)

    number = min(len(tasks), getattr(_silenced, "before", torch.get_num_threads()))
    with silenced_torch_threads():
        if number < 2:
            return [run(task) for task in tasks]
        with ThreadPoolExecutor(number, initializer=torch.set_num_threads, initargs=(1,)) as executor:
            return list(executor.map(run, tasks))
