"""Which method does best on a domain, by each headline metric, and whether its lead is beyond the standard error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from epibench.report.entries import Entry, Stat, common_members
from epibench.report.metric_errors import CLEAR, CLOSE, difference_error, error_of
from epibench.report.metric_info import BETTER_TEXT, metric_info
from epibench.report.numbers import m_equals, percent, significant
from epibench.report.page import listed
from epibench.report.verdicts import Bar, Card, rank, title_with_unit, value_bars, within_numerical_error

PRAISE = {  # one method is, or several together are, the best of all
    "ause": ("ranks errors best", "rank errors best"),
    "auce": ("is best calibrated", "are best calibrated"),
    "ece": ("is best calibrated", "are best calibrated"),
    "rmse": ("has the lowest error", "have the lowest error"),
    "miou": ("predicts best", "predict best"),
}
QUESTIONS = {
    "ause": "Does the uncertainty rank the errors?",
    "auce": "Is it calibrated?",
    "ece": "Is it calibrated?",
    "rmse": "How large are the errors?",
    "miou": "How good are the predictions?",
}


@dataclass(frozen=True)
class Verdict:
    """The best methods by one metric, from the best mean on; several where these cannot be told apart."""

    name: str
    best: list[Entry]
    others: int
    doubt: str  # what speaks against the lead, in a word or two
    m: int | None
    card: Card
    chance: bool = False  # whether none is better than chance

    @property
    def labels(self) -> str:
        """The best methods."""
        return listed([entry.label for entry in self.best])

    @property
    def praise(self) -> str:
        """What the best methods are best at; empty where there is nothing to be better than."""
        if not self.others:
            return ""
        title = metric_info(self.name).title
        words = PRAISE.get(self.name, ("is best", "are best"))[len(self.best) > 1]
        return f"{words} ({title}{f', {self.doubt}' if self.doubt else ''})"

    @property
    def tie(self) -> str:
        """That no method is better than another; empty where one is, or there is only one."""
        tied = len(self.best) > 1 and not self.others
        return f"cannot be told apart by {metric_info(self.name).title}" if tied else ""

    @property
    def only(self) -> str:
        """The value of the only method that has one; empty where there are others, or none."""
        alone = len(self.best) == 1 and not self.others
        return f"{metric_info(self.name).title} {self.card.bars[0].text}" if alone else ""


def compared_at(entries: Sequence[Entry]) -> tuple[int | None, dict[str, int]]:
    """The largest M that entries with several M share, and where each is compared: there, or at its own largest M."""
    several = [entry for entry in entries if len(entry.members) > 1]
    common = common_members(several or list(entries))
    m = common[-1] if common else None
    return m, {e.label: m if m is not None and m in e.members else e.members[-1] for e in entries}


def metric_verdict(name: str, entries: Sequence[Entry]) -> Verdict:
    """The methods on one domain, compared by one metric."""
    info = metric_info(name)
    m, m_of = compared_at(entries)
    having = [entry for entry in entries if entry.stat(name, m_of[entry.label]).mean is not None]
    ranked = rank(having, {e.label: e.stat(name, m_of[e.label]) for e in having}, info)
    best = _alike(name, ranked, m_of)
    if best and name == "ause" and all(by_chance(entry, m_of[entry.label]) for entry in best):
        return _no_ranking(best, value_bars(name, ranked, m_of), m, m_of)
    others = len(ranked) - len(best)
    doubt = _doubt(gap_in_errors(name, ranked[0], ranked[len(best)], m_of)) if others else ""
    bars = value_bars(name, ranked, m_of) if ranked else []
    sentences = _sentences(name, ranked, m_of) if ranked else ["No method has a value."]
    question = QUESTIONS.get(name, info.meaning)
    title = title_with_unit(info, entries)
    card = Card(title, BETTER_TEXT[info.better], question, _headline(best, doubt), bars, sentences)
    return Verdict(name, best, others, doubt, m, card)


def by_chance(entry: Entry, m: int) -> bool:
    """Whether an uncertainty ranks errors no better than one that knows nothing, as far as streaming tells."""
    found, chance, bound = (entry.stat(name, m).mean for name in ("ause", "ause_random", "ause_bound"))
    return found is not None and chance is not None and found + min(bound or 0.0, found) >= chance


def _no_ranking(best: Sequence[Entry], bars: list[Bar], m: int | None, m_of: dict[str, int]) -> Verdict:
    """That not even the best uncertainty is known to rank errors."""
    info, first = metric_info("ause"), best[0]
    found, chance = (first.stat(name, m_of[first.label]).mean or 0.0 for name in ("ause", "ause_random"))
    where = m_equals(m_of[first.label])
    said = f"At {where}, chance has an AUSE of {significant(chance, 2)}, {first.label} {significant(found, 2)}."
    card = Card(info.title, BETTER_TEXT[info.better], QUESTIONS["ause"], "None better than chance", bars, [said])
    return Verdict("ause", [], 0, "", m, card, chance=True)


def _doubt(errors: float | None) -> str:
    if errors is None:
        return "not certain"
    return "" if errors >= CLEAR else "narrowly"


def _alike(name: str, ranked: Sequence[Entry], m_of: dict[str, int]) -> list[Entry]:
    """The best entry, and those that cannot be told from it."""
    if not ranked:
        return []
    first = ranked[0]
    return [first, *(other for other in ranked[1:] if _indistinguishable(name, first, other, m_of))]


def _indistinguishable(name: str, first: Entry, second: Entry, m_of: dict[str, int]) -> bool:
    """Whether two means differ by less than their standard error, or than the numerical one."""
    m = m_of[first.label]
    if m_of[second.label] == m and within_numerical_error(first, second, name, m):
        return True
    errors = gap_in_errors(name, first, second, m_of)
    return errors is not None and errors < CLOSE


def gap_in_errors(name: str, first: Entry, second: Entry, m_of: dict[str, int]) -> float | None:
    """The gap between two means in standard errors of their difference; None where that is unknown."""
    pair = (first, second)
    means = [entry.stat(name, m_of[entry.label]).mean for entry in pair]
    error = difference_error(*(error_of(entry, name, m_of[entry.label]) for entry in pair))
    if error is None or means[0] is None or means[1] is None:
        return None
    return abs(means[1] - means[0]) / error


def _headline(best: Sequence[Entry], doubt: str) -> str:
    if not best:
        return "No values"
    labels = listed([entry.label for entry in best])
    if len(best) > 1:
        return f"{labels}: too close to call"
    return f"{labels}, {doubt}" if doubt else labels


def _sentences(name: str, ranked: Sequence[Entry], m_of: dict[str, int]) -> list[str]:
    """How far the next is behind, in numbers and in standard errors, and where those come from."""
    first = ranked[0]
    if len(ranked) < 2:
        return [f"At {m_equals(m_of[first.label])}; there is no other method to compare with."]
    second = ranked[1]
    m, other_m = m_of[first.label], m_of[second.label]
    stats = [first.stat(name, m), second.stat(name, other_m)]
    where = m_equals(m) if m == other_m else f"{m_equals(m)} and {m_equals(other_m)}"
    if stats[0].mean == stats[1].mean:
        return [f"At {where}, {second.label} has the same value."]
    errors = gap_in_errors(name, first, second, m_of)
    lead = f"At {where}, {second.label} is next, {_behind(*stats)}"
    if errors is None:
        return [f"{lead}. One independent draw alone does not tell whether another would turn them round."]
    said = [f"{lead}: {_count(errors)}{_stand_ins(name, (first, second), m_of)}."]
    if m == other_m and within_numerical_error(first, second, name, m):
        said.append("The gap is within the numerical error of the streamed values.")
    return said


def _count(errors: float) -> str:
    return "more than 10 standard errors" if errors > 10 else f"{significant(errors, 2)} standard errors"


def _stand_ins(name: str, pair: Sequence[Entry], m_of: dict[str, int]) -> str:
    """Whose standard error comes from a smaller M, in brackets."""
    found: dict[int, list[str]] = {}
    for entry in pair:
        error = error_of(entry, name, m_of[entry.label])
        if error is not None and error.m != m_of[entry.label]:
            found.setdefault(error.m, []).append(entry.label)
    said = [f"that of {listed(labels)} from {m_equals(m)}" for m, labels in found.items()]
    return f" ({listed(said)})" if said else ""


def _behind(best: Stat, other: Stat) -> str:
    """How far a value is from the best, as 12 % higher."""
    a, b = best.mean or 0.0, other.mean or 0.0
    way = "higher" if b > a else "lower"
    if a <= 0 or b <= 0:
        return f"{significant(abs(b - a), 2)} {way}"
    return f"{significant(b / a, 2)} times as high" if b >= 2 * a else f"{percent(abs(b / a - 1))} {way}"


def finding(verdicts: Sequence[Verdict]) -> str:
    """All that was found on a domain in one sentence; what the same methods are best at is said together."""
    said: dict[str, list[str]] = {}
    values: dict[str, list[str]] = {}
    for verdict in verdicts:
        if words := verdict.praise or verdict.tie:
            said.setdefault(verdict.labels, []).append(words)
        elif verdict.only:
            values.setdefault(verdict.labels, []).append(verdict.only)
    parts = [f"{labels} {listed(words)}" for labels, words in said.items()]
    parts += [f"{labels} has {listed(words)}" for labels, words in values.items()]
    if any(verdict.chance for verdict in verdicts):
        parts.append("no uncertainty is known to rank errors better than chance (AUSE)")
    if not parts:
        return "There are no values to compare."
    m = next((verdict.m for verdict in verdicts if verdict.m is not None), None)
    return f"At {'the largest M of each' if m is None else m_equals(m)}, {'; '.join(parts)}."
