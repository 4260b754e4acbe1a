"""Standard errors of metrics over draws, which tell a difference from the luck of the members that were drawn."""

from __future__ import annotations

import math
from dataclasses import dataclass

from epibench.published import combined_error, independent_draws, standard_error
from epibench.report.entries import Entry, walk
from epibench.report.numbers import finite

CLEAR, CLOSE = 2.0, 1.0  # a difference of so many standard errors is clear; below one it cannot be told from none


@dataclass(frozen=True)
class Error:
    """A standard error, and the M whose draws it comes from."""

    value: float
    m: int


def error_of(entry: Entry, name: str, m: int) -> Error | None:
    """The standard error of a metric's mean at an M.

    Where no two draws are independent (M > pool/2) that at the largest smaller M stands in: as a rule it is larger.
    """
    for size in sorted((size for size in entry.members if size <= m), reverse=True):
        stat = entry.stat(name, size)
        found = standard_error(stat.std, independent_draws(stat.n, size, entry.raw))
        if stat.mean is not None and found is not None:
            return Error(found, size)
    return None


def difference_error(first: Error | None, second: Error | None) -> float | None:
    """The standard error of a difference of two means; None where either is unknown or both are zero."""
    return combined_error(first.value, second.value) or None if first and second else None


def gain_error(entry: Entry, name: str, smaller: int, larger: int) -> float | None:
    """The standard error of what going from one M to another changes.

    Networks or chains that are in both are compared with themselves, so that what is peculiar to them cancels.
    """
    pairs = _paired(entry, name, smaller, larger)
    if len(pairs) < 2:
        return difference_error(error_of(entry, name, smaller), error_of(entry, name, larger))
    changes = [after - before for before, after in pairs]
    mean = math.fsum(changes) / len(changes)
    std = math.sqrt(math.fsum((change - mean) ** 2 for change in changes) / len(changes))
    return standard_error(std, independent_draws(len(changes), larger, entry.raw))


def _paired(entry: Entry, name: str, smaller: int, larger: int) -> list[tuple[float, float]]:
    """Both values of each group, where draws are one per group; those without two numbers are left out."""
    if not entry.raw.get("num_groups"):
        return []
    columns = [
        [finite(walk(draw, "metrics", name)) for draw in entry.raw.get("draws") or [] if draw.get("M") == m]
        for m in (smaller, larger)
    ]
    if len(columns[0]) != len(columns[1]):
        return []
    return [(a, b) for a, b in zip(*columns, strict=True) if a is not None and b is not None]
