"""Threads of our own instead of PyTorch's.

PyTorch shares out single operations among its threads. Operations on pieces that fit into the cache are short, and
waiting for each other after each of them costs more than it gains; on a machine that is busy with other work as well,
several times more. So each thread here does a whole piece of work alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")


class _Threads:
    """How many threads PyTorch had before the first of several users silenced them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.number = 0

    def available(self) -> int:
        with self.lock:
            return self.number if self.users else torch.get_num_threads()

    def enter(self) -> None:
        with self.lock:
            if self.users == 0:
                self.number = torch.get_num_threads()
                torch.set_num_threads(1)
            self.users += 1

    def leave(self) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0:
                torch.set_num_threads(self.number)


_threads = _Threads()


@contextmanager
def silenced_torch_threads() -> Iterator[None]:
    """Let PyTorch work with one thread per caller; `in_threads` still uses as many as it had."""
    _threads.enter()
    try:
        yield
    finally:
        _threads.leave()


@cache
def keep_freed_memory() -> None:
    """Let the C library keep the memory of temporaries for the next ones.

    glibc gives it back to the system at once, and fetching it anew costs more than what is computed in it, until a
    block of this size has been freed: from then on it keeps that much.
    """
    torch.empty(30 * 2**20, dtype=torch.uint8)


def in_threads(function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
    """[function(task) for task in tasks], by as many threads as PyTorch has; each does its part alone."""
    keep_freed_memory()
    number = min(len(tasks), _threads.available())
    if number < 2:
        with silenced_torch_threads():
            return [function(task) for task in tasks]
    inference = torch.is_inference_mode_enabled()

    def run(task: T) -> R:
        with torch.inference_mode(inference), torch.no_grad():  # modes belong to a thread
            return function(task)

    with silenced_torch_threads(), ThreadPoolExecutor(number) as executor:
        return list(executor.map(run, tasks))
