"""What all metrics share: states of constant size that add up, one row per draw.

Inputs are flattened to (draw, pixel). A metric made with `num_draws=None` takes arrays of any shape and returns
scalars; with `num_draws=D` the first axis of each per-draw input is the draw and each result has shape (D,).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self, SupportsFloat

import numpy.typing as npt
import torch
from torch import Tensor
from torchmetrics import Metric

Array = Tensor | npt.NDArray[Any] | list[Any] | SupportsFloat

# Work on pieces that stay in the processor's cache; on a GPU, on pieces large enough to fill it.
CPU_PIECE = 2**17
GPU_PIECE = 2**25
SUM_BLOCK = 1024


class StreamingMetric(Metric):
    """A torchmetrics.Metric whose states are sums, so that they stream, merge and sync by addition.

    `compute()` returns a dict of named values, `curves()` a dict of named curves where the metric has any.
    """

    is_differentiable = False
    full_state_update = False

    def __init__(self, num_draws: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if num_draws is not None and num_draws < 1:
            raise ValueError(f"num_draws must be at least 1, not {num_draws}")
        self.num_draws = num_draws

    def add_sums(self, name: str, *shape: int, dtype: torch.dtype = torch.float64) -> None:
        """Declare a state of shape (draw, *shape) that adds up over batches, workers and shards."""
        rows = self.num_draws or 1
        self.add_state(name, torch.zeros((rows, *shape), dtype=dtype), dist_reduce_fx="sum")

    def add_counts(self, name: str, *shape: int) -> None:
        """Declare a state of int64 counts: float32 stops counting at 2²⁴."""
        self.add_sums(name, *shape, dtype=torch.int64)

    def rows(self, values: Array, trailing: int = 0) -> Tensor:
        """`values` as (draw, pixel, *trailing axes) on this metric's device; a missing draw axis is added."""
        tensor = torch.as_tensor(values, device=self.device)
        tail = tensor.shape[tensor.ndim - trailing :]
        if self.num_draws is None:
            return tensor.reshape(1, -1, *tail)
        if tensor.ndim < 1 + trailing or tensor.shape[0] != self.num_draws:
            raise ValueError(
                f"{type(self).__name__}(num_draws={self.num_draws}): the first axis must have length "
                f"{self.num_draws}, but the shape is {tuple(tensor.shape)}"
            )
        return tensor.reshape(self.num_draws, -1, *tail)

    def shared(self, values: Array) -> Tensor:
        """What is the same for all draws, such as the target, as (1, pixel)."""
        return torch.as_tensor(values, device=self.device).reshape(1, -1)

    def result(self, values: Tensor) -> Tensor:
        """Drop the draw axis again where the metric was made without one."""
        return values[0] if self.num_draws is None else values

    def merge(self, other: Self) -> Self:
        """Add the state of `other`, which has seen other pixels, to this one."""
        if type(other) is not type(self) or _shapes(other) != _shapes(self):
            raise ValueError(
                f"cannot merge {type(other).__name__} with states {_shapes(other)} into "
                f"{type(self).__name__} with states {_shapes(self)}"
            )
        self.merge_state(other)
        self._update_count += other._update_count
        self._computed = None
        return self


def _shapes(metric: Metric) -> dict[str, tuple[int, ...] | None]:
    """The shape of each state; None for a list that grows."""
    return {name: tuple(state.shape) if isinstance(state, Tensor) else None for name, state in metric._defaults.items()}


def same_pixels(**tensors: Tensor) -> None:
    """Raise unless all (draw, pixel, …) tensors have the same number of pixels."""
    sizes = {name: tensor.shape[1] for name, tensor in tensors.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError("the numbers of pixels differ: " + ", ".join(f"{k} has {v:,}" for k, v in sizes.items()))


def pieces(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Cut (draw, pixel, …) tensors into pieces along the pixels that keep temporaries small."""
    elements = max(tensor[:, :1].numel() for tensor in tensors)
    size = max(1, (GPU_PIECE if tensors[0].is_cuda else CPU_PIECE) // max(1, elements))
    for start in range(0, tensors[0].shape[1], size):
        yield tuple(tensor[:, start : start + size] for tensor in tensors)


def pixel_sum(values: Tensor) -> Tensor:
    """Σ over pixels of (draw, pixel) in float64, in an order that does not depend on the number of threads."""
    values = values.to(torch.float64)
    draws, num_pixels = values.shape
    whole = num_pixels - num_pixels % SUM_BLOCK
    # A long row would be split among threads; rows of a thousand are not.
    blocks = values[:, :whole].reshape(draws, -1, SUM_BLOCK).sum(2)
    if blocks.shape[1] > SUM_BLOCK:
        return pixel_sum(blocks) + values[:, whole:].sum(1)
    return blocks.sum(1) + values[:, whole:].sum(1)


def trapezoid(values: Tensor, step: float = 0.01) -> Tensor:
    """Area under equally spaced values along the last axis."""
    return step * (values.sum(-1) - 0.5 * (values[..., 0] + values[..., -1]))
