"""Calibration of predictive intervals: the coverage of central intervals of level p (AUCE)."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from epibench.metrics.info import infos
from epibench.metrics.plotting import CurvePlot
from epibench.metrics.ranking import accumulate, bin_edges, bin_index
from epibench.metrics.streaming import Array, StreamingMetric, each_row, trapezoid, value_of

NUM_LEVELS = 99
# Coarse enough for a small table, fine enough that no bin holds two half-widths: these are 2 % apart, bins 1.6 % wide.
TABLE_BITS = 14
INTERVAL_LEVEL = 90


def levels(device: torch.device | None = None) -> Tensor:
    """The levels p = 0.01 … 0.99."""
    return torch.arange(1, NUM_LEVELS + 1, dtype=torch.float64, device=device) / (NUM_LEVELS + 1)


def half_widths(device: torch.device | None = None) -> Tensor:
    """Φ⁻¹((p+1)/2) for each level: half the length of the central interval of N(0, 1)."""
    quantiles: Tensor = torch.special.ndtri((levels(device) + 1) / 2)
    return quantiles


class IntervalCalibration(StreamingMetric):
    """AUCE: area between the coverage of central intervals and their level; exact, with one counter per level.

    `update(mean, std, target)`. `compute()` gives `auce`, `auce_signed` (positive: under-confident) and
    `interval_length`, the mean length of the 90 % interval. NaN without pixels.
    """

    higher_is_better = False
    info = infos("auce", "auce_signed", "interval_length")
    curve_plot = CurvePlot(("coverage",), "level of the interval", "share of targets inside", diagonal=True)
    level_counts: Tensor
    std_sum: Tensor

    def __init__(self, num_draws: int | None = None, **kwargs: Any) -> None:
        super().__init__(num_draws, **kwargs)
        self.add_counts("level_counts", NUM_LEVELS + 1)
        self.add_sums("std_sum")

    def update(self, mean: Array, std: Array, target: Array) -> None:
        """Add pixels. mean, std: (draw, …) with `num_draws`, otherwise (…); target: (…)."""
        each_row(self._add, *self.gaussian_pixels(mean, target, std=std))

    def _add(self, rows: slice, mean: Tensor, std: Tensor, target: Tensor) -> None:
        std = std.to(torch.float64)
        accumulate(first_covering_level(mean.to(torch.float64), std, target), (self.level_counts[rows], None))
        self.std_sum[rows] += std.sum(1)

    def compute(self) -> dict[str, Tensor]:
        """The area, the signed area and the mean length of the 90 % interval, each one value per draw."""
        gap = self._coverage() - levels(self.device)
        return {
            "auce": self.result(trapezoid(gap.abs())),
            "auce_signed": self.result(trapezoid(gap)),
            "interval_length": self.result(self._interval_length()[:, INTERVAL_LEVEL - 1]),
        }

    def curves(self) -> dict[str, Tensor]:
        """Coverage and mean interval length at each of the 99 levels."""
        with self.all_processes():
            return {
                "x": levels(self.device),
                "coverage": self.result(self._coverage()),
                "interval_length": self.result(self._interval_length()),
            }

    def _coverage(self) -> Tensor:
        covered = self.level_counts.cumsum(1)
        return covered[:, :-1] / covered[:, -1:].to(torch.float64)

    def _interval_length(self) -> Tensor:
        mean_std = self.std_sum[:, None] / self.level_counts.sum(1, keepdim=True)
        return 2 * half_widths(self.device) * mean_std


def first_covering_level(mean: Tensor, std: Tensor, target: Tensor) -> Tensor:
    """Index of the smallest level whose closed interval covers the target, 99 if none does; int64.

    σ = 0 covers at every level if y = μ and at none otherwise.
    """
    distance = (target - mean).abs_()
    # 0/0 is covered at every level; σ may be −0.0.
    ratio = (distance / std).nan_to_num_(0.0, posinf=torch.inf).abs_()
    table, edges = _level_table(ratio.device)
    level = table.index_select(0, bin_index(ratio.to(torch.float32), TABLE_BITS).flatten()).view_as(ratio)
    edge = edges.index_select(0, level.flatten()).view_as(ratio)
    # Not ratio > edge: the interval is closed, and a quotient is rounded differently from the product.
    return level.add_(distance > edge.mul_(std))


@cache
def _level_table(device: torch.device) -> tuple[Tensor, Tensor]:
    """For each bin of |y − μ|/σ the half-widths below it, and the half-widths with ∞ behind them.

    A table instead of a binary search, three times as fast: from the level of the bin it is at most one step up.
    """
    edges = half_widths(device)
    lower = bin_edges(TABLE_BITS, device).roll(1)
    lower[0] = 0
    return torch.searchsorted(edges, lower, right=True), torch.cat([edges, edges.new_full((1,), torch.inf)])


def auce(mean: Array, std: Array, target: Array) -> Tensor:
    """Area under the calibration error curve of Gaussian predictions, of whole arrays."""
    return value_of(IntervalCalibration(), "auce", mean, std, target)
