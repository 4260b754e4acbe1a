"""Kullback-Leibler divergences between predictive distributions on a grid, point by point and as published."""

from __future__ import annotations

import torch
from torch import Tensor


def kl_gaussian(mean_p: Tensor, variance_p: Tensor, mean_q: Tensor, variance_q: Tensor) -> Tensor:
    """KL(p ‖ q) of Gaussians, element by element: ½(log σ_q²/σ_p² + (σ_p² + (μ_p − μ_q)²)/σ_q² − 1)."""
    log_ratio = variance_q.log() - variance_p.log()
    return 0.5 * (log_ratio + (variance_p + (mean_p - mean_q).square()) / variance_q - 1)


def kl_categorical(p: Tensor, q: Tensor) -> Tensor:
    """KL(p ‖ q) of class probabilities over the last axis; infinite where q excludes what p allows."""
    return relative_entropy(p, q).sum(-1)


def kl_normalised_map(p: Tensor, q: Tensor) -> Tensor:
    """KL over grid points of two maps, each normalised to sum 1 over the last axis: the published one for classes.

    It compares where probability lies on the grid, not the probabilities: scaling a map leaves it at 0.
    """
    return relative_entropy(p / p.sum(-1, keepdim=True), q / q.sum(-1, keepdim=True)).sum(-1)


def relative_entropy(p: Tensor, q: Tensor) -> Tensor:
    """p·log(p/q), with 0·log(0/q) = 0 and p·log(p/0) infinite."""
    terms: Tensor = torch.special.xlogy(p, p) - torch.special.xlogy(p, q)
    return terms
