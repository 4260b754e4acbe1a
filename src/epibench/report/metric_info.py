"""What is known about each metric: title, meaning, which way is better, where it belongs on a page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Better = Literal["lower", "higher", "zero", "neither"]

PER_CLASS = "_per_class"  # how metrics that have a value for each class end
COMPANIONS = ("_bound", "_standard_error", "_infinite", "_random")
GROUPS = ("Ranking of errors", "Calibration", "Accuracy", "Proper scores", "Other metrics")
HEADLINES = {"gaussian": ("ause", "auce", "rmse"), "categorical": ("ause", "ece", "miou")}
BETTER_TEXT: dict[Better, str] = {
    "lower": "↓ lower is better",
    "higher": "↑ higher is better",
    "zero": "0 is ideal",
    "neither": "",
}


@dataclass(frozen=True)
class MetricInfo:
    """How one metric is named and read."""

    name: str
    title: str
    meaning: str
    better: Better
    group: str
    in_unit: bool = False


def _known(
    name: str, title: str, better: Better, group: int, meaning: str, in_unit: bool = False
) -> tuple[str, MetricInfo]:
    return name, MetricInfo(name, title, meaning, better, GROUPS[group], in_unit)


KNOWN: dict[str, MetricInfo] = dict(
    [
        _known("kl", "KL", "lower", 4, "How far is the predictive distribution from that of the reference?"),
        _known("ause", "AUSE", "lower", 0, "Does high uncertainty mark the large errors? 0: as well as the errors do."),
        _known("auce", "AUCE", "lower", 1, "How far is the coverage of intervals from their level, over all levels?"),
        _known("auce_signed", "AUCE, signed", "zero", 1, "Below 0: over-confident. Above 0: under-confident."),
        _known("ece", "ECE", "lower", 1, "How far is the confidence from the accuracy, in 10 bins of confidence?"),
        _known("ece_adaptive", "ECE, adaptive", "lower", 1, "The same, in bins that hold equally many pixels."),
        _known("ence", "ENCE", "lower", 1, "Relative gap between predicted std and RMSE, in bins of equal mass."),
        _known(
            "interval_length",
            "90 % interval length",
            "neither",
            1,
            "Mean length; short is good only if it covers.",
            True,
        ),
        _known("rmse", "RMSE", "lower", 2, "Root mean squared error of the predicted mean.", True),
        _known("mae", "MAE", "lower", 2, "Mean absolute error of the predicted mean.", True),
        _known("miou", "mIoU", "higher", 2, "Intersection over union, mean over the classes."),
        _known("accuracy", "Accuracy", "higher", 2, "Share of pixels whose most probable class is right."),
        _known("brier", "Brier score", "lower", 3, "Squared distance between probabilities and truth."),
        _known("nll", "NLL", "lower", 3, "Negative log-likelihood of the exact mixture of the members."),
        _known("nll_gaussian", "NLL, one Gaussian", "lower", 3, "Of the single Gaussian with the mixture's moments."),
        _known("crps", "CRPS", "lower", 3, "Continuous ranked probability score of the exact mixture.", True),
        _known(
            "crps_gaussian",
            "CRPS, one Gaussian",
            "lower",
            3,
            "Of the single Gaussian with the mixture's moments.",
            True,
        ),
        _known(
            "interval_score",
            "Interval score",
            "lower",
            3,
            "Winkler score of the 90 % interval: length and misses.",
            True,
        ),
        _known("iou_per_class", "IoU per class", "higher", 2, "Intersection over union of each class."),
        _known("accuracy_per_class", "Accuracy per class", "higher", 2, "Share of a class's pixels predicted as it."),
        _known("ause_per_class", "AUSE per class", "lower", 0, "Does high uncertainty mark the errors within a class?"),
        _known("ece_per_class", "ECE per class", "lower", 1, "ECE of the pixels that are predicted as the class."),
        _known("brier_per_class", "Brier score per class", "lower", 3, "Brier score over the pixels of each class."),
        _known("nll_per_class", "NLL per class", "lower", 3, "Negative log-likelihood over the pixels of each class."),
        _known("share_per_class", "Share of pixels", "neither", 4, "Share of the valid pixels that are of each class."),
    ]
)


def metric_info(name: str) -> MetricInfo:
    """What is known about a metric; a new one is shown under its own name, without a direction."""
    return KNOWN.get(name) or MetricInfo(name, name, "", "neither", GROUPS[-1])


def is_companion(name: str, names: Iterable[str]) -> bool:
    """Whether a metric belongs to another one, as `ause_bound` to `ause`."""
    return any(name.endswith(suffix) and name.removesuffix(suffix) in names for suffix in COMPANIONS)


def ordered(names: Iterable[str], kind: str) -> list[str]:
    """Metrics without companions: the headline ones, the known ones, then the others as they came."""
    present = list(dict.fromkeys(names))
    shown = [name for name in present if not is_companion(name, present)]
    ranks = {name: rank for rank, name in enumerate(dict.fromkeys((*HEADLINES.get(kind, ()), *KNOWN)))}
    return sorted(shown, key=lambda name: ranks.get(name, len(ranks)))


def sort_key(better: Better, value: float) -> float:
    """A number that is smaller for a better value."""
    return {"lower": value, "higher": -value, "zero": abs(value), "neither": 0.0}[better]
