"""Calibration of confidences: whether pixels predicted with confidence c are right with frequency c (ECE)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from epibench.metrics.conventions import Convention, check_convention
from epibench.metrics.ranking import (
    accumulate,
    bin_edges,
    bin_index,
    cut_at,
    num_bins,
    sum_in_any_order,
    sum_of_keys,
)
from epibench.metrics.streaming import Array, StreamingMetric, pieces, same_pixels

ADAPTIVE_BITS = 16


class ConfidenceCalibration(StreamingMetric):
    """ECE with equal-width bins of the maximum probability; a confidence of 1 belongs to the last bin.

    `update(probs, target)` with the class axis last. `compute()` gives `ece`; `curves()` the reliability curve with
    its counts. NaN without pixels.
    """

    higher_is_better = False
    bin_counts: Tensor
    bin_correct: Tensor
    bin_confidence: Tensor
    unbinned: Tensor

    def __init__(
        self,
        bins: int = 10,
        num_draws: int | None = None,
        *,
        convention: Convention = "pooled",
        **kwargs: Any,
    ) -> None:
        super().__init__(num_draws, **kwargs)
        self.bins = bins
        self.convention = check_convention(convention)
        self.add_counts("bin_counts", bins)
        self.add_counts("bin_correct", bins)
        self.add_sums("bin_confidence", bins)
        self.add_counts("unbinned")

    def update(self, probs: Array, target: Array) -> None:
        """Add pixels. probs: (draw, …, class) with `num_draws`, otherwise (…, class); target: (…)."""
        confidence, correct = confidence_and_correct(self.rows(probs, 1), self.shared(target))
        for conf, right in pieces(confidence, correct):
            index = torch.clamp((conf * self.bins).to(torch.int64), max=self.bins - 1)
            if self.convention == "gustafsson2020":
                # There a confidence of exactly 1 is in no bin, and yet in the denominator.
                self.unbinned += (conf >= 1).sum(1)
                inside = conf < 1
                accumulate(self.bin_counts, index, inside)
                accumulate(self.bin_correct, index, right & inside)
                accumulate(self.bin_confidence, index, conf * inside)
            else:
                accumulate(self.bin_counts, index, None)
                accumulate(self.bin_correct, index, right)
                accumulate(self.bin_confidence, index, conf)

    def compute(self) -> dict[str, Tensor]:
        """The expected calibration error, one value per draw."""
        total = self.bin_counts.sum(1) + self.unbinned
        gap = (self.bin_confidence - self.bin_correct).abs().sum(1)
        return {"ece": self.result(gap / total)}

    def curves(self) -> dict[str, Tensor]:
        """Mean confidence, accuracy (NaN in empty bins) and number of pixels of each bin."""
        return {
            "confidence": self.result(self.bin_confidence / self.bin_counts),
            "accuracy": self.result(self.bin_correct.to(torch.float64) / self.bin_counts),
            "count": self.result(self.bin_counts),
        }


class AdaptiveConfidenceCalibration(StreamingMetric):
    """ECE with bins of equal mass, streamed through a fine histogram of 1 − confidence.

    Bin j holds the pixels of rank ⌊jN/bins⌋ … ⌊(j+1)N/bins⌋ − 1 by confidence; equal confidences count with their
    mean. `compute()` gives `ece_adaptive` and `ece_adaptive_bound`: the exact value is no farther.
    """

    higher_is_better = False
    doubt_counts: Tensor
    doubt_correct: Tensor
    doubt_sums: Tensor

    def __init__(
        self, bins: int = 10, num_draws: int | None = None, *, bits: int = ADAPTIVE_BITS, **kwargs: Any
    ) -> None:
        super().__init__(num_draws, **kwargs)
        self.bins = bins
        self.bits = bits
        self.add_counts("doubt_counts", num_bins(bits))
        self.add_counts("doubt_correct", num_bins(bits))
        self.add_sums("doubt_sums", num_bins(bits))

    def update(self, probs: Array, target: Array) -> None:
        """Add pixels. probs: (draw, …, class) with `num_draws`, otherwise (…, class); target: (…)."""
        confidence, correct = confidence_and_correct(self.rows(probs, 1), self.shared(target))
        for conf, right in pieces(confidence, correct):
            doubt = (1 - conf).clamp(min=0)  # most pixels are near confidence 1: resolve them there
            index = bin_index(doubt, self.bits)
            accumulate(self.doubt_counts, index, None)
            accumulate(self.doubt_correct, index, right)
            accumulate(self.doubt_sums, index, doubt)

    def compute(self) -> dict[str, Tensor]:
        """The adaptive calibration error and its bound, one value per draw."""
        total = self.doubt_counts.sum(1)
        ranks = total[:, None] * torch.arange(self.bins + 1, device=self.device) // self.bins
        cut = cut_at(ranks, self.doubt_counts)
        doubt = sum_of_keys(cut, self.doubt_sums, bin_edges(self.bits, self.device))
        hits = self.doubt_correct.to(torch.float64)
        correct = sum_in_any_order(cut, hits, squares=hits)  # 0² = 0 and 1² = 1
        # Σ (confidence − correct) over the first k pixels = k − doubt − correct.
        excess = ranks - doubt.value - correct.value
        low = ranks - doubt.upper - correct.upper
        high = ranks - doubt.lower - correct.lower
        error = excess.diff(dim=1).abs().sum(1) / total
        reach = torch.maximum(high - excess, excess - low)
        return {
            "ece_adaptive": self.result(error),
            "ece_adaptive_bound": self.result(2 * reach.sum(1) / total),
        }


def confidence_and_correct(probs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Maximum probability in float64 and whether its class, the first of equals, is the target.

    probs: (draw, pixel, class); target: (1, pixel); both results (draw, pixel).
    """
    same_pixels(probs=probs, target=target)
    confidence, predicted = probs.max(2)
    if bool(confidence.isnan().any()):
        raise ValueError("NaN in 'probs'")
    return confidence.to(torch.float64), predicted == target


def ece(probs: Array, target: Array, bins: int = 10, *, convention: Convention = "pooled") -> Tensor:
    """Expected calibration error of whole arrays, with `bins` equal-width bins. probs: (…, class)."""
    metric = ConfidenceCalibration(bins, convention=convention)
    metric.update(probs, target)
    return metric.compute()["ece"]


def ece_adaptive(probs: Array, target: Array, bins: int = 10) -> Tensor:
    """Expected calibration error of whole arrays with bins of equal mass, exactly, by sorting."""
    classes = torch.as_tensor(probs)
    confidence, correct = confidence_and_correct(
        classes.reshape(1, -1, classes.shape[-1]), torch.as_tensor(target).reshape(1, -1)
    )
    doubt, order = (1 - confidence[0]).clamp(min=0).sort()
    _, group, sizes = torch.unique_consecutive(doubt, return_inverse=True, return_counts=True)
    gap = 1 - doubt - correct[0][order].to(torch.float64)
    sums = torch.zeros(sizes.shape[0], dtype=torch.float64, device=gap.device).scatter_add_(0, group, gap)
    ranks = doubt.numel() * torch.arange(bins + 1, device=gap.device) // bins
    cut = cut_at(ranks[None], sizes[None])
    share = sums[None].gather(1, cut.bin) * cut.inside / cut.size.clamp(min=1)
    excess = cut.before(sums[None].cumsum(1)) + share
    return excess.diff(dim=1).abs().sum() / doubt.numel()
