"""What further members buy and what a shift costs, for each method, judged by standard errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from epibench.report.domain_verdicts import compared_at
from epibench.report.domains import Domain, entries_on
from epibench.report.entries import Entry, Stat
from epibench.report.metric_errors import CLEAR, CLOSE, difference_error, error_of, gain_error
from epibench.report.metric_info import metric_info, sort_key
from epibench.report.numbers import change, m_equals, percent, value_text
from epibench.report.runs import Method
from epibench.report.verdicts import Gain


@dataclass(frozen=True)
class GainRow:
    """One method's changes of each metric, and from where to where."""

    entry: Entry
    step: str
    gains: list[Gain | None]


@dataclass(frozen=True)
class GainBlock:
    """Rows under a common heading."""

    title: str
    rows: list[GainRow]


def member_gains(domains: Sequence[Domain], methods: Sequence[Method], names: Sequence[str]) -> list[GainBlock]:
    """From the smallest to the largest M of each method, on each domain; without those that have one M only."""
    blocks = []
    for domain in domains:
        entries = [entry for entry in entries_on(methods, domain.name) if len(entry.members) > 1]
        rows = [GainRow(e, _step(e), [_member_gain(e, name) for name in names]) for e in entries]
        blocks.append(GainBlock(f"{domain.label} ({domain.role})", rows))
    return [block for block in blocks if block.rows]


def _step(entry: Entry) -> str:
    return f"{m_equals(entry.members[0])} → {entry.members[-1]}"


def _member_gain(entry: Entry, name: str) -> Gain | None:
    smallest, largest = entry.members[0], entry.members[-1]
    start, end = entry.stat(name, smallest), entry.stat(name, largest)
    if start.mean is None or end.mean is None:
        return None
    judgement, tone = _judged(name, start.mean, end.mean, gain_error(entry, name, smallest, largest))
    reached = _mostly_reached(entry, name, start.mean, end.mean) if tone == "good" else ""
    return Gain(_from_to(start, end), change(start.mean, end.mean), judgement, tone, reached)


def _from_to(start: Stat, end: Stat) -> str:
    spread = max((std for std in (start.std, end.std) if std is not None), default=None)
    return f"{value_text(start.mean, spread)} → {value_text(end.mean, spread)}"


def _judged(name: str, start: float, end: float, error: float | None) -> tuple[str, str]:
    """A word for a change, and its tone."""
    better = metric_info(name).better
    gained = sort_key(better, start) - sort_key(better, end)
    if error is None:
        return "not certain", "same"
    if gained == 0 or abs(gained) < CLOSE * error:
        return "no clear change", "same"
    word, tone = ("better", "good") if gained > 0 else ("worse", "bad")
    return (word if abs(gained) >= CLEAR * error else f"narrowly {word}"), tone


def _mostly_reached(entry: Entry, name: str, start: float, end: float) -> str:
    """The smallest M in between that brings most of the gain, if there is one."""
    for m in entry.members[1:-1]:
        mean = entry.stat(name, m).mean
        if mean is not None and (mean - start) / (end - start) >= 0.9:
            return f"{percent(0.9)} by {m_equals(m)}"
    return ""


def shift_costs(inside: Domain, outside: Domain, methods: Sequence[Method], names: Sequence[str]) -> list[GainRow]:
    """From one domain to another at the M where methods are compared, for each method that was scored on both."""
    rows = []
    before = {entry.label: entry for entry in entries_on(methods, inside.name)}
    after = [entry for entry in entries_on(methods, outside.name) if entry.label in before]
    _, m_of = compared_at(after)
    for entry in after:
        m = m_of[entry.label]
        costs = [_shift_cost(before[entry.label], entry, name, m) for name in names]
        rows.append(GainRow(entry, m_equals(m), costs))
    return rows


def _shift_cost(inside: Entry, outside: Entry, name: str, m: int) -> Gain | None:
    start, end = inside.stat(name, m), outside.stat(name, m)
    if start.mean is None or end.mean is None:
        return None
    error = difference_error(error_of(inside, name, m), error_of(outside, name, m))
    judgement, tone = _judged(name, start.mean, end.mean, error)
    return Gain(_from_to(start, end), change(start.mean, end.mean), judgement, tone, "")
