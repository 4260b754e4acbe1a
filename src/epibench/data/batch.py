"""What a data set is, and what it yields: inputs, target, and which pixels count."""

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
    """A sample, or with one more axis in front, several.

    inputs: by name, as `image` (channel, height, width) uint8 and `sparse_depth` (1, height, width) float32 in metres,
    0 where there is none; target: (height, width), float32 or int64 classes; valid: (height, width) bool, which pixels
    of the target count. What the target holds elsewhere has no meaning.
    """

    inputs: Mapping[str, Tensor]
    target: Tensor
    valid: Tensor

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Batch:
        """The same on another device."""
        return self.each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Batch:
        """The same in memory from which copies to a GPU can run beside its work."""
        return self.each(lambda tensor: tensor.pin_memory())

    def each(self, function: Callable[[Tensor], Tensor]) -> Batch:
        """The same change to every tensor."""
        inputs = {name: function(tensor) for name, tensor in self.inputs.items()}
        return Batch(inputs, function(self.target), function(self.valid))


Layout = tuple[tuple[str, "torch.dtype", tuple[int, ...]], ...]
TARGET, VALID = ".target", ".valid"  # beside the names of inputs


@dataclass(frozen=True)
class Packed:
    """A batch as one tensor of bytes, which processes and devices hand over faster than one for each of its tensors."""

    content: Tensor
    layout: Layout

    @classmethod
    def of(cls, batch: Batch) -> Packed:
        """The batch, packed; its tensors begin at multiples of 64 bytes."""
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
        """The batch; its tensors lie in the one of bytes."""
        views = self._views()
        target, valid = views.pop(TARGET), views.pop(VALID)
        return Batch(views, target, valid)

    def pin_memory(self) -> Packed:
        """The same in memory from which copies to a GPU can run beside its work."""
        return Packed(self.content.pin_memory(), self.layout)

    def to(self, device: torch.device | str) -> Packed:
        """The same on another device."""
        return Packed(self.content.to(device, non_blocking=True), self.layout)


def _room(size: int) -> int:
    return -(-size // 64) * 64


@dataclass(frozen=True)
class Points:
    """What small networks learn from. inputs: (point, feature) float32; target: (point,), float32 or int64 classes."""

    inputs: Tensor
    target: Tensor


class Samples(Protocol):
    """A data set: samples by number."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Batch: ...


class LabelledSamples(Samples, Protocol):
    """A data set for segmentation: its targets are numbers of these classes."""

    @property
    def classes(self) -> ClassTable:
        """What the targets stand for."""

    def frame_id(self, index: int) -> str:
        """What a frame is called."""


def notes_on(samples: Samples) -> list[str]:
    """The `notes` of a data set: sentences for results and pages, usually none."""
    notes = getattr(samples, "notes", ())
    return [str(note) for note in notes] if isinstance(notes, list | tuple) else []


def stack(samples: Sequence[Batch]) -> Batch:
    """Samples of one size as one batch; the `collate_fn` of a DataLoader."""
    import torch

    return Batch(
        {name: torch.stack([sample.inputs[name] for sample in samples]) for name in samples[0].inputs},
        torch.stack([sample.target for sample in samples]),
        torch.stack([sample.valid for sample in samples]),
    )


def check_index(index: int, length: int, name: str) -> int:
    """The index as Python's own; negative ones are out of range, too."""
    index = operator.index(index)
    if not 0 <= index < length:  # ends a for loop over the data set
        raise IndexError(f"{name} has frames 0 to {length - 1}, not {index}")
    return index


def first_samples(samples: Samples, number: int | None) -> Samples:
    """The first so many samples, or all."""
    return samples if number is None or number >= len(samples) else FirstSamples(samples, number)


class SamplesView:
    """A data set seen in another way; its names, its classes and all else are those of the data set."""

    def __init__(self, samples: Samples):
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "samples":  # while it is unpickled, there are no samples yet
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
