"""Scores of whole predictive distributions, averaged over pixels: NLL, CRPS, Brier score, interval score."""

from __future__ import annotations

from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from epibench.metrics import pixel_scores
from epibench.metrics.checks import check_finite, check_keys, check_probabilities, same_pixels
from epibench.metrics.class_metric import ClassMetric
from epibench.metrics.info import infos
from epibench.metrics.streaming import Array, StreamingMetric, each_row, pieces, to_tensor, value_of
from epibench.parallel import in_threads

# Pieces of pixels whose scores are kept until they are added in order.
PIECES_AT_ONCE = 16


class MeanScore(StreamingMetric):
    """The mean of one score over all pixels. Subclasses define its name and its inputs.

    Infinite scores are counted separately: with one of them the mean is NaN, and `…_infinite` is their number.
    """

    higher_is_better = False
    name: ClassVar[str]
    can_be_infinite: ClassVar[bool] = False

    def __init__(self, num_draws: int | None = None, **kwargs: Any) -> None:
        super().__init__(num_draws, **kwargs)
        # Named by the score: MetricCollection merges metrics with equal states.
        self.add_sums(f"{self.name}_sum")
        self.add_counts(f"{self.name}_count")
        if self.can_be_infinite:
            self.add_counts(f"{self.name}_infinite")

    def add(self, rows: slice, scores: Tensor) -> None:
        """Add scores (draw, pixel) to these rows of the state."""
        scores = scores.to(torch.float64)
        total = scores.sum(1)
        if self.can_be_infinite and not bool(total.isfinite().all()):
            infinite = ~scores.isfinite()
            self._state("infinite")[rows] += infinite.sum(1)
            total = scores.masked_fill(infinite, 0).sum(1)
        self._state("sum")[rows] += total
        self._state("count")[rows] += scores.shape[1]

    def compute(self) -> dict[str, Tensor]:
        """The mean, one value per draw."""
        mean = self._state("sum") / self._state("count")
        if not self.can_be_infinite:
            return {self.name: self.result(mean)}
        infinite = self._state("infinite")
        mean = torch.where(infinite > 0, torch.nan, mean)
        return {self.name: self.result(mean), f"{self.name}_infinite": self.result(infinite)}

    def _state(self, part: str) -> Tensor:
        return cast(Tensor, getattr(self, f"{self.name}_{part}"))


class _GaussianScore(MeanScore):
    score: ClassVar[staticmethod[[Tensor, Tensor, Tensor], Tensor]]  # mean, variance, target

    def update(self, mean: Array, variance: Array, target: Array) -> None:
        """Add pixels. mean, variance: (draw, …) with `num_draws`, otherwise (…); target: (…)."""
        pixels = self.gaussian_pixels(mean, target, variance=variance)
        each_row(lambda rows, *piece: self.add(rows, self.score(*piece)), *pixels)


class GaussianNLL(_GaussianScore):
    """Mean negative log likelihood of N(mean, variance): `nll_gaussian`."""

    name = "nll_gaussian"
    info = infos("nll_gaussian", "nll_gaussian_infinite")
    can_be_infinite = True
    score = staticmethod(pixel_scores.gaussian_nll)


class GaussianCRPS(_GaussianScore):
    """Mean continuous ranked probability score of N(mean, variance): `crps_gaussian`."""

    name = "crps_gaussian"
    info = infos("crps_gaussian")
    score = staticmethod(pixel_scores.gaussian_crps)


class IntervalScore(_GaussianScore):
    """Mean Winkler score of the central 90 % interval of N(mean, variance): `interval_score`."""

    name = "interval_score"
    info = infos("interval_score")
    score = staticmethod(pixel_scores.interval_score)


class _MixtureScore(MeanScore):
    """Scores of mixtures of Gaussian members; each row of `weights` (draw, member) is one mixture."""

    settings = ("num_draws", "weights")
    score: ClassVar[staticmethod[[Tensor, Tensor, Tensor, Tensor], Tensor]]  # means, variances, weights, target

    def __init__(self, weights: Array | None = None, **kwargs: Any) -> None:
        matrix = None if weights is None else torch.as_tensor(weights, dtype=torch.float64)
        if matrix is not None and matrix.ndim != 2:
            raise ValueError(f"weights must be (draw, member), not {tuple(matrix.shape)}")
        super().__init__(None if matrix is None else matrix.shape[0], **kwargs)
        self.weights = matrix

    def update(self, member_mean: Array, member_variance: Array, target: Array) -> None:
        """Add pixels. member_mean, member_variance: (member, …); target: (…)."""
        means, variances = self._members(member_mean), self._members(member_variance)
        targets = self.shared(target)
        same_pixels(member_mean=means, member_variance=variances, target=targets)
        check_keys(variances, "member_variance", finite=True)
        check_finite(member_mean=means, target=targets)
        members = means.shape[0]
        equal = torch.full((1, members), 1 / members, dtype=torch.float64)
        weights = equal if self.weights is None else self.weights
        if not members == variances.shape[0] == weights.shape[1]:
            raise ValueError(
                f"the numbers of members differ: member_mean has {members}, member_variance {variances.shape[0]}, "
                f"weights {weights.shape[1]}"
            )
        weights = weights.to(self.device, torch.float64)
        parts = list(pieces(means, variances, targets))
        for start in range(0, len(parts), PIECES_AT_ONCE):
            some = parts[start : start + PIECES_AT_ONCE]
            for scores in in_threads(lambda part: self.score(part[0], part[1], weights, part[2][0]), some):
                self.add(slice(None), scores)

    def _members(self, values: Array) -> Tensor:
        tensor = to_tensor(values, self.device)
        return tensor.reshape(tensor.shape[0], -1)


class MixtureNLL(_MixtureScore):
    """Mean negative log likelihood of the exact mixture of the members: `nll`."""

    name = "nll"
    info = infos("nll", "nll_infinite")
    can_be_infinite = True
    score = staticmethod(pixel_scores.mixture_nll)


class MixtureCRPS(_MixtureScore):
    """Mean continuous ranked probability score of the exact mixture of the members: `crps`."""

    name = "crps"
    info = infos("crps")
    score = staticmethod(pixel_scores.mixture_crps)


class BrierScore(ClassMetric, MeanScore):
    """Mean over pixels of Σ over classes (p − onehot)²: `brier`. `update(probs, target)`, class axis last."""

    name = "brier"
    info = infos("brier")

    def update(self, probs: Array | None = None, target: Array | None = None, *, brier: Array | None = None) -> None:
        """Add pixels by `probs` and `target`, or by their `brier` score.

        probs: (draw, …, class) with `num_draws`, otherwise (…, class); target: (…); brier: (draw, …) or (…).
        """
        if brier is not None:
            scores, *_ = self.labelled(target, brier=brier)
            check_keys(scores, "brier", finite=True)
            each_row(self.add, scores)
        elif probs is not None and target is not None:
            pixels = self.class_pixels(probs, target)
            each_row(lambda rows, *piece: self.add(rows, pixel_scores.brier_score(*piece)), *pixels)
        else:
            raise TypeError("BrierScore.update needs probs and target, or brier")


class CategoricalNLL(ClassMetric, MeanScore):
    """Mean of −log of the probability of the target class: `nll`. `update(probs, target)`, class axis last."""

    name = "nll"
    info = infos("nll", "nll_infinite")
    can_be_infinite = True

    def update(
        self, probs: Array | None = None, target: Array | None = None, *, target_probability: Array | None = None
    ) -> None:
        """Add pixels by `probs` and `target`, or by `target_probability`.

        probs: (draw, …, class) with `num_draws`, otherwise (…, class); target: (…); target_probability: (draw, …) or
        (…).
        """
        if target_probability is not None:
            probabilities, *_ = self.labelled(target, target_probability=target_probability)
            check_probabilities(target_probability=probabilities)
            each_row(lambda rows, own: self.add(rows, -own.to(torch.float64).log()), probabilities)
        elif probs is not None and target is not None:
            pixels = self.class_pixels(probs, target)
            each_row(lambda rows, *piece: self.add(rows, pixel_scores.categorical_nll(*piece)), *pixels)
        else:
            raise TypeError("CategoricalNLL.update needs probs and target, or target_probability")


def nll_gaussian(mean: Array, variance: Array, target: Array) -> Tensor:
    """Mean negative log likelihood of N(mean, variance) of whole arrays."""
    return value_of(GaussianNLL(), "nll_gaussian", mean, variance, target)


def crps_gaussian(mean: Array, variance: Array, target: Array) -> Tensor:
    """Mean continuous ranked probability score of N(mean, variance) of whole arrays."""
    return value_of(GaussianCRPS(), "crps_gaussian", mean, variance, target)


def interval_score(mean: Array, variance: Array, target: Array) -> Tensor:
    """Mean Winkler score of the central 90 % interval of N(mean, variance) of whole arrays."""
    return value_of(IntervalScore(), "interval_score", mean, variance, target)


def nll_mixture(member_mean: Array, member_variance: Array, target: Array) -> Tensor:
    """Mean negative log likelihood of the equally weighted mixture of members, (member, …), of whole arrays."""
    return value_of(MixtureNLL(), "nll", member_mean, member_variance, target)


def crps_mixture(member_mean: Array, member_variance: Array, target: Array) -> Tensor:
    """Mean continuous ranked probability score of the equally weighted mixture of members, of whole arrays."""
    return value_of(MixtureCRPS(), "crps", member_mean, member_variance, target)


def nll_categorical(probs: Array, target: Array, *, ignore_index: int | None = None) -> Tensor:
    """Mean of −log of the probability of the target class of whole arrays. probs: (…, class)."""
    return value_of(CategoricalNLL(ignore_index=ignore_index), "nll", probs, target)


def brier(probs: Array, target: Array, *, ignore_index: int | None = None) -> Tensor:
    """Mean Brier score of whole arrays. probs: (…, class)."""
    return value_of(BrierScore(ignore_index=ignore_index), "brier", probs, target)
