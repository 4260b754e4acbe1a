"""Gaussian members and their predictive: a mixture, summarised by its mean and variance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from epibench import kernels

FINITE_LOG_VARIANCE = 20.0  # of images: e^±20 stays finite, also in float32, for any output of a broken network
GaussianUncertainty = Literal["total", "aleatoric", "epistemic"]


@dataclass(frozen=True)
class GaussianPredictive:
    """Mean and variance of every draw's mixture, each (draw, pixel) in float64, and the members behind them.

    aleatoric: mean of the members' variances; epistemic: variance of the members' means.
    """

    mean: Tensor
    aleatoric: Tensor
    epistemic: Tensor
    member_mean: Tensor
    member_variance: Tensor
    weights: Tensor

    @cached_property
    def variance(self) -> Tensor:
        """The total variance of the mixture."""
        return self.aleatoric + self.epistemic

    def uncertainty(self, kind: GaussianUncertainty = "total") -> Tensor:
        """The variance, or one of its parts, to sort pixels by."""
        parts = {"total": self.variance, "aleatoric": self.aleatoric, "epistemic": self.epistemic}
        if kind not in parts:
            raise ValueError(f"uncertainty '{kind}' is unknown; there are {', '.join(parts)}")
        return parts[kind]


def combine(outputs: Mapping[str, Tensor], weights: Tensor) -> GaussianPredictive:
    """Return the predictive of every draw at once.

    The spread of the means is computed about the mean of each draw. In E[x²] − E[x]², the rounding of 3,600 m² would
    exceed the spread of 60 m ± 5 mm, and members outside of the draw would add their rounding.

    Args:
        outputs: `mean` and `variance`, each (member, pixel).
        weights: (draw, member), rows sum to 1.
    """
    mean, variance = (outputs[name].to(torch.float64) for name in ("mean", "variance"))
    weights = weights.to(mean.device, torch.float64)
    if kernels.usable(mean):
        from epibench.kernels.drawn import drawn_members
        from epibench.kernels.gaussian import moments

        return GaussianPredictive(
            *moments(mean, variance, drawn_members(weights), len(weights)), mean, variance, weights
        )
    drawn = weights @ mean
    epistemic = variance_of_means(mean, drawn, weights)
    return GaussianPredictive(drawn, weights @ variance, epistemic, mean, variance, weights)


def variance_of_means(mean: Tensor, drawn: Tensor, weights: Tensor) -> Tensor:
    """Return the variance of the means within every draw, (draw, pixel).

    mean: (member, pixel); drawn: weights @ mean.
    """
    spread = torch.empty_like(drawn)
    for draw, weight in enumerate(weights):
        members = torch.nonzero(weight).flatten()
        spread[draw] = weight[members] @ (mean[members] - drawn[draw]).square_()
    return spread


def loss(mean: Tensor, log_variance: Tensor, target: Tensor) -> Tensor:
    """Negative log-likelihood of each pixel without its constant, ½((y − μ)²/σ² + log σ²)."""
    return 0.5 * ((target - mean).square() * torch.exp(-log_variance) + log_variance)


def slope(mean: Tensor, log_variance: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The derivative of the loss in the mean and in the log variance."""
    error = mean - target
    in_mean = torch.exp(-log_variance).mul_(error)
    return in_mean, error.mul_(in_mean).neg_().add_(1).mul_(0.5)


def image_loss(raw: Tensor, target: Tensor) -> Tensor:
    """The loss of every pixel. raw: mean and log variance, (image, 2, height, width)."""
    return loss(raw[:, 0], raw[:, 1].clamp(-FINITE_LOG_VARIANCE, FINITE_LOG_VARIANCE), target)


def image_outputs(raw: Tensor) -> dict[str, Tensor]:
    """Mean and variance of every pixel, (image, height, width) each; σ lies between 45 µm and 22 km."""
    return {"mean": raw[:, 0], "variance": raw[:, 1].clamp(-FINITE_LOG_VARIANCE, FINITE_LOG_VARIANCE).exp()}
