"""The rules by which methods and changes are compared.

Differences are measured in standard errors of independent draws. Draws of one network or chain count once, and so do
sets that share members. A difference is clear from two standard errors on, narrow from one, and below that a tie. It is
also a tie where it lies within the numerical error of a metric, or where both KLs lie at the noise floor of their
reference. Without both standard errors a lead is unknown, which is no tie. An uncertainty that ranks errors no better
than chance leads nothing, however small its AUSE.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from epibench.report.entries import Entry
from epibench.report.metric_info import metric_info, sort_key
from epibench.results import Number
from epibench.standard_errors import combined_error, independent_draws, standard_error

CLEAR, CLOSE = 2.0, 1.0  # standard errors
MOST_OF_IT = 0.9  # of a gain

Certainty = Literal["clear", "narrow", "within floor", "unknown", "within errors", "within bound", "at floor", "equal"]
TIES: tuple[Certainty, ...] = ("within errors", "within bound", "at floor", "equal")


@dataclass(frozen=True)
class StandardError:
    """A standard error, and the M whose draws it comes from."""

    value: float
    m: int


def error_of(entry: Entry, name: str, m: int) -> StandardError | None:
    """The standard error of a metric's mean at an M.

    Where no two draws are independent (M > pool/2), use the error at the largest smaller M. As a rule it is larger.
    """
    for size in sorted((size for size in entry.members if size <= m), reverse=True):
        stat = entry.stat(name, size)
        error = standard_error(stat.std, independent_draws(stat.n, size, entry.score.pool))
        if stat.mean is not None and error is not None:
            return StandardError(error, size)
    return None


def difference_error(first: StandardError | None, second: StandardError | None) -> float | None:
    """The standard error of a difference of two means; None where either is unknown or both are zero."""
    return combined_error(first.value, second.value) or None if first and second else None


@dataclass(frozen=True, eq=False)
class Candidate:
    """A method's mean at one M, with all that tells a difference from luck. key: the smaller, the better."""

    entry: Entry
    m: int
    mean: float
    key: float
    error: StandardError | None
    bound: float = 0.0
    floor: float | None = None
    chance: float | None = None

    @property
    def label(self) -> str:
        """The method's label."""
        return self.entry.label

    @property
    def at_floor(self) -> bool:
        """Whether a KL is no larger than that between two halves of the reference."""
        return self.floor is not None and self.mean <= self.floor

    @property
    def at_chance(self) -> bool:
        """Whether chance does as well, up to the numerical error."""
        return self.chance is not None and self.mean + min(self.bound, self.mean) >= self.chance


@dataclass(frozen=True)
class Gap:
    """How far a candidate is behind a better one, also in standard errors and noise floors where these are known."""

    difference: float
    errors: float | None
    floors: float | None
    certainty: Certainty

    @property
    def tied(self) -> bool:
        """Whether the two cannot be distinguished."""
        return self.certainty in TIES


@dataclass(frozen=True)
class Ranking:
    """Candidates in groups that cannot be distinguished, the best first, and candidates at chance."""

    groups: list[list[Candidate]]
    at_chance: list[Candidate]

    @property
    def leaders(self) -> list[Candidate]:
        """The first group; empty if no candidate is better than chance."""
        return self.groups[0] if self.groups else []

    @property
    def lead(self) -> Gap | None:
        """How far the first group is ahead of the second, if there is one."""
        return gap(self.groups[0][0], self.groups[1][0]) if len(self.groups) > 1 else None

    @property
    def ordered(self) -> list[Candidate]:
        """All candidates, best first."""
        return [candidate for group in (*self.groups, self.at_chance) for candidate in group]

    @property
    def best(self) -> set[str]:
        """The label of the only leader; empty for ties and unknown leads."""
        known = self.lead is None or self.lead.certainty != "unknown"
        return {self.leaders[0].label} if known and len(self.leaders) == 1 and len(self.ordered) > 1 else set()

    @property
    def tied(self) -> set[str]:
        """The labels of several leaders."""
        return {candidate.label for candidate in self.leaders} if len(self.leaders) > 1 else set()


def candidate(name: str, entry: Entry, m: int) -> Candidate | None:
    """An entry by a metric at an M; None where it has no value, or no direction is better."""
    mean, better = entry.mean(name, m), metric_info(name).better
    if mean is None or better == "neither":
        return None
    error, bound, chance = error_of(entry, name, m), entry.bound(name, m), entry.chance(name, m)
    return Candidate(entry, m, mean, sort_key(better, mean), error, bound, entry.floor, chance)


def compared_at(entries: Sequence[Entry]) -> tuple[int | None, dict[str, int]]:
    """The largest M that entries with several M share, and the M of each entry: that M or its own largest."""
    several = [entry for entry in entries if len(entry.members) > 1]
    sizes = [set(entry.members) for entry in several or entries]
    m = max(set.intersection(*sizes), default=None) if sizes else None
    return m, {e.label: m if m is not None and m in e.members else e.members[-1] for e in entries}


def judge(name: str, entries: Sequence[Entry], m_of: Mapping[str, int] | None = None) -> Ranking:
    """Entries ranked by a metric. m_of: the M of each; by default where all are compared."""
    m_of = compared_at(entries)[1] if m_of is None else m_of
    candidates = [candidate(name, entry, m_of[entry.label]) for entry in entries]
    return rank([one for one in candidates if one is not None])


def judge_at(name: str, entries: Sequence[Entry], m: int) -> Ranking:
    """The entries that were scored at an M, ranked there."""
    return judge(name, [entry for entry in entries if m in entry.members], {entry.label: m for entry in entries})


def rank(candidates: Sequence[Candidate]) -> Ranking:
    """Candidates in groups that cannot be distinguished, the best group first."""
    left = sorted((one for one in candidates if not one.at_chance), key=lambda one: one.key)
    groups: list[list[Candidate]] = []
    while left:
        groups.append([left[0], *(other for other in left[1:] if gap(left[0], other).tied)])
        left = [one for one in left if one not in groups[-1]]
    return Ranking(groups, sorted((one for one in candidates if one.at_chance), key=lambda one: one.key))


def gap(better: Candidate, worse: Candidate) -> Gap:
    """How far one candidate is behind another, and how sure that is."""
    difference, error = worse.key - better.key, difference_error(better.error, worse.error)
    floors = [one.floor for one in (better, worse) if one.floor]
    errors, in_floors = (difference / error if error else None), (difference / max(floors) if floors else None)
    if difference == 0:
        certainty: Certainty = "equal"
    elif better.at_floor and worse.at_floor:
        certainty = "at floor"
    elif difference <= max(better.bound, worse.bound):
        certainty = "within bound"
    elif errors is None:
        certainty = "unknown"
    elif errors < CLOSE:
        certainty = "within errors"
    elif in_floors is not None and in_floors < 1:
        certainty = "within floor"
    else:
        certainty = "clear" if errors >= CLEAR else "narrow"
    return Gap(difference, errors, in_floors, certainty)


@dataclass(frozen=True)
class Change:
    """The change of a metric from one M or domain to another. gained: above zero if it gets better."""

    start: float
    end: float
    gained: float
    certainty: Literal["clear", "narrow", "none", "unknown"]


def member_change(entry: Entry, name: str, smaller: int, larger: int) -> Change | None:
    """The change between two M; None where either has no value."""
    return _change(name, (entry, smaller), (entry, larger), _gain_error(entry, name, smaller, larger))


def domain_change(inside: Entry, outside: Entry, name: str, m: int) -> Change | None:
    """The change between two domains at an M; None where either has no value."""
    error = difference_error(error_of(inside, name, m), error_of(outside, name, m))
    return _change(name, (inside, m), (outside, m), error)


def _change(name: str, before: tuple[Entry, int], after: tuple[Entry, int], error: float | None) -> Change | None:
    start, end = (entry.mean(name, m) for entry, m in (before, after))
    if start is None or end is None:
        return None
    better = metric_info(name).better
    gained = sort_key(better, start) - sort_key(better, end)
    if gained == 0 or abs(gained) <= max(entry.bound(name, m) for entry, m in (before, after)):
        return Change(start, end, gained, "none")
    if error is None:
        return Change(start, end, gained, "unknown")
    errors = abs(gained) / error
    return Change(start, end, gained, "clear" if errors >= CLEAR else "narrow" if errors >= CLOSE else "none")


def _gain_error(entry: Entry, name: str, smaller: int, larger: int) -> float | None:
    """The standard error of what going from one M to another changes.

    Networks or chains that are in both are compared with themselves, so that what is peculiar to them cancels.
    """
    pairs = _paired(entry, name, smaller, larger)
    if len(pairs) < 2:
        return difference_error(error_of(entry, name, smaller), error_of(entry, name, larger))
    changes = [after - before for before, after in pairs]
    mean = math.fsum(changes) / len(changes)
    std = math.sqrt(math.fsum((change - mean) ** 2 for change in changes) / len(changes))
    return standard_error(std, independent_draws(len(changes), larger, entry.score.pool)) or None


def _paired(entry: Entry, name: str, smaller: int, larger: int) -> list[tuple[float, float]]:
    """Both values of each group, where draws are one per group; those without two numbers are left out."""
    if not entry.score.pool.num_groups:
        return []
    columns: list[list[Number]] = [[], []]
    for column, m in zip(columns, (smaller, larger), strict=True):
        for draw in entry.score.draws:
            value = draw.metrics.get(name)
            if m == draw.M and not isinstance(value, list):
                column.append(value)
    if len(columns[0]) != len(columns[1]):
        return []
    return [(a, b) for a, b in zip(*columns, strict=True) if a is not None and b is not None]


def better_between(entry: Entry, name: str) -> int | None:
    """The M that is better than the smallest and the largest by at least one standard error."""
    sizes = {m: one for m in entry.members if (one := candidate(name, entry, m)) is not None}
    ends = [sizes.get(entry.members[0]), sizes.get(entry.members[-1])]
    best = min(sizes.values(), key=lambda one: one.key, default=None)
    if best is None or best in ends:
        return None
    certain = all(end is not None and gap(best, end).certainty in ("clear", "narrow") for end in ends)
    return best.m if certain else None


def mostly_reached(entry: Entry, name: str) -> int | None:
    """The smallest M with most of the gain from the smallest to the largest M."""
    start, end = (entry.mean(name, m) for m in (entry.members[0], entry.members[-1]))
    if start is None or end is None or start == end:
        return None
    means = {m: mean for m in entry.members[1:-1] if (mean := entry.mean(name, m)) is not None}
    return next((m for m, mean in means.items() if (mean - start) / (end - start) >= MOST_OF_IT), None)


def settled_from(entry: Entry, name: str) -> int | None:
    """The smallest M from which on a metric stays within one standard error of its last value."""
    members = [m for m in entry.members if entry.mean(name, m) is not None]
    if len(members) < 2:
        return None
    last = settled = members[-1]
    for m in reversed(members[:-1]):
        error = difference_error(error_of(entry, name, m), error_of(entry, name, last))
        if error is None or abs((entry.mean(name, m) or 0.0) - (entry.mean(name, last) or 0.0)) > error:
            break
        settled = m
    return settled
