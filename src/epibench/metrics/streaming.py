"""Common parts of all metrics: states of constant size that add up, one row per draw.

Inputs are flattened to (draw, pixel). A metric made with `num_draws=None` takes arrays of any shape and returns
scalars; with `num_draws=D` the first axis of each per-draw input is the draw and each result has shape (D,).

Three things need private parts of torchmetrics: the names of states, restoring a metric as updated, and a sync outside
of `compute()`. Other code in epibench uses no private parts. tests/metrics/test_torchmetrics.py fails if a new version
changes one of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from operator import itemgetter
from typing import Any, ClassVar, Self, SupportsFloat, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import Module
from torchmetrics import Metric
from torchmetrics.metric import CompositionalMetric

from epibench.metrics.checks import check_finite, check_keys, same_pixels
from epibench.metrics.info import MetricInfo
from epibench.metrics.plotting import CurvePlot, Plotted, plot_curves, plot_values
from epibench.parallel import in_threads

Array = Tensor | npt.NDArray[Any] | list[Any] | SupportsFloat

# Pieces whose temporaries stay in the processor's cache, long enough that Python costs little; on a GPU, pieces large
# enough to fill it.
CPU_PIECE = 2**17
GPU_PIECE = 2**26
TRIED_ON = "1.9.0"  # the version of torchmetrics
PRIVATE_ATTRIBUTES = ("_computed", "_defaults", "_forward_cache", "_should_unsync", "_to_sync", "_update_count")


class StreamingMetric(Metric):
    """A torchmetrics.Metric whose states are sums, so that they stream, merge and sync by addition.

    `compute()` returns a dict of named values, which `info` describes. `metric["ause"]` is one value as a metric.
    `curves()` returns a dict of named curves and their `x`, if any; `curve_plot` describes their plot.
    """

    is_differentiable = False
    full_state_update = False
    info: ClassVar[Mapping[str, MetricInfo]] = {}
    curve_plot: ClassVar[CurvePlot | None] = None
    settings: tuple[str, ...] = ("num_draws",)  # attributes that must agree for states to add up

    def __init__(self, num_draws: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if num_draws is not None and num_draws < 1:
            raise ValueError(f"num_draws must be at least 1, not {num_draws}")
        self.num_draws = num_draws
        self.updated_value: str | None = None  # the value that has received pixels since the last reset
        self._values: dict[str, MetricValue] = {}

    def __getitem__(self, name: str) -> MetricValue:  # type: ignore[override]
        """Return one value by name, as a metric with the same state.

        `self.log` of Lightning takes such a metric, and it can be drawn.
        """
        if name not in self.info:
            raise KeyError(f"{type(self).__name__} has no value {name!r}; it has {', '.join(self.info)}")
        if name not in self._values:
            self._values[name] = MetricValue(self, name)
        return self._values[name]

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """Yield this metric and its values: Lightning searches here for logged metrics."""
        memo = set() if memo is None else memo
        yield from super().named_modules(memo, prefix, remove_duplicate)
        for name in self.info:
            value = self[name]
            if value not in memo:
                memo.add(value)
                yield f"{prefix}.{name}" if prefix else name, value

    def reset(self) -> None:
        """Remove all pixels."""
        super().reset()
        self.updated_value = None

    def plot(self, val: Any = None, ax: Any = None) -> Plotted:
        """Draw `val`, or the metric's curves, or its values if it has no curves.

        `val` is one result, or a list of the results of each step. Returns figure and axes. Needs matplotlib.
        """
        if val is None and self.curve_plot is not None:
            return plot_curves(self.curves(), self.curve_plot, ax)
        return plot_values(self.compute() if val is None else val, self.info, ax)

    def add_sums(self, name: str, *shape: int, dtype: torch.dtype = torch.float64) -> None:
        """Declare a state of shape (draw, *shape) that adds up over batches, workers and shards."""
        zeros = torch.zeros((), dtype=dtype).expand(self.num_draws or 1, *shape)
        self.add_state(name, zeros, dist_reduce_fx="sum")
        self._defaults[name] = zeros  # the default of `reset` takes no memory
        setattr(self, name, zeros.clone(memory_format=torch.contiguous_format))

    def add_counts(self, name: str, *shape: int) -> None:
        """Declare a state of int64 counts: float32 stops counting at 2²⁴."""
        self.add_sums(name, *shape, dtype=torch.int64)

    def rows(self, values: Array, trailing: int = 0) -> Tensor:
        """Return `values` as (draw, pixel, *trailing axes) on this metric's device, with a draw axis."""
        tensor = to_tensor(values, self.device)
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
        """Return values that all draws share, e.g. the target, as (1, pixel)."""
        return to_tensor(values, self.device).reshape(1, -1)

    def gaussian_pixels(self, mean: Array, target: Array, **spread: Array) -> tuple[Tensor, Tensor, Tensor]:
        """Return means and their `std` or `variance` (draw, pixel), and targets (1, pixel), checked."""
        ((name, values),) = spread.items()
        means, spreads, targets = self.rows(mean), self.rows(values), self.shared(target)
        same_pixels(mean=means, target=targets, **{name: spreads})
        check_keys(spreads, name, finite=True)
        check_finite(mean=means, target=targets)
        return means, spreads, targets

    def result(self, values: Tensor) -> Tensor:
        """Drop the draw axis if the metric was made without one."""
        return values[0] if self.num_draws is None else values

    def curves(self) -> dict[str, Tensor]:
        """Return named curves over the abscissa `x`, one row per draw; none by default."""
        return {}

    def as_published(self) -> dict[str, Tensor]:
        """Return the values of the same states under `gustafsson2020`, e.g. `ece_gustafsson2020`; by default none."""
        with self.all_processes():
            return self._published()

    def _published(self) -> dict[str, Tensor]:
        return {}

    def merge(self, other: Self) -> Self:
        """Add the state of `other`, which has seen other pixels, to this one."""
        if type(other) is not type(self) or _settings(other) != _settings(self):
            raise ValueError(
                f"cannot merge {type(other).__name__} with {_settings(other)} into "
                f"{type(self).__name__} with {_settings(self)}"
            )
        for name in self.state_names:  # not merge_state, which would put the kept pixels of `other` first
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self._update_count += other._update_count
        self.forget_result()
        return self

    @property
    def state_names(self) -> tuple[str, ...]:
        """The attributes that hold the state, in the order in which they were declared."""
        return tuple(self._defaults)

    def mark_updated(self) -> None:
        """Mark as updated: torchmetrics warns in `compute()` without an `update()`, also after restoring."""
        self._update_count = max(1, self._update_count)

    def forget_result(self) -> None:
        """Discard the computed result after a change of the state without `update()`."""
        self._computed = None

    def all_processes(self) -> AbstractContextManager[None]:
        """Return a context in which states are sums over all processes, as within `compute()`."""
        context: AbstractContextManager[None] = self.sync_context(
            dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync, should_unsync=self._should_unsync
        )
        return context


class MetricValue(CompositionalMetric):
    """One value of a metric, by name: `compute()` and `forward()` return a tensor. It has the metric's state.

    Pixels must come through the metric or through one of its values: several of them would count pixels several times.
    """

    def __init__(self, metric: StreamingMetric, name: str) -> None:
        super().__init__(itemgetter(name), metric, None)
        self.name = name

    @property
    def info(self) -> MetricInfo:
        """The description of the value."""
        return self._metric.info[self.name]

    @property
    def higher_is_better(self) -> bool | None:  # type: ignore[override]
        """The value's direction; None if neither direction is better."""
        return {"lower": False, "higher": True}.get(self.info.better)

    @property
    def device(self) -> torch.device:
        """The device of the state."""
        return self._metric.device

    @property
    def update_called(self) -> bool:
        """Whether there are pixels, through any value."""
        return self._metric.update_called

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Update the metric."""
        self._be_the_only_one()
        super().update(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Update the metric, and return the value of these pixels alone."""
        self._be_the_only_one()
        value = super().forward(*args, **kwargs)
        self._be_the_only_one()  # torchmetrics resets a metric to compute the value of a batch
        return value

    def compute(self) -> Tensor:
        """Return the value, one per draw."""
        values = self._metric.compute()
        if self.name not in values:
            raise KeyError(f"{self._metric} as it was made gives {', '.join(values)}, and no {self.name!r}")
        value: Tensor = values[self.name]
        return value

    def plot(self, val: Any = None, ax: Any = None) -> Plotted:
        """Draw the value, or `val`: one value, or a list of values of each step. Returns figure and axes."""
        return plot_values(self.compute() if val is None else val, {self.name: self.info}, ax)

    def _be_the_only_one(self) -> None:
        other = self._metric.updated_value
        if other not in (None, self.name):
            raise ValueError(
                f"{self._metric}: pixels have come through its value {other!r}, and would count twice if they came "
                f"through {self.name!r} too; update the metric itself, or one of its values"
            )
        self._metric.updated_value = self.name

    @property
    def _metric(self) -> StreamingMetric:
        return cast(StreamingMetric, self.metric_a)

    @property  # type: ignore[override]
    def _forward_cache(self) -> Tensor | None:
        """The value that Lightning logs on each step, also if the metric itself was called."""
        values = self._metric._forward_cache
        return None if values is None else values.get(self.name)

    @_forward_cache.setter
    def _forward_cache(self, value: Any) -> None:
        """Ignore the value: the metric keeps it."""

    def __repr__(self) -> str:
        return f"{self._metric!r}[{self.name!r}]"


def to_tensor(values: Array, device: torch.device | None = None) -> Tensor:
    """Return values as a tensor without a gradient; lists and numbers as float64, as in NumPy."""
    if isinstance(values, Tensor):
        return values.detach().to(device)
    array = np.asarray(values)
    if not (array.dtype.isnative and array.flags.writeable and all(stride >= 0 for stride in array.strides)):
        array = array.astype(array.dtype.newbyteorder("="))  # torch would refuse or warn about other arrays
    return torch.from_numpy(array).to(device)


def _settings(metric: StreamingMetric) -> dict[str, Any]:
    values = {name: getattr(metric, name) for name in metric.settings}
    return {name: value.tolist() if isinstance(value, Tensor) else value for name, value in values.items()}


def value_of(metric: StreamingMetric, name: str, *pixels: Array) -> Tensor:
    """Return one value of a new metric for whole arrays."""
    metric.update(*pixels)
    value: Tensor = metric.compute()[name]
    return value


def pieces(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Split (draw, pixel, …) tensors along the pixels into pieces with small temporaries."""
    elements = max(tensor[:, :1].numel() for tensor in tensors)
    size = max(1, (GPU_PIECE if tensors[0].is_cuda else CPU_PIECE) // max(1, elements))
    for start in range(0, tensors[0].shape[1], size):
        yield tuple(tensor[:, start : start + size] for tensor in tensors)


def each_row(work: Callable[..., None] | Sequence[Callable[..., None]], *tensors: Tensor) -> None:
    """Call every work with (rows, *pieces) for all of the (draw or 1, pixel, …) tensors.

    On a CPU a call has a few draws, with their pixels in order. Threads process other draws and works in parallel. So
    sums do not depend on the number of threads. On a GPU a call has all draws.
    """
    draws = max(tensor.shape[0] for tensor in tensors)
    together = draws if tensors[0].is_cuda else max(1, CPU_PIECE // max(1, *(tensor[0].numel() for tensor in tensors)))
    rows = [slice(draw, draw + together) for draw in range(0, draws, together)]

    def run(task: tuple[Callable[..., None], slice]) -> None:
        function, row = task
        for piece in pieces(*(tensor if tensor.shape[0] == 1 else tensor[row] for tensor in tensors)):
            function(row, *piece)

    works = work if isinstance(work, Sequence) else [work]
    tasks = list(itertools.product(works, rows))
    if tensors[0].is_cuda or tensors[0].numel() * draws < CPU_PIECE:
        for task in tasks:
            run(task)
    else:
        in_threads(run, tasks)


def trapezoid(values: Tensor, step: float = 0.01) -> Tensor:
    """Area under equally spaced values along the last axis."""
    return step * (values.sum(-1) - 0.5 * (values[..., 0] + values[..., -1]))
