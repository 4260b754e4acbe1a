"""Categorical members and their predictive: the average of their probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from epibench import kernels

CategoricalUncertainty = Literal["entropy", "mutual_information", "confidence"]

# With AVX-512, NumPy's exp and log in float64 are two and three times as fast as PyTorch's.
FAST_NUMPY = torch.backends.cpu.get_cpu_capability() == "AVX512"


@dataclass(frozen=True)
class CategoricalPredictive:
    """Members and the draws that average them. The predictives of draws are computed on access.

    Args:
        member_probs: (member, pixel, class) in float64, classes outermost in memory, so that the pixels of a class are
            neighbours.
        weights: (draw, member), rows sum to 1.
        of_logits: Whether members gave logits, not probabilities.
    """

    member_probs: Tensor
    weights: Tensor
    of_logits: bool = True

    @cached_property
    def probs(self) -> Tensor:
        """Averaged probabilities, (draw, pixel, class), in the members' memory layout; `judge` does not need them."""
        members = self.member_probs.movedim(2, 1)
        averaged = self.weights @ members.flatten(1)
        return averaged.view(len(self.weights), *members.shape[1:]).movedim(1, 2)

    @cached_property
    def entropy(self) -> Tensor:
        """Entropy of the averaged probabilities, (draw, pixel), in nats."""
        return entropy(self.probs)

    @cached_property
    def mutual_information(self) -> Tensor:
        """Entropy of the average minus average entropy of the members, (draw, pixel): the epistemic part."""
        return self._without_members_entropy(self.entropy)

    def uncertainty(self, kind: CategoricalUncertainty = "entropy") -> Tensor:
        """Return the uncertainty to sort pixels by; `confidence` is 1 − the maximum probability."""
        if check_uncertainty(kind) == "confidence":
            return (1 - self.probs.amax(2)).clamp(min=0)
        return self.entropy if kind == "entropy" else self.mutual_information

    def judge(self, target: Tensor, uncertainty: CategoricalUncertainty = "entropy") -> Judgement:
        """Return all scores of each pixel at once, without keeping `probs`. target: (pixel,)."""
        with_entropy = check_uncertainty(uncertainty) != "confidence"
        judge = _judge_in_order if self.member_probs.is_cuda else _judge_by_class
        if kernels.usable(self.member_probs):
            judge = _judge_by_kernel
        judgement = judge(self.member_probs, self.weights, target, with_entropy)
        if uncertainty == "mutual_information":
            return judgement._replace(uncertainty=self._without_members_entropy(judgement.uncertainty))
        return judgement

    def choose_in_float32(self) -> tuple[Tensor, Tensor]:
        """Return confidence and predicted class, (draw, pixel), with softmax and averages in float32, as published.

        Members are added one after another, each divided by their number: p = Σ softmax(logits) / M.
        """
        if kernels.usable(self.member_probs):
            from epibench.kernels import categorical as kernel
            from epibench.kernels.drawn import drawn_members

            probs = self.member_probs.movedim(2, 1)
            members = kernel.in_float32(probs) if self.of_logits else probs.to(torch.float32)
            return kernel.choose(members, drawn_members(self.weights), len(self.weights))
        members = self._members_in_float32()
        shape = (len(self.weights), members.shape[2])
        confidence = members.new_empty(shape)
        predicted = torch.empty(shape, dtype=torch.int64, device=members.device)
        average = torch.empty_like(members[0])
        for draw, row in enumerate(self.weights):
            drawn = row.nonzero().squeeze(1).tolist()
            number = torch.tensor(len(drawn), dtype=torch.float32, device=members.device)
            average.zero_()
            for member in drawn:
                average.addcdiv_(members[member], number)
            torch.max(average, 0, out=(confidence[draw], predicted[draw]))
        return confidence, predicted

    def _members_in_float32(self) -> Tensor:
        """Return the softmax, or the given probabilities, in float32, (member, class, pixel).

        p / max p is exp(logit − largest logit) in float64. The softmax uses sums and quotients of it. Rounded p would
        be 1 less often: 1/(1 + s) rounds to 1 for s < 2⁻²⁵, the sum 1 + s for s ≤ 2⁻²⁴.
        """
        members = self.member_probs.movedim(2, 1)
        if not self.of_logits:
            return members.to(torch.float32)
        single = torch.empty(members.shape, dtype=torch.float32, device=members.device)
        for probs, result in zip(members, single, strict=True):
            powers = (probs / probs.amax(0)).to(torch.float32)
            torch.div(powers, _sum_in_order(powers[None])[0], out=result)
        return single

    def _without_members_entropy(self, total: Tensor) -> Tensor:
        epistemic = (total - self.weights @ entropy(self.member_probs)).clamp_(min=0)
        alone = self.weights.count_nonzero(1) == 1  # one member has none, however its entropy is rounded
        return epistemic.masked_fill_(alone[:, None], 0)


class Judgement(NamedTuple):
    """Each draw's scores of each pixel, (draw, pixel); of equally probable classes the first is predicted."""

    confidence: Tensor
    predicted: Tensor
    brier: Tensor
    target_probability: Tensor
    uncertainty: Tensor


def combine(outputs: Mapping[str, Tensor], weights: Tensor) -> CategoricalPredictive:
    """Return the predictive of every draw at once.

    Args:
        outputs: `probs` or `logits`, (member, pixel, class), or `softmax`, probabilities of logits in float64 with
            classes outermost in memory.
        weights: (draw, member), rows sum to 1.
    """
    if "softmax" in outputs:
        probs = outputs["softmax"]
        return CategoricalPredictive(probs, weights.to(probs.device, torch.float64))
    values = outputs["logits" if "logits" in outputs else "probs"].movedim(2, 1).contiguous()
    if "logits" in outputs and kernels.usable(values):
        from epibench.kernels.categorical import softmax

        return CategoricalPredictive(softmax(values).movedim(1, 2), weights.to(values.device, torch.float64))
    probs = torch.empty(values.shape, dtype=torch.float64, device=values.device)
    if "logits" not in outputs:
        probs.copy_(values).clamp_(min=0)  # stored probabilities may be rounded below 0
    elif probs.numel():
        torch.sub(values, values.amax(1, keepdim=True).to(torch.float64), out=probs)
        _in_place("exp", probs)
        probs /= _sum_in_order(probs)[:, None] if probs.is_cuda else probs.sum(1, keepdim=True)
    return CategoricalPredictive(probs.movedim(1, 2), weights.to(probs.device, torch.float64), "logits" in outputs)


def _judge_by_kernel(member_probs: Tensor, weights: Tensor, target: Tensor, with_entropy: bool) -> Judgement:
    """For a GPU with kernels: averaged probabilities are never written."""
    from epibench.kernels.categorical import judge
    from epibench.kernels.drawn import drawn_members

    return Judgement(*judge(member_probs.movedim(2, 1), drawn_members(weights), len(weights), target, with_entropy))


def _judge_in_order(member_probs: Tensor, weights: Tensor, target: Tensor, with_entropy: bool) -> Judgement:
    """For a GPU without kernels: members and classes are added one after another, as in the kernel.

    1 − confidence, or an entropy near 0, is all rounding error of sums: in another order, pixels would change bins.
    """
    members = member_probs.movedim(2, 1)
    probs = members.new_zeros((len(weights), *members.shape[1:]))
    for draw, row in enumerate(weights.tolist()):
        for member, weight in enumerate(row):
            if weight:
                probs[draw].add_(members[member], alpha=weight)
    confidence, predicted = probs.max(1)
    doubt = _sum_in_order(torch.special.entr(probs)) if with_entropy else 1 - confidence
    index = target.expand(len(weights), -1)[:, None]
    own = probs.gather(1, index)[:, 0]
    probs.scatter_add_(1, index, -torch.ones_like(probs[:, :1]))
    brier = torch.zeros_like(own)
    for label in range(probs.shape[1]):
        brier.addcmul_(probs[:, label], probs[:, label])
    return Judgement(confidence, predicted, brier, own, doubt.clamp_(min=0))


def _sum_in_order(values: Tensor) -> Tensor:
    """Sums over the second axis, one value after another."""
    total = values[:, 0].clone()
    for number in range(1, values.shape[1]):
        total += values[:, number]
    return total


def _judge_by_class(member_probs: Tensor, weights: Tensor, target: Tensor, with_entropy: bool) -> Judgement:
    """Judge on a CPU, one class after the other.

    Temporaries are then (draw, pixel) and stay in the cache.
    """
    classes = member_probs.shape[2]
    probs = torch.empty((len(weights), len(target)), dtype=torch.float64)
    confidence, brier, doubt = torch.full_like(probs, -1), torch.zeros_like(probs), torch.zeros_like(probs)
    number = torch.uint8 if classes <= 256 else torch.int32
    predicted = torch.zeros(probs.shape, dtype=number)
    for label in range(classes):
        torch.mm(weights, member_probs[:, :, label], out=probs)
        # The label increases, so the last label that exceeds all before has the maximum: faster than a masked fill.
        torch.maximum(predicted, (probs > confidence).to(number).mul_(label), out=predicted)
        torch.maximum(confidence, probs, out=confidence)
        if with_entropy:
            _add_entropy(doubt, probs)
        probs -= (target == label).to(torch.float64)
        brier.addcmul_(probs, probs)
    doubt = doubt.clamp_(min=0) if with_entropy else (1 - confidence).clamp_(min=0)
    own = member_probs.gather(2, target.expand(len(member_probs), -1)[:, :, None])[:, :, 0]
    return Judgement(confidence, predicted.to(torch.int64), brier, weights @ own, doubt)


def entropy(probs: Tensor) -> Tensor:
    """Return −Σ p log p over the last axis, with 0·log 0 = 0."""
    if probs.is_cuda:
        total: Tensor = torch.special.entr(probs).sum(-1)
    else:
        total = probs.new_zeros(probs.shape[:-1])
        for label in range(probs.shape[-1]):
            _add_entropy(total, probs[..., label])
    return total.clamp_(min=0)  # rounding can lift p above 1


def _add_entropy(total: Tensor, probs: Tensor) -> None:
    """total −= p log p, with 0·log 0 = 0."""
    total.addcmul_(probs, _in_place("log", probs.clamp(min=torch.finfo(probs.dtype).tiny)), value=-1)


def _in_place(function: Literal["exp", "log"], values: Tensor) -> Tensor:
    """Compute by the faster of two libraries."""
    if FAST_NUMPY and not values.is_cuda:
        getattr(np, function)(values.numpy(), out=values.numpy())
        return values
    return values.exp_() if function == "exp" else values.log_()


def check_uncertainty(kind: str) -> str:
    """Return `kind` if it is an uncertainty of classes, else raise."""
    known = get_args(CategoricalUncertainty)
    if kind not in known:
        raise ValueError(f"uncertainty '{kind}' is unknown; there are {', '.join(known)}")
    return kind


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
    """Logits of every pixel, (image, class, height, width)."""
    return {"logits": raw}
