"""Sums over the first k pixels in the order of a key, from histograms of constant size.

A key ≥ 0 is binned by the leading bits of its float32 pattern, which keeps the order without a known range. Only the
bin of the k-th pixel is uncertain: there, the mean of the bin stands for its pixels. This is exact if they are tied,
and right on average if they are in random order. In any order, the error has a known bound.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from epibench import kernels

INFINITY_PATTERN = 0x7F800000
# Rounding a float64 key to float32 can carry it over an edge by half a unit in the last place.
ROUNDING = 2.0**-23
SMALLEST_FLOAT32 = 2.0**-149  # and by this much where float32 is denormal
# Mean squares below this have lost digits to underflow.
SMALLEST_SQUARE = 1e-290
# GPU threads would wait for few counters: smaller tables are copied, at most GPU_COPIES times.
GPU_COUNTERS = 2**22
GPU_COPIES = 64


def num_bins(bits: int) -> int:
    """Number of bins of the keys 0 … ∞ with `bits` leading bits (8 of them are the exponent)."""
    if not 9 <= bits <= 20:
        raise ValueError(f"bits must lie in 9 … 20, not {bits}")
    return (INFINITY_PATTERN >> (31 - bits)) + 1


def order_key(values: Tensor) -> Tensor:
    """Return keys > 0, float64, in the order of values of any sign and scale.

    Such keys can be binned. The root halves the exponents: positive values lie above 1 and negative ones, inverted,
    below. Magnitudes below 2⁻¹²⁶ count as zero.
    """
    magnitude = values.to(torch.float64).abs().sqrt_().mul_(2.0**63).clamp_(min=1.0)
    return torch.where(values < 0, magnitude.reciprocal(), magnitude)


def bin_index(keys: Tensor, bits: int) -> Tensor:
    """Return the bin of each key ≥ 0, int32.

    Bin b holds ]edge(b−1), edge(b)], and exact zeros are alone in bin 0.
    """
    if kernels.usable(keys):
        from epibench.kernels import histograms

        return histograms.bin_index(keys, bits)
    shift = 31 - bits
    pattern = keys.to(torch.float32, copy=True).view(torch.int32)
    index = pattern.add_((1 << shift) - 1).bitwise_right_shift_(shift)
    # Underflow to float32 is not a zero; −0.0, whose pattern is negative, is.
    return torch.maximum(index, keys > 0)


def bin_edges(bits: int, device: torch.device) -> Tensor:
    """Upper edge of each bin, float64."""
    patterns = torch.arange(num_bins(bits), dtype=torch.int32, device=device) << (31 - bits)
    return patterns.view(torch.float32).to(torch.float64)


def accumulate(index: Tensor, *tables: tuple[Tensor, Tensor | None]) -> None:
    """table[draw, index] += values (1 if None) for each pixel and for each (table, values).

    On a CPU in pixel order, so that sums do not depend on how pixels came in batches. index, values: (draw, pixel).
    """
    draws, bins = tables[0][0].shape
    copies = max(1, min(GPU_COPIES, GPU_COUNTERS // (draws * bins))) if index.is_cuda else 1
    if kernels.usable(index):
        _accumulate_at_once(index, copies, *tables)
        return
    if copies > 1:
        # Neighbouring GPU threads count in different copies of a table, and do not wait for each other.
        index = index + torch.arange(index.shape[1], device=index.device) % copies * bins
    index = index.to(torch.int64)
    for table, values in tables:
        values = torch.ones_like(index) if values is None else values
        values = values.to(table.dtype).expand_as(index)
        if copies > 1:
            spread = torch.zeros((draws, copies * bins), dtype=table.dtype, device=table.device)
            table += spread.scatter_add_(1, index, values).view(draws, copies, bins).sum(1)
        else:
            table.scatter_add_(1, index, values)


def _accumulate_at_once(index: Tensor, copies: int, *tables: tuple[Tensor, Tensor | None]) -> None:
    """Accumulate by a kernel, which sees each pixel once."""
    from epibench.kernels import histograms

    draws, bins = tables[0][0].shape
    spread = [table if copies == 1 else table.new_zeros((draws, copies * bins)) for table, _ in tables]
    histograms.accumulate(index, copies, *((into, values) for into, (_, values) in zip(spread, tables, strict=True)))
    if copies > 1:
        for into, (table, _) in zip(spread, tables, strict=True):
            table += into.view(draws, copies, bins).sum(1)


def count_correct(index: Tensor, counts: Tensor, hits: Tensor, correct: Tensor) -> None:
    """Count pixels and right pixels; on a GPU together, in the two halves of a number."""
    if index.is_cuda:
        both = torch.zeros_like(counts)
        accumulate(index, (both, torch.where(correct, 2**32 + 1, 1)))
        counts += both & (2**32 - 1)
        hits += both >> 32
    else:
        accumulate(index, (counts, None), (hits, correct))


def accumulate_by_label(label: Tensor, *tables: tuple[Tensor, Tensor]) -> None:
    """Add values to table[draw, label], with labels (1, pixel) that all draws share; values: (draw, pixel).

    On a GPU, a product with the labels' one-hot vectors: threads would wait for few counters.
    """
    if label.is_cuda and all(bool(values.sum().isfinite()) for _, values in tables):  # 0·∞ is NaN
        one_hot = torch.nn.functional.one_hot(label[0], tables[0][0].shape[1]).to(torch.float64)
        for table, values in tables:
            table += values.to(torch.float64) @ one_hot
    else:
        accumulate(label.expand(tables[0][0].shape[0], -1), *tables)


class Cut(NamedTuple):
    """The cut of the order after `rank` pixels.

    `bin` is its bin, `inside` the number of kept pixels of this bin, and `size` the bin's size, all of shape (draw,
    cut). 0 ≤ inside ≤ size; the bin is split if 0 < inside < size.
    """

    bin: Tensor
    inside: Tensor
    size: Tensor

    def before(self, cumulative: Tensor) -> Tensor:
        """Σ over the bins below the cut one of what `cumulative` has summed."""
        below = cumulative.gather(1, (self.bin - 1).clamp(min=0))
        return torch.where(self.bin > 0, below, torch.zeros_like(below))


def cut_at(ranks: Tensor, counts: Tensor) -> Cut:
    """Find the bin in which each rank falls. ranks: (draw, cut) int64; counts: (draw, bin) int64."""
    cumulative = counts.cumsum(1)
    bins = torch.searchsorted(cumulative, ranks.contiguous()).clamp(max=counts.shape[1] - 1)
    cut = Cut(bins, torch.zeros_like(ranks), counts.gather(1, bins))
    return cut._replace(inside=ranks - cut.before(cumulative))


def sorting(keys: Tensor) -> Tensor:
    """The order that sorts the keys (pixel,); equal keys in any order."""
    if keys.is_cuda:
        return torch.argsort(keys)
    return torch.from_numpy(np.argsort(keys.numpy()))  # twice as fast as torch's


def sum_of_first(ranks: Tensor, keys: Tensor, values: Tensor, *, tied: bool = True) -> Tensor:
    """Return Σ of the first k values for each rank k, exactly.

    Keys (pixel,) are sorted, and values go with them. Pixels with equal keys count with the mean value of their group,
    or in the order given if not `tied`.
    """
    cumulative = torch.cat([values.new_zeros(1), values.cumsum(0)])
    if not tied or not keys.numel():
        return cumulative[ranks]
    last_key = keys[(ranks - 1).clamp(min=0)]
    first, last = torch.searchsorted(keys, last_key), torch.searchsorted(keys, last_key, right=True)
    share = (ranks - first) / (last - first).to(torch.float64)
    return cumulative[first] + share * (cumulative[last] - cumulative[first])


def equal_mass_ranks(total: Tensor, bins: int) -> Tensor:
    """Ranks ⌊jN/bins⌋ that cut N = `total` (draw,) pixels into bins of equal mass: (draw, bins + 1)."""
    return total[:, None] * torch.arange(bins + 1, device=total.device) // bins


class PartialSum(NamedTuple):
    """The sum of the first k pixels' values, with its lower and upper bound; each (draw, cut)."""

    value: Tensor
    lower: Tensor
    upper: Tensor


def sum_in_any_order(
    cut: Cut, sums: Tensor, squares: Tensor | None = None, *, zeros_are_tied: bool = True
) -> PartialSum:
    """Return partial sums of values ≥ 0 whose order within the cut bin is unknown.

    Bin 0 has only keys of zero: if ties count with their mean, there is no doubt in it.

    Let m be the mean and v the variance of the bin's n values. Any r of them sum to r·m ± √(r(n−r)v): Cauchy–Schwarz
    on the r and on the n−r. The sum is also at least 0 and at most n·m.
    """
    before = cut.before(sums.cumsum(1))
    inside = sums.gather(1, cut.bin)
    value = inside * _share(cut)
    reach = torch.full_like(value, torch.inf)
    if squares is not None:
        kept = cut.inside.to(torch.float64)
        reach = (kept * (cut.size - cut.inside) * _variance(cut, inside, squares)).sqrt()
    split = (cut.inside > 0) & (cut.inside < cut.size) & ((cut.bin > 0) | (not zeros_are_tied))
    reach = torch.where(split, reach, torch.zeros_like(reach))
    lower, upper = (value - reach).clamp(min=0), torch.minimum(value + reach, inside)
    return PartialSum(before + value, before + lower, before + torch.maximum(upper, value))


def sum_of_keys(cut: Cut, sums: Tensor, edges: Tensor) -> PartialSum:
    """Partial sums of the keys themselves, which lie between the edges of the cut bin."""
    before = cut.before(sums.cumsum(1))
    inside = sums.gather(1, cut.bin)
    value = inside * _share(cut)
    low = edges[(cut.bin - 1).clamp(min=0)] * (1 - ROUNDING)
    high = edges[cut.bin] * (1 + ROUNDING) + SMALLEST_FLOAT32
    rest = (cut.size - cut.inside).to(torch.float64)
    beyond = torch.where(rest > 0, rest * high, torch.zeros_like(high))  # 0·∞ in the last bin
    lower = torch.maximum(cut.inside * low, inside - beyond)
    lower = torch.minimum(lower.clamp(min=0), value)
    return PartialSum(before + value, before + lower, before + value)


def covariance_in_random_order(cut: Cut, sums: Tensor, squares: Tensor, *, zeros_are_tied: bool = True) -> Tensor:
    """Covariance (draw, cut, cut) of partial sums if pixels are in random order within a bin.

    Of n values with variance v, the first r and the first s ≥ r sum with covariance r(n−s)/(n−1)·v; cuts in
    different bins are independent.
    """
    variance = _variance(cut, sums.gather(1, cut.bin), squares)
    inside = cut.inside.to(torch.float64)
    first, last = inside[:, :, None], inside[:, None, :]
    kept, left = torch.minimum(first, last), cut.size[:, :, None] - torch.maximum(first, last)
    factor = kept * left / (cut.size - 1).clamp(min=1).to(torch.float64)[:, :, None]
    same = (cut.bin[:, :, None] == cut.bin[:, None, :]) & ((cut.bin > 0) | (not zeros_are_tied))[:, :, None]
    return torch.where(same & (factor > 0), factor * variance[:, :, None], torch.zeros_like(factor))


def _share(cut: Cut) -> Tensor:
    return cut.inside / cut.size.clamp(min=1).to(torch.float64)


def _variance(cut: Cut, inside: Tensor, squares: Tensor) -> Tensor:
    size = cut.size.clamp(min=1).to(torch.float64)
    mean_square = squares.gather(1, cut.bin) / size
    # The difference of two rounded sums: lift it by their rounding, n·2⁻⁵³ each, so that the bound stays one.
    variance = (mean_square - (inside / size).square()).clamp(min=0) + size * 2.0**-51 * mean_square
    # Squares that underflow or overflow contain no information, unless all values are 0.
    unknown = (inside > 0) & ~((mean_square > SMALLEST_SQUARE) & (mean_square < torch.inf))
    variance = torch.where(unknown, torch.inf, variance)
    return torch.where(cut.size > 1, variance, torch.zeros_like(variance))
