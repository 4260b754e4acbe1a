"""Common parts of metrics whose target is a class.

The class axis is last, and one label can mean "none".
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from epibench.metrics.checks import (
    check_class_axis,
    check_classes,
    check_numbers,
    check_probabilities,
    same_pixels,
)
from epibench.metrics.streaming import Array, StreamingMetric, to_tensor


class ClassMetric(StreamingMetric):
    """A metric whose target is a class. Pixels with the target `ignore_index` are left out; None: no pixels."""

    def __init__(self, num_draws: int | None = None, *, ignore_index: int | None = None, **kwargs: Any) -> None:
        super().__init__(num_draws, **kwargs)
        self.ignore_index = ignore_index

    def class_pixels(self, probs: Array, target: Array, num_classes: int | None = None) -> tuple[Tensor, Tensor]:
        """Checked probabilities (draw, pixel, class) and targets (1, pixel), of the pixels that have a label."""
        classes, targets = to_tensor(probs, self.device), to_tensor(target, self.device)
        check_class_axis(classes, targets, draw_axis=self.num_draws is not None)
        return checked_pixels(self.rows(classes, 1), self.shared(targets), self.ignore_index, num_classes)

    def labelled(self, target: Array | None, **known: Array) -> tuple[Tensor, ...]:
        """Return inputs (draw, pixel), and then targets (1, pixel), of the pixels with a label.

        Without targets, which some metrics do not need, only the inputs are returned.
        """
        rows = {name: self.rows(values) for name, values in known.items()}
        if target is None:
            if self.ignore_index is not None:
                raise TypeError(f"{type(self).__name__}(ignore_index={self.ignore_index}).update needs target")
            same_pixels(**rows)
            return tuple(rows.values())
        targets = self.shared(target)
        same_pixels(**rows, target=targets)
        return with_label(targets, self.ignore_index, *rows.values())


def with_label(targets: Tensor, ignore_index: int | None, *others: Tensor) -> tuple[Tensor, ...]:
    """Return other tensors (draw, pixel, …), then targets (1, pixel), without pixels with the target `ignore_index`."""
    if ignore_index is None:
        return (*others, targets)
    kept = targets[0] != ignore_index
    if bool(kept.all()):
        return (*others, targets)
    return tuple(values[:, kept] for values in (*others, targets))


def checked_pixels(
    probs: Tensor, targets: Tensor, ignore_index: int | None, num_classes: int | None = None
) -> tuple[Tensor, Tensor]:
    """Probabilities (draw, pixel, class) and targets (1, pixel) of the pixels that have a label, checked."""
    same_pixels(probs=probs, target=targets)
    if num_classes is not None:
        check_classes(probs, num_classes)
    probs, targets = with_label(targets, ignore_index, probs)
    check_numbers(targets, probs.shape[2], "target", label=True)
    check_probabilities(probs=probs)
    return probs, targets
