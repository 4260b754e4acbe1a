"""Streaming metrics: constant memory, mergeable, one state per draw; beside each a pure function on whole arrays."""

from epibench.metrics.accuracy import (
    GroupedRootMeanSquaredError,
    MeanAbsoluteError,
    MeanIoU,
    RootMeanSquaredError,
    accuracy,
    mae,
    miou,
    rmse,
)
from epibench.metrics.class_scores import ClassScores, scores_per_class
from epibench.metrics.class_sparsification import ClassSparsification, ause_per_class
from epibench.metrics.confidence_calibration import (
    AdaptiveConfidenceCalibration,
    ConfidenceCalibration,
    ece,
    ece_adaptive,
)
from epibench.metrics.interval_calibration import IntervalCalibration, auce
from epibench.metrics.normalised_calibration import NormalisedCalibration, ence
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
