"""All metrics of one kind of prediction, updated together from the predictive of every draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast, get_args

import torch
from torch import Tensor
from torchmetrics import MetricCollection

from epibench.errors import InputError
from epibench.likelihoods.categorical import CategoricalPredictive, CategoricalUncertainty
from epibench.likelihoods.gaussian import GaussianPredictive, GaussianUncertainty
from epibench.metrics import (
    AdaptiveConfidenceCalibration,
    BrierScore,
    CategoricalNLL,
    ConfidenceCalibration,
    Convention,
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
    brier_score,
)
from epibench.metrics.accuracy import squared_error
from epibench.metrics.interval_calibration import levels
from epibench.metrics.scores import target_probability

UNCERTAINTIES: dict[str, tuple[str, ...]] = {
    "gaussian": get_args(GaussianUncertainty),
    "categorical": get_args(CategoricalUncertainty),
}


@dataclass(frozen=True)
class SuiteSettings:
    """What the metrics of a suite depend on, besides the draws."""

    convention: Convention
    uncertainty: str
    exact: bool
    num_images: int | None = None
    num_classes: int | None = None


class Suite:
    """Metrics in a MetricCollection, and what each of them is called with."""

    def __init__(self, metrics: dict[str, StreamingMetric], uncertainty: str) -> None:
        self.metrics = MetricCollection(cast(dict[str, Any], metrics), compute_groups=False)
        self.uncertainty = uncertainty

    def observe(
        self, predictive: GaussianPredictive | CategoricalPredictive, target: Tensor, image: Tensor | None
    ) -> dict[str, Tensor]:
        """What the metrics may ask for of these pixels, by name; it may be called from several threads."""
        if isinstance(predictive, GaussianPredictive):
            observed = gaussian_observations(predictive, target, cast(GaussianUncertainty, self.uncertainty))
        else:
            observed = categorical_observations(predictive, target, cast(CategoricalUncertainty, self.uncertainty))
        return observed if image is None else {**observed, "image": image}

    def update(self, observed: dict[str, Tensor]) -> None:
        """Add observed pixels to every metric; each takes by name what it needs."""
        self.metrics.update(**observed)

    def compute(self) -> dict[str, Tensor]:
        """Every metric by its name in results, (draw,) or (draw, class)."""
        values: dict[str, Tensor] = self.metrics.compute()
        # torchmetrics drops the draw axis of a single draw.
        return {name: value if value.ndim else value[None] for name, value in values.items()}

    def curves(self) -> dict[str, dict[str, Tensor]]:
        """Curves by family, each with its abscissa `x` and named curves (draw, point)."""
        families = {}
        for name, metric in self.metrics.items():
            if name in ABSCISSAS:
                families[name] = {"x": ABSCISSAS[name], **cast(Any, metric).curves()}
        return families


# Fractions removed, levels of intervals, middles of confidence bins.
ABSCISSAS: dict[str, Tensor] = {
    "sparsification": torch.arange(100, dtype=torch.float64) / 100,
    "calibration": levels(),
    "reliability": (torch.arange(10, dtype=torch.float64) + 0.5) / 10,
}


def gaussian_suite(weights: Tensor, settings: SuiteSettings) -> Suite:
    """The metrics of Gaussian predictions, for the draws in the rows of `weights` (draw, member)."""
    draws = weights.shape[0]
    rmse: StreamingMetric = RootMeanSquaredError(draws)
    if settings.convention == "gustafsson2020":
        if settings.num_images is None:
            raise InputError(
                "convention 'gustafsson2020' averages the RMSE over groups of 4 images and needs an image axis: "
                "store predictions as (member, image, height, width)"
            )
        rmse = GroupedRootMeanSquaredError(settings.num_images, draws)
    metrics: dict[str, StreamingMetric] = {
        "sparsification": _sparsification("rmse", draws, settings),
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
    return Suite(metrics, settings.uncertainty)


def categorical_suite(weights: Tensor, settings: SuiteSettings) -> Suite:
    """The metrics of categorical predictions, for the draws in the rows of `weights` (draw, member)."""
    draws = weights.shape[0]
    assert settings.num_classes is not None
    metrics: dict[str, StreamingMetric] = {
        "sparsification": _sparsification("brier", draws, settings),
        "reliability": ConfidenceCalibration(10, draws, convention=settings.convention),
        "ece_adaptive": AdaptiveConfidenceCalibration(10, draws),
        "miou": MeanIoU(settings.num_classes, draws, convention=settings.convention),
        "brier": BrierScore(draws),
        "nll": CategoricalNLL(draws),
    }
    return Suite(metrics, settings.uncertainty)


def _sparsification(error: Any, draws: int, settings: SuiteSettings) -> Sparsification:
    return Sparsification(error, draws, convention=settings.convention, exact=settings.exact)


def gaussian_observations(
    predictive: GaussianPredictive, target: Tensor, uncertainty: GaussianUncertainty
) -> dict[str, Tensor]:
    """Everything that a metric of Gaussian predictions may ask for, by the name it asks with."""
    return {
        "mean": predictive.mean,
        "variance": predictive.variance,
        "std": predictive.variance.sqrt(),
        "member_mean": predictive.member_mean,
        "member_variance": predictive.member_variance,
        "uncertainty": predictive.uncertainty(uncertainty),
        "loss": squared_error(predictive.mean, target),
        "target": target,
    }


def categorical_observations(
    predictive: CategoricalPredictive, target: Tensor, uncertainty: CategoricalUncertainty
) -> dict[str, Tensor]:
    """Everything that a metric of categorical predictions may ask for, by the name it asks with."""
    confidence, predicted = predictive.probs.max(2)
    brier = brier_score(predictive.probs, target[None])
    return {
        "confidence": confidence,
        "predicted": predicted,
        "correct": predicted == target,
        "uncertainty": predictive.uncertainty(uncertainty),
        "loss": brier,
        "brier": brier,
        "target_probability": target_probability(predictive.probs, target[None]),
        "target": target,
    }


def check_uncertainty(kind: str, name: str | None) -> str:
    """The uncertainty to sort by: the kind's first one by default."""
    known = UNCERTAINTIES[kind]
    if name is None:
        return known[0]
    if name not in known:
        raise InputError(f"uncertainty '{name}' is not one of {kind} predictions; these have {', '.join(known)}")
    return name
