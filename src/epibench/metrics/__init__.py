"""Streaming metrics with constant memory that can be merged, one state per draw; each with a pure function.

Names are imported on access, so that `epibench.metrics.info` does not import torch.
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
    from epibench.metrics.depth_errors import DepthErrors, errors_of_depth
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
    "AdaptiveConfidenceCalibration", "BrierScore", "CategoricalNLL", "ClassScores", "ClassSparsification",
    "ConfidenceCalibration", "DepthErrors", "GaussianCRPS", "GaussianNLL", "GroupedRootMeanSquaredError",
    "IntervalCalibration", "IntervalScore", "MeanAbsoluteError", "MeanIoU", "MetricInfo", "MixtureCRPS", "MixtureNLL",
    "NormalisedCalibration", "RootMeanSquaredError", "Sparsification", "StreamingMetric", "accuracy", "auce", "ause",
    "ause_per_class", "brier", "crps_gaussian", "crps_mixture", "ece", "ece_adaptive", "ence", "errors_of_depth",
    "interval_score", "mae", "miou", "nll_categorical", "nll_gaussian", "nll_mixture", "rmse", "scores_per_class",
    "sparsification_curves",
]  # fmt: skip

_NAMES = {
    "confidence_calibration": "AdaptiveConfidenceCalibration ConfidenceCalibration ece ece_adaptive",
    "depth_errors": "DepthErrors errors_of_depth",
    "info": "MetricInfo",
    "interval_calibration": "IntervalCalibration auce",
    "normalised_calibration": "NormalisedCalibration ence",
    "per_class": "ClassScores ClassSparsification ause_per_class scores_per_class",
    "prediction_errors": "GroupedRootMeanSquaredError MeanAbsoluteError MeanIoU RootMeanSquaredError "
    "accuracy mae miou rmse",
    "scores": "BrierScore CategoricalNLL GaussianCRPS GaussianNLL IntervalScore MixtureCRPS MixtureNLL "
    "brier crps_gaussian crps_mixture interval_score nll_categorical nll_gaussian nll_mixture",
    "sparsification": "Sparsification ause sparsification_curves",
    "streaming": "StreamingMetric",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
