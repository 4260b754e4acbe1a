"""The class axis is the last one; another one is refused with what to do, and never counted as pixels."""

import numpy as np
import pytest
import torch

from epibench import metrics

METRICS = {
    "ConfidenceCalibration": lambda classes, **options: metrics.ConfidenceCalibration(**options),
    "ConfidenceCalibration of classes": lambda classes, **options: metrics.ConfidenceCalibration(
        num_classes=classes, **options
    ),
    "AdaptiveConfidenceCalibration": lambda classes, **options: metrics.AdaptiveConfidenceCalibration(**options),
    "MeanIoU": lambda classes, **options: metrics.MeanIoU(classes, **options),
    "BrierScore": lambda classes, **options: metrics.BrierScore(**options),
    "CategoricalNLL": lambda classes, **options: metrics.CategoricalNLL(**options),
    "ClassScores": lambda classes, **options: metrics.ClassScores(classes, **options),
}
FUNCTIONS = [
    metrics.ece,
    metrics.ece_adaptive,
    metrics.miou,
    metrics.accuracy,
    metrics.brier,
    metrics.nll_categorical,
    metrics.scores_per_class,
]
# Classes, and the pixels: rectangular, as wide as there are classes, as high, both.
SIZES = [(3, (4, 5)), (3, (4, 3)), (3, (3, 4)), (3, (3, 3))]


def arrays(classes, pixels, lead=()):
    """probs (…, image, height, width, class) and target (image, height, width)."""
    rng = np.random.default_rng(0)
    probs = torch.from_numpy(rng.dirichlet(np.full(classes, 0.3), (*lead, 2, *pixels)))
    return probs, torch.from_numpy(rng.integers(0, classes, (2, *pixels)))


def message(probs, target, axis):
    return (
        rf"probs has the shape \({', '.join(map(str, probs.shape))}\), target \({', '.join(map(str, target.shape))}\): "
        rf"the class axis must be the last one; pass probs\.movedim\({axis}, -1\)"
    )


@pytest.mark.parametrize("make", METRICS.values(), ids=METRICS)
@pytest.mark.parametrize(("classes", "pixels"), SIZES)
def test_classes_behind_the_images_are_refused_by_metrics(make, classes, pixels):
    probs, target = arrays(classes, pixels)
    first = probs.movedim(-1, 1)
    with pytest.raises(ValueError, match=message(first, target, 1)):
        make(classes).update(first, target)
    moved, last = make(classes), make(classes)
    moved.update(first.movedim(1, -1), target)
    last.update(probs, target)
    for name, value in last.compute().items():
        assert torch.equal(moved.compute()[name].nan_to_num(), value.nan_to_num())


@pytest.mark.parametrize("make", METRICS.values(), ids=METRICS)
@pytest.mark.parametrize(("classes", "pixels"), SIZES)
def test_an_axis_of_draws_is_counted(make, classes, pixels):
    probs, target = arrays(classes, pixels, lead=(2,))
    first = probs.movedim(-1, 2)
    with pytest.raises(ValueError, match=message(first, target, 2)):
        make(classes, num_draws=2).update(first, target)
    make(classes, num_draws=2).update(first.movedim(2, -1), target)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(("classes", "pixels"), SIZES)
def test_classes_behind_the_images_are_refused_by_functions(function, classes, pixels):
    probs, target = arrays(classes, pixels)
    with pytest.raises(ValueError, match=r"pass probs\.movedim"):
        function(probs.movedim(-1, 1), target)
    function(probs, target)


@pytest.mark.parametrize(("classes", "pixels"), SIZES)
def test_classes_before_one_image_are_refused(classes, pixels):
    probs, target = arrays(classes, pixels)
    with pytest.raises(ValueError, match=r"pass probs\.movedim\([01], -1\)"):
        metrics.brier(probs[0].movedim(-1, 0), target[0])


def test_a_flat_target_does_not_hide_them():
    probs, target = arrays(3, (4, 3))  # as many pixels on either side
    with pytest.raises(ValueError, match=r"pass probs\.movedim\(1, -1\)"):
        metrics.brier(probs.movedim(-1, 1), target.flatten())
    assert metrics.brier(probs, target.flatten()) == metrics.brier(probs, target)
    assert metrics.brier(probs.flatten(0, -2), target) == metrics.brier(probs, target)


def test_an_image_on_its_side_is_refused():
    probs, target = arrays(3, (4, 5))
    with pytest.raises(ValueError, match=r"target \(2, 5, 4\); these must be \(…, class\) and \(…\)"):
        metrics.brier(probs, target.movedim(1, 2))


def test_pixels_without_a_label_may_hold_anything_where_sizes_cannot_tell():
    probs, target = arrays(3, (3, 3))
    probs[0, 0, 0], target[0, 0, 0] = 0, 255  # padding
    expected = metrics.brier(probs.reshape(-1, 3)[1:], target.reshape(-1)[1:])
    assert torch.isclose(metrics.brier(probs, target, ignore_index=255), expected)
