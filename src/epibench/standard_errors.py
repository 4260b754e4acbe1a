"""How many of the draws behind a mean are independent, and the standard errors that follow."""

from __future__ import annotations

import math

from epibench.results import PoolSize


def independent_draws(num_draws: int, members: int, pool: PoolSize) -> int:
    """Draws that share no network: those of one network, or sets that overlap, say the same thing twice."""
    if pool.num_groups:
        # The first draws are of the first networks: a network may be drawn from several times before the next.
        networks = pool.num_networks or pool.num_groups
        most = min(networks, -(-num_draws * networks // pool.num_groups))
    else:
        # Draws may mix the members of several networks, but there are no more independent members than networks.
        most = min(pool.num_members, pool.num_networks or pool.num_members) // max(members, 1)
    return max(min(num_draws, most), min(num_draws, 1))


def standard_error(std: float | None, num_independent: int) -> float | None:
    """The standard error of a mean, from the population std over draws; None with fewer than two independent draws."""
    return None if std is None or num_independent < 2 else std / math.sqrt(num_independent)


def points_backwards(
    given: float | None, inverted: float | None, noise: float | None, bound: float = 0.0
) -> bool | None:
    """Whether an uncertainty ranks errors better when it is turned round, by its AUSE as given and inverted.

    noise: the standard deviation of the AUSE of an uncertainty that knows nothing; turned round, it is off by as much
    the other way. None where the two cannot be told apart: within three standard deviations, or the numerical error.
    """
    if given is None or inverted is None:
        return None
    clear = abs(given - inverted) > max(3 * 2 * (noise or 0.0), bound)
    return inverted < given if clear else None


def combined_error(first: float | None, second: float | None) -> float | None:
    """The standard error of the difference of two independent means."""
    return None if first is None or second is None else math.hypot(first, second)
