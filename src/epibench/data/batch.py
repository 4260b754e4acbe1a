"""What every data set yields: inputs, target, and which pixels count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


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
        inputs = {name: tensor.to(device, non_blocking=non_blocking) for name, tensor in self.inputs.items()}
        target, valid = (tensor.to(device, non_blocking=non_blocking) for tensor in (self.target, self.valid))
        return Batch(inputs, target, valid)

    def pin_memory(self) -> Batch:
        """The same in memory from which copies to a GPU can run beside its work."""
        inputs = {name: tensor.pin_memory() for name, tensor in self.inputs.items()}
        return Batch(inputs, self.target.pin_memory(), self.valid.pin_memory())


def stack(samples: Sequence[Batch]) -> Batch:
    """Samples of one size as one batch; the `collate_fn` of a DataLoader."""
    return Batch(
        {name: torch.stack([sample.inputs[name] for sample in samples]) for name in samples[0].inputs},
        torch.stack([sample.target for sample in samples]),
        torch.stack([sample.valid for sample in samples]),
    )
