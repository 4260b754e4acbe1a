"""Samples in batches that worker processes load ahead. The number of processes changes no value."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple, cast

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader

from epibench import randomness
from epibench.data.batch import Batch, Layout, Packed, Samples, stack
from epibench.data.loaded_ahead import loaded_ahead
from epibench.data.shared_memory import can_share_memory
from epibench.errors import InputError
from epibench.stopping import leave_to_parent

Augmentation = Callable[[Batch, int], Batch]
Join = Callable[[Sequence[Batch]], Batch]
Same = Callable[[Batch], list[tuple[int, ...]]]
# Workers share tensors through a socket in the temporary folder, whose path has at most 103 bytes on some systems.
# /pymp-……/listener-…… takes 32 of them. Below a longer folder workers would wait forever.
SOCKET_FOLDER_BYTES = 70


class Bytes(NamedTuple):
    """A packed batch as an array, which workers can send through a pipe instead of sharing tensors."""

    content: NDArray[Any]
    layout: Layout


@dataclass(frozen=True)
class Failure:
    """An error of a worker as one line. An exception would arrive with its traceback in the text."""

    text: str


@dataclass(frozen=True)
class Stream:
    """Augmented training samples by running number, in a new random order in every round.

    Sample n is a function of (key, n) alone, so that training resumes at any step, with any number of workers.
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
    """Samples without changes, in their order."""

    samples: Samples

    def __getitem__(self, number: int) -> Batch | Failure:
        return _guarded(lambda: self.samples[number])


@lru_cache(2)
def _order(key: int, turn: int, length: int) -> Tensor:
    """Return the order of the data in one round."""
    return randomness.permutations(torch.tensor([key]), turn, length)[0]


def _guarded(make: Callable[[], Batch]) -> Batch | Failure:
    try:
        return make()
    except InputError as error:
        return Failure(str(error))


def _collate(
    samples: Sequence[Batch | Failure], uneven: bool, as_arrays: bool, join: Join, same: Same
) -> list[Packed] | list[Bytes] | Failure:
    """Return one packed batch; if sizes may differ, one for each run of samples of one size."""
    alike: list[list[Batch]] = []
    for sample in samples:
        if isinstance(sample, Failure):
            return sample
        if alike and same(alike[-1][0]) == same(sample):
            alike[-1].append(sample)
        else:
            alike.append([sample])
    if len(alike) > 1 and not uneven:
        sizes = sorted({same(some[0])[0] for some in alike})
        words = ", ".join("×".join(map(str, size)) for size in sizes)
        return Failure(f"images of different sizes in one batch ({words}): give training.crop")
    packed = [Packed.of(join(some)) for some in alike]
    return [Bytes(each.content.numpy(), each.layout) for each in packed] if as_arrays else packed


def shapes(sample: Batch) -> list[tuple[int, ...]]:
    """Return the shapes of a sample's tensors, the target's first. Samples of a batch have equal shapes."""
    return [tuple(values.shape) for values in (sample.target, *sample.inputs.values())]


def batches(
    numbered: Stream | InOrder,
    numbers: Sequence[int],
    batch_size: int,
    workers: int = 0,
    pin: bool = False,
    uneven: bool = False,
) -> Iterator[Batch]:
    """Yield batches of the samples with these numbers, in order.

    With `uneven`, a batch ends early if the next sample has another size.
    """
    for packed in packed_batches(numbered, numbers, batch_size, workers, pin, uneven):
        yield packed.batch


def packed_batches(
    numbered: Stream | InOrder,
    numbers: Sequence[int],
    batch_size: int,
    workers: int = 0,
    pin: bool = False,
    uneven: bool = False,
    join: Join = stack,
    same: Same = shapes,
    reuse: bool = False,
) -> Iterator[Packed]:
    """Yield batches as `batches` does, each in one tensor.

    Args:
        numbered: Samples by number.
        numbers: Numbers of the samples.
        batch_size: Size of batches.
        workers: Number of loading processes.
        pin: Whether batches lie in pinned memory, for a GPU.
        uneven: Whether sizes may differ.
        join: Joins samples into a batch.
        same: Returns what samples of a batch have in common, with their size first.
        reuse: Whether memory may be reused: batches have one size, and each is copied before the next is requested.
    """
    if reuse and pin and workers and can_share_memory():
        make = partial(_made, numbered, join=join, same=same)
        parts = [numbers[first : first + batch_size] for first in range(0, len(numbers), batch_size)]
        yield from loaded_ahead(make, parts, workers, pin)
        return
    as_arrays = workers > 0 and len(os.fsencode(tempfile.gettempdir())) > SOCKET_FOLDER_BYTES
    loader = DataLoader(
        cast(Any, numbered),  # any object with samples by number
        batch_size,
        sampler=numbers,
        num_workers=workers,
        collate_fn=partial(_collate, uneven=uneven, as_arrays=as_arrays, join=join, same=same),
        pin_memory=pin,
        prefetch_factor=4 if workers else None,
        worker_init_fn=leave_to_parent,
    )
    for loaded in loader:
        if isinstance(loaded, Failure):
            raise InputError(loaded.text)
        for each in loaded:
            yield Packed(torch.as_tensor(each.content), each.layout)


def _made(numbered: Stream | InOrder, numbers: Sequence[int], join: Join, same: Same) -> Packed | str:
    """Return the batch of these samples, or the error of one of them."""
    made = _collate([numbered[number] for number in numbers], uneven=False, as_arrays=False, join=join, same=same)
    return made.text if isinstance(made, Failure) else cast(Packed, made[0])
