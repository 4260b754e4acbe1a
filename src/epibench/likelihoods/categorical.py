"""Categorical members and what they predict together: the average of their probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import torch
from torch import Tensor

CategoricalUncertainty = Literal["entropy", "mutual_information", "confidence"]


@dataclass(frozen=True)
class CategoricalPredictive:
    """Averaged probabilities of every draw, (draw, pixel, class) in float64, and the members behind them.

    Classes lie outermost in memory, so that sums over classes run along pixels.
    """

    probs: Tensor
    member_probs: Tensor
    weights: Tensor

    @cached_property
    def entropy(self) -> Tensor:
        """Entropy of the averaged probabilities, (draw, pixel), in nats."""
        return entropy(self.probs)

    @cached_property
    def mutual_information(self) -> Tensor:
        """Entropy of the average minus average entropy of the members, (draw, pixel): the epistemic part."""
        return (self.entropy - self.weights @ entropy(self.member_probs)).clamp(min=0)

    def uncertainty(self, kind: CategoricalUncertainty = "entropy") -> Tensor:
        """What to sort pixels by; `confidence` is 1 − the maximum probability."""
        known = get_args(CategoricalUncertainty)
        if kind not in known:
            raise ValueError(f"uncertainty '{kind}' is unknown; there are {', '.join(known)}")
        if kind == "confidence":
            return (1 - self.probs.amax(2)).clamp(min=0)
        return self.entropy if kind == "entropy" else self.mutual_information


def combine(outputs: Mapping[str, Tensor], weights: Tensor) -> CategoricalPredictive:
    """The predictive of every draw at once: one matrix product.

    outputs: `probs` or `logits`, (member, pixel, class); weights: (draw, member), rows sum to 1.
    """
    if "logits" in outputs:
        probs = torch.softmax(outputs["logits"].to(torch.float64).movedim(2, 1), 1)
    else:
        # One layout, so that all entropies round alike; stored probabilities may lie below 0 by their rounding.
        probs = outputs["probs"].movedim(2, 1).to(torch.float64).contiguous().clamp(min=0)
    weights = weights.to(probs.device, torch.float64)
    members, classes, pixels = probs.shape
    averaged = (weights @ probs.reshape(members, classes * pixels)).view(weights.shape[0], classes, pixels)
    return CategoricalPredictive(averaged.movedim(1, 2), probs.movedim(1, 2), weights)


def entropy(probs: Tensor) -> Tensor:
    """−Σ p log p over the last axis, with 0·log 0 = 0."""
    terms: Tensor = torch.special.entr(probs)
    return terms.sum(-1).clamp(min=0)  # rounding can lift p above 1


def loss(logits: Tensor, target: Tensor) -> Tensor:
    """Negative log-likelihood of each pixel. logits: (…, class, pixel); target: (…, pixel)."""
    return -torch.log_softmax(logits, -2).gather(-2, target.unsqueeze(-2)).squeeze(-2)


def slope(logits: Tensor, target: Tensor) -> Tensor:
    """The derivative of the loss in the logits, softmax − one-hot."""
    probs = torch.softmax(logits, -2)
    return probs.scatter_add_(-2, target.unsqueeze(-2), -torch.ones_like(probs[..., :1, :]))


def image_loss(raw: Tensor, target: Tensor) -> Tensor:
    """The loss of every pixel. raw: logits, (image, class, height, width)."""
    return torch.nn.functional.cross_entropy(raw, target, reduction="none")


def image_outputs(raw: Tensor) -> dict[str, Tensor]:
    """Logits of every pixel, (image, height, width, class)."""
    return {"logits": raw.movedim(1, -1)}
