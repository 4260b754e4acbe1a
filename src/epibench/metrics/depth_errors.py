"""Errors of predicted depths as depth estimation reports them: AbsRel, δ, SILog, iRMSE and others."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from epibench.metrics.checks import check_finite, same_pixels
from epibench.metrics.info import infos
from epibench.metrics.streaming import Array, StreamingMetric, each_row

FACTORS = (1.25, 1.25**2, 1.25**3)
METRES_PER_KM = 1000.0
# A difference of two sums below this share of them is rounding: depths are off by a common factor.
ROUNDING = 1e-14


class DepthErrors(StreamingMetric):
    """The errors that depth estimation reports, of predicted and true depths in metres. `update(mean, target)`.

    `compute()` gives `abs_rel`, `sq_rel` (m), `delta1`, `delta2`, `delta3`, `silog` (×100), `rmse_log`, `log10`,
    `irmse` (1/km), and the number of omitted pixels. A depth ≤ 0 has no logarithm and no inverse. A pixel with such a
    target counts nowhere. A pixel with such a prediction counts in `abs_rel`, `sq_rel` and, as wrong, in δ.
    `depth_left_out` counts both, `depth_left_out_targets` the former. NaN without remaining pixels.
    """

    higher_is_better = False
    info = infos(
        *("abs_rel", "sq_rel", "delta1", "delta2", "delta3", "silog", "rmse_log", "log10", "irmse"),
        *("depth_left_out", "depth_left_out_targets"),
    )
    depth_pixels: Tensor
    depth_targets: Tensor
    depth_positive: Tensor
    depth_within: Tensor
    depth_abs_rel: Tensor
    depth_sq_rel: Tensor
    depth_log: Tensor
    depth_log_abs: Tensor
    depth_log_squared: Tensor
    depth_inverse_squared: Tensor

    def __init__(self, num_draws: int | None = None, **kwargs: Any) -> None:
        super().__init__(num_draws, **kwargs)
        self.add_counts("depth_pixels")
        self.add_counts("depth_targets")  # pixels with a target above 0
        self.add_counts("depth_positive")  # of these, pixels with a prediction above 0
        self.add_counts("depth_within", len(FACTORS))
        for name in ("abs_rel", "sq_rel", "log", "log_abs", "log_squared", "inverse_squared"):
            self.add_sums(f"depth_{name}")

    def update(self, mean: Array, target: Array) -> None:
        """Add pixels. mean: (draw, …) with `num_draws`, otherwise (…); target: (…); both in metres."""
        means, targets = self.rows(mean), self.shared(target)
        same_pixels(mean=means, target=targets)
        check_finite(mean=means, target=targets)
        self.depth_pixels += means.shape[1]
        above = targets[0] > 0
        if not bool(above.all()):
            means, targets = means[:, above], targets[:, above]
        self.depth_targets += means.shape[1]
        each_row(self._add, means, targets)

    def _add(self, rows: slice, mean: Tensor, target: Tensor) -> None:
        mean, target = mean.to(torch.float64), target.to(torch.float64)
        relative = (mean - target).abs_().div_(target)
        self.depth_abs_rel[rows] += relative.sum(1)
        self.depth_sq_rel[rows] += relative.square_().mul_(target).sum(1)
        positive = mean > 0
        self.depth_positive[rows] += positive.sum(1)
        factor = torch.maximum(mean / target, target / mean).masked_fill_(~positive, torch.inf)
        for number, limit in enumerate(FACTORS):
            self.depth_within[rows, number] += (factor < limit).sum(1)
        mean = torch.where(positive, mean, target)  # gives an error of 0 below
        error = mean.log() - target.log()
        self.depth_log[rows] += error.sum(1)
        self.depth_log_abs[rows] += error.abs().sum(1)
        self.depth_log_squared[rows] += error.square_().sum(1)
        inverse = mean.reciprocal_().sub_(target.reciprocal())
        self.depth_inverse_squared[rows] += inverse.square_().sum(1)

    def compute(self) -> dict[str, Tensor]:
        """Return each error and the number of omitted pixels, one value per draw."""
        targets, positive = self.depth_targets.to(torch.float64), self.depth_positive.to(torch.float64)
        mean_square, mean = self.depth_log_squared / positive, self.depth_log / positive
        variance = mean_square - mean.square()
        variance = torch.where(variance <= ROUNDING * mean_square, 0 * variance, variance)
        values = {
            "abs_rel": self.depth_abs_rel / targets,
            "sq_rel": self.depth_sq_rel / targets,
            **{f"delta{k + 1}": self.depth_within[:, k] / targets for k in range(len(FACTORS))},
            "silog": 100 * variance.sqrt(),
            "rmse_log": mean_square.sqrt(),
            "log10": self.depth_log_abs / positive / math.log(10),
            "irmse": METRES_PER_KM * (self.depth_inverse_squared / positive).sqrt(),
            "depth_left_out": self.depth_pixels - self.depth_positive,
            "depth_left_out_targets": self.depth_pixels - self.depth_targets,
        }
        return {name: self.result(value) for name, value in values.items()}


def errors_of_depth(mean: Array, target: Array) -> dict[str, Tensor]:
    """All errors of depth of whole arrays, in metres."""
    metric = DepthErrors()
    metric.update(mean, target)
    values: dict[str, Tensor] = metric.compute()
    return values
