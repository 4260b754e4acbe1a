"""Streaming metrics: constant memory, mergeable, one state per draw; beside each a pure function on whole arrays.

What is named here is imported when it is asked for, so that `epibench.metrics.info` costs no import of torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from epibench.metrics.confidence_calibration import (
        AdaptiveConfidenceCalibration,
        ConfidenceCalibration,
        ece,
        ece_adaptive,
    )
    from epibench.metrics.info import MetricInfo
    from epibench.metrics.interval_calibration import IntervalCalibration, auce
    from epibench.metrics.normalised_calibration import NormalisedCalibration, ence
    from epibench.metrics.per_class import ClassScores, ClassSparsification, ause_per_class, scores_per_class
    from epibench.metrics.prediction_errors import (
        GroupedRootMeanSquaredError,
        MeanAbsoluteError,
        MeanIoU,
        RootMeanSquaredError,
        accuracy,
        mae,
        miou,
        rmse,
    )
    from epibench.metrics.scores import (
        BrierScore,
        CategoricalNLL,
        GaussianCRPS,
        GaussianNLL,
        IntervalScore,
        MixtureCRPS,
        MixtureNLL,
        brier,
        crps_gaussian,
        crps_mixture,
        interval_score,
        nll_categorical,
        nll_gaussian,
        nll_mixture,
    )
    from epibench.metrics.sparsification import Sparsification, ause, sparsification_curves
    from epibench.metrics.streaming import StreamingMetric

__all__ = [
    "AdaptiveConfidenceCalibration",
    "BrierScore",
    "CategoricalNLL",
    "ClassScores",
    "ClassSparsification",
    "ConfidenceCalibration",
    "GaussianCRPS",
    "GaussianNLL",
    "GroupedRootMeanSquaredError",
    "IntervalCalibration",
    "IntervalScore",
    "MeanAbsoluteError",
    "MeanIoU",
    "MetricInfo",
    "MixtureCRPS",
    "MixtureNLL",
    "NormalisedCalibration",
    "RootMeanSquaredError",
    "Sparsification",
    "StreamingMetric",
    "accuracy",
    "auce",
    "ause",
    "ause_per_class",
    "brier",
    "crps_gaussian",
    "crps_mixture",
    "ece",
    "ece_adaptive",
    "ence",
    "interval_score",
    "mae",
    "miou",
    "nll_categorical",
    "nll_gaussian",
    "nll_mixture",
    "rmse",
    "scores_per_class",
    "sparsification_curves",
]

_MODULES = {
    "AdaptiveConfidenceCalibration": "confidence_calibration",
    "BrierScore": "scores",
    "CategoricalNLL": "scores",
    "ClassScores": "per_class",
    "ClassSparsification": "per_class",
    "ConfidenceCalibration": "confidence_calibration",
    "GaussianCRPS": "scores",
    "GaussianNLL": "scores",
    "GroupedRootMeanSquaredError": "prediction_errors",
    "IntervalCalibration": "interval_calibration",
    "IntervalScore": "scores",
    "MeanAbsoluteError": "prediction_errors",
    "MeanIoU": "prediction_errors",
    "MetricInfo": "info",
    "MixtureCRPS": "scores",
    "MixtureNLL": "scores",
    "NormalisedCalibration": "normalised_calibration",
    "RootMeanSquaredError": "prediction_errors",
    "Sparsification": "sparsification",
    "StreamingMetric": "streaming",
    "accuracy": "prediction_errors",
    "auce": "interval_calibration",
    "ause": "sparsification",
    "ause_per_class": "per_class",
    "brier": "scores",
    "crps_gaussian": "scores",
    "crps_mixture": "scores",
    "ece": "confidence_calibration",
    "ece_adaptive": "confidence_calibration",
    "ence": "normalised_calibration",
    "interval_score": "scores",
    "mae": "prediction_errors",
    "miou": "prediction_errors",
    "nll_categorical": "scores",
    "nll_gaussian": "scores",
    "nll_mixture": "scores",
    "rmse": "prediction_errors",
    "scores_per_class": "per_class",
    "sparsification_curves": "sparsification",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
