"""All metrics of one kind of prediction, updated together from the predictive of every draw."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torchmetrics import MetricCollection

from epibench import metrics
from epibench.conventions import Convention
from epibench.likelihoods.categorical import CategoricalPredictive
from epibench.likelihoods.gaussian import GaussianPredictive
from epibench.likelihoods.ranking import RankingPredictive
from epibench.metrics import StreamingMetric
from epibench.metrics.confidence_calibration import PublishedConfidenceCalibration
from epibench.metrics.prediction_errors import PublishedMeanIoU, squared_error
from epibench.metrics.ranking import order_key
from epibench.metrics.sparsification import SparsificationError

MetricInputs = dict[str, Tensor]


@dataclass(frozen=True)
class SuiteSettings:
    """The settings of the metrics of a suite, besides the draws.

    Args:
        kind: Kind of the predictions.
        convention: Convention of the metrics.
        uncertainty: Uncertainty that pixels are sorted by.
        num_images: Number of images.
        num_classes: Number of classes.
        published: Whether values of the convention `gustafsson2020` are added to the suite's own.
        depth: Whether predictions are depths in metres, which have further metrics.
    """

    kind: str
    convention: Convention
    uncertainty: str
    num_images: int | None = None
    num_classes: int | None = None
    published: bool = False
    depth: bool = False

    @property
    def metric_set(self) -> str:
        """The name of its set of metrics."""
        return "ranking_classes" if self.kind == "ranking" and self.num_classes else self.kind


class Suite:
    """Metrics in a MetricCollection, and their inputs from a predictive."""

    def __init__(self, suite: dict[str, StreamingMetric], settings: SuiteSettings):
        self.metrics = MetricCollection(cast(dict[str, Any], suite), compute_groups=False)
        self.settings = settings

    def inputs_of(self, predictive: Any, target: Tensor, image: Tensor | None) -> MetricInputs:
        """Return the inputs of the metrics for these pixels, by name. Several threads may call it."""
        observed = METRIC_INPUTS[self.settings.kind](predictive, target, self.settings)
        return observed if image is None else {**observed, "image": image}

    def update(self, observed: MetricInputs) -> None:
        """Add pixels to every metric; each takes its inputs by name."""
        self.metrics.update(**observed)

    def compute(self) -> dict[str, Tensor]:
        """Return every metric by its name in results, (draw,) or (draw, class)."""
        for _, metric in self.metrics.items():  # without pixels, all values are NaN
            cast(StreamingMetric, metric).mark_updated()
        values: dict[str, Tensor] = {}
        if self.settings.published:
            for _, metric in self.metrics.items():
                values |= cast(StreamingMetric, metric).as_published()
        values |= self.metrics.compute()  # published values in float32 replace their float64 ones
        # torchmetrics drops the draw axis of a single draw.
        return {name: value if value.ndim else value[None] for name, value in values.items()}

    def curves(self) -> dict[str, dict[str, Tensor]]:
        """Return the curves of the metrics, each family with its abscissa `x` and curves (draw, point)."""
        families = {name: cast(StreamingMetric, metric).curves() for name, metric in self.metrics.items()}
        return {name: curves for name, curves in families.items() if curves}

    def state(self) -> dict[str, Tensor]:
        """Return the states of all metrics, by name."""
        return {f"{name}.{part}": getattr(metric, part) for name, metric, part in self._parts()}

    def load_state(self, saved: Mapping[str, Tensor]) -> None:
        """Resume from states of a suite with the same settings and draws."""
        for name, metric, part in self._parts():
            setattr(metric, part, saved[f"{name}.{part}"].to(metric.device))
            metric.mark_updated()

    def _parts(self) -> Iterator[tuple[str, StreamingMetric, str]]:
        for name, metric in self.metrics.items():
            own = cast(StreamingMetric, metric)
            yield from ((name, own, part) for part in own.state_names)


# Makes a metric for the draws in the rows of weights (draw, member).
MakeMetric = Callable[[Tensor, SuiteSettings], StreamingMetric]


def _rmse(weights: Tensor, settings: SuiteSettings) -> StreamingMetric:
    if settings.convention == "gustafsson2020" or settings.published:
        images, convention = settings.num_images or 0, settings.convention
        return metrics.GroupedRootMeanSquaredError(images, len(weights), convention=convention)
    return metrics.RootMeanSquaredError(len(weights))


def _sparsification(error: SparsificationError, *, inverted: bool = False) -> MakeMetric:
    return lambda weights, settings: metrics.Sparsification(
        error, len(weights), convention=settings.convention, inverted=inverted
    )


def _miou(weights: Tensor, settings: SuiteSettings) -> StreamingMetric:
    return metrics.MeanIoU(settings.num_classes or 0, len(weights), convention=settings.convention)


# The metrics of each kind of prediction; a ranking has values or classes. To add one, write its file and
# its line here.
METRICS: dict[str, dict[str, MakeMetric]] = {
    "gaussian": {
        "sparsification": _sparsification("rmse"),
        "calibration": lambda weights, settings: metrics.IntervalCalibration(len(weights)),
        "rmse": _rmse,
        "mae": lambda weights, settings: metrics.MeanAbsoluteError(len(weights)),
        "nll": lambda weights, settings: metrics.MixtureNLL(weights),
        "nll_gaussian": lambda weights, settings: metrics.GaussianNLL(len(weights)),
        "crps": lambda weights, settings: metrics.MixtureCRPS(weights),
        "crps_gaussian": lambda weights, settings: metrics.GaussianCRPS(len(weights)),
        "ence": lambda weights, settings: metrics.NormalisedCalibration(num_draws=len(weights)),
        "interval_score": lambda weights, settings: metrics.IntervalScore(len(weights)),
    },
    "categorical": {
        "sparsification": _sparsification("brier"),
        "reliability": lambda weights, settings: metrics.ConfidenceCalibration(
            10, len(weights), num_classes=settings.num_classes or 0, convention=settings.convention
        ),
        "ece_adaptive": lambda weights, settings: metrics.AdaptiveConfidenceCalibration(10, len(weights)),
        "miou": _miou,
        "brier": lambda weights, settings: metrics.BrierScore(len(weights)),
        "nll": lambda weights, settings: metrics.CategoricalNLL(len(weights)),
        "class_scores": lambda weights, settings: metrics.ClassScores(settings.num_classes or 0, len(weights)),
        "class_sparsification": lambda weights, settings: metrics.ClassSparsification(
            settings.num_classes or 0, "brier", len(weights)
        ),
    },
    "ranking": {
        "sparsification": _sparsification("rmse", inverted=True),
        "rmse": _rmse,
        "mae": lambda weights, settings: metrics.MeanAbsoluteError(len(weights)),
    },
    "ranking_classes": {
        "sparsification": _sparsification("brier", inverted=True),  # of losses that are 1 if the class is wrong
        "miou": _miou,
    },
}


# Further metrics for published values beside another convention: float32 needs its own states.
PUBLISHED_METRICS: dict[str, dict[str, MakeMetric]] = {
    "categorical": {
        "reliability_published": lambda weights, settings: PublishedConfidenceCalibration(10, len(weights)),
        "miou_published": lambda weights, settings: PublishedMeanIoU(settings.num_classes or 0, len(weights)),
    }
}


# Further metrics for predictions that are depths in metres.
DEPTH_METRICS: dict[str, MakeMetric] = {"depth": lambda weights, settings: metrics.DepthErrors(len(weights))}


def metrics_of(name: str, depth: bool = False, published: bool = False) -> dict[str, MakeMetric]:
    """Return a set of metrics by its name."""
    return METRICS[name] | (PUBLISHED_METRICS.get(name, {}) if published else {}) | (DEPTH_METRICS if depth else {})


def make_suite(weights: Tensor, settings: SuiteSettings, instead: Mapping[str, MakeMetric] | None = None) -> Suite:
    """Return the metrics of a kind of prediction, for the draws in the rows of `weights` (draw, member).

    `instead`: metrics that replace metrics of the same name.
    """
    makers = metrics_of(settings.metric_set, settings.depth, settings.published) | dict(instead or {})
    suite = {name: make(weights, settings) for name, make in makers.items()}
    return Suite(suite, settings)


def observe_gaussian(predictive: GaussianPredictive, target: Tensor, settings: SuiteSettings) -> MetricInputs:
    """Return all inputs of metrics of Gaussian predictions, by name."""
    return {
        "mean": predictive.mean,
        "variance": predictive.variance,
        "std": predictive.variance.sqrt(),
        "member_mean": predictive.member_mean,
        "member_variance": predictive.member_variance,
        "uncertainty": predictive.uncertainty(cast(Any, settings.uncertainty)),
        "loss": squared_error(predictive.mean, target),
        "target": target,
    }


def observe_categorical(predictive: CategoricalPredictive, target: Tensor, settings: SuiteSettings) -> MetricInputs:
    """Return all inputs of metrics of categorical predictions, by name."""
    scored = predictive.judge(target, cast(Any, settings.uncertainty))
    observed = {
        "confidence": scored.confidence,
        "predicted": scored.predicted,
        "correct": scored.predicted == target,
        "uncertainty": scored.uncertainty,
        "loss": scored.brier,
        "brier": scored.brier,
        "target_probability": scored.target_probability,
        "target": target,
    }
    if settings.convention == "gustafsson2020" or settings.published:
        observed |= observe_published(predictive, target, "published_" if settings.published else "")
    return observed


def observe_published(predictive: CategoricalPredictive, target: Tensor, prefix: str) -> MetricInputs:
    """Return inputs of the published convention, from probabilities in float32. `prefix`: of their names."""
    confidence, predicted = predictive.choose_in_float32()
    named = {"confidence": confidence, "predicted": predicted, "correct": predicted == target}
    return {"target": target} | {f"{prefix}{name}": values for name, values in named.items()}


def observe_ranking(predictive: RankingPredictive, target: Tensor, settings: SuiteSettings) -> MetricInputs:
    """Return all inputs of metrics of predictions without a distribution, by name."""
    predicted = predictive.predicted
    uncertainty = order_key(predictive.uncertainty(cast(Any, settings.uncertainty)))
    observed = {"uncertainty": uncertainty, "target": target}
    if predicted.is_floating_point():
        return {**observed, "mean": predicted, "loss": squared_error(predicted, target)}
    correct = predicted == target
    return {**observed, "predicted": predicted, "correct": correct, "loss": (~correct).to(torch.float64)}


METRIC_INPUTS: dict[str, Callable[[Any, Tensor, SuiteSettings], MetricInputs]] = {
    "gaussian": observe_gaussian,
    "categorical": observe_categorical,
    "ranking": observe_ranking,
}
