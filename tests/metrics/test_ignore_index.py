"""A label that means "none" is left out where it is named, and refused where it is not."""

import numpy as np
import pytest
import torch

from epibench import metrics

from .cases import NUM_CLASSES, NUM_DRAWS, assert_close, categorical_pixels
from .test_class_axis import FUNCTIONS, METRICS
from .test_known_inputs import KNOWN, observations

IGNORED = 255


def unlabelled(pixels, rng):
    """The same pixels with some that have no label between them, whose predictions are nonsense."""
    size = len(pixels["target"])
    places = np.sort(rng.integers(0, size + 1, 37))
    probs = np.insert(pixels["probs"], places, np.nan, axis=1)
    return {"probs": probs, "target": np.insert(pixels["target"], places, IGNORED)}


@pytest.mark.parametrize("make", METRICS.values(), ids=METRICS)
@pytest.mark.parametrize("label", [IGNORED, -1])
def test_metrics_leave_it_out(make, label):
    rng = np.random.default_rng(0)
    pixels = categorical_pixels(rng, 200, "continuous")
    more = unlabelled(pixels, rng)
    more["target"][more["target"] == IGNORED] = label
    actual = make(NUM_CLASSES, num_draws=NUM_DRAWS, ignore_index=label)
    expected = make(NUM_CLASSES, num_draws=NUM_DRAWS)
    actual.update(**more)
    expected.update(**pixels)
    assert_close(actual.compute(), expected.compute())


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_leave_it_out(function):
    rng = np.random.default_rng(0)
    pixels = categorical_pixels(rng, 200, "continuous", draws=1)
    more = unlabelled(pixels, rng)
    actual = function(more["probs"][0], more["target"], ignore_index=IGNORED)
    expected = function(pixels["probs"][0], pixels["target"])
    if isinstance(expected, dict):
        assert_close(actual, expected)
    else:
        assert_close({"value": actual}, {"value": expected})


def test_sparsification_of_classes_leaves_it_out():
    rng = np.random.default_rng(0)
    uncertainty, loss, target = rng.random(300), rng.random(300), rng.integers(0, 2, 300)
    more = [np.append(uncertainty, [np.nan]), np.append(loss, [np.nan]), np.append(target, [IGNORED])]
    actual, expected = metrics.ClassSparsification(2, ignore_index=IGNORED), metrics.ClassSparsification(2)
    actual.update(*more)
    expected.update(uncertainty, loss, target)
    assert_close(actual.compute(), expected.compute())
    exact = metrics.ause_per_class(*more, 2, ignore_index=IGNORED)
    assert torch.equal(exact, metrics.ause_per_class(uncertainty, loss, target, 2))


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_known_already_is_left_out_by_its_target(name):
    known = observations("continuous")
    make, names = KNOWN[name]
    arguments = {key: known[key] for key in dict.fromkeys((*names, "target"))}
    target = known["target"].copy()
    target[::3] = IGNORED
    metric, expected = make(NUM_DRAWS), make(NUM_DRAWS)
    metric.ignore_index = IGNORED
    metric.update(**{**arguments, "target": target})
    kept = target != IGNORED
    expected.update(**{key: value[..., kept] for key, value in arguments.items()})
    assert_close(metric.compute(), expected.compute())


def test_without_a_target_there_is_nothing_to_leave_out_by():
    with pytest.raises(TypeError, match=r"BrierScore\(ignore_index=255\)\.update needs target"):
        metrics.BrierScore(ignore_index=IGNORED).update(brier=[0.5])


@pytest.mark.parametrize("make", METRICS.values(), ids=METRICS)
@pytest.mark.parametrize("label", [IGNORED, -1])
def test_it_is_never_assumed(make, label):
    metric = make(2)
    with pytest.raises(ValueError, match=rf"if {label} marks pixels without a label, give ignore_index={label}"):
        metric.update([[0.5, 0.5], [0.5, 0.5]], [0, label])


def test_a_class_of_the_model_can_be_ignored_too():
    probs, target = [[0.9, 0.1], [0.1, 0.9]], [0, 1]
    assert metrics.brier(probs, target, ignore_index=1).item() == pytest.approx(0.02)


def test_only_pixels_without_a_label_are_no_pixels():
    assert metrics.brier([[0.5, 0.5]], [IGNORED], ignore_index=IGNORED).isnan()
