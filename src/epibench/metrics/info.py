"""Descriptions of metric values: title, direction, unit, group and meaning.

Every metric class declares `info`, with an entry for each value of its `compute()` and `as_published()`. `INFOS` has
the entries of all metrics of the library, which pages read without torch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, get_args

Better = Literal["lower", "higher", "zero", "neither"]
Group = Literal["Ranking of errors", "Calibration", "Accuracy", "Proper scores", "Other metrics"]
GROUPS: tuple[Group, ...] = get_args(Group)


@dataclass(frozen=True)
class MetricInfo:
    """One value of a metric. `in_unit`: in the unit of the target; `companion_of`: the value that it accompanies."""

    name: str
    title: str
    meaning: str
    better: Better
    group: Group
    in_unit: bool = False
    companion_of: str | None = None


def describe(*infos: MetricInfo) -> dict[str, MetricInfo]:
    """Return the declaration of a metric: its entries by name."""
    return {info.name: info for info in infos}


def companion(of: MetricInfo, suffix: str, title: str, meaning: str) -> MetricInfo:
    """Return the entry of a value that accompanies another one, as `ause_bound` accompanies `ause`."""
    return MetricInfo(
        f"{of.name}_{suffix}", f"{of.title}, {title}", meaning, "neither", of.group, of.in_unit, companion_of=of.name
    )


def as_published(of: MetricInfo) -> MetricInfo:
    """Return the entry of the same quantity under the published convention."""
    return companion(of, "gustafsson2020", "as published", "The same pixels under the convention gustafsson2020.")


def bound(of: MetricInfo) -> MetricInfo:
    """Return the entry of the largest deviation of a streamed value from the exact one."""
    return companion(of, "bound", "bound", "The exact value is no farther away than this.")


def infinite(of: MetricInfo) -> MetricInfo:
    """Return the entry of the number of pixels that are left out of a mean."""
    return companion(of, "infinite", "infinite", "How many pixels have an infinite score; then the mean is NaN.")


_order = partial(MetricInfo, better="lower", group="Ranking of errors")
_gap = partial(MetricInfo, better="lower", group="Calibration")
_error = partial(MetricInfo, better="lower", group="Accuracy")
_share = partial(MetricInfo, better="higher", group="Accuracy")
_score = partial(MetricInfo, better="lower", group="Proper scores")
_other = partial(MetricInfo, better="neither", group="Other metrics")


def _area(name: str, title: str) -> tuple[MetricInfo, ...]:
    area = _order(name, title, "Does high uncertainty mark the large errors? 0: as well as the errors do.")
    turned = "The AUSE if the uncertainty is turned round; if it is the smaller one, the uncertainty is inverted."
    inverted = replace(area, name=f"{name}_inverted", title=f"{title}, inverted", meaning=turned, better="neither")
    return (
        area,
        inverted,
        bound(inverted),
        companion(inverted, "noise", "noise", "The std of the AUSE of an uncertainty that knows nothing."),
        as_published(area),
        bound(area),
        companion(area, "standard_error", "standard error", "If pixels are in random order within a bin."),
        companion(area, "random", "by chance", "What an uncertainty that knows nothing would score."),
    )


AUSE, AUSE_MAE = _area("ause", "AUSE"), _area("ause_mae", "AUSE of the MAE")
AUSE_PER_CLASS = _order("ause_per_class", "AUSE per class", "Does high uncertainty mark the errors within a class?")
ECE = _gap("ece", "ECE", "How far is the confidence from the accuracy, in 10 bins of confidence?")
ECE_ADAPTIVE = _gap("ece_adaptive", "ECE, adaptive", "The same, in bins that hold equally many pixels.")
ENCE = _gap("ence", "ENCE", "Relative gap between predicted std and RMSE, in bins of equal mass.")
RMSE = _error("rmse", "RMSE", "Root mean squared error of the predicted mean.", in_unit=True)
MIOU = _share("miou", "mIoU", "Intersection over union, mean over the classes.")
LEFT_OUT = _other(
    "depth_left_out",
    "Pixels ≤ 0 m",
    "Pixels whose prediction or depth is not above 0: left out where a logarithm or an inverse is taken.",
)
NLL = _score("nll", "NLL", "Negative log-likelihood of the exact mixture of the members.")
ONE_GAUSSIAN = "Of the single Gaussian with the mixture's moments."
NLL_GAUSSIAN = _score("nll_gaussian", "NLL, one Gaussian", ONE_GAUSSIAN)

INFOS = describe(
    *AUSE,
    *AUSE_MAE,
    AUSE_PER_CLASS,
    bound(AUSE_PER_CLASS),
    _gap("auce", "AUCE", "How far is the coverage of intervals from their level, over all levels?"),
    _gap("auce_signed", "AUCE, signed", "Below 0: over-confident. Above 0: under-confident.", better="zero"),
    _gap(
        "interval_length",
        "90 % interval length",
        "Mean length; short is good only if it covers.",
        better="neither",
        in_unit=True,
    ),
    ECE,
    as_published(ECE),
    _gap("ece_per_class", "ECE per class", "ECE of the pixels that are predicted as the class."),
    ECE_ADAPTIVE,
    bound(ECE_ADAPTIVE),
    ENCE,
    bound(ENCE),
    RMSE,
    companion(RMSE, "spread", "spread", "The standard deviation over 100 random groupings of the images."),
    as_published(RMSE),
    companion(
        RMSE,
        "spread_gustafsson2020",
        "spread as published",
        "Its standard deviation over 100 random groupings of the images.",
    ),
    _error("mae", "MAE", "Mean absolute error of the predicted mean.", in_unit=True),
    _error("abs_rel", "AbsRel", "Mean of |prediction − depth| / depth."),
    _error("sq_rel", "SqRel", "Mean of (prediction − depth)² / depth.", in_unit=True),
    _share("delta1", "δ < 1.25", "Share of pixels right to within a factor of 1.25."),
    _share("delta2", "δ < 1.25²", "Share of pixels right to within a factor of 1.25²."),
    _share("delta3", "δ < 1.25³", "Share of pixels right to within a factor of 1.25³."),
    _error("silog", "SILog (×100)", "Std of the error of the natural logarithm, ×100: no common factor counts."),
    _error("rmse_log", "RMSE log", "Root mean squared error of the natural logarithm."),
    _error("log10", "log₁₀ error", "Mean absolute error of the decimal logarithm."),
    _error("irmse", "iRMSE (1/km)", "Root mean squared error of the inverse depth, in 1/km."),
    LEFT_OUT,
    companion(
        LEFT_OUT,
        "targets",
        "of the target",
        "Pixels whose true depth is not above 0: left out of every error of depth.",
    ),
    MIOU,
    as_published(MIOU),
    _share("iou_per_class", "IoU per class", "Intersection over union of each class."),
    _share("accuracy", "Accuracy", "Share of pixels whose most probable class is right."),
    _share("accuracy_per_class", "Accuracy per class", "Share of a class's pixels predicted as it."),
    _other("share_per_class", "Share of pixels", "Share of the valid pixels that are of each class."),
    NLL,
    infinite(NLL),
    NLL_GAUSSIAN,
    infinite(NLL_GAUSSIAN),
    _score("nll_per_class", "NLL per class", "Negative log-likelihood over the pixels of each class."),
    _score("crps", "CRPS", "Continuous ranked probability score of the exact mixture.", in_unit=True),
    _score("crps_gaussian", "CRPS, one Gaussian", ONE_GAUSSIAN, in_unit=True),
    _score("brier", "Brier score", "Squared distance between probabilities and truth."),
    _score("brier_per_class", "Brier score per class", "Brier score over the pixels of each class."),
    _score("interval_score", "Interval score", "Winkler score of the 90 % interval: length and misses.", in_unit=True),
    _other("kl", "KL", "How far is the predictive distribution from that of the reference?", better="lower"),
)


def infos(*names: str) -> dict[str, MetricInfo]:
    """Return the entries of these values, for their metric."""
    return {name: INFOS[name] for name in names}
