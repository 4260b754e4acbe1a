"""What stacked networks are trained to do: for each kind of output its slope, and what it predicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from epibench.likelihoods import categorical, gaussian


@dataclass(frozen=True)
class Objective:
    """A loss on the raw outputs of stacked networks, (member, head, output, point).

    slope: its derivative for every point, in the same shape, given targets (member, point).
    predict: the members' outputs by name, given raw outputs.
    """

    heads: int
    slope: Callable[[Tensor, Tensor], Tensor]
    predict: Callable[[Tensor], dict[str, Tensor]]


def gaussian_slope(raw: Tensor, target: Tensor) -> Tensor:
    """Two heads: mean and log variance."""
    return torch.stack(gaussian.slope(raw[:, 0], raw[:, 1], target[:, None]), 1)


def gaussian_predict(raw: Tensor) -> dict[str, Tensor]:
    """Mean and variance, (member, point) each."""
    return {"mean": raw[:, 0, 0], "variance": raw[:, 1, 0].double().exp()}


def categorical_slope(raw: Tensor, target: Tensor) -> Tensor:
    """One head whose outputs are logits."""
    return categorical.slope(raw[:, 0], target)[:, None]


def categorical_predict(raw: Tensor) -> dict[str, Tensor]:
    """Probabilities, (member, point, class)."""
    return {"probs": torch.softmax(raw[:, 0].double(), 1).movedim(1, 2)}


def direct_slope(raw: Tensor, target: Tensor) -> Tensor:
    """One head that predicts the target itself: half the squared error."""
    return raw - target[:, None, None]


def direct_predict(raw: Tensor) -> dict[str, Tensor]:
    """The mean alone, (member, point)."""
    return {"mean": raw[:, 0, 0]}


OBJECTIVES = {
    "gaussian": Objective(2, gaussian_slope, gaussian_predict),
    "categorical": Objective(1, categorical_slope, categorical_predict),
    "direct": Objective(1, direct_slope, direct_predict),
}
