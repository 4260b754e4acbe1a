"""Metrics of each class by brute force: the oracles of all pixels, on the pixels of one class at a time."""

import math

import numpy as np

import oracles


def _flat(probs, target):
    probs = np.asarray(probs, dtype=np.float64)
    return probs.reshape(-1, probs.shape[-1]), np.asarray(target).reshape(-1)


def of_true_class(score, probs, target):
    """`score(probs, target)` of the pixels of each class; NaN where there are none."""
    probs, target = _flat(probs, target)
    own = [target == label for label in range(probs.shape[1])]
    return np.array([score(probs[pixels], target[pixels]) if pixels.any() else math.nan for pixels in own])


def nll(probs, target):
    mean, infinite = oracles.mean_score(oracles.categorical_nll(probs, target))
    return math.nan if infinite else mean


def of_predicted_class(score, probs, target):
    """`score(probs, target)` of the pixels that are predicted as each class; NaN where there are none."""
    probs, target = _flat(probs, target)
    predicted = np.array([int(np.flatnonzero(row == row.max())[0]) for row in probs], dtype=np.int64)
    return np.array([score(probs[predicted == label], target[predicted == label]) for label in range(probs.shape[1])])


def scores(probs, target):
    """All that scores_per_class gives."""
    return {
        "iou_per_class": oracles.iou_per_class(probs, target),
        "accuracy_per_class": of_true_class(oracles.accuracy, probs, target),
        "brier_per_class": of_true_class(lambda p, t: oracles.mean(oracles.brier(p, t)), probs, target),
        "nll_per_class": of_true_class(nll, probs, target),
        "ece_per_class": of_predicted_class(oracles.ece, probs, target),
        "share_per_class": np.array(
            [oracles.mean(np.asarray(target).reshape(-1) == label) for label in range(np.shape(probs)[-1])]
        ),
    }


def some(names, probs, target):
    return {name: value for name, value in scores(probs, target).items() if name in names}


def ause(uncertainty, loss, target, num_classes, error="brier"):
    """AUSE among the pixels of each class; NaN where there are none."""
    uncertainty, loss = oracles.float64(uncertainty, loss)
    own = [np.asarray(target).reshape(-1) == label for label in range(num_classes)]
    return np.array([oracles.ause(uncertainty[p], loss[p], error) if p.any() else math.nan for p in own])
