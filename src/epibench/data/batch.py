"""The contract of data sets: samples with inputs, target and valid mask."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from epibench.data.classes import ClassTable


@dataclass(frozen=True)
class Batch:
    """A sample; or several samples, with one more axis in front.

    The target has no meaning where it is not valid.

    Args:
        inputs: Inputs by name, e.g. `image` (channel, height, width) uint8 and `sparse_depth` (1, height, width)
            float32 in metres, 0 without a point.
        target: (height, width), float32 or int64 classes.
        valid: (height, width) bool, the pixels of the target that count.
    """

    inputs: Mapping[str, Tensor]
    target: Tensor
    valid: Tensor

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Batch:
        """Return the batch on another device."""
        return self.each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Batch:
        """Return the batch in pinned memory, from which a GPU copies in parallel to its work."""
        return self.each(lambda tensor: tensor.pin_memory())

    def each(self, function: Callable[[Tensor], Tensor]) -> Batch:
        """Return the batch with a function applied to every tensor."""
        inputs = {name: function(tensor) for name, tensor in self.inputs.items()}
        return Batch(inputs, function(self.target), function(self.valid))


Layout = tuple[tuple[str, "torch.dtype", tuple[int, ...]], ...]
TARGET, VALID = ".target", ".valid"  # beside the names of inputs


@dataclass(frozen=True)
class Packed:
    """A batch as one tensor of bytes, which processes and devices transfer faster than several tensors."""

    content: Tensor
    layout: Layout

    @classmethod
    def of(cls, batch: Batch) -> Packed:
        """Return the packed batch, whose tensors begin at multiples of 64 bytes."""
        import torch

        tensors = {TARGET: batch.target, VALID: batch.valid, **batch.inputs}
        layout = tuple((name, each.dtype, tuple(each.shape)) for name, each in tensors.items())
        content = torch.empty(sum(_room(each.nbytes) for each in tensors.values()), dtype=torch.uint8)
        packed = cls(content, layout)
        for own, each in zip(packed._views().values(), tensors.values(), strict=True):
            own.copy_(each)
        return packed

    def _views(self) -> dict[str, Tensor]:
        views, start = {}, 0
        for name, dtype, shape in self.layout:
            size = math.prod(shape) * dtype.itemsize
            views[name] = self.content[start : start + size].view(dtype).view(shape)
            start += _room(size)
        return views

    @property
    def batch(self) -> Batch:
        """The batch, with tensors as views of the bytes."""
        views = self._views()
        target, valid = views.pop(TARGET), views.pop(VALID)
        return Batch(views, target, valid)

    def pin_memory(self) -> Packed:
        """Return it in pinned memory, from which a GPU copies in parallel to its work."""
        return Packed(self.content.pin_memory(), self.layout)

    def to(self, device: torch.device | str) -> Packed:
        """Return it on another device."""
        return Packed(self.content.to(device, non_blocking=True), self.layout)


def _room(size: int) -> int:
    return -(-size // 64) * 64


@dataclass(frozen=True)
class Points:
    """Training data of small networks. inputs: (point, feature) float32; target: (point,), float32 or int64 classes."""

    inputs: Tensor
    target: Tensor


class Samples(Protocol):
    """A data set: samples by index."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Batch: ...


class LabelledSamples(Samples, Protocol):
    """A data set for segmentation, whose targets are indices of its classes."""

    @property
    def classes(self) -> ClassTable:
        """The classes of the targets."""

    def frame_id(self, index: int) -> str:
        """Return the name of a frame."""


def notes_on(samples: Samples) -> list[str]:
    """Return the `notes` of a data set: sentences for results and pages, usually none."""
    notes = getattr(samples, "notes", ())
    return [str(note) for note in notes] if isinstance(notes, list | tuple) else []


def stack(samples: Sequence[Batch]) -> Batch:
    """Stack samples of one size into a batch; the `collate_fn` of a DataLoader."""
    import torch

    return Batch(
        {name: torch.stack([sample.inputs[name] for sample in samples]) for name in samples[0].inputs},
        torch.stack([sample.target for sample in samples]),
        torch.stack([sample.valid for sample in samples]),
    )


def check_index(index: int, length: int, name: str) -> int:
    """Return a valid index as an int; negative indices are out of range."""
    index = operator.index(index)
    if not 0 <= index < length:  # ends a for loop over the data set
        raise IndexError(f"{name} has frames 0 to {length - 1}, not {index}")
    return index


def first_samples(samples: Samples, number: int | None) -> Samples:
    """Return the first `number` samples; None: all."""
    return samples if number is None or number >= len(samples) else FirstSamples(samples, number)


class SamplesView:
    """A changed view of a data set. Other attributes, e.g. names and classes, are the data set's."""

    def __init__(self, samples: Samples):
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "samples":  # while it is unpickled, `samples` does not exist yet
            raise AttributeError(name)
        return getattr(self.samples, name)


class FirstSamples(SamplesView):
    """The first samples of a data set."""

    def __init__(self, samples: Samples, number: int):
        super().__init__(samples)
        self.number = number

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: int) -> Batch:
        return self.samples[check_index(index, self.number, "the first part")]
