"""Samples in batches, loaded ahead by worker processes; what is loaded does not depend on their number."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from epibench import randomness
from epibench.data.batch import Batch, Samples, stack
from epibench.errors import InputError

Augmentation = Callable[[Batch, int], Batch]
# The path of a socket has at most 103 bytes on some systems: in this folder, /pymp-……/listener-…… takes 32 of them.
SOCKET_FOLDER_BYTES = 70


@dataclass(frozen=True)
class Failure:
    """What went wrong in a worker, as one line: exceptions would arrive with its traceback in their text."""

    text: str


@dataclass(frozen=True)
class Stream:
    """Training samples by their running number: data in a random order that is new in every round, augmented.

    Sample n is a function of (key, n) alone, so that training goes on at any step, with any number of workers.
    """

    samples: Samples
    augment: Augmentation
    order: int  # keys of the two purposes
    change: int

    def __getitem__(self, number: int) -> Batch | Failure:
        turn, position = divmod(number, len(self.samples))
        index = int(_order(self.order, turn, len(self.samples))[position])
        key = int(randomness.bits(torch.tensor([self.change]), number, 1))
        return _guarded(lambda: self.augment(self.samples[index], key))


@dataclass(frozen=True)
class InOrder:
    """Samples as they are, one after another."""

    samples: Samples

    def __getitem__(self, number: int) -> Batch | Failure:
        return _guarded(lambda: self.samples[number])


@lru_cache(2)
def _order(key: int, turn: int, length: int) -> Tensor:
    """The order of the data in one round."""
    return randomness.permutations(torch.tensor([key]), turn, length)[0]


def _guarded(make: Callable[[], Batch]) -> Batch | Failure:
    try:
        return make()
    except InputError as error:
        return Failure(str(error))


def _collate(samples: Sequence[Batch | Failure], uneven: bool) -> list[Batch] | Failure:
    """One batch, or if they may differ in size, one for every stretch of samples of one size."""
    stretches: list[list[Batch]] = []
    for sample in samples:
        if isinstance(sample, Failure):
            return sample
        if stretches and _shapes(stretches[-1][0]) == _shapes(sample):
            stretches[-1].append(sample)
        else:
            stretches.append([sample])
    if len(stretches) > 1 and not uneven:
        sizes = sorted({tuple(stretch[0].target.shape) for stretch in stretches})
        words = ", ".join("×".join(map(str, size)) for size in sizes)
        return Failure(f"images of different sizes in one batch ({words}): give training.crop")
    return [stack(stretch) for stretch in stretches]


def _shapes(sample: Batch) -> list[tuple[int, ...]]:
    return [tuple(values.shape) for values in (sample.target, *sample.inputs.values())]


def _shorten_socket_paths(worker: int) -> None:
    """Have a worker share tensors through another temporary folder where its own has a path too long for sockets."""
    if len(os.fsencode(tempfile.gettempdir())) > SOCKET_FOLDER_BYTES:
        folders = (folder for folder in ("/tmp", "/var/tmp", "/dev/shm") if os.access(folder, os.W_OK))
        tempfile.tempdir = next(folders, None)


def batches(
    numbered: Stream | InOrder,
    numbers: Sequence[int],
    batch_size: int,
    workers: int = 0,
    pin: bool = False,
    uneven: bool = False,
) -> Iterator[Batch]:
    """Batches of the samples with these numbers, in order; uneven: where sizes change, a smaller batch ends."""
    loader = DataLoader(
        cast(Any, numbered),  # any object with samples by number will do
        batch_size,
        sampler=numbers,
        num_workers=workers,
        collate_fn=partial(_collate, uneven=uneven),
        pin_memory=pin,
        prefetch_factor=4 if workers else None,
        worker_init_fn=_shorten_socket_paths,
    )
    for stretches in loader:
        if isinstance(stretches, Failure):
            raise InputError(stretches.text)
        yield from stretches
