"""Batches that are copied to the device in advance, while it works on earlier batches."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from epibench.data.batch import Batch

AHEAD = 2  # batches that wait on the device


@dataclass(frozen=True)
class _Copied:
    """A batch on the device, ready after the event. `valid`: its number of valid pixels."""

    batch: Batch
    valid: int
    event: torch.cuda.Event


def copied_ahead(batches: Iterator[Batch], device: torch.device) -> Iterator[tuple[Batch, int]]:
    """Yield batches on the device, in order, with their numbers of valid pixels.

    On a GPU, a thread takes batches from the loader and copies them on its own stream, two in advance. Reading and
    copying do not delay the members, and the number of pixels needs no request to the GPU.
    """
    if device.type != "cuda":
        yield from ((batch.to(device), int(batch.valid.sum())) for batch in batches)
        return
    first = list(itertools.islice(batches, 1))  # the loader starts its processes here, not in a thread
    waiting: queue.Queue[_Copied | BaseException | None] = queue.Queue(AHEAD)
    stopped = threading.Event()
    following = itertools.chain(first, batches)
    thread = threading.Thread(target=_copy, args=(following, device, waiting, stopped), daemon=True)
    thread.start()
    try:
        while (copied := waiting.get()) is not None:
            if isinstance(copied, BaseException):
                raise copied
            yield _taken(copied, device), copied.valid
    finally:
        stopped.set()
        while thread.is_alive():  # the thread may wait for space
            while not waiting.empty():
                waiting.get_nowait()
            thread.join(0.05)
        if hasattr(batches, "close"):
            batches.close()  # ends the loader's processes


def _taken(copied: _Copied, device: torch.device) -> Batch:
    """Return the batch for use on the current stream."""
    stream = torch.cuda.current_stream(device)
    stream.wait_event(copied.event)
    for tensor in (*copied.batch.inputs.values(), copied.batch.target, copied.batch.valid):
        # The other stream owns the memory, and must not reuse it before this stream is finished.
        tensor.record_stream(stream)
    return copied.batch


def _copy(
    batches: Iterator[Batch],
    device: torch.device,
    waiting: queue.Queue[_Copied | BaseException | None],
    stopped: threading.Event,
) -> None:
    try:
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        for batch in batches:
            with torch.cuda.device(device), torch.cuda.stream(stream):
                pinned = batch if batch.target.is_pinned() else batch.pin_memory()
                moved = pinned.to(device, non_blocking=True)
                event = torch.cuda.Event()  # type: ignore[no-untyped-call]
                event.record(stream)
            waiting.put(_Copied(moved, int(batch.valid.sum()), event))
            if stopped.is_set():
                break
        waiting.put(None)
    except BaseException as error:  # the reader raises it
        waiting.put(error)
