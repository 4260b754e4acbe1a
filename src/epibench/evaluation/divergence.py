"""How far the predictive of every draw is from a reference on a grid: in both directions, over both regions."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from epibench.conventions import Convention
from epibench.metrics.divergence import kl_categorical, kl_gaussian, kl_normalised_map

DIRECTIONS = ("reference_to_method", "method_to_reference")
REGIONS = ("grid", "train")
# Every method's predictions and the reference's clip the log variance here, as the published ones do: far from the data
# a product of Gaussian weights drives it, and the mean of its exponential does not exist (docs/reference.md).
MAX_LOG_VARIANCE = 2.0


def divergences(
    reference: Mapping[str, Tensor], predicted: Mapping[str, Tensor], inside: Tensor, convention: Convention
) -> dict[str, dict[str, Tensor]]:
    """KL of every draw by direction and region, (draw,) each.

    reference: `mean` and `variance`, (point,), or `probs`, (point, class); predicted: the same with draws in front;
    inside: (point,) bool, the training region.
    """
    regions: dict[str, slice | Tensor] = {"grid": slice(None), "train": inside}
    found: dict[str, dict[str, Tensor]] = {}
    for direction in DIRECTIONS:
        sides = (reference, predicted) if direction == "reference_to_method" else (predicted, reference)
        found[direction] = {name: divergence(*sides, points, convention) for name, points in regions.items()}
    return found


def divergence(
    p: Mapping[str, Tensor], q: Mapping[str, Tensor], points: slice | Tensor, convention: Convention
) -> Tensor:
    """KL(p ‖ q) over some points: the mean of the KLs at each, or for classes as published, of normalised maps."""
    if "mean" in p:
        at_points = kl_gaussian(
            p["mean"][..., points], p["variance"][..., points], q["mean"][..., points], q["variance"][..., points]
        )
        return at_points.mean(-1)
    first, second = p["probs"][..., points, :], q["probs"][..., points, :]
    if convention == "gustafsson2020":
        return kl_normalised_map(first[..., 0], second[..., 0])
    return kl_categorical(first, second).mean(-1)
