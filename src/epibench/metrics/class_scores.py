"""Scores over the pixels of each class: Brier score and NLL; and all that is known of each class in one go."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from epibench.metrics import pixel_scores
from epibench.metrics.accuracy import MeanIoU
from epibench.metrics.checks import check_classes, check_keys, check_numbers, check_probabilities, same_pixels
from epibench.metrics.confidence_calibration import ConfidenceCalibration
from epibench.metrics.ranking import accumulate, accumulate_by_label
from epibench.metrics.streaming import Array, StreamingMetric, each_row, to_tensor


class ClassScores(StreamingMetric):
    """Mean scores over the pixels of each true class, (…, class): `brier_per_class` and `nll_per_class`.

    `update(probs, target)` with the class axis last. NaN where a class has no pixels, or an infinite NLL.
    """

    higher_is_better = False
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
        """Add pixels by their `probs` or, where these are known already, by the two others.

        probs: (draw, …, class) with `num_draws`, otherwise (…, class); target: (…); the others: (draw, …) or (…).
        """
        if target is None:
            raise TypeError("ClassScores.update needs target")
        targets = self.shared(target)
        check_numbers(targets, self.num_classes, "target")
        if brier is not None and target_probability is not None:
            scores, own = self.rows(brier), self.rows(target_probability)
            same_pixels(brier=scores, target_probability=own, target=targets)
            check_keys(scores, "brier", finite=True)
            check_probabilities(target_probability=own)
            each_row(self._add, scores, own, targets)
        elif probs is not None:
            classes = self.rows(probs, 1)
            same_pixels(probs=classes, target=targets)
            check_classes(classes, self.num_classes)
            check_probabilities(probs=classes)
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
        nll = -own.to(torch.float64).log()  # an infinite one makes an infinite sum
        accumulate_by_label(target.to(torch.int64), (self.class_brier[rows], brier), (self.class_nll[rows], nll))

    def compute(self) -> dict[str, Tensor]:
        """Each score, one row per draw and one column per class."""
        nll = self.class_nll / self.class_counts
        return {
            "brier_per_class": self.result(self.class_brier / self.class_counts),
            "nll_per_class": self.result(torch.where(nll.isinf(), torch.nan, nll)),
        }


def scores_per_class(probs: Array, target: Array, bins: int = 10) -> dict[str, Tensor]:
    """All metrics whose names end in `_per_class` but AUSE, of whole arrays; each (class,). probs: (…, class)."""
    classes = to_tensor(probs).shape[-1]
    found: dict[str, Tensor] = {}
    for metric in (MeanIoU(classes), ClassScores(classes), ConfidenceCalibration(bins, num_classes=classes)):
        metric.update(probs, target)
        found |= metric.compute()
    return {name: value for name, value in found.items() if name.endswith("_per_class")}
