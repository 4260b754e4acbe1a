"""Samples in batches, loaded ahead by worker processes; what is loaded does not depend on their number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from epibench import randomness
from epibench.data.batch import Batch, stack
from epibench.errors import InputError

Augmentation = Callable[[Batch, int], Batch]


class Samples(Protocol):
    """A data set: samples by number."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Batch: ...


@dataclass(frozen=True)
class Failure:
    """What went wrong in a worker, as one line: exceptions would arrive with its traceback in their text."""

    text: str


@dataclass(frozen=True)
class Stream(Dataset["Batch | Failure"]):
    """Training samples by their running number: data in a random order that is new in every round, augmented.

    Sample n is a function of (key, n) alone, so that training goes on at any step, with any number of workers.
    """

    samples: Samples
    augment: Augmentation
    order: int  # keys of the two purposes
    change: int

    def __getitem__(self, number: int) -> Batch | Failure:
        turn, place = divmod(number, len(self.samples))
        index = int(_order(self.order, turn, len(self.samples))[place])
        key = int(randomness.bits(torch.tensor([self.change]), number, 1))
        return _guarded(lambda: self.augment(self.samples[index], key))


@dataclass(frozen=True)
class InOrder(Dataset["Batch | Failure"]):
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


def _collate(samples: Sequence[Batch | Failure]) -> Batch | Failure:
    good = []
    for sample in samples:
        if isinstance(sample, Failure):
            return sample
        good.append(sample)
    try:
        return stack(good)
    except RuntimeError:
        sizes = sorted({tuple(sample.target.shape) for sample in good})
        words = ", ".join("×".join(map(str, size)) for size in sizes)
        return Failure(f"images of different sizes in one batch ({words}): crop them, or set evaluation.batch_size=1")


def batches(
    dataset: Dataset[Batch | Failure], numbers: Sequence[int], batch_size: int, workers: int = 0, pin: bool = False
) -> Iterator[Batch]:
    """Batches of the samples with these numbers, in order."""
    loader = DataLoader(
        dataset,
        batch_size,
        sampler=numbers,
        num_workers=workers,
        collate_fn=_collate,
        pin_memory=pin,
        prefetch_factor=4 if workers else None,
    )
    for batch in loader:
        if isinstance(batch, Failure):
            raise InputError(batch.text)
        yield batch
