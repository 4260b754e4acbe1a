"""Calibration of confidences: whether pixels predicted with confidence c are right with frequency c (ECE)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from epibench.conventions import Convention, check_convention
from epibench.metrics import ranking
from epibench.metrics.checks import check_class_axis, check_numbers, check_probabilities
from epibench.metrics.class_metric import ClassMetric, checked_pixels
from epibench.metrics.info import infos
from epibench.metrics.plotting import CurvePlot
from epibench.metrics.streaming import Array, each_row, to_tensor, value_of

ADAPTIVE_BITS = 16


class _OfConfidence(ClassMetric):
    """A metric of the maximum probability, its class, and whether this class is right."""

    higher_is_better = False
    num_classes: int | None = None  # set if classes have separate values

    def update(
        self,
        probs: Array | None = None,
        target: Array | None = None,
        *,
        confidence: Array | None = None,
        correct: Array | None = None,
        predicted: Array | None = None,
    ) -> None:
        """Add pixels by `probs` and `target`, or by `confidence` and `correct`.

        probs: (draw, …, class) with `num_draws`, otherwise (…, class); target: (…); others: (draw, …) or (…). With
        `num_classes`, `confidence` and `correct` also need `predicted`. With `ignore_index`, they also need `target`.
        """
        if confidence is not None and correct is not None and (predicted is not None or self.num_classes is None):
            predicted = correct if self.num_classes is None or predicted is None else predicted
            known = {"confidence": confidence, "correct": correct, "predicted": predicted}
            sure, right, labels, *_ = self.labelled(target, **known)
            check_probabilities(confidence=sure)
            if self.num_classes is not None:
                check_numbers(labels, self.num_classes, "predicted")
            each_row(self._add, sure, right, labels)
        elif probs is not None and target is not None:
            each_row(self._add_probs, *self.class_pixels(probs, target, self.num_classes))
        else:
            others = "confidence and correct" if self.num_classes is None else "confidence, correct and predicted"
            raise TypeError(f"{type(self).__name__}.update needs probs and target, or {others}")

    def _add_probs(self, rows: slice, probs: Tensor, target: Tensor) -> None:
        confidence, predicted = probs.max(2)
        self._add(rows, confidence, predicted == target.to(torch.int64), predicted)

    def _add(self, rows: slice, confidence: Tensor, correct: Tensor, predicted: Tensor) -> None:
        raise NotImplementedError


class ConfidenceCalibration(_OfConfidence):
    """ECE with equal-width bins of the maximum probability; a confidence of 1 belongs to the last bin.

    `update(probs, target)` with the class axis last. `compute()` gives `ece`, and NaN without pixels. `curves()` gives
    the reliability curve with its counts. With `num_classes` there is also `ece_per_class`, (…, class): over the pixels
    that are *predicted* as each class. There, a confidence of 1 is in the last bin under every convention.
    """

    info = infos("ece", "ece_gustafsson2020", "ece_per_class")
    curve_plot: ClassVar[CurvePlot | None] = CurvePlot(
        ("accuracy",), "confidence", "accuracy", x="confidence", diagonal=True
    )
    settings = ("num_draws", "bins", "num_classes", "convention")
    bin_counts: Tensor
    bin_correct: Tensor
    bin_confidence: Tensor

    def __init__(
        self,
        bins: int = 10,
        num_draws: int | None = None,
        *,
        num_classes: int | None = None,
        convention: Convention = "pooled",
        **kwargs: Any,
    ) -> None:
        super().__init__(num_draws, **kwargs)
        self.bins = bins
        self.num_classes = num_classes
        self.convention = check_convention(convention)
        # Confidence 1 has its own column, so that states do not depend on the convention: MetricCollection merges
        # metrics whose states agree on the first batch.
        cells = (1 if num_classes is None else num_classes) * (bins + 1)
        self.add_counts("bin_counts", cells)
        self.add_counts("bin_correct", cells)
        self.add_sums("bin_confidence", cells)

    def _add(self, rows: slice, confidence: Tensor, correct: Tensor, predicted: Tensor) -> None:
        confidence = confidence.to(torch.float64)
        index = (confidence * self.bins).to(torch.int64).clamp_(max=self.bins)
        if self.num_classes is not None:
            index.add_(predicted.to(torch.int64), alpha=self.bins + 1)
        ranking.count_correct(index, self.bin_counts[rows], self.bin_correct[rows], correct)
        ranking.accumulate(index, (self.bin_confidence[rows], confidence))

    def compute(self) -> dict[str, Tensor]:
        """Return the expected calibration error, one value per draw, and the errors of each class."""
        values = {"ece": self._ece(self.convention)}
        if self.num_classes is not None:
            shape = (-1, self.num_classes, self.bins + 1)
            gaps = (self.bin_confidence - self.bin_correct).view(shape)
            joined = torch.cat([gaps[..., :-2], gaps[..., -2:].sum(2, keepdim=True)], 2).abs().sum(2)
            values["ece_per_class"] = self.result(joined / self.bin_counts.view(shape).sum(2))
        return values

    def _published(self) -> dict[str, Tensor]:
        return {"ece_gustafsson2020": self._ece("gustafsson2020")}

    def curves(self) -> dict[str, Tensor]:
        """Mean confidence, accuracy (NaN in empty bins) and number of pixels of each bin."""
        with self.all_processes():
            tables = (self.bin_counts, self.bin_correct, self.bin_confidence)
            counts, correct, confidence = (self._bins(table, self.convention) for table in tables)
        return {
            "x": (torch.arange(self.bins, dtype=torch.float64, device=self.device) + 0.5) / self.bins,
            "confidence": self.result(confidence / counts),
            "accuracy": self.result(correct.to(torch.float64) / counts),
            "count": self.result(counts),
        }

    def _ece(self, convention: Convention) -> Tensor:
        gap = self._bins(self.bin_confidence - self.bin_correct, convention).abs().sum(1)
        return self.result(gap / self.bin_counts.sum(1))

    def _bins(self, table: Tensor, convention: Convention) -> Tensor:
        """Return bins. Confidence 1 joins the last bin; under `gustafsson2020` only the denominator counts it."""
        table = table.view(table.shape[0], -1, self.bins + 1).sum(1)  # all classes together
        bins = table[:, :-1].clone()
        if convention == "pooled":
            bins[:, -1] += table[:, -1]
        return bins


class PublishedConfidenceCalibration(ConfidenceCalibration):
    """`ece_gustafsson2020` beside metrics of another convention, of probabilities averaged in float32."""

    info = infos("ece_gustafsson2020")
    curve_plot = None

    def __init__(self, bins: int = 10, num_draws: int | None = None, **kwargs: Any) -> None:
        super().__init__(bins, num_draws, convention="gustafsson2020", **kwargs)

    def update(self, published_confidence: Array, published_correct: Array) -> None:  # type: ignore[override]
        """Add pixels by their confidence and whether it is right, each (draw, …) with `num_draws`, otherwise (…)."""
        super().update(confidence=published_confidence, correct=published_correct)

    def compute(self) -> dict[str, Tensor]:
        """One value per draw."""
        return self._published()

    def curves(self) -> dict[str, Tensor]:
        """Return no curve: the metric of the other convention has the reliability curve."""
        return {}


class AdaptiveConfidenceCalibration(_OfConfidence):
    """ECE with bins of equal mass, streamed through a fine histogram of 1 − confidence.

    Bin j holds the pixels of rank ⌊jN/bins⌋ … ⌊(j+1)N/bins⌋ − 1, the most confident first. Equal confidences count with
    their mean. `compute()` gives `ece_adaptive` and `ece_adaptive_bound`, the largest deviation from the exact value.
    """

    info = infos("ece_adaptive", "ece_adaptive_bound")
    settings = ("num_draws", "bins", "bits")
    doubt_counts: Tensor
    doubt_correct: Tensor
    doubt_sums: Tensor

    def __init__(
        self, bins: int = 10, num_draws: int | None = None, *, bits: int = ADAPTIVE_BITS, **kwargs: Any
    ) -> None:
        super().__init__(num_draws, **kwargs)
        self.bins = bins
        self.bits = bits
        self.add_counts("doubt_counts", ranking.num_bins(bits))
        self.add_counts("doubt_correct", ranking.num_bins(bits))
        self.add_sums("doubt_sums", ranking.num_bins(bits))

    def _add(self, rows: slice, confidence: Tensor, correct: Tensor, predicted: Tensor) -> None:
        doubt = (1 - confidence.to(torch.float64)).clamp(min=0)  # bins are finest near 0
        index = ranking.bin_index(doubt, self.bits)
        ranking.count_correct(index, self.doubt_counts[rows], self.doubt_correct[rows], correct)
        ranking.accumulate(index, (self.doubt_sums[rows], doubt))

    def compute(self) -> dict[str, Tensor]:
        """The adaptive calibration error and its bound, one value per draw."""
        total = self.doubt_counts.sum(1)
        ranks = ranking.equal_mass_ranks(total, self.bins)
        cut = ranking.cut_at(ranks, self.doubt_counts)
        doubt = ranking.sum_of_keys(cut, self.doubt_sums, ranking.bin_edges(self.bits, self.device))
        hits = self.doubt_correct.to(torch.float64)
        correct = ranking.sum_in_any_order(cut, hits, squares=hits)  # 0² = 0 and 1² = 1
        # Σ (confidence − correct) over the first k pixels = k − doubt − correct.
        excess, high, low = (ranks - doubted - right for doubted, right in zip(doubt, correct, strict=True))
        error = excess.diff(dim=1).abs().sum(1) / total
        reach = torch.maximum(high - excess, excess - low)
        return {"ece_adaptive": self.result(error), "ece_adaptive_bound": self.result(2 * reach.sum(1) / total)}


def ece(
    probs: Array,
    target: Array,
    bins: int = 10,
    *,
    convention: Convention = "pooled",
    ignore_index: int | None = None,
) -> Tensor:
    """Expected calibration error of whole arrays, with `bins` equal-width bins. probs: (…, class)."""
    metric = ConfidenceCalibration(bins, convention=convention, ignore_index=ignore_index)
    return value_of(metric, "ece", probs, target)


def ece_adaptive(probs: Array, target: Array, bins: int = 10, *, ignore_index: int | None = None) -> Tensor:
    """Expected calibration error of whole arrays with bins of equal mass, exactly, by sorting."""
    classes, targets = to_tensor(probs), to_tensor(target)
    check_class_axis(classes, targets, draw_axis=False)
    classes = classes.reshape(1, -1, classes.shape[-1])
    classes, targets = checked_pixels(classes, targets.reshape(1, -1), ignore_index)
    confidence, predicted = classes.max(2)
    if not predicted.numel():
        return torch.tensor(torch.nan, dtype=torch.float64, device=classes.device)
    doubt = (1 - confidence[0].to(torch.float64)).clamp(min=0)
    order = ranking.sorting(doubt)
    gap = (1 - doubt - (predicted == targets.to(torch.int64))[0].to(torch.float64))[order]
    ranks = ranking.equal_mass_ranks(torch.tensor([doubt.numel()], device=gap.device), bins)[0]
    return ranking.sum_of_first(ranks, doubt[order], gap).diff().abs().sum() / doubt.numel()
