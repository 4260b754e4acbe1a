"""Checks of metric inputs, on whole inputs before anything is counted."""

from __future__ import annotations

import math

import torch
from torch import Tensor

# Probabilities that were stored in 16 bits, or averaged, can exceed 1 by this tolerance.
PROBABILITY_TOLERANCE = 1e-2


def same_pixels(**tensors: Tensor) -> None:
    """Raise unless all (draw, pixel, …) tensors have the same number of pixels."""
    sizes = {name: tensor.shape[1] for name, tensor in tensors.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError("the numbers of pixels differ: " + ", ".join(f"{k} has {v:,}" for k, v in sizes.items()))


def check_keys(keys: Tensor, name: str, *, finite: bool = False) -> None:
    """Raise if a key is NaN or negative.

    A sort would put NaN last: the most certain among the uncertain.
    """
    if not keys.numel():
        return
    low, high = keys.aminmax()
    if not bool((low >= 0) & (high < torch.inf if finite else high <= torch.inf)):
        bad = int((~((keys >= 0) & (keys < torch.inf if finite else keys <= torch.inf))).sum())
        what = "NaN, infinite or negative" if finite else "NaN or negative"
        raise ValueError(f"{bad:,} of {keys.numel():,} values of '{name}' are {what}")


def check_finite(**tensors: Tensor) -> None:
    """Raise if a value is NaN or infinite."""
    for name, values in tensors.items():
        if values.is_floating_point() and values.numel() and not bool(torch.stack(values.aminmax()).isfinite().all()):
            bad = int((~values.isfinite()).sum())
            raise ValueError(f"{bad:,} of {values.numel():,} values of '{name}' are NaN or infinite")


def check_probabilities(**tensors: Tensor) -> None:
    """Raise if a value is NaN or outside [0, 1].

    A NaN would count as the maximum, and a logit as a confidence.
    """
    for name, values in tensors.items():
        if values.numel():
            low, high = values.aminmax()
            if not bool((low >= -PROBABILITY_TOLERANCE) & (high <= 1 + PROBABILITY_TOLERANCE)):
                raise ValueError(f"'{name}' has values that are NaN or outside [0, 1]: are these probabilities?")


def check_classes(probs: Tensor, num_classes: int) -> None:
    """Raise unless probabilities (draw, pixel, class) have this number of classes."""
    if probs.shape[2] != num_classes:
        raise ValueError(f"probs has {probs.shape[2]} classes, the metric {num_classes}")


def check_class_axis(probs: Tensor, target: Tensor, *, draw_axis: bool) -> None:
    """Raise if the classes of `probs` are not along its last axis: (…, class) for a target (…).

    If sizes are ambiguous, e.g. 19 classes of 19 × 19 pixels, the axis along which probabilities sum to 1 decides.
    """
    shape, truth = tuple(probs.shape[draw_axis:]), tuple(target.shape)
    if len(shape) < 3 or not target.numel():
        return
    last, others = len(shape) - 1, range(len(shape) - 1)
    if len(shape) == len(truth) + 1:
        elsewhere = [axis for axis in others if (*shape[:axis], *shape[axis + 1 :]) == truth]
    else:  # one side is flattened: classes could be along any axis of as many entries
        elsewhere = [axis for axis in others if shape[axis] == shape[-1] and math.prod(shape[:-1]) == target.numel()]
    if elsewhere and (shape[:-1] == truth or len(shape) != len(truth) + 1):
        off = {axis: _not_summing_to_1(probs, axis + draw_axis) for axis in (*elsewhere, last)}
        elsewhere = [axis for axis in elsewhere if off[axis] < off[last]]
    shapes = f"probs has the shape {tuple(probs.shape)}, target {truth}"
    if elsewhere:
        axis = (1 if 1 in elsewhere else elsewhere[0]) + draw_axis
        raise ValueError(f"{shapes}: the class axis must be the last one; pass probs.movedim({axis}, -1)")
    if len(shape) == len(truth) + 1 and shape[:-1] != truth:
        raise ValueError(f"{shapes}; these must be {'(draw, …, class)' if draw_axis else '(…, class)'} and (…)")


def _not_summing_to_1(probs: Tensor, axis: int) -> int:
    sums = probs.sum(axis, dtype=torch.float64)
    return int((~((sums - 1).abs() <= PROBABILITY_TOLERANCE)).sum())


def check_numbers(numbers: Tensor, limit: int, name: str, *, label: bool = False) -> None:
    """Raise if a class or image number is not in 0 … limit − 1.

    It would be counted elsewhere.
    """
    if numbers.numel():
        if numbers.is_floating_point():
            raise ValueError(f"'{name}' must hold whole numbers")
        if numbers.dtype in (torch.uint16, torch.uint32, torch.uint64):
            numbers = numbers.to(torch.int64)  # aminmax does not take them
        low, high = (int(extreme) for extreme in numbers.aminmax())
        if low < 0 or high >= limit:
            other = high if high >= limit else low
            hint = f"; if {other} marks pixels without a label, give ignore_index={other}" if label else ""
            raise ValueError(f"'{name}' holds {low} … {high}, but only 0 … {limit - 1} are possible{hint}")
