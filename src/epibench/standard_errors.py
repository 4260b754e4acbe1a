"""The number of independent draws behind a mean, and its standard error."""

from __future__ import annotations

import math

from epibench.results import PoolSize


def independent_draws(num_draws: int, members: int, pool: PoolSize) -> int:
    """Return the number of draws that share no network. Draws of one network, or overlapping sets, are dependent."""
    if pool.num_groups:
        # Draws are in order of networks: several draws may come from one network before the first of the next.
        networks = pool.num_networks or pool.num_groups
        most = min(networks, -(-num_draws * networks // pool.num_groups))
    else:
        # A draw may mix members of several networks, but at most as many members as networks are independent.
        most = min(pool.num_members, pool.num_networks or pool.num_members) // max(members, 1)
    return max(min(num_draws, most), min(num_draws, 1))


def standard_error(std: float | None, num_independent: int) -> float | None:
    """The standard error of a mean, from the population std over draws.

    None with fewer than two independent draws.
    """
    return None if std is None or num_independent < 2 else std / math.sqrt(num_independent)


def points_backwards(
    given: float | None, inverted: float | None, noise: float | None, bound: float = 0.0
) -> bool | None:
    """Return whether the inverted uncertainty ranks errors better than the given one.

    Args:
        given: AUSE of the uncertainty.
        inverted: AUSE of the inverted uncertainty.
        noise: Standard deviation of the AUSE of a random uncertainty. The AUSE of its inverse deviates by the same
            amount in the other direction, so that their difference has twice this deviation.
        bound: Numerical error of the difference.

    Returns:
        Whether `inverted` is smaller; None if the difference lies within three standard deviations or the bound.
    """
    if given is None or inverted is None:
        return None
    clear = abs(given - inverted) > max(3 * 2 * (noise or 0.0), bound)
    return inverted < given if clear else None


def combined_error(first: float | None, second: float | None) -> float | None:
    """The standard error of the difference of two independent means."""
    return None if first is None or second is None else math.hypot(first, second)
