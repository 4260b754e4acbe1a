"""The difference between a published mean and ours, tested by resampling our draws.

No standard error of a heavy tail is needed. If the published draws were like ours, how probable is a difference as
large as the observed one? n published draws are compared with our N draws. Means of n and of N units, drawn from ours
with replacement, differ by chance like the two means. A unit is an independent value: a set of ensemble networks, a
dropout network with all repeats of its passes, or a chain.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

RESAMPLES = 20_000
LEVEL = 0.05  # chance rarely causes differences with a smaller p
POWER = 0.8
SEED = 0
ROWS = 1000  # resamples in one array


def chance_differences(units: Sequence[float], num_published: int, num_ours: int, name: str) -> Array:
    """Return means of `num_published` of our units minus means of `num_ours` units, (resample,).

    The series' name decides the random numbers. Cells of a series with equal numbers of units resample the same
    networks or chains, so that their differences are correlated as in reality.
    """
    values = np.asarray(units, np.float64)
    generator = np.random.default_rng([SEED, zlib.crc32(name.encode())])
    both = []
    for number in (num_published, num_ours):
        parts = [
            values[generator.integers(len(values), size=(ROWS, number), dtype=np.uint32)].mean(1)
            for _ in range(RESAMPLES // ROWS)
        ]
        both.append(np.concatenate(parts))
    difference: Array = both[0] - both[1]
    return difference


def probability(difference: float, by_chance: Array) -> float:
    """Return p: the probability of a difference this large, as twice the smaller tail.

    Each direction has its own tail. Otherwise a long upper tail would excuse any mean that is too low.
    """
    beyond = min(np.count_nonzero(by_chance <= difference), np.count_nonzero(by_chance >= difference))
    return min(1.0, 2 * (int(beyond) + 1) / (len(by_chance) + 1))


def detectable(by_chance: Array) -> tuple[float, float]:
    """Return the smallest differences, below and above, that give p < LEVEL with probability POWER.

    The published draws are assumed to be ours, all shifted by this difference.
    """
    low, high = np.quantile(by_chance, (LEVEL / 2, 1 - LEVEL / 2))
    weak, strong = np.quantile(by_chance, (1 - POWER, POWER))
    return float(low - strong), float(high - weak)


@dataclass(frozen=True)
class Joint:
    """The cells of a series together.

    `p`: of their mean difference, in stds by chance. `counts`: numbers of cells with a small p, by chance.
    """

    p: float
    counts: npt.NDArray[np.int64]


def joint(differences: Sequence[float], by_chance: Sequence[Array], name: str, paired: bool) -> Joint:
    """Judge dependent cells together, from their differences and their differences by chance.

    Cells that are not paired, e.g. of ensembles, are assumed to be fully correlated: their sets of different M are
    different sets of the same networks. This makes a common shift hardest to claim.

    Args:
        differences: Difference of each cell.
        by_chance: Differences by chance of each cell, (resample,).
        name: Name of the series.
        paired: Whether equal resamples of the cells are of the same networks or chains.
    """
    tables = np.stack(by_chance)
    if not paired:
        shuffled = np.random.default_rng([SEED, zlib.crc32(name.encode())]).permutation(RESAMPLES)
        tables = np.sort(tables, axis=1)[:, shuffled]
    spread = np.where((std := tables.std(axis=1)) > 0, std, 1.0)
    low, high = np.quantile(tables, (LEVEL / 2, 1 - LEVEL / 2), axis=1)
    outside = (tables < low[:, None]) | (tables > high[:, None])
    mean = float((np.asarray(differences) / spread).mean())
    return Joint(probability(mean, (tables / spread[:, None]).mean(axis=0)), outside.sum(axis=0))
