"""Scores of whole predictive distributions: NLL, CRPS, Brier score, interval score.

Each is a pure function that gives one score per pixel, and a metric that averages it over pixels. Infinite scores are
counted apart: with one of them the mean is NaN, and `…_infinite` says how many there were.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor

from epibench.metrics.accuracy import check_numbers
from epibench.metrics.parallel import in_threads
from epibench.metrics.ranking import check_finite, check_keys
from epibench.metrics.streaming import Array, StreamingMetric, each_row, pieces, same_pixels

# Sums of densities below this have lost digits to underflow.
SMALLEST_DENSITY = 1e-280
# Pieces of pixels whose scores are held until they are added up in order.
PIECES_AT_ONCE = 16
INTERVAL_ALPHA = 0.1
INTERVAL_HALF_WIDTH = 1.6448536269514722  # Φ⁻¹(0.95)


class MeanScore(StreamingMetric):
    """The mean of one score over all pixels; subclasses name it and say from what it is computed."""

    higher_is_better = False
    name: str

    def __init__(self, num_draws: int | None = None, **kwargs: Any) -> None:
        super().__init__(num_draws, **kwargs)
        # Named by the score: MetricCollection takes metrics with equal states for one.
        self.add_sums(f"{self.name}_sum")
        self.add_counts(f"{self.name}_count")
        self.add_counts(f"{self.name}_infinite")

    def add(self, rows: slice, scores: Tensor) -> None:
        """Add scores (draw, pixel) to these rows of the state."""
        if bool(scores.isnan().any()):
            raise ValueError(f"{self.name}: NaN in the inputs")
        infinite = scores.isinf()
        self._state("sum")[rows] += scores.to(torch.float64).masked_fill(infinite, 0).sum(1)
        self._state("count")[rows] += scores.shape[1]
        self._state("infinite")[rows] += infinite.sum(1)

    def compute(self) -> dict[str, Tensor]:
        """The mean (NaN where a score is infinite), and how many are."""
        infinite = self._state("infinite")
        mean = torch.where(infinite > 0, torch.nan, self._state("sum") / self._state("count"))
        return {self.name: self.result(mean), f"{self.name}_infinite": self.result(infinite)}

    def _state(self, part: str) -> Tensor:
        return cast(Tensor, getattr(self, f"{self.name}_{part}"))


class _GaussianScore(MeanScore):
    def update(self, mean: Array, variance: Array, target: Array) -> None:
        """Add pixels. mean, variance: (draw, …) with `num_draws`, otherwise (…); target: (…)."""
        means, variances, targets = self.rows(mean), self.rows(variance), self.shared(target)
        same_pixels(mean=means, variance=variances, target=targets)
        check_keys(variances, "variance", finite=True)
        check_finite(mean=means, target=targets)
        each_row(lambda rows, *piece: self.add(rows, self.score(*piece)), means, variances, targets)

    @staticmethod
    def score(mean: Tensor, variance: Tensor, target: Tensor) -> Tensor:
        raise NotImplementedError


class GaussianNLL(_GaussianScore):
    """Mean negative log likelihood of N(mean, variance): `nll_gaussian`."""

    name = "nll_gaussian"

    @staticmethod
    def score(mean: Tensor, variance: Tensor, target: Tensor) -> Tensor:
        """The score of each pixel."""
        return gaussian_nll(mean, variance, target)


class GaussianCRPS(_GaussianScore):
    """Mean continuous ranked probability score of N(mean, variance): `crps_gaussian`."""

    name = "crps_gaussian"

    @staticmethod
    def score(mean: Tensor, variance: Tensor, target: Tensor) -> Tensor:
        """The score of each pixel."""
        return gaussian_crps(mean, variance, target)


class IntervalScore(_GaussianScore):
    """Mean Winkler score of the central 90 % interval of N(mean, variance): `interval_score`."""

    name = "interval_score"

    @staticmethod
    def score(mean: Tensor, variance: Tensor, target: Tensor) -> Tensor:
        """The score of each pixel."""
        return interval_score(mean, variance, target)


class _MixtureScore(MeanScore):
    """Scores of mixtures of Gaussian members; each row of `weights` (draw, member) is one mixture."""

    settings = ("num_draws", "weights")

    def __init__(self, weights: Array | None = None, **kwargs: Any) -> None:
        matrix = None if weights is None else torch.as_tensor(weights, dtype=torch.float64)
        if matrix is not None and matrix.ndim != 2:
            raise ValueError(f"weights must be (draw, member), not {tuple(matrix.shape)}")
        super().__init__(None if matrix is None else matrix.shape[0], **kwargs)
        self.weights = matrix

    def update(self, member_mean: Array, member_variance: Array, target: Array) -> None:
        """Add pixels. member_mean, member_variance: (member, …); target: (…)."""
        means, variances = (torch.as_tensor(values, device=self.device) for values in (member_mean, member_variance))
        means, variances = means.reshape(means.shape[0], -1), variances.reshape(variances.shape[0], -1)
        targets = self.shared(target)
        same_pixels(member_mean=means, member_variance=variances, target=targets)
        check_keys(variances, "member_variance", finite=True)
        check_finite(member_mean=means, target=targets)
        members = means.shape[0]
        weights = self.weights
        if weights is None:
            weights = torch.full((1, members), 1 / members, dtype=torch.float64)
        if not members == variances.shape[0] == weights.shape[1]:
            raise ValueError(
                f"the numbers of members differ: member_mean has {members}, member_variance {variances.shape[0]}, "
                f"weights {weights.shape[1]}"
            )
        weights = weights.to(self.device, torch.float64)
        parts = list(pieces(means, variances, targets))
        for start in range(0, len(parts), PIECES_AT_ONCE):
            for scores in in_threads(
                lambda part: self.score(part[0], part[1], weights, part[2][0]), parts[start : start + PIECES_AT_ONCE]
            ):
                self.add(slice(None), scores)

    @staticmethod
    def score(means: Tensor, variances: Tensor, weights: Tensor, target: Tensor) -> Tensor:
        raise NotImplementedError


class MixtureNLL(_MixtureScore):
    """Mean negative log likelihood of the exact mixture of the members: `nll`."""

    name = "nll"

    @staticmethod
    def score(means: Tensor, variances: Tensor, weights: Tensor, target: Tensor) -> Tensor:
        """The score of each pixel."""
        return mixture_nll(means, variances, weights, target)


class MixtureCRPS(_MixtureScore):
    """Mean continuous ranked probability score of the exact mixture of the members: `crps`."""

    name = "crps"

    @staticmethod
    def score(means: Tensor, variances: Tensor, weights: Tensor, target: Tensor) -> Tensor:
        """The score of each pixel."""
        return mixture_crps(means, variances, weights, target)


class BrierScore(MeanScore):
    """Mean over pixels of Σ over classes (p − onehot)²: `brier`. `update(probs, target)`, class axis last."""

    name = "brier"

    def update(self, probs: Array | None = None, target: Array | None = None, *, brier: Array | None = None) -> None:
        """Add pixels by `probs` and `target` or, where it is known already, by the `brier` score of each.

        probs: (draw, …, class) with `num_draws`, otherwise (…, class); target: (…); brier: (draw, …) or (…).
        """
        if brier is not None:
            each_row(self.add, self.rows(brier))
        elif probs is not None and target is not None:
            each_row(lambda rows, *piece: self.add(rows, brier_score(*piece)), *_classes(self, probs, target))
        else:
            raise TypeError("BrierScore.update needs probs and target, or brier")

    def compute(self) -> dict[str, Tensor]:
        """The mean, one value per draw; it is never infinite."""
        return {"brier": super().compute()["brier"]}


class CategoricalNLL(MeanScore):
    """Mean of −log of the probability of the target class: `nll`. `update(probs, target)`, class axis last."""

    name = "nll"

    def update(
        self, probs: Array | None = None, target: Array | None = None, *, target_probability: Array | None = None
    ) -> None:
        """Add pixels by `probs` and `target` or, where it is known already, by the probability of the target class.

        probs: (draw, …, class) with `num_draws`, otherwise (…, class); target: (…); the other: (draw, …) or (…).
        """
        if target_probability is not None:
            each_row(lambda rows, own: self.add(rows, -own.to(torch.float64).log()), self.rows(target_probability))
        elif probs is not None and target is not None:
            each_row(lambda rows, *piece: self.add(rows, categorical_nll(*piece)), *_classes(self, probs, target))
        else:
            raise TypeError("CategoricalNLL.update needs probs and target, or target_probability")


def _classes(metric: StreamingMetric, probs: Array, target: Array) -> tuple[Tensor, Tensor]:
    """Checked probabilities (draw, pixel, class) and targets (1, pixel)."""
    classes, targets = metric.rows(probs, 1), metric.shared(target)
    same_pixels(probs=classes, target=targets)
    check_numbers(targets, classes.shape[2], "target")
    return classes, targets


def gaussian_nll(mean: Tensor, variance: Tensor, target: Tensor) -> Tensor:
    """−log N(y; μ, σ²) per pixel, in float64; with σ² = 0, −∞ at y = μ and ∞ elsewhere."""
    variance = variance.to(torch.float64)
    difference = mean.to(torch.float64) - target
    standardised = torch.where(difference == 0, 0, difference.square() / variance)
    nll = 0.5 * (standardised + variance.log() + math.log(2 * math.pi))
    return torch.where((variance == 0) & (difference != 0), torch.inf, nll)


def mixture_nll(means: Tensor, variances: Tensor, weights: Tensor, target: Tensor) -> Tensor:
    """−log Σ_m w_m N(y; μ_m, σ_m²) of each mixture, (draw, pixel).

    means, variances: (member, pixel); weights: (draw, member); target: (pixel,).
    """
    weights = weights.to(torch.float64)
    log_density = -gaussian_nll(means, variances, target)
    highest = log_density.amax(0)
    finite = torch.where(highest.isinf(), torch.zeros_like(highest), highest)
    # One matrix product for all draws; where it underflows, the draw's own highest member is the scale.
    scaled = (log_density - finite).exp().nan_to_num(posinf=0)
    density = weights @ scaled
    nll = -(density.log() + finite)
    hard = (density < SMALLEST_DENSITY) | highest.isinf()
    for draw, pixel in _rows_with_any(hard):
        own = weights[draw] > 0
        terms = log_density[own][:, pixel] + weights[draw][own].log()[:, None]
        nll[draw, pixel] = -torch.logsumexp(terms, 0)
    return nll


def _rows_with_any(mask: Tensor) -> list[tuple[int, Tensor]]:
    """Each row of `mask` that is true somewhere, with where."""
    rows = torch.nonzero(mask.any(1)).flatten().tolist()
    return [(row, torch.nonzero(mask[row]).flatten()) for row in rows]


def gaussian_crps(mean: Tensor, variance: Tensor, target: Tensor) -> Tensor:
    """CRPS of N(μ, σ²) per pixel: E|X − y| − ½ E|X − X′|."""
    variance = variance.to(torch.float64)
    return expected_distance(mean.to(torch.float64) - target, variance) - (variance / math.pi).sqrt()


def mixture_crps(means: Tensor, variances: Tensor, weights: Tensor, target: Tensor) -> Tensor:
    """CRPS of each mixture of Gaussian members, (draw, pixel); Grimit et al. 2006.

    Σ_i w_i A(y − μ_i, σ_i²) − ½ Σ_ij w_i w_j A(μ_i − μ_j, σ_i² + σ_j²) with A(d, v) = E|N(d, v)|. Each pair of members
    is evaluated once for all draws. Shapes as in `mixture_nll`.
    """
    means, variances, weights = (tensor.to(torch.float64) for tensor in (means, variances, weights))
    score = weights @ expected_distance(target - means, variances)
    for first in range(means.shape[0]):
        drawn = torch.nonzero(weights[:, first]).flatten()
        rest = slice(first, None)
        distance = expected_distance(means[first] - means[rest], variances[first] + variances[rest])
        # Off the diagonal a pair counts twice, which cancels the ½.
        pair = weights[drawn, first, None] * weights[drawn, rest]
        pair[:, 0] *= 0.5
        score.index_add_(0, drawn, pair @ distance, alpha=-1)
    return score


def expected_distance(difference: Tensor, variance: Tensor) -> Tensor:
    """E|X| of X ~ N(difference, variance): 2σφ(d/σ) + d·erf(d/(σ√2)); |d| for σ = 0."""
    # In place: this is evaluated for every pair of members.
    width = (2 * variance).sqrt_()
    scaled = difference / width
    distance = scaled.square().neg_().exp_().mul_(width).mul_(1 / math.sqrt(math.pi))
    distance.addcmul_(scaled.erf_(), difference)
    return torch.where(variance == 0, difference.abs(), distance)


def interval_score(mean: Tensor, variance: Tensor, target: Tensor) -> Tensor:
    """Winkler score of the central 90 % interval per pixel: its length, plus 2/α times what the target lies outside."""
    half = INTERVAL_HALF_WIDTH * variance.to(torch.float64).sqrt()
    outside = ((mean.to(torch.float64) - target).abs() - half).clamp(min=0)
    return 2 * half + (2 / INTERVAL_ALPHA) * outside


def brier_score(probs: Tensor, target: Tensor) -> Tensor:
    """Σ over classes (p − onehot)² per pixel, in float64. probs: (draw, pixel, class); target: (1, pixel)."""
    probs = probs.to(torch.float64)
    index = target.to(torch.int64).expand(probs.shape[0], -1)[:, :, None]
    return probs.square().scatter_(2, index, (1 - probs.gather(2, index)).square()).sum(2)


def categorical_nll(probs: Tensor, target: Tensor) -> Tensor:
    """−log of the probability of the target class per pixel; ∞ where it is 0. Shapes as in `brier_score`."""
    return -target_probability(probs.to(torch.float64), target).log()


def target_probability(probs: Tensor, target: Tensor) -> Tensor:
    """The probability of the target class, (draw, pixel)."""
    index = target.to(torch.int64).expand(probs.shape[0], -1)[:, :, None]
    return probs.gather(2, index)[:, :, 0]
