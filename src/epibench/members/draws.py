"""Draws: the sets of members that predict together. A draw is a row of the averaging matrix."""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from epibench.errors import InputError
from epibench.plans import Plan, evenly_spaced

if TYPE_CHECKING:
    from torch import Tensor

Members = tuple[int, ...]


@dataclass(frozen=True)
class Draws:
    """Sets of members, by position from 0, for one or several sizes M."""

    num_members: int
    sets: tuple[Members, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The different M, ascending."""
        return tuple(sorted({len(members) for members in self.sets}))

    @property
    def weights(self) -> Tensor:
        """The averaging matrix, (draw, member) float64; rows sum to 1."""
        import torch

        matrix = torch.zeros((len(self.sets), self.num_members), dtype=torch.float64)
        for row, members in zip(matrix, self.sets, strict=True):
            row[list(members)] = 1 / len(members)
        return matrix

    def of_size(self, size: int) -> list[int]:
        """Return the numbers of the draws of M = size."""
        return [number for number, members in enumerate(self.sets) if len(members) == size]

    def overlap(self, size: int) -> float | None:
        """Return the mean share of members that two different draws of M = size share; None for one draw."""
        used = np.zeros(self.num_members, dtype=np.int64)
        numbers = self.of_size(size)
        for number in numbers:
            used[list(self.sets[number])] += 1
        if len(numbers) < 2:
            return None
        return float((used * (used - 1)).sum() / (size * len(numbers) * (len(numbers) - 1)))


def make_draws(
    num_members: int,
    sizes: Sequence[int] | None = None,
    *,
    plan: Plan = "random",
    max_draws: int | Callable[[int], int] = 16,
    seed: int = 0,
    group: Sequence[Any] | None = None,
) -> Draws:
    """Return up to `max_draws` draws for each M in `sizes`.

    `random`: different sets without repetition. `disjoint`: sets that share no member. `prefix`: the first M members.
    `spread`: M evenly spaced members, including the last one. The generator of an M is seeded with (seed, plan, M), so
    that another M changes no draw.

    Args:
        num_members: Size of the pool.
        sizes: The M; by default the powers of two up to the pool, and the pool itself.
        plan: Plan of the draws.
        max_draws: Largest number of draws, for all M or as a function of M.
        seed: Seed of the draws.
        group: The network or chain behind each member. `prefix` and `spread` act within each group, one draw per group.

    Raises:
        InputError: The plan is unknown, or an M is impossible.
    """
    if plan not in get_args(Plan):
        raise InputError(f"plan '{plan}' is unknown; there are {', '.join(get_args(Plan))}")
    limit = max_draws if callable(max_draws) else lambda size: max_draws
    if seed < 0:
        raise InputError(f"the seed must be 0 or more, not {seed}")
    groups = _positions(group if plan in ("prefix", "spread") else None, num_members)
    largest = min((len(members) for members in groups), default=0)
    where = "pool" if len(groups) == 1 else "smallest group"
    chosen = tuple(dict.fromkeys(sizes)) if sizes is not None else default_sizes(largest)
    if not chosen:
        raise InputError("no M to draw: " + ("the pool is empty" if num_members == 0 else "'sizes' is empty"))
    for size in chosen:
        if not 1 <= size <= largest:
            raise InputError(f"M = {size} is impossible: the {where} has {largest} members (plan '{plan}')")
        if limit(size) < 1:
            raise InputError(f"at least one draw is needed, not {limit(size)}")
    sets = [members for size in sorted(chosen) for members in _PLANS[plan](groups, size, limit(size), seed)]
    return Draws(num_members, tuple(sets))


def default_sizes(pool: int) -> tuple[int, ...]:
    """Return 1, 2, 4 … up to the pool, and the whole pool, the usual size in deployment."""
    return tuple(sorted({2**power for power in range(pool.bit_length())} | {pool})) if pool else ()


def _positions(group: Sequence[Any] | None, num_members: int) -> list[Members]:
    """Return the members of each group, in pool order. Without groups, the whole pool is one group."""
    if group is None:
        return [tuple(range(num_members))]
    if len(group) != num_members:
        raise InputError(f"'group' has {len(group)} entries, but the pool has {num_members} members")
    positions: dict[Any, list[int]] = {}
    for position, name in enumerate(group):
        positions.setdefault(name, []).append(position)
    return [tuple(members) for members in positions.values()]


def _generator(seed: int, plan: Plan, size: int) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(plan.encode()), size])


def _random(groups: list[Members], size: int, max_draws: int, seed: int) -> list[Members]:
    (pool,) = groups
    rng = _generator(seed, "random", size)
    possible = math.comb(len(pool), size)
    count = min(max_draws, possible)
    if possible <= 2 * count:  # few sets: random guesses for the last ones would take long
        every = list(itertools.combinations(pool, size))
        return [every[number] for number in rng.permutation(possible)[:count]]
    chosen: dict[Members, None] = {}
    while len(chosen) < count:
        chosen[tuple(sorted(rng.choice(len(pool), size, replace=False).tolist()))] = None
    return list(chosen)


def _disjoint(groups: list[Members], size: int, max_draws: int, seed: int) -> list[Members]:
    (pool,) = groups
    order = _generator(seed, "disjoint", size).permutation(len(pool)).tolist()
    count = min(max_draws, len(pool) // size)
    return [tuple(sorted(order[number * size : (number + 1) * size])) for number in range(count)]


_PLANS: dict[Plan, Callable[[list[Members], int, int, int], list[Members]]] = {
    "random": _random,
    "disjoint": _disjoint,
    "prefix": lambda groups, size, limit, seed: [members[:size] for members in groups[:limit]],
    "spread": lambda groups, size, limit, seed: [
        tuple(members[position] for position in evenly_spaced(len(members), size)) for members in groups[:limit]
    ],
}
