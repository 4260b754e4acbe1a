"""Batches that processes load ahead into memory that they share with the training process.

A `DataLoader` transfers tensors through sockets, with a thread that pins them. With small networks on a GPU, the main
process is busy launching kernels, and every other Python thread delays the launches. Here the main process only checks
whether the next batch is ready. Processes load batches in turn. Batch n lies in slot n modulo the number of slots.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from multiprocessing.util import Finalize
from typing import Any

import numpy as np
import torch

from epibench.data.batch import Layout, Packed
from epibench.data.shared_memory import SharedMemory
from epibench.errors import InputError
from epibench.stopping import leave_to_parent

SLOT = 2**30  # bytes; only used parts take memory
SPARE_SLOTS = 4  # besides one slot for every process
POLL_SECONDS = 5e-5
CHECK_SECONDS = 1.0
LAYOUT = 4096  # bytes before the content of a batch
FAILED = b""  # the layout of a message

Make = Callable[[Sequence[int]], Packed | str]  # a batch of these numbers, or an error text


class Slots(SharedMemory):
    """Batches in shared memory.

    `ready` has the number of each slot's batch, from 1. `taken` is the number of batches that are no longer needed.
    """

    def __init__(self, number: int):
        super().__init__((1 + number) * SLOT)
        self.number = number
        self.ready = np.frombuffer(self.bytes, np.int64, number)
        self.taken = np.frombuffer(self.bytes, np.int64, 1, 8 * number)

    def start(self, batch: int) -> int:
        """Return the start of a batch's slot."""
        return (1 + batch % self.number) * SLOT

    def put(self, batch: int, made: Packed | str) -> None:
        """Write a batch or an error text into its slot."""
        if isinstance(made, Packed) and made.content.nbytes > SLOT - LAYOUT:
            made = f"a batch of {made.content.nbytes / 2**30:.1f} GiB is too large to be loaded; give training.crop"
        text = FAILED if isinstance(made, str) else _written(made.layout)
        content = np.frombuffer(made.encode(), np.uint8) if isinstance(made, str) else made.content.numpy()
        start = self.start(batch)
        head = np.frombuffer(self.bytes, np.int64, 2, start)
        head[:] = len(text), len(content)
        self.bytes[start + 16 : start + 16 + len(text)] = text
        np.frombuffer(self.bytes, np.uint8, len(content), start + LAYOUT)[:] = content
        self.ready[batch % self.number] = batch + 1

    def get(self, batch: int) -> tuple[bytes, torch.Tensor]:
        """Return the layout of a ready batch, as bytes, and its content in the slot."""
        start = self.start(batch)
        length, size = np.frombuffer(self.bytes, np.int64, 2, start).tolist()
        content = torch.from_numpy(np.frombuffer(self.bytes, np.uint8, size, start + LAYOUT))
        return bytes(self.bytes[start + 16 : start + 16 + length]), content


def _written(layout: Layout) -> bytes:
    return json.dumps([(name, str(dtype), shape) for name, dtype, shape in layout]).encode()


def _read(text: bytes) -> Layout:
    return tuple(
        (name, getattr(torch, dtype.removeprefix("torch.")), tuple(shape)) for name, dtype, shape in json.loads(text)
    )


def _load(slots: Slots, make: Make, batches: Sequence[Sequence[int]], first: int, step: int, parent: int) -> None:
    """Load every `step`-th batch, as soon as its slot is free."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends this one
    leave_to_parent()
    torch.set_num_threads(1)
    for batch in range(first, len(batches), step):
        made = make(batches[batch])
        while batch >= int(slots.taken[0]) + slots.number:
            if os.getppid() != parent:
                return
            time.sleep(10 * POLL_SECONDS)
        slots.put(batch, made)


class Pinned:
    """Slots in pinned memory, from which a GPU copies in parallel to its work.

    `refused`: some memory could not be pinned.
    """

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}
        self.refused = False

    @cached_property
    def runtime(self) -> Any:
        """The functions of CUDA's runtime."""
        return torch.cuda.cudart()  # type: ignore[no-untyped-call]

    def pin(self, content: torch.Tensor) -> None:
        """Pin the used memory of a slot. After a failure, copies only take longer."""
        start, size = content.data_ptr(), content.nbytes
        if self.refused or self.sizes.get(start, 0) >= size:
            return
        if self.sizes.pop(start, 0):
            self.runtime.cudaHostUnregister(start)
        if self.runtime.cudaHostRegister(start, size, 0) == self.runtime.cudaError.success:
            self.sizes[start] = size
        else:
            self.refused = True
            forget_error()

    def close(self) -> None:
        """Unpin all."""
        for start in self.sizes:
            self.runtime.cudaHostUnregister(start)


def forget_error() -> None:
    """Clear CUDA's last error, which the next kernel launch would report."""
    with suppress(RuntimeError):
        torch.ones(1, device="cuda")


def _kill(processes: Sequence[Any]) -> None:
    for process in processes:
        if process.pid is not None:
            process.kill()
            process.join()


def loaded_ahead(make: Make, batches: Sequence[Sequence[int]], workers: int, pin: bool = False) -> Iterator[Packed]:
    """Yield all batches, given the numbers of each, in their order.

    The content of a batch is overwritten some batches later. With `pin`, a GPU reads the batches: each copy that starts
    before the next batch is requested is completed before its slot is reused.
    """
    # Forked, also in a spawned process: new imports would take each process seconds.
    slots, context = Slots(workers + SPARE_SLOTS), multiprocessing.get_context("fork")
    processes = [
        context.Process(target=_load, args=(slots, make, batches, first, workers, os.getpid()), daemon=True)
        for first in range(min(workers, len(batches)))
    ]
    # Also at the exit of the interpreter, which would wait forever for processes that ignore SIGTERM.
    end = Finalize(None, _kill, (processes,), exitpriority=0)
    layouts: dict[bytes, Layout] = {}
    pinned, copies = Pinned(), deque[Any]()
    try:
        for process in processes:
            process.start()
        for batch in range(len(batches)):
            _wait_for(batch, slots, processes, copies)
            text, content = slots.get(batch)
            if text == FAILED:
                raise InputError(bytes(content.numpy()).decode())
            if text not in layouts:
                layouts[text] = _read(text)
            if pin:
                pinned.pin(content)
            yield Packed(content, layouts[text])
            if pin:
                copies.append(torch.cuda.Event())  # type: ignore[no-untyped-call]
                copies[-1].record()
            else:
                slots.taken[0] += 1
    finally:
        end()
        if pin:
            torch.cuda.synchronize()
            pinned.close()


def _wait_for(batch: int, slots: Slots, processes: Sequence[Any], copies: deque[Any]) -> None:
    """Wait for a batch, and release slots whose copies are complete."""
    checked = time.monotonic()
    while True:
        while copies and copies[0].query():
            copies.popleft()
            slots.taken[0] += 1
        if int(slots.ready[batch % slots.number]) == batch + 1:
            return
        time.sleep(POLL_SECONDS)
        if time.monotonic() > checked + CHECK_SECONDS:
            checked = time.monotonic()
            if processes[batch % len(processes)].exitcode is not None:
                raise ChildProcessError("a process that loaded images has died (was memory short?)")
