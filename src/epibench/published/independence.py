"""How many of the draws behind a mean are independent, and the standard error that follows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def independent_draws(num_draws: int, members: int, method: Mapping[str, Any]) -> int:
    """Draws that share no network: those of one network, or sets that overlap, say the same thing twice.

    method: the method's part of results.json, with `num_groups`, `num_networks` and `num_members` where known.
    """
    if method.get("num_groups"):
        # The first draws are of the first networks: a network may be drawn from several times before the next.
        networks = int(method.get("num_networks") or method["num_groups"])
        most = min(networks, -(-num_draws * networks // int(method["num_groups"])))
    else:
        most = (method.get("num_members") or num_draws * members) // max(members, 1)
    return max(min(num_draws, int(most)), min(num_draws, 1))


def standard_error(std: float | None, num_independent: int) -> float | None:
    """The standard error of a mean; None where fewer than two independent draws say nothing about it."""
    return None if std is None or num_independent < 2 else std / math.sqrt(num_independent)


def combined_error(first: float | None, second: float | None) -> float | None:
    """The standard error of the difference of two independent means."""
    return None if first is None or second is None else math.hypot(first, second)
