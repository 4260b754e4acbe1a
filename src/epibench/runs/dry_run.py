"""The memory of a training step or a pass, without doing it: the same operations on tensors that hold no numbers.

A fake tensor of PyTorch has a shape, a device and a lifetime, but no content, so that a step of the largest network
takes a second and no memory. What the libraries below PyTorch take beside its tensors is not counted.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from epibench.data.batch import Batch
from epibench.interpolation import aligned_corners
from epibench.training.network import Loss, mean_loss, upsampled


class LiveMemory(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of all tensors that operations make, until nobody holds them any more."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live, self.peak = 0, 0
        self._seen = weakref.WeakKeyDictionary[Any, None]()

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        outputs = func(*args, **(kwargs or {}))
        for each in tree_leaves(outputs):
            if isinstance(each, Tensor) and (storage := each.untyped_storage()) not in self._seen:
                self._seen[storage] = None
                self._change(storage.nbytes())
                weakref.finalize(storage, self._change, -storage.nbytes())
        return outputs

    def _change(self, by: int) -> None:
        self.live += by
        self.peak = max(self.peak, self.live)


def like(sample: Batch, size: int) -> Batch:
    """A batch of so many samples like one; where tensors are fake, without their content."""
    return sample.each(lambda each: torch.empty((size, *each.shape), dtype=each.dtype))


def step_memory(build: Callable[[], nn.Module], loss: Loss, sample: Batch, batch_size: int, mixed: bool = False) -> int:
    """The most that a training step on samples like this one takes at once, besides weights and gradients.

    mixed: in bfloat16 where PyTorch does so by itself.
    """
    with FakeTensorMode(allow_non_fake_inputs=True):
        network, batch = build().train(), like(sample, batch_size)
        for parameter in network.parameters():
            parameter.grad = torch.empty_like(parameter)  # they are counted as such, not as a part of the step
        memory = LiveMemory()
        with memory:
            with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
                raw = network(batch.inputs)
            raw = upsampled(raw.float(), batch.target.shape[1:], aligned_corners(network))
            heads = [mean_loss(loss(each, batch.target), batch.valid) for each in torch.split(raw, batch_size)]
            torch.stack(heads).sum().backward()  # type: ignore[no-untyped-call]
    return memory.peak


def pass_memory(build: Callable[[], nn.Module], sample: Batch, batch_size: int) -> tuple[int, tuple[int, ...]]:
    """The most that a pass on samples like this one takes at once, and the shape of what the network predicts."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        network, batch = build().eval(), like(sample, batch_size)
        memory = LiveMemory()
        with torch.no_grad(), memory:
            raw = network(batch.inputs)
    return memory.peak, tuple(raw.shape)
