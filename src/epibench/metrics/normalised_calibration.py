"""Expected normalised calibration error: whether predicted variances match squared errors, bin by bin (ENCE)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from epibench.metrics import ranking
from epibench.metrics.checks import check_keys, same_pixels
from epibench.metrics.info import infos
from epibench.metrics.prediction_errors import squared_error
from epibench.metrics.ranking import PartialSum
from epibench.metrics.streaming import Array, StreamingMetric, each_row, to_tensor

ENCE_BITS = 16


class NormalisedCalibration(StreamingMetric):
    """ENCE (Levi et al. 2020): mean over bins of equal mass of σ of |RMV − RMSE| / RMV.

    Bin j holds the pixels of rank ⌊jN/bins⌋ … ⌊(j+1)N/bins⌋ − 1 by variance; equal variances count with their mean
    squared error. `update(mean, variance, target)`. `compute()` gives `ence` and `ence_bound`, the largest deviation
    from the exact value. NaN without pixels, infinite if a bin of zero variances has errors.
    """

    higher_is_better = False
    info = infos("ence", "ence_bound")
    settings = ("num_draws", "bins", "bits")
    variance_counts: Tensor
    variance_sums: Tensor
    variance_errors: Tensor

    def __init__(self, bins: int = 10, num_draws: int | None = None, *, bits: int = ENCE_BITS, **kwargs: Any) -> None:
        super().__init__(num_draws, **kwargs)
        self.bins = bins
        self.bits = bits
        self.add_counts("variance_counts", ranking.num_bins(bits))
        self.add_sums("variance_sums", ranking.num_bins(bits))
        self.add_sums("variance_errors", ranking.num_bins(bits))

    def update(self, mean: Array, variance: Array, target: Array) -> None:
        """Add pixels. mean, variance: (draw, …) with `num_draws`, otherwise (…); target: (…)."""
        each_row(self._add, *self.gaussian_pixels(mean, target, variance=variance))

    def _add(self, rows: slice, mean: Tensor, variance: Tensor, target: Tensor) -> None:
        index = ranking.bin_index(variance, self.bits)
        counts, variances, errors = self.variance_counts[rows], self.variance_sums[rows], self.variance_errors[rows]
        ranking.accumulate(index, (counts, None), (variances, variance), (errors, squared_error(mean, target)))

    def compute(self) -> dict[str, Tensor]:
        """The error and its bound, one value per draw."""
        total = self.variance_counts.sum(1)
        ranks = ranking.equal_mass_ranks(total, self.bins)
        cut = ranking.cut_at(ranks, self.variance_counts)
        variance = ranking.sum_of_keys(cut, self.variance_sums, ranking.bin_edges(self.bits, self.device))
        error = ranking.sum_in_any_order(cut, self.variance_errors)
        filled = ranks.diff(dim=1) > 0
        gap, least, most = _gaps(_between(variance), _between(error))
        reach = torch.maximum(most - gap, gap - least).masked_fill(gap.isinf(), 0)  # the exact value is infinite, too
        return {"ence": self.result(_mean(gap, filled)), "ence_bound": self.result(_mean(reach, filled))}


def _between(sums: PartialSum) -> PartialSum:
    """Return the sums between neighbouring cuts."""
    lower = (sums.lower[:, 1:] - sums.upper[:, :-1]).clamp(min=0)
    return PartialSum(sums.value.diff(dim=1).clamp(min=0), lower, sums.upper[:, 1:] - sums.lower[:, :-1])


def _gaps(variance: PartialSum, error: PartialSum) -> tuple[Tensor, Tensor, Tensor]:
    """Return |1 − RMSE/RMV| of each bin, and its smallest and largest possible value."""
    value = 1 - _root_ratio(error.value, variance.value)
    low = 1 - _root_ratio(error.upper, variance.lower)
    high = 1 - _root_ratio(error.lower, variance.upper)
    least = torch.where((low <= 0) & (high >= 0), torch.zeros_like(low), torch.minimum(low.abs(), high.abs()))
    return value.abs(), least, torch.maximum(low.abs(), high.abs())


def _root_ratio(error: Tensor, variance: Tensor) -> Tensor:
    """Return RMSE/RMV; 1 if both are 0."""
    ratio = (error / variance).sqrt()
    return torch.where((error == 0) & (variance == 0), torch.ones_like(ratio), ratio)


def _mean(values: Tensor, filled: Tensor) -> Tensor:
    return torch.where(filled, values, torch.zeros_like(values)).sum(1) / filled.sum(1)


def ence(mean: Array, variance: Array, target: Array, bins: int = 10) -> Tensor:
    """Expected normalised calibration error of whole arrays, exactly, by sorting."""
    center, spread, truth = (to_tensor(values).reshape(1, -1) for values in (mean, variance, target))
    same_pixels(mean=center, variance=spread, target=truth)
    check_keys(spread, "variance", finite=True)
    spread, error = spread[0].to(torch.float64), squared_error(center, truth)[0]
    order = ranking.sorting(spread)
    spread, error = spread[order], error[order]
    ranks = ranking.equal_mass_ranks(torch.tensor([spread.numel()], device=spread.device), bins)[0]
    variances, errors = (ranking.sum_of_first(ranks, spread, values).diff().clamp(min=0) for values in (spread, error))
    gap = (1 - _root_ratio(errors, variances)).abs()
    return _mean(gap[None], ranks.diff()[None] > 0)[0]
