"""All metrics of one kind of prediction, updated together from the predictive of every draw."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor
from torchmetrics import MetricCollection

from epibench.conventions import Convention
from epibench.likelihoods.categorical import CategoricalPredictive
from epibench.likelihoods.gaussian import GaussianPredictive
from epibench.metrics import (
    AdaptiveConfidenceCalibration,
    BrierScore,
    CategoricalNLL,
    ClassScores,
    ClassSparsification,
    ConfidenceCalibration,
    GaussianCRPS,
    GaussianNLL,
    GroupedRootMeanSquaredError,
    IntervalCalibration,
    IntervalScore,
    MeanAbsoluteError,
    MeanIoU,
    MixtureCRPS,
    MixtureNLL,
    NormalisedCalibration,
    RootMeanSquaredError,
    Sparsification,
    StreamingMetric,
)
from epibench.metrics.accuracy import squared_error

Observed = dict[str, Tensor]


@dataclass(frozen=True)
class SuiteSettings:
    """What the metrics of a suite depend on, besides the draws."""

    kind: str
    convention: Convention
    uncertainty: str
    exact: bool
    num_images: int | None = None
    num_classes: int | None = None


class Suite:
    """Metrics in a MetricCollection, and how what they ask for is observed of a predictive."""

    def __init__(self, metrics: dict[str, StreamingMetric], observe: Callable[[Any, Tensor, str], Observed], by: str):
        self.metrics = MetricCollection(cast(dict[str, Any], metrics), compute_groups=False)
        self._observe = observe
        self._uncertainty = by

    def observe(self, predictive: Any, target: Tensor, image: Tensor | None) -> Observed:
        """What the metrics may ask for of these pixels, by name; it may be called from several threads."""
        observed = self._observe(predictive, target, self._uncertainty)
        return observed if image is None else {**observed, "image": image}

    def update(self, observed: Observed) -> None:
        """Add observed pixels to every metric; each takes by name what it needs."""
        self.metrics.update(**observed)

    def compute(self) -> dict[str, Tensor]:
        """Every metric by its name in results, (draw,) or (draw, class)."""
        for _, metric in self.metrics.items():  # torchmetrics warns where nothing was seen: then all is NaN
            metric._update_count = max(1, metric._update_count)
        values: dict[str, Tensor] = self.metrics.compute()
        # torchmetrics drops the draw axis of a single draw.
        return {name: value if value.ndim else value[None] for name, value in values.items()}

    def curves(self) -> dict[str, dict[str, Tensor]]:
        """The curves of the metrics that have any, each family with its abscissa `x` and curves (draw, point)."""
        found = {name: cast(StreamingMetric, metric).curves() for name, metric in self.metrics.items()}
        return {name: curves for name, curves in found.items() if curves}

    def state(self) -> dict[str, Tensor]:
        """The states of all metrics, by names of their own."""
        return {f"{name}.{part}": getattr(metric, part) for name, metric, part in self._parts()}

    def load_state(self, saved: Mapping[str, Tensor]) -> None:
        """Go on from states of a suite with the same settings and draws."""
        for name, metric, part in self._parts():
            setattr(metric, part, saved[f"{name}.{part}"].to(metric.device))
            metric._update_count = 1  # otherwise torchmetrics warns that nothing was seen

    def _parts(self) -> Iterator[tuple[str, StreamingMetric, str]]:
        for name, metric in self.metrics.items():
            yield from ((name, cast(StreamingMetric, metric), part) for part in cast(Any, metric)._defaults)


def make_suite(weights: Tensor, settings: SuiteSettings) -> Suite:
    """The metrics of a kind of prediction, for the draws in the rows of `weights` (draw, member)."""
    if settings.kind == "gaussian":
        return Suite(gaussian_metrics(weights, settings), observe_gaussian, settings.uncertainty)
    return Suite(categorical_metrics(weights, settings), observe_categorical, settings.uncertainty)


def gaussian_metrics(weights: Tensor, settings: SuiteSettings) -> dict[str, StreamingMetric]:
    """The metrics of Gaussian predictions."""
    draws = weights.shape[0]
    rmse: StreamingMetric = RootMeanSquaredError(draws)
    if settings.convention == "gustafsson2020":
        rmse = GroupedRootMeanSquaredError(settings.num_images or 0, draws)
    return {
        "sparsification": Sparsification("rmse", draws, convention=settings.convention, exact=settings.exact),
        "calibration": IntervalCalibration(draws),
        "rmse": rmse,
        "mae": MeanAbsoluteError(draws),
        "nll": MixtureNLL(weights),
        "nll_gaussian": GaussianNLL(draws),
        "crps": MixtureCRPS(weights),
        "crps_gaussian": GaussianCRPS(draws),
        "ence": NormalisedCalibration(num_draws=draws),
        "interval_score": IntervalScore(draws),
    }


def categorical_metrics(weights: Tensor, settings: SuiteSettings) -> dict[str, StreamingMetric]:
    """The metrics of categorical predictions."""
    draws, classes = weights.shape[0], settings.num_classes or 0
    return {
        "sparsification": Sparsification("brier", draws, convention=settings.convention, exact=settings.exact),
        "reliability": ConfidenceCalibration(10, draws, num_classes=classes, convention=settings.convention),
        "ece_adaptive": AdaptiveConfidenceCalibration(10, draws),
        "miou": MeanIoU(classes, draws, convention=settings.convention),
        "brier": BrierScore(draws),
        "nll": CategoricalNLL(draws),
        "class_scores": ClassScores(classes, draws),
        "class_sparsification": ClassSparsification(classes, "brier", draws),
    }


def observe_gaussian(predictive: GaussianPredictive, target: Tensor, uncertainty: str) -> Observed:
    """Everything that a metric of Gaussian predictions may ask for, by the name it asks with."""
    return {
        "mean": predictive.mean,
        "variance": predictive.variance,
        "std": predictive.variance.sqrt(),
        "member_mean": predictive.member_mean,
        "member_variance": predictive.member_variance,
        "uncertainty": predictive.uncertainty(cast(Any, uncertainty)),
        "loss": squared_error(predictive.mean, target),
        "target": target,
    }


def observe_categorical(predictive: CategoricalPredictive, target: Tensor, uncertainty: str) -> Observed:
    """Everything that a metric of categorical predictions may ask for, by the name it asks with."""
    found = predictive.judge(target, cast(Any, uncertainty))
    return {
        "confidence": found.confidence,
        "predicted": found.predicted,
        "correct": found.predicted == target,
        "uncertainty": found.uncertainty,
        "loss": found.brier,
        "brier": found.brier,
        "target_probability": found.target_probability,
        "target": target,
    }
