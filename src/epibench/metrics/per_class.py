"""Metrics of the pixels of each class: Brier score, NLL, AUSE, and all scores per class at once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from epibench.metrics import pixel_scores
from epibench.metrics.checks import check_keys, check_numbers, check_probabilities, same_pixels
from epibench.metrics.class_metric import ClassMetric, with_label
from epibench.metrics.confidence_calibration import ConfidenceCalibration
from epibench.metrics.info import infos
from epibench.metrics.prediction_errors import MeanIoU
from epibench.metrics.ranking import accumulate, accumulate_by_label, bin_edges, bin_index
from epibench.metrics.sparsification import Histograms, SparsificationError, ause, binned_curves, check_error
from epibench.metrics.streaming import Array, each_row, to_tensor

# 16 bins for each octave from 2⁻²⁸ to 8, which is above every entropy of up to 2,980 classes and every Brier score.
BITS = 12
BINS_PER_OCTAVE = 1 << (BITS - 8)
FIRST = (127 - 28) * BINS_PER_OCTAVE
LAST = (127 + 3) * BINS_PER_OCTAVE
NUM_BINS = LAST - FIRST + 3  # zeros, keys that are too small, the octaves, keys that are too large


class ClassScores(ClassMetric):
    """Mean scores over the pixels of each true class, (…, class): `brier_per_class` and `nll_per_class`.

    `update(probs, target)` with the class axis last. NaN if a class has no pixels, or an infinite NLL.
    """

    higher_is_better = False
    info = infos("brier_per_class", "nll_per_class")
    settings = ("num_draws", "num_classes")
    class_counts: Tensor
    class_brier: Tensor
    class_nll: Tensor

    def __init__(self, num_classes: int, num_draws: int | None = None, **kwargs: Any) -> None:
        super().__init__(num_draws, **kwargs)
        self.num_classes = num_classes
        self.add_counts("class_counts", num_classes)
        self.add_sums("class_brier", num_classes)
        self.add_sums("class_nll", num_classes)

    def update(
        self,
        probs: Array | None = None,
        target: Array | None = None,
        *,
        brier: Array | None = None,
        target_probability: Array | None = None,
    ) -> None:
        """Add pixels by their `probs`, or by `brier` and `target_probability`.

        probs: (draw, …, class) with `num_draws`, otherwise (…, class); target: (…); others: (draw, …) or (…).
        """
        if target is None:
            raise TypeError("ClassScores.update needs target")
        if brier is not None and target_probability is not None:
            scores, own, targets = self.labelled(target, brier=brier, target_probability=target_probability)
            check_numbers(targets, self.num_classes, "target", label=True)
            check_keys(scores, "brier", finite=True)
            check_probabilities(target_probability=own)
            each_row(self._add, scores, own, targets)
        elif probs is not None:
            classes, targets = self.class_pixels(probs, target, self.num_classes)
            each_row(self._add_probs, classes, targets)
        else:
            raise TypeError("ClassScores.update needs probs, or brier and target_probability")
        seen = torch.zeros_like(self.class_counts[:1])
        accumulate(targets.to(torch.int64), (seen, None))
        self.class_counts += seen  # the same for every draw

    def _add_probs(self, rows: slice, probs: Tensor, target: Tensor) -> None:
        brier, own = pixel_scores.brier_score(probs, target), pixel_scores.target_probability(probs, target)
        self._add(rows, brier, own, target)

    def _add(self, rows: slice, brier: Tensor, own: Tensor, target: Tensor) -> None:
        nll = -own.to(torch.float64).log()  # an infinite value makes an infinite sum
        accumulate_by_label(target.to(torch.int64), (self.class_brier[rows], brier), (self.class_nll[rows], nll))

    def compute(self) -> dict[str, Tensor]:
        """Each score, one row per draw and one column per class."""
        nll = self.class_nll / self.class_counts
        return {
            "brier_per_class": self.result(self.class_brier / self.class_counts),
            "nll_per_class": self.result(torch.where(nll.isinf(), torch.nan, nll)),
        }


def scores_per_class(
    probs: Array, target: Array, bins: int = 10, *, ignore_index: int | None = None
) -> dict[str, Tensor]:
    """Return all `…_per_class` metrics of whole arrays except AUSE; each (class,). probs: (…, class)."""
    classes = to_tensor(probs).shape[-1]
    values: dict[str, Tensor] = {}
    for metric in (
        MeanIoU(classes, ignore_index=ignore_index),
        ClassScores(classes, ignore_index=ignore_index),
        ConfidenceCalibration(bins, num_classes=classes, ignore_index=ignore_index),
    ):
        metric.update(probs, target)
        values |= metric.compute()
    return {name: value for name, value in values.items() if name.endswith("_per_class")}


class ClassSparsification(ClassMetric):
    """AUSE among the pixels of each true class, streamed through few bins.

    `update(uncertainty, loss, target)`. `compute()` gives `ause_per_class` and `ause_per_class_bound`, (…, class), the
    largest deviation from the exact value. Keys below 2⁻²⁸ share one bin and keys above 8 another; the bound includes
    this. NaN for a class without pixels. The state takes 20 KB for each draw and class.
    """

    higher_is_better = False
    info = infos("ause_per_class", "ause_per_class_bound")
    settings = ("num_draws", "num_classes", "error")
    class_uncertainty_counts: Tensor
    class_uncertainty_losses: Tensor
    class_uncertainty_squares: Tensor
    class_loss_counts: Tensor
    class_loss_losses: Tensor

    def __init__(
        self, num_classes: int, error: SparsificationError = "brier", num_draws: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(num_draws, **kwargs)
        self.num_classes = num_classes
        self.error = check_error(error)
        self.add_counts("class_uncertainty_counts", num_classes * NUM_BINS)
        self.add_sums("class_uncertainty_losses", num_classes * NUM_BINS)
        self.add_sums("class_uncertainty_squares", num_classes * NUM_BINS)
        self.add_counts("class_loss_counts", num_classes * NUM_BINS)
        self.add_sums("class_loss_losses", num_classes * NUM_BINS)

    def update(self, uncertainty: Array, loss: Array, target: Array) -> None:
        """Add pixels. uncertainty, loss: (draw, …) with `num_draws`, otherwise (…); target: (…), their classes."""
        keys, losses, targets = self.labelled(target, uncertainty=uncertainty, loss=loss)
        check_keys(keys, "uncertainty")
        check_keys(losses, "loss", finite=True)
        check_numbers(targets, self.num_classes, "target", label=True)
        each_row([self._add_by_uncertainty, self._add_by_loss], keys, losses, targets.to(torch.int64) * NUM_BINS)

    def _add_by_uncertainty(self, rows: slice, key: Tensor, loss: Tensor, offset: Tensor) -> None:
        loss = loss.to(torch.float64)
        counts, losses = self.class_uncertainty_counts[rows], self.class_uncertainty_losses[rows]
        squares = self.class_uncertainty_squares[rows]
        accumulate(narrow_bin(key) + offset, (counts, None), (losses, loss), (squares, loss.square()))

    def _add_by_loss(self, rows: slice, key: Tensor, loss: Tensor, offset: Tensor) -> None:
        counts, losses = self.class_loss_counts[rows], self.class_loss_losses[rows]
        accumulate(narrow_bin(loss) + offset, (counts, None), (losses, loss))

    def compute(self) -> dict[str, Tensor]:
        """The area of each class and its bound, one row per draw."""
        edges = narrow_edges(self.device)
        tables = [getattr(self, name).unflatten(1, (self.num_classes, NUM_BINS)) for name in self.state_names]
        curves = [binned_curves(Histograms(edges, *draw), self.error) for draw in zip(*tables, strict=True)]
        return {
            "ause_per_class": self.result(torch.stack([draw.area() for draw in curves])),
            "ause_per_class_bound": self.result(torch.stack([draw.bound() for draw in curves])),
        }


def narrow_bin(keys: Tensor) -> Tensor:
    """Return the bin of each key ≥ 0.

    In order: zeros, keys that are too small, 16 bins per octave, keys that are too large.
    """
    index = bin_index(keys, BITS)
    return torch.minimum(index, (index - (FIRST - 1)).clamp_(1, NUM_BINS - 1))


def narrow_edges(device: torch.device) -> Tensor:
    """Upper edge of each bin, float64."""
    octaves = bin_edges(BITS, device)[FIRST : LAST + 1]
    return torch.cat([octaves.new_zeros(1), octaves, octaves.new_full((1,), torch.inf)])


def ause_per_class(
    uncertainty: Array,
    loss: Array,
    target: Array,
    num_classes: int,
    error: SparsificationError = "brier",
    *,
    ignore_index: int | None = None,
) -> Tensor:
    """AUSE among the pixels of each class of whole arrays, (class,), exactly, by sorting."""
    keys, losses, targets = (to_tensor(values).reshape(1, -1) for values in (uncertainty, loss, target))
    same_pixels(uncertainty=keys, loss=losses, target=targets)
    keys, losses, targets = with_label(targets, ignore_index, keys, losses)
    check_numbers(targets, num_classes, "target", label=True)
    own = [targets == label for label in range(num_classes)]
    return torch.stack([ause(keys[pixels], losses[pixels], error) for pixels in own])
