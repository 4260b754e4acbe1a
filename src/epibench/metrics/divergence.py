"""Kullback-Leibler divergences between predictives on a grid: point by point, over regions, and as published."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from epibench.conventions import Convention

DIRECTIONS = ("reference_to_method", "method_to_reference")
REGIONS = ("grid", "train")
# Predictions of all methods and of the reference clip the log variance here, as published: far from the data
# it is a product of Gaussian weights, and the mean of its exponential does not exist (docs/reference.md).
PREDICTED_LOG_VARIANCE_LIMIT = 2.0


def divergences(
    reference: Mapping[str, Tensor], predicted: Mapping[str, Tensor], inside: Tensor, convention: Convention
) -> dict[str, dict[str, Tensor]]:
    """KL of every draw by direction and region, (draw,) each.

    reference: `mean` and `variance`, (point,), or `probs`, (point, class); predicted: the same with draws in front;
    inside: (point,) bool, the training region.
    """
    regions: dict[str, slice | Tensor] = {"grid": slice(None), "train": inside}
    by_direction: dict[str, dict[str, Tensor]] = {}
    for direction in DIRECTIONS:
        sides = (reference, predicted) if direction == "reference_to_method" else (predicted, reference)
        by_direction[direction] = {name: divergence(*sides, points, convention) for name, points in regions.items()}
    return by_direction


def divergence(
    p: Mapping[str, Tensor], q: Mapping[str, Tensor], points: slice | Tensor, convention: Convention
) -> Tensor:
    """Return KL(p ‖ q) over some points: the mean of the points' KLs.

    For classes under `gustafsson2020` it is the KL of normalised maps.
    """
    if "mean" in p:
        moments = (side[name][..., points] for side in (p, q) for name in ("mean", "variance"))
        return kl_gaussian(*moments).mean(-1)
    first, second = p["probs"][..., points, :], q["probs"][..., points, :]
    if convention == "gustafsson2020":
        return kl_normalised_map(first[..., 0], second[..., 0])
    return kl_categorical(first, second).mean(-1)


def kl_gaussian(mean_p: Tensor, variance_p: Tensor, mean_q: Tensor, variance_q: Tensor) -> Tensor:
    """KL(p ‖ q) of Gaussians, element by element: ½(log σ_q²/σ_p² + (σ_p² + (μ_p − μ_q)²)/σ_q² − 1)."""
    log_ratio = variance_q.log() - variance_p.log()
    return 0.5 * (log_ratio + (variance_p + (mean_p - mean_q).square()) / variance_q - 1)


def kl_categorical(p: Tensor, q: Tensor) -> Tensor:
    """KL(p ‖ q) of class probabilities over the last axis; infinite where q excludes what p allows."""
    return relative_entropy(p, q).sum(-1)


def kl_normalised_map(p: Tensor, q: Tensor) -> Tensor:
    """Return the published KL for classes: of two maps over grid points, each normalised to sum 1.

    It compares where probability lies on the grid, not the probabilities: scaling a map leaves it at 0.
    """
    return relative_entropy(p / p.sum(-1, keepdim=True), q / q.sum(-1, keepdim=True)).sum(-1)


def relative_entropy(p: Tensor, q: Tensor) -> Tensor:
    """p·log(p/q), with 0·log(0/q) = 0 and p·log(p/0) infinite."""
    terms: Tensor = torch.special.xlogy(p, p) - torch.special.xlogy(p, q)
    return terms
