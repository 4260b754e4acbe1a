"""Moments of every draw of Gaussian members, and the CRPS of their mixtures, with each pair computed once."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from epibench.kernels import launches, launching
from epibench.kernels.drawn import DrawnMembers

PIXELS_OF_DRAWS = 128
PIXELS_OF_PAIR = 512
# Distances (pair × pixel) in memory: 1 GiB.
DISTANCES = 2**27


def moments(mean: Tensor, variance: Tensor, drawn: DrawnMembers, draws: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean, mean variance and variance of the means of every draw, (draw, pixel).

    mean, variance: (member, pixel).
    """
    if len(chunks := launches(mean.shape[1], PIXELS_OF_DRAWS)) > 1:
        parts = [moments(mean[:, part], variance[:, part], drawn, draws) for part in chunks]
        drawn_mean, aleatoric, epistemic = (torch.cat(each, 1) for each in zip(*parts, strict=True))
        return drawn_mean, aleatoric, epistemic
    mean, variance = mean.contiguous(), variance.contiguous()
    pixels = mean.shape[1]
    drawn_mean, aleatoric, epistemic = (mean.new_empty((draws, pixels)) for _ in range(3))
    if drawn_mean.numel():
        groups, together = drawn.rows.shape
        with launching(mean):
            _moments[groups, triton.cdiv(pixels, PIXELS_OF_DRAWS)](
                mean, variance, *drawn.tables, drawn_mean, aleatoric, epistemic, pixels, together, PIXELS_OF_DRAWS
            )
    return drawn_mean, aleatoric, epistemic


# Compiled once: numbers of pixels differ from image to image.
@triton.jit(do_not_specialize=["pixels"])
def _moments(
    means, variances, rows, sizes, members, weights, most, drawn_means, aleatorics, epistemics, pixels,
    DRAWS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    group, draw = tl.program_id(0), tl.arange(0, DRAWS)
    pixel = tl.program_id(1).to(tl.int64) * PIXELS + tl.arange(0, PIXELS)
    there = pixel < pixels
    pixel = tl.minimum(pixel, pixels - 1)
    size = tl.load(sizes + group)
    mean = tl.zeros((DRAWS, PIXELS), tl.float64)
    aleatoric = tl.zeros((DRAWS, PIXELS), tl.float64)
    epistemic = tl.zeros((DRAWS, PIXELS), tl.float64)
    for number in range(size):
        member = tl.load(members + group * most + number).to(tl.int64) * pixels
        weight = tl.load(weights + (group * most + number) * DRAWS + draw)[:, None]
        mean += weight * tl.load(means + member + pixel)[None, :]
        aleatoric += weight * tl.load(variances + member + pixel)[None, :]
    for number in range(size):
        member = tl.load(members + group * most + number).to(tl.int64) * pixels
        weight = tl.load(weights + (group * most + number) * DRAWS + draw)[:, None]
        apart = tl.load(means + member + pixel)[None, :] - mean
        epistemic += weight * (apart * apart)
    row = tl.load(rows + group * DRAWS + draw).to(tl.int64)[:, None]
    at, mask = row * pixels + pixel[None, :], (row >= 0) & there[None, :]
    tl.store(drawn_means + at, mean, mask=mask)
    tl.store(aleatorics + at, aleatoric, mask=mask)
    tl.store(epistemics + at, epistemic, mask=mask)


def mixture_crps(means: Tensor, variances: Tensor, weights: Tensor, target: Tensor) -> Tensor:
    """Return `metrics.pixel_scores.mixture_crps`, (draw, pixel), by a matrix product with the pairs' distances."""
    first, second = torch.triu_indices(len(means), len(means), device=means.device)
    # Off the diagonal a pair counts twice, which cancels the ½.
    pairs = weights[:, first] * weights[:, second] * torch.where(first == second, -0.5, -1.0)
    shares = torch.cat([weights, pairs], 1)
    # The target is one more member, without variance.
    members = torch.arange(len(means), device=means.device)
    first, second = torch.cat([members, first]), torch.cat([torch.full_like(members, len(means)), second])
    means = torch.cat([means, target[None].to(means.dtype)])
    variances = torch.cat([variances, torch.zeros_like(variances[:1])])
    score, step = means.new_empty((len(weights), len(target))), max(1, DISTANCES // len(first))
    for start in range(0, len(target), step):
        part = slice(start, start + step)
        score[:, part] = shares @ _pair_distances(means[:, part], variances[:, part], first, second)
    return score


def _pair_distances(means: Tensor, variances: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """E|X − X′| of some pairs of members, (pair, pixel)."""
    pixels = means.shape[1]
    distances = means.new_empty((len(first), pixels))
    for part in launches(len(first)):
        with launching(means):
            _distances[triton.cdiv(pixels, PIXELS_OF_PAIR), part.stop - part.start](
                means, variances, first[part], second[part], distances[part], pixels, means.stride(0),
                variances.stride(0), 1 / math.sqrt(math.pi), PIXELS_OF_PAIR,
            )  # fmt: skip
    return distances


@triton.jit(do_not_specialize=["pixels", "mean_stride", "variance_stride"])
def _distances(
    means, variances, firsts, seconds, distances, pixels, mean_stride, variance_stride, ROOT: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    pair = tl.program_id(1).to(tl.int64)
    pixel = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there, first, second = pixel < pixels, tl.load(firsts + pair), tl.load(seconds + pair)
    apart = tl.load(means + first * mean_stride + pixel, mask=there, other=0)
    apart -= tl.load(means + second * mean_stride + pixel, mask=there, other=0)
    variance = tl.load(variances + first * variance_stride + pixel, mask=there, other=0)
    variance += tl.load(variances + second * variance_stride + pixel, mask=there, other=0)
    width = tl.sqrt(2 * variance)
    scaled = apart / width
    distance = tl.exp(-scaled * scaled) * width * ROOT + tl.erf(scaled) * apart
    distance = tl.where(variance == 0, tl.abs(apart), distance)
    tl.store(distances + pair * pixels + pixel, distance, mask=there)
