"""The score of each pixel: NLL, CRPS, Brier score, interval score of its predictive distribution."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from epibench import kernels

# Sums of densities below this have lost digits to underflow.
SMALLEST_DENSITY = 1e-280
INTERVAL_ALPHA = 0.1
INTERVAL_HALF_WIDTH = 1.6448536269514722  # Φ⁻¹(0.95)


def gaussian_nll(mean: Tensor, variance: Tensor, target: Tensor) -> Tensor:
    """Return −log N(y; μ, σ²) per pixel, in float64.

    For σ² = 0 it is −∞ at y = μ and ∞ elsewhere.
    """
    variance = variance.to(torch.float64)
    difference = mean.to(torch.float64) - target
    standardised = torch.where(difference == 0, 0, difference.square() / variance)
    nll = 0.5 * (standardised + variance.log() + math.log(2 * math.pi))
    return torch.where((variance == 0) & (difference != 0), torch.inf, nll)


def mixture_nll(means: Tensor, variances: Tensor, weights: Tensor, target: Tensor) -> Tensor:
    """−log Σ_m w_m N(y; μ_m, σ_m²) of each mixture, (draw, pixel).

    means, variances: (member, pixel); weights: (draw, member); target: (pixel,).
    """
    weights = weights.to(torch.float64)
    log_density = -gaussian_nll(means, variances, target)
    highest = log_density.amax(0)
    finite = torch.where(highest.isinf(), torch.zeros_like(highest), highest)
    # One matrix product for all draws; where it underflows, the draw's own highest member is the scale.
    scaled = (log_density - finite).exp().nan_to_num(posinf=0)
    density = weights @ scaled
    nll = -(density.log() + finite)
    hard = (density < SMALLEST_DENSITY) | highest.isinf()
    for draw, pixel in _rows_with_any(hard):
        own = weights[draw] > 0
        terms = log_density[own][:, pixel] + weights[draw][own].log()[:, None]
        nll[draw, pixel] = -torch.logsumexp(terms, 0)
    return nll


def _rows_with_any(mask: Tensor) -> list[tuple[int, Tensor]]:
    """Each row of `mask` that is true somewhere, with where."""
    rows = torch.nonzero(mask.any(1)).flatten().tolist()
    return [(row, torch.nonzero(mask[row]).flatten()) for row in rows]


def gaussian_crps(mean: Tensor, variance: Tensor, target: Tensor) -> Tensor:
    """CRPS of N(μ, σ²) per pixel: E|X − y| − ½ E|X − X′|."""
    variance = variance.to(torch.float64)
    return expected_distance(mean.to(torch.float64) - target, variance) - (variance / math.pi).sqrt()


def mixture_crps(means: Tensor, variances: Tensor, weights: Tensor, target: Tensor) -> Tensor:
    """CRPS of each mixture of Gaussian members, (draw, pixel); Grimit et al. 2006.

    Σ_i w_i A(y − μ_i, σ_i²) − ½ Σ_ij w_i w_j A(μ_i − μ_j, σ_i² + σ_j²) with A(d, v) = E|N(d, v)|. Each pair of members
    is evaluated once for all draws. Shapes as in `mixture_nll`.
    """
    means, variances, weights = (tensor.to(torch.float64) for tensor in (means, variances, weights))
    if kernels.usable(means):
        from epibench.kernels import gaussian

        return gaussian.mixture_crps(means, variances, weights, target)
    score = weights @ expected_distance(target - means, variances)
    for first in range(means.shape[0]):
        drawn = torch.nonzero(weights[:, first]).flatten()
        rest = slice(first, None)
        distance = expected_distance(means[first] - means[rest], variances[first] + variances[rest])
        # Off the diagonal a pair counts twice, which cancels the ½.
        pair = weights[drawn, first, None] * weights[drawn, rest]
        pair[:, 0] *= 0.5
        score.index_add_(0, drawn, pair @ distance, alpha=-1)
    return score


def expected_distance(difference: Tensor, variance: Tensor) -> Tensor:
    """E|X| of X ~ N(difference, variance): 2σφ(d/σ) + d·erf(d/(σ√2)); |d| for σ = 0."""
    # In place: this is evaluated for every pair of members.
    width = (2 * variance).sqrt_()
    scaled = difference / width
    distance = scaled.square().neg_().exp_().mul_(width).mul_(1 / math.sqrt(math.pi))
    distance.addcmul_(scaled.erf_(), difference)
    return torch.where(variance == 0, difference.abs(), distance)


def interval_score(mean: Tensor, variance: Tensor, target: Tensor) -> Tensor:
    """Return the Winkler score of the central 90 % interval per pixel.

    It is the interval's length, plus 2/α times the distance of a target outside.
    """
    half = INTERVAL_HALF_WIDTH * variance.to(torch.float64).sqrt()
    outside = ((mean.to(torch.float64) - target).abs() - half).clamp(min=0)
    return 2 * half + (2 / INTERVAL_ALPHA) * outside


def brier_score(probs: Tensor, target: Tensor) -> Tensor:
    """Σ over classes (p − onehot)² per pixel, in float64. probs: (draw, pixel, class); target: (1, pixel)."""
    probs = probs.to(torch.float64)
    index = target.to(torch.int64).expand(probs.shape[0], -1)[:, :, None]
    return probs.square().scatter_(2, index, (1 - probs.gather(2, index)).square()).sum(2)


def categorical_nll(probs: Tensor, target: Tensor) -> Tensor:
    """−log of the probability of the target class per pixel; ∞ where it is 0. Shapes as in `brier_score`."""
    return -target_probability(probs.to(torch.float64), target).log()


def target_probability(probs: Tensor, target: Tensor) -> Tensor:
    """The probability of the target class, (draw, pixel)."""
    index = target.to(torch.int64).expand(probs.shape[0], -1)[:, :, None]
    return probs.gather(2, index)[:, :, 0]
