"""Decoded samples in shared memory of several processes: each is decoded once, up to a budget."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from epibench.data.batch import Batch, Samples, SamplesView
from epibench.data.shared_memory import SharedMemory, is_shared_memory

MOST_SAMPLES = 2**24  # the table of their places takes no memory while it is empty
TABLE = 8 * (1 + MOST_SAMPLES)  # bytes: the end of the used part, then the place of every sample, 0 for none
ALIGNED = 64
SHARE = 4  # the default budget is the free memory divided by it


class DecodedMemory(SharedMemory):
    """Memory for decoded samples by index, of which at most `budget` bytes are used."""

    def __init__(self, budget: int, path: str | None = None):
        super().__init__(TABLE + budget, path)
        self.budget = budget
        self.table = np.frombuffer(self.bytes, np.int64, 1 + MOST_SAMPLES)

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, (self.budget, self.path)

    @property
    def used(self) -> int:
        """Bytes of all kept samples."""
        return int(self.table[0])

    def __contains__(self, index: int) -> bool:
        return bool(self.table[1 + index])

    def read(self, index: int) -> Batch | None:
        """Return a kept sample, or None. Its tensors lie in the shared memory and must not be changed."""
        place = int(self.table[1 + index]) if index < MOST_SAMPLES else 0
        if not place:
            return None
        length = int(np.frombuffer(self.bytes, np.int64, 1, place)[0])
        described = json.loads(self.bytes[place + 8 : place + 8 + length])
        found: dict[str, Tensor] = {}
        start = _aligned(place + 8 + length)
        for name, kind, shape in described:
            array = np.frombuffer(self.bytes, kind, int(np.prod(shape)), start).reshape(shape)
            found[name] = torch.from_numpy(array)
            start = _aligned(start + array.nbytes)
        target, valid = found.pop(""), found.pop("valid")
        return Batch(found, target, valid)

    def keep(self, index: int, sample: Batch) -> None:
        """Keep a sample if there is space. Two processes that keep the same sample at once use its space twice."""
        arrays = {"": sample.target, "valid": sample.valid, **sample.inputs}
        described = json.dumps([(name, each.numpy().dtype.str, each.shape) for name, each in arrays.items()]).encode()
        size = _aligned(8 + len(described)) + sum(_aligned(each.nbytes) for each in arrays.values())
        if index >= MOST_SAMPLES or (place := self._room(size)) is None:
            return
        self.bytes[place : place + 8 + len(described)] = len(described).to_bytes(8, "little") + described
        start = _aligned(place + 8 + len(described))
        for each in arrays.values():
            array = np.frombuffer(self.bytes, each.numpy().dtype, each.numel(), start)
            array[:] = each.numpy().ravel()
            start = _aligned(start + each.nbytes)
        with self._alone():
            self.table[1 + index] = place

    def _room(self, size: int) -> int | None:
        """Reserve `size` bytes and return their start; None without space."""
        with self._alone():
            used = int(self.table[0])
            if used + size > self.budget:
                return None
            self.table[0] = used + size
        return TABLE + used

    @contextmanager
    def _alone(self) -> Iterator[None]:
        fcntl.lockf(self.file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self.file, fcntl.LOCK_UN)


def _opened(budget: int, path: str) -> DecodedMemory:
    """Open another process' memory; if it is gone or on another machine, make new memory."""
    return DecodedMemory(budget, path if is_shared_memory(path, TABLE + budget) else None)


def _aligned(place: int) -> int:
    return -(-place // ALIGNED) * ALIGNED


class DecodedSamples(SamplesView):
    """A data set whose samples are decoded once, within the memory's budget. Classes take at most two bytes a pixel."""

    def __init__(self, samples: Samples, memory: DecodedMemory):
        super().__init__(samples)
        self.memory = memory

    def __getitem__(self, index: int) -> Batch:
        if (kept := self.memory.read(index)) is not None:
            return kept
        sample = self.samples[index]
        sample = Batch(sample.inputs, narrowed(sample.target), sample.valid)
        self.memory.keep(index, sample)
        return sample


def narrowed(target: Tensor) -> Tensor:
    """Return classes as int16 if they fit; depth is unchanged."""
    if target.is_floating_point() or not target.numel():
        return target
    low, high = target.aminmax()
    return target.to(torch.int16) if low >= -(2**15) and high < 2**15 else target


def widened(target: Tensor) -> Tensor:
    """Return classes as int64; depth is unchanged."""
    return target if target.is_floating_point() else target.long()
