"""Members with an uncertainty but no distribution: their predictive, and the order of its uncertainty.

An uncertainty, or a confidence, of unknown scale can only order pixels. So metrics use only this order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from epibench.errors import InputError
from epibench.likelihoods import gaussian

RankingUncertainty = Literal["given", "spread"]


@dataclass(frozen=True)
class RankingPredictive:
    """The prediction of every draw, (draw, pixel), and its uncertainty on any scale: larger is less sure.

    Args:
        predicted: Mean of the members' values in float64, or the class that most members predict, the first of equals.
        given: Mean of the members' uncertainties, or of their negated confidences.
        member_predicted: (member, pixel), values or classes.
        weights: (draw, member), rows sum to 1.
    """

    predicted: Tensor
    given: Tensor
    member_predicted: Tensor
    weights: Tensor

    @cached_property
    def spread(self) -> Tensor:
        """Variance of the members' values, or the share of members that predict another class; 0 for one member."""
        if self.member_predicted.is_floating_point():
            return gaussian.variance_of_means(self.member_predicted, self.predicted, self.weights)
        others = [(self.member_predicted != own).to(torch.float64) for own in self.predicted]
        return torch.stack([weight @ other for weight, other in zip(self.weights, others, strict=True)])

    def uncertainty(self, kind: RankingUncertainty = "given") -> Tensor:
        """Return the uncertainty to sort pixels by: the given one, or the spread of the members."""
        parts = {"given": lambda: self.given, "spread": lambda: self.spread}
        if kind not in parts:
            raise ValueError(f"uncertainty '{kind}' is unknown; there are {', '.join(parts)}")
        return parts[kind]()


def combine(outputs: Mapping[str, Tensor], weights: Tensor) -> RankingPredictive:
    """Return the predictive of every draw at once.

    Args:
        outputs: `mean` or `predicted` (classes), and `uncertainty` or `confidence`, each (member, pixel).
        weights: (draw, member), rows sum to 1.
    """
    name = "uncertainty" if "uncertainty" in outputs else "confidence"
    given = outputs[name].to(torch.float64)
    weights = weights.to(given.device, torch.float64)
    drawn = weights @ given
    drawn = drawn if name == "uncertainty" else -drawn
    if "predicted" in outputs:
        classes = outputs["predicted"].to(torch.int64)
        return RankingPredictive(_voted(classes, weights), drawn, classes, weights)
    mean = outputs["mean"].to(torch.float64)
    return RankingPredictive(weights @ mean, drawn, mean, weights)


def _voted(classes: Tensor, weights: Tensor) -> Tensor:
    """Return the class with the largest weight of members, the first of equals, (draw, pixel).

    classes: (member, pixel).
    """
    most = weights.new_full((len(weights), classes.shape[1]), -1.0)
    voted = torch.zeros(most.shape, dtype=torch.int64, device=classes.device)
    for label in torch.unique(classes).tolist():  # ascending
        votes = weights @ (classes == label).to(torch.float64)
        voted = torch.where(votes > most + 1e-9, label, voted)  # sums of equal weights differ in their rounding
        most = torch.maximum(most, votes)
    return voted


def image_loss(raw: Tensor, target: Tensor) -> Tensor:
    """Raise an InputError: a ranking has no likelihood."""
    raise InputError("kind 'ranking' has no likelihood to train with; train with 'gaussian' or 'categorical'")


def image_outputs(raw: Tensor) -> dict[str, Tensor]:
    """Value and uncertainty of every pixel, (image, height, width) each. raw: (image, 2, height, width)."""
    return {"mean": raw[:, 0], "uncertainty": raw[:, 1]}
