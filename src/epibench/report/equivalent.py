"""The deep-ensemble equivalent: how many members an ensemble needs to score as a method does.

After Ashukha, Lyzhov, Molchanov and Vetrov, "Pitfalls of In-Domain Uncertainty Estimation and Ensembling in Deep
Learning" (ICLR 2020). The mean scores of an ensemble over M make a curve, linear in log M between the M that were
scored. It counts as what M members reach at best: at each M, the best mean of all M up to there. The equivalent of a
score is the smallest M at which that curve reaches it. Nothing is extrapolated: a score that is worse than the smallest
ensemble's, or better than any, has a bound.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from epibench.report.numbers import NO_BREAK_SPACE, significant
from epibench.results import PoolSize
from epibench.standard_errors import independent_draws

Array = npt.NDArray[np.float64]

RESAMPLES = 1000
ENDS = (0.05, 0.95)  # of the interval
NORMAL = 1.645  # the 95 % point of a normal distribution; below, of Student's t with 1, 2, … degrees of freedom
STUDENT = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812)
SEED = 0


@dataclass(frozen=True)
class Scores:
    """The scores of one method over M, the lower, the better: means, and the values of single draws, where known."""

    means: Mapping[int, float]
    draws: Mapping[int, Sequence[float]]
    pool: PoolSize

    @property
    def sizes(self) -> list[int]:
        """Every M that has a mean."""
        return sorted(self.means)


@dataclass(frozen=True)
class Equivalent:
    """The number of ensemble members that score as well. −inf: below the smallest scored M, inf: above any.

    low, high: the ends of its interval, if known. sizes: the smallest and the largest M of the ensemble.
    """

    members: float
    low: float | None
    high: float | None
    sizes: tuple[int, int]

    def bounded(self, value: float) -> tuple[str, float]:
        """A number of members as a bound and a number: ("", 3.2), ("<", 1), (">", 16)."""
        if np.isfinite(value):
            return "", value
        return ("<", self.sizes[0]) if value < 0 else (">", self.sizes[1])

    def text_of(self, value: float) -> str:
        """A number of members as 3.2, < 1 or > 16."""
        bound, number = self.bounded(value)
        return f"{bound}{NO_BREAK_SPACE}{number:g}" if bound else significant(number, 2)

    @property
    def text(self) -> str:
        """The number of members."""
        return self.text_of(self.members)

    @property
    def interval(self) -> str:
        """Its interval as 2.1 to 5.0; empty where none is known."""
        if self.low is None or self.high is None:
            return ""
        return " to ".join(dict.fromkeys((self.text_of(self.low), self.text_of(self.high))))


def equivalent_members(sizes: Sequence[int], means: Array, score: Array) -> Array:
    """The smallest M at which a curve reaches a score; the lower a score, the better.

    sizes: ascending, (size,); means: of the ensemble, (…, size); score: (…), which are broadcast. −inf where the score
    is worse than that of the smallest ensemble, inf where no ensemble reaches it.
    """
    shape = np.broadcast_shapes(means.shape[:-1], score.shape)
    best = np.broadcast_to(np.minimum.accumulate(means, axis=-1), (*shape, len(sizes)))
    reached = best <= score[..., None]
    after = reached.argmax(axis=-1)[..., None]
    before = np.maximum(after - 1, 0)
    upper, lower = (np.take_along_axis(best, at, -1)[..., 0] for at in (before, after))
    step = upper - lower  # 0 only at the smallest M
    share = np.divide(upper - score, step, out=np.zeros_like(step), where=step > 0)
    logs = np.log(np.asarray(sizes, np.float64))
    found: Array = np.exp(logs[before[..., 0]] * (1 - share) + logs[after[..., 0]] * share)
    found = np.where(score > best[..., 0], -np.inf, found)
    return np.where(reached.any(axis=-1), found, np.inf)


def small_sample(number: int) -> float:
    """By how much deviations of resampled means of few values are too small: their spread, and Student's t."""
    freedom = number - 1
    quantile = STUDENT[freedom - 1] if freedom <= len(STUDENT) else NORMAL + (NORMAL**3 + NORMAL) / (4 * freedom)
    return math.sqrt(number / freedom) * quantile / NORMAL


def resampled_means(scores: Scores, m: int, name: str) -> Array | None:
    """Means as other draws would have given them, (resample,): the mean, and means of its draws' deviations from it.

    Of n draws as many are drawn, with replacement, as are independent; of few, deviations are widened so that a normal
    score would be covered as often as the interval says. Where fewer than two are independent (M > pool/2), the
    deviations are those of the largest smaller M that has two; None where no M has. name: decides the random numbers.
    """
    for size in sorted((size for size in scores.draws if size <= m), reverse=True):
        values = np.asarray(scores.draws[size], np.float64)
        number = independent_draws(len(values), size, scores.pool)
        if number >= 2:
            generator = np.random.default_rng([SEED, zlib.crc32(name.encode()), size])
            chosen = generator.integers(len(values), size=(RESAMPLES, number))
            deviations: Array = (values - values.mean())[chosen].mean(axis=1) * small_sample(number)
            return scores.means[m] + deviations
    return None


@dataclass(frozen=True)
class EnsembleCurve:
    """The mean scores of an ensemble, (size,), and as other draws would have given them, (resample, size), if known."""

    sizes: list[int]
    means: Array
    resampled: Array | None

    @classmethod
    def of(cls, ensemble: Scores) -> EnsembleCurve:
        """The curve of an ensemble.

        All M are sets of the same networks, so that resampled curves move as a whole. The k-th smallest mean of every M
        belongs to one curve. Curves come in a random order.
        """
        means = np.array([ensemble.means[m] for m in ensemble.sizes])
        resampled = [resampled_means(ensemble, m, "ensemble") for m in ensemble.sizes]
        known = [each for each in resampled if each is not None]
        if len(known) < len(resampled):
            return cls(ensemble.sizes, means, None)
        order = np.random.default_rng([SEED, zlib.crc32(b"curves")]).permutation(RESAMPLES)
        return cls(ensemble.sizes, means, np.sort(np.stack(known, axis=-1), axis=0)[order])


def equivalents(curve: EnsembleCurve, method: Scores, name: str) -> dict[int, Equivalent]:
    """The equivalent of a method at each M, with the 5 to 95 % interval of its resampled means on resampled curves.

    The method and the ensemble are resampled independently of each other. name: of the method, which decides the random
    numbers.
    """
    sizes, found = curve.sizes, {}
    for m in method.sizes:
        members = equivalent_members(sizes, curve.means, np.array(method.means[m]))
        low = high = None
        others = resampled_means(method, m, f"method {name}")
        if curve.resampled is not None and others is not None:
            ordered = np.sort(equivalent_members(sizes, curve.resampled, others))
            low, high = (float(ordered[int(end * (RESAMPLES - 1))]) for end in ENDS)
        found[m] = Equivalent(float(members), low, high, (sizes[0], sizes[-1]))
    return found
