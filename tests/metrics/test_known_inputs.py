"""What the caller knows already, such as the predicted class, gives the same as the probabilities."""

import numpy as np
import pytest

from epibench import metrics

from .cases import NUM_CLASSES, NUM_DRAWS, categorical_pixels

KNOWN = {
    "MeanIoU": (lambda draws: metrics.MeanIoU(NUM_CLASSES, draws), ("predicted", "target")),
    "ConfidenceCalibration": (
        lambda draws: metrics.ConfidenceCalibration(num_draws=draws),
        ("confidence", "correct"),
    ),
    "AdaptiveConfidenceCalibration": (
        lambda draws: metrics.AdaptiveConfidenceCalibration(num_draws=draws),
        ("confidence", "correct"),
    ),
    "BrierScore": (metrics.BrierScore, ("brier",)),
    "CategoricalNLL": (metrics.CategoricalNLL, ("target_probability",)),
    "ClassScores": (
        lambda draws: metrics.ClassScores(NUM_CLASSES, draws),
        ("brier", "target_probability", "target"),
    ),
    "ConfidenceCalibration of classes": (
        lambda draws: metrics.ConfidenceCalibration(num_draws=draws, num_classes=NUM_CLASSES),
        ("confidence", "correct", "predicted"),
    ),
}


def observations(pattern):
    pixels = categorical_pixels(np.random.default_rng(0), 200, pattern)
    probs, target = pixels["probs"], pixels["target"]
    truth = np.broadcast_to(target, probs.shape[:2])[..., None]
    return {
        **pixels,
        "predicted": probs.argmax(-1),
        "confidence": probs.max(-1),
        "correct": probs.argmax(-1) == target,
        "brier": ((probs - np.eye(NUM_CLASSES)[target]) ** 2).sum(-1),
        "target_probability": np.take_along_axis(probs, truth, -1)[..., 0],
    }


def updated(name, arguments):
    metric = KNOWN[name][0](NUM_DRAWS)
    metric.update(**arguments)
    return metric.compute()


@pytest.mark.parametrize("pattern", ["continuous", "nasty"])
@pytest.mark.parametrize("name", KNOWN)
def test_known_inputs_give_what_probabilities_give(name, pattern):
    known = observations(pattern)
    actual = updated(name, {key: known[key] for key in KNOWN[name][1]})
    expected = updated(name, {key: known[key] for key in ("probs", "target")})
    for key, value in expected.items():
        np.testing.assert_allclose(actual[key], value, rtol=1e-12, err_msg=key)


@pytest.mark.parametrize("name", KNOWN)
def test_too_few_inputs_are_refused(name):
    with pytest.raises(TypeError, match="needs"):
        KNOWN[name][0](None).update(probs=None, target=np.zeros(3, dtype=np.int64))


@pytest.mark.parametrize("value", [-1, NUM_CLASSES])
def test_a_predicted_class_that_is_none_is_refused(value):
    predicted = np.array([0, value])
    with pytest.raises(ValueError, match="'predicted'"):
        metrics.MeanIoU(NUM_CLASSES).update(predicted=predicted, target=np.array([0, 1]))
    with pytest.raises(ValueError, match="'predicted'"):
        metrics.ConfidenceCalibration(num_classes=NUM_CLASSES).update(
            confidence=np.array([0.5, 0.5]), correct=np.array([True, False]), predicted=predicted
        )


def test_calibration_of_classes_needs_the_predicted_class():
    with pytest.raises(TypeError, match="or confidence, correct and predicted"):
        metrics.ConfidenceCalibration(num_classes=2).update(confidence=np.array([0.5]), correct=np.array([True]))


@pytest.mark.parametrize("kind", [metrics.ConfidenceCalibration, metrics.AdaptiveConfidenceCalibration])
@pytest.mark.parametrize("value", [np.nan, -0.1, 1.1])
def test_a_confidence_that_is_none_is_refused(kind, value):
    with pytest.raises(ValueError, match="confidence"):
        kind().update(confidence=np.array([0.5, value]), correct=np.array([True, False]))


@pytest.mark.parametrize("name", ["brier", "target_probability"])
def test_nan_is_refused(name):
    kind = {"brier": metrics.BrierScore, "target_probability": metrics.CategoricalNLL}[name]
    with pytest.raises(ValueError, match="NaN"):
        kind().update(**{name: np.array([0.5, np.nan])})
