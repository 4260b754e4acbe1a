"""Categorical metrics of all draws from one kernel, which scores pixels and counts them together.

The states equal the states of the metrics' own updates: counts exactly, sums up to rounding. Metrics without a kernel
update themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from torch import Tensor
from torchmetrics import MetricCollection

from epibench import kernels, metrics
from epibench.evaluation.suite import PUBLISHED_METRICS, Suite, observe_published
from epibench.likelihoods.categorical import CategoricalPredictive
from epibench.metrics import per_class, ranking
from epibench.metrics.checks import check_numbers
from epibench.metrics.streaming import StreamingMetric

if TYPE_CHECKING:
    from epibench.kernels.tally import Layout, Tally

COVERED = {
    "sparsification": metrics.Sparsification,
    "reliability": metrics.ConfidenceCalibration,
    "ece_adaptive": metrics.AdaptiveConfidenceCalibration,
    "miou": metrics.MeanIoU,
    "brier": metrics.BrierScore,
    "nll": metrics.CategoricalNLL,
    "class_scores": metrics.ClassScores,
    "class_sparsification": metrics.ClassSparsification,
}
# The kernel's counts of (true class, predicted class, bin of confidence) stay small up to this number.
MOST_CLASSES = 64
RIGHT = 32  # bits below the count of right pixels


@dataclass(frozen=True)
class FusedUpdates:
    """Updates of a suite's categorical metrics."""

    suite: Suite
    layout: Layout
    beside: MetricCollection | None = None  # metrics of float32, without a kernel

    @classmethod
    def of(cls, suite: Suite, weights: Tensor) -> FusedUpdates | None:
        """Return updates; None if kernels cannot be used, or do not cover the metrics."""
        settings, found = suite.settings, dict(suite.metrics.items())
        if not kernels.usable(weights) or settings.kind != "categorical":
            return None
        if settings.uncertainty == "mutual_information" or not 0 < (settings.num_classes or 0) <= MOST_CLASSES:
            return None
        published: dict[str, Any] = {n: found.pop(n) for n in PUBLISHED_METRICS["categorical"] if n in found}
        if {name: type(metric) for name, metric in found.items()} != COVERED or settings.convention != "pooled":
            return None  # under another convention, metrics take confidences in float32
        layout = layout_of(found)
        beside = MetricCollection(published, compute_groups=False) if published else None
        return cls(suite, layout, beside) if found["ece_adaptive"].bits == layout.wide_bits else None

    def update(self, predictive: CategoricalPredictive, target: Tensor) -> bool:
        """Add pixels to all metrics. Return False, without any change, if scores of some pixels are not numbers ≥ 0."""
        from epibench.kernels.drawn import drawn_members
        from epibench.kernels.tally import tally

        check_numbers(target, self.layout.classes, "target", label=True)
        probs, weights = predictive.member_probs.movedim(2, 1), predictive.weights
        with_entropy = self.suite.settings.uncertainty == "entropy"
        counted = tally(probs, drawn_members(weights), len(weights), target, with_entropy, self.layout)
        if bool((counted.joint.flatten(1).sum(1) != len(target)).any()):
            return False
        increments = states_of(counted)
        for name, metric in self.suite.metrics.items():
            if name in increments:
                add(cast(StreamingMetric, metric), increments[name])
        if self.beside:
            self.beside.update(**observe_published(predictive, target, "published_"))
        return True


def layout_of(found: Mapping[str, Any]) -> Layout:
    """Return the layout of the metrics' states."""
    from epibench.kernels.tally import Layout

    bits, reliability = found["sparsification"].bits, found["reliability"]
    return Layout(
        classes=reliability.num_classes,
        wide=ranking.num_bins(bits),
        wide_bits=bits,
        narrow=per_class.NUM_BINS,
        narrow_bits=per_class.BITS,
        narrow_first=per_class.FIRST,
        bins=reliability.bins,
    )


def add(metric: StreamingMetric, increments: Mapping[str, Tensor]) -> None:
    """Add increments to the states of a metric, by name."""
    for state, increment in increments.items():
        setattr(metric, state, getattr(metric, state) + increment)
    metric.mark_updated()
    metric.forget_result()


def states_of(counted: Tally) -> dict[str, dict[str, Tensor]]:
    """Return the increments of every metric's states, by name."""
    joint, doubt = counted.joint, counted.count("doubt")
    confusion = joint.sum(3)
    class_counts = confusion.sum(2)
    class_brier = counted.sum("class_loss").reshape(*class_counts.shape, -1).sum(2)
    pixels = class_counts.sum(1)
    return {
        "sparsification": _by_uncertainty(counted, ""),
        "reliability": {
            "bin_counts": joint.sum(1).flatten(1),
            "bin_correct": joint.diagonal(dim1=1, dim2=2).movedim(2, 1).flatten(1),
            "bin_confidence": counted.confidence.sum(1).flatten(1),
        },
        "ece_adaptive": {
            "doubt_counts": doubt & (2**RIGHT - 1),
            "doubt_correct": doubt >> RIGHT,
            "doubt_sums": counted.sum("doubt"),
        },
        "miou": {"confusion": confusion.flatten(1)},
        "brier": {"brier_sum": class_brier.sum(1), "brier_count": pixels},
        "nll": {
            "nll_sum": counted.sum("finite_nll")[:, 0],
            "nll_count": pixels,
            "nll_infinite": counted.count("infinite")[:, 0],
        },
        "class_scores": {"class_counts": class_counts, "class_brier": class_brier, "class_nll": counted.nll},
        "class_sparsification": _by_uncertainty(counted, "class_"),
    }


def _by_uncertainty(counted: Tally, of: str) -> dict[str, Tensor]:
    return {
        f"{of}uncertainty_counts": counted.count(f"{of}uncertainty"),
        f"{of}uncertainty_losses": counted.sum(f"{of}uncertainty_losses"),
        f"{of}uncertainty_squares": counted.sum(f"{of}uncertainty_squares"),
        f"{of}loss_counts": counted.count(f"{of}loss"),
        f"{of}loss_losses": counted.sum(f"{of}loss"),
    }
