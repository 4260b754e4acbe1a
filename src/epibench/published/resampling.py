"""How far a published mean lies from ours, by resampling our own draws: no standard error of a heavy tail is needed.

The question: if the published draws were like ours, how probable is a difference as large as the one that is seen?
Where n published draws are compared with N of ours, means of n and of N units that are drawn from ours with replacement
differ by chance as the two means would. A unit is what is independent of the others: a set of ensemble networks, a
dropout network with all repeats of its passes, a chain.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

RESAMPLES = 20_000
LEVEL = 0.05  # a difference with a smaller p is one that chance alone makes rarely
POWER = 0.8
SEED = 0
ROWS = 1000  # resamples that are made at once


def chance_differences(units: Sequence[float], num_published: int, num_ours: int, name: str) -> Array:
    """Means of `num_published` of our units less means of `num_ours` of them, (resample,).

    name: of the series, which decides the random numbers. Cells of a series with as many units resample the same
    networks or chains, so that their differences go together as they do in truth.
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
    """p: how probable a difference as far out is, in either direction; twice the smaller of the two tails.

    Each direction is judged by its own tail, as a long upper one would otherwise excuse any mean that is too low.
    """
    beyond = min(np.count_nonzero(by_chance <= difference), np.count_nonzero(by_chance >= difference))
    return min(1.0, 2 * (int(beyond) + 1) / (len(by_chance) + 1))


def detectable(by_chance: Array) -> tuple[float, float]:
    """The differences, below and above, from which on p < LEVEL would come out with probability POWER.

    The published draws are taken to be ours, all shifted by that much.
    """
    low, high = np.quantile(by_chance, (LEVEL / 2, 1 - LEVEL / 2))
    weak, strong = np.quantile(by_chance, (1 - POWER, POWER))
    return float(low - strong), float(high - weak)


@dataclass(frozen=True)
class Joint:
    """The cells of a series together. p: of their mean difference, in stds by chance; counts: small p, by chance."""

    p: float
    counts: npt.NDArray[np.int64]


def joint(differences: Sequence[float], by_chance: Sequence[Array], name: str, paired: bool) -> Joint:
    """Judge cells that hang together, each with its difference and differences by chance.

    paired: whether the same resample of each is of the same networks or chains. Where it is not, as with ensembles,
    whose sets of different M are different sets of the same networks, they are taken to go together entirely, which
    makes a common shift hardest to claim.
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
