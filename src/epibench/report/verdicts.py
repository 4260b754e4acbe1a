"""Comparisons in words: cards, findings, ranks of KLs, gains, over- or under-confidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from epibench.report.charts.lines import lollipop
from epibench.report.entries import Entry, in_words, title_with_unit
from epibench.report.judge import (
    Candidate,
    Certainty,
    Change,
    Gap,
    Ranking,
    better_between,
    compared_at,
    domain_change,
    gap,
    judge,
    judge_at,
    member_change,
    mostly_reached,
    settled_from,
)
from epibench.report.metric_info import BETTER_TEXT, metric_info
from epibench.report.numbers import MISSING, NO_BREAK_SPACE, change, listed, m_equals, percent, significant, value_text
from epibench.report.table import Block, Cell, Column, Name, Row, Table, Tone
from epibench.results import Stat
from epibench.standard_errors import independent_draws, points_backwards

MOST_NAMED = 3  # methods in a headline
TIMES = f"{NO_BREAK_SPACE}×"
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
STANDING_TITLES = (
    *("Rank", "KL ± std", "Standard error", "In noise floors"),
    *("Behind the closest by", "in standard errors", "in noise floors", "Gain up to M"),
)
DOUBTS: dict[Certainty, str] = {  # what speaks against a lead
    "narrow": "narrowly",
    "unknown": "not certain",
    "within floor": "by less than the noise floor",
}


@dataclass(frozen=True)
class Verdict:
    """What the judge found by one metric. m: where methods are compared; None if each is at its own largest M."""

    name: str
    m: int | None
    ranking: Ranking
    card: dict[str, Any]

    @property
    def finding(self) -> tuple[str, str]:
        """Leaders and a statement on them; empty if no method is better than chance or has a value."""
        leaders, lead, info = self.ranking.leaders, self.ranking.lead, metric_info(self.name)
        labels = listed([self._named(one) for one in leaders])
        if not leaders:
            return "", ""
        if len(self.ranking.ordered) == 1:
            return f"{labels} has", f"{info.title} {leaders[0].entry.text(self.name, leaders[0].m)}"
        if lead is None and not self.ranking.at_chance:
            return f"{labels} cannot be told apart by", info.title
        words = PRAISE.get(self.name, ("is best", "are best"))[len(leaders) > 1]
        doubt = DOUBTS.get(lead.certainty, "") if lead else ""
        return labels, f"{words} ({info.title}{f', {doubt}' if doubt else ''})"

    def _named(self, one: Candidate) -> str:
        return one.label if self.m in (None, one.m) else f"{one.label} ({m_equals(one.m)})"


def verdict(name: str, entries: Sequence[Entry]) -> Verdict:
    """Entries on one domain, compared by one metric."""
    m, m_of = compared_at(entries)
    ranking = judge(name, entries, m_of)
    ranked = [one.entry for one in ranking.ordered]
    info = metric_info(name)
    card = {
        "title": title_with_unit(name, entries),
        "better": BETTER_TEXT[info.better],
        "question": QUESTIONS.get(name, in_words(info.meaning, entries)),
        "headline": headline(name, ranking),
        "bars": value_bars(name, ranked, m_of) if len(ranked) > 1 else [],
        "sentences": _sentences(name, ranking),
    }
    return Verdict(name, m, ranking, card)


def value_bars(name: str, entries: Sequence[Entry], m_of: dict[str, int], log: bool = False) -> list[dict[str, Any]]:
    """Each entry's value at an M as a lollipop on a common scale with zero, or on a logarithmic one."""
    stats = [entry.stat(name, m_of[entry.label]) for entry in entries]
    ends, bars = [s.mean + sign * (s.std or 0.0) for s in stats if s.mean is not None for sign in (-1, 1)], []
    lower, upper = _log_range(stats, entries) if log else (min([0.0, *ends]), max([0.0, *ends]))
    for entry, stat in zip(entries, stats, strict=True):
        m = m_of[entry.label]
        text, note = entry.text(name, m), entry.infinite_text(name, m) or entry.chance_text(name)
        words = f"{entry.label}: {text} at {m_equals(m)}"
        strip = lollipop(stat, entry.index, lower, upper, words, entry.overlaps_much(m), log)
        bars.append({"entry": entry, "strip": strip, "text": text, "note": note})
    return bars


def _log_range(stats: Sequence[Stat], entries: Sequence[Entry]) -> tuple[float, float]:
    """From the noise floor, or below the smallest value, to the end of the largest band."""
    smallest = min((stat.mean for stat in stats if stat.mean), default=1.0)
    floors = [entry.floor for entry in entries if entry.floor and entry.floor > smallest / 100]
    largest = max((stat.mean + (stat.std or 0.0) for stat in stats if stat.mean), default=1.0)
    return min([smallest / 2, *floors]), largest


def headline(name: str, ranking: Ranking) -> str:
    """The verdict in a few words."""
    leaders, lead = ranking.leaders, ranking.lead
    if not ranking.ordered:
        return "No finite KL" if name == "kl" else "No values"
    if len(ranking.ordered) == 1 and leaders:
        return leaders[0].entry.text(name, leaders[0].m)
    if not leaders:
        return "None better than chance" if len(ranking.ordered) > 1 else "No better than chance"
    labels = listed([one.label for one in leaders], MOST_NAMED)
    if len(leaders) > 1:
        ahead = f"{labels} are ahead of the others" if lead else labels
        return f"{ahead}: {'at the noise floor' if all(one.at_floor for one in leaders) else 'too close to call'}"
    verb = "is closest" if name == "kl" else "leads"
    doubt = DOUBTS.get(lead.certainty, "") if lead else ""
    return f"{labels} {verb}, {doubt}" if doubt else f"{labels} {verb}"


def _sentences(name: str, ranking: Ranking) -> list[str]:
    candidates = ranking.ordered
    if not candidates:
        return ["No method has a value."]
    first = candidates[0]
    if len(candidates) == 1:
        draws = first.entry.num_draws(first.m)
        sentences = [f"At {m_equals(first.m)}, {'from one draw' if draws == 1 else f'mean and std of {draws} draws'}."]
    else:
        sentences = [next_sentence(first, candidates[1])] if ranking.leaders else []
    if ranking.at_chance:
        labels = listed([one.label for one in ranking.at_chance], MOST_NAMED)
        verb = "rank" if len(ranking.at_chance) > 1 else "ranks"
        sentences.append(f"{labels} {verb} errors no better than chance.")
    return sentences


def next_sentence(first: Candidate, second: Candidate) -> str:
    """How far the second is behind the first, and how sure that is."""
    behind = gap(first, second)
    where = m_equals(first.m) if first.m == second.m else f"{m_equals(first.m)} and {m_equals(second.m)}"
    if behind.certainty == "equal":
        return f"At {where}, {second.label} has the same value."
    lead = f"At {where}, {second.label} is next, {_behind(first.mean, second.mean)}"
    if behind.errors is None:
        lead += ". One independent draw alone does not tell whether another would turn them round."
        return f"{lead[:-1]}, and within the numerical error." if behind.certainty == "within bound" else lead
    floors = f", {significant(behind.floors, 2)}{TIMES} the noise floor" if behind.floors is not None else ""
    errors = "more than 10" if behind.errors > 10 else significant(behind.errors, 2)
    lead += f": {errors} standard errors{_errors_from(first, second)}{floors}"
    if behind.certainty == "within bound":
        return f"{lead}. The gap is within the numerical error of the streamed values."
    if behind.certainty == "within floor":
        return f"{lead}, so less than another reference could change."
    return f"{lead}."


def _errors_from(first: Candidate, second: Candidate) -> str:
    """The M of standard errors from a smaller M, in brackets."""
    labels: dict[int, list[str]] = {}
    for one in (first, second):
        if one.error is not None and one.error.m != one.m:
            labels.setdefault(one.error.m, []).append(one.label)
    both = any(len(names) == 2 for names in labels.values())
    parts = [f"{'' if both else f'that of {listed(names)} '}from {m_equals(m)}" for m, names in labels.items()]
    return f" ({listed(parts)})" if parts else ""


def _behind(best: float, other: float) -> str:
    """How far a value is from the best, as 12 % higher."""
    way = "higher" if other > best else "lower"
    if best <= 0 or other <= 0:
        return f"{significant(abs(other - best), 2)} {way}"
    if other >= 2 * best:
        return f"{significant(other / best, 2)} times as high"
    return f"{percent(abs(other / best - 1))} {way}"


def finding(verdicts: Sequence[Verdict]) -> str:
    """The results on a domain in one sentence, with one clause for each group of methods."""
    said: dict[str, list[str]] = {}
    for one in verdicts:
        labels, words = one.finding
        if labels:
            said.setdefault(labels, []).append(words)
    parts = [f"{labels} {listed(words)}" for labels, words in said.items()]
    if any(one.ranking.at_chance and not one.ranking.leaders for one in verdicts):
        parts.append("no uncertainty is known to rank errors better than chance (AUSE)")
    if not parts:
        return "There are no values to compare."
    m = next((one.m for one in verdicts if one.m is not None), None)
    return f"At {'the largest M of each' if m is None else m_equals(m)}, {'; '.join(parts)}."


def kl_verdict(entries: Sequence[Entry]) -> dict[str, Any]:
    """The closest method at the largest common M, in words and as a table."""
    m, m_of = compared_at(entries)
    ranking = judge("kl", entries, m_of)
    where = f"At {m_equals(m)}" if m is not None else "At the largest M of each"
    ordered = ranking.ordered
    if not ordered:
        sentences, bars, rows = [f"{where}, every KL is infinite or undefined."], [], []
    else:
        sentences = [_height(ordered[0]), *([next_sentence(*ordered[:2])] if len(ordered) > 1 else [])]
        sentences += _other_leaders(ordered[0], entries)
        bars = value_bars("kl", [one.entry for one in ordered if one.mean > 0], m_of, log=True)
        ranked = {one.label for one in ordered}
        rows = _standings(ranking, m)
        for entry in (entry for entry in entries if entry.label not in ranked):
            remark = entry.infinite_text("kl", m_of[entry.label]) or "infinite"
            rows.append(Row(Name(entry.label, entry.index), [Cell(MISSING)] * len(STANDING_TITLES), remark))
    words = {"headline": headline("kl", ranking), "sentences": sentences}
    words["finding"] = words["headline"]
    if len(ordered) == 1:
        words["finding"] = f"KL of {ordered[0].label} to the reference at {m_equals(ordered[0].m)}: {words['headline']}"
    columns = [Column(Name(title)) for title in STANDING_TITLES]
    standings = Table("Ranks", columns, [Block(rows=rows)], where) if rows else None
    return {**words, "bars": bars, "standings": standings}


def _other_leaders(best: Candidate, entries: Sequence[Entry]) -> list[str]:
    sizes: dict[str, list[str]] = {}
    for m in best.entry.members:
        there = judge_at("kl", entries, m).ordered
        if len(there) > 1 and m != best.m and there[0].label != best.label:
            sizes.setdefault(there[0].label, []).append(str(m))
    equals = f"M{NO_BREAK_SPACE}={NO_BREAK_SPACE}"
    return [f"At {equals}{listed(texts)}, {label} has the smallest mean." for label, texts in sizes.items()]


def _height(best: Candidate) -> str:
    value = f"At {m_equals(best.m)}, the KL of {best.label} is {best.entry.text('kl', best.m)}"
    if best.floor is None:
        return f"{value}; no noise floor of the reference is known, so that small gaps may be the reference's own."
    if best.at_floor:
        return f"{value}: at the noise floor of {significant(best.floor, 2)}, below which the reference cannot tell."
    return f"{value}, {_in_floors(best.mean, best.floor)} the noise floor of {significant(best.floor, 2)}."


def _in_floors(mean: float, floor: float) -> str:
    return f"{significant(mean / floor, 2)}{TIMES}" if floor else "infinitely many ×"


def _standings(ranking: Ranking, m: int | None) -> list[Row]:
    best, position, standings = ranking.groups[0][0], 1, []
    for group in ranking.groups:
        mark = f"{position}{NO_BREAK_SPACE}=" if len(group) > 1 else str(position)
        standings += [_standing(one, mark, group, best, m) for one in group]
        position += len(group)
    return standings


def _standing(one: Candidate, rank: str, group: Sequence[Candidate], best: Candidate, m: int | None) -> Row:
    lead, words = gap(best, one), _judgement(one, group, best, gap(best, one))
    number = independent_draws(one.entry.stat("kl", one.m).n, one.m, one.entry.score.pool)
    error = "none" if one.error is None else significant(one.error.value, 2)
    own = one.error is None or one.error.m == one.m
    from_where = f"n\u00a0=\u00a0{number}" if own else f"from {m_equals(one.error.m if one.error else one.m)}"
    floors = "unknown" if one.floor is None else "at the floor" if one.at_floor else _in_floors(one.mean, one.floor)
    gaps = [MISSING] * 3
    if one is not best:
        gaps = [significant(number, 2) for number in (lead.difference, lead.errors, lead.floors)]
    cells = [rank, one.entry.text("kl", one.m), f"{error} ({from_where})", floors, *gaps, gain_up_to(one.entry)]
    remark = words if one.m == m else f"{words}, at {m_equals(one.m)}"
    return Row(Name(one.label, one.entry.index), [*map(Cell, cells)], remark)


def _judgement(one: Candidate, group: Sequence[Candidate], best: Candidate, lead: Gap) -> str:
    if one is best:
        return "closest" if len(group) == 1 else "smallest mean"
    if group[0] is best:
        return "too close to the closest to call"
    if lead.certainty == "within floor":
        return "farther, by less than the floor"
    if one is not group[0]:
        return f"farther; like {group[0].label}"
    return {"narrow": "narrowly farther", "unknown": "farther, not certain"}.get(lead.certainty, "farther")


def gain_up_to(entry: Entry) -> str:
    """The M from which on more members do not improve the KL measurably, in words."""
    settled = settled_from(entry, "kl")
    if settled is None:
        return MISSING
    if settled == entry.members[0]:
        return "none"
    return f"{settled}, the largest" if settled == entry.members[-1] else str(settled)


def member_gains(entries: Sequence[Entry], names: Sequence[str]) -> list[Row]:
    """From the smallest to the largest M of each entry with several M."""
    rows = []
    for entry in entries:
        if len(entry.members) > 1:
            step = f"{m_equals(entry.members[0])} → {entry.members[-1]}"
            rows.append(Row(Name(entry.label, entry.index), [member_gain(entry, name) for name in names], step))
    return rows


def member_gain(entry: Entry, name: str) -> Cell:
    """The change from the smallest to the largest M."""
    smallest, largest = entry.members[0], entry.members[-1]
    moved = member_change(entry, name, smallest, largest)
    gain = _gain(name, moved, (entry, smallest), (entry, largest))
    best, most = better_between(entry, name), mostly_reached(entry, name)
    if moved and best is not None:
        return replace(gain, note=f"best at {m_equals(best)}: {entry.texts(name, best)[0]}")
    return replace(gain, note=f"{percent(0.9)} by {m_equals(most)}") if gain.tone == "good" and most else gain


def shift_costs(inside: Sequence[Entry], outside: Sequence[Entry], names: Sequence[str]) -> list[Row]:
    """The change from one domain to another of each method on both, at the M of comparison."""
    before = {entry.label: entry for entry in inside}
    after = [entry for entry in outside if entry.label in before]
    m_of = compared_at(after)[1]
    rows = []
    for entry in after:
        start, m = before[entry.label], m_of[entry.label]
        costs = [_gain(name, domain_change(start, entry, name, m), (start, m), (entry, m)) for name in names]
        rows.append(Row(Name(entry.label, entry.index), costs, m_equals(m)))
    return rows


def _gain(name: str, moved: Change | None, before: tuple[Entry, int], after: tuple[Entry, int]) -> Cell:
    """A change with its judgement, and both values with the digits of the larger std."""
    if moved is None:
        return Cell(MISSING)
    stds = [std for entry, m in (before, after) if (std := entry.stat(name, m).std) is not None]
    spread = max(stds, default=None)
    texts = [value_text(entry.mean(name, m), spread, entry.bound(name, m)) for entry, m in (before, after)]
    word = "better" if moved.gained > 0 else "worse"
    words = {"clear": word, "narrow": f"narrowly {word}", "none": "no clear change", "unknown": "not certain"}
    tone: Tone = "same"
    if moved.certainty in ("clear", "narrow"):
        tone = "good" if moved.gained > 0 else "bad"
    return Cell(" → ".join(texts), change(moved.start, moved.end), tone=tone, word=words[moved.certainty])


def confidence_sentence(entry: Entry) -> str:
    """Over- or under-confidence at the largest M, or the direction of a ranking; empty where unknown."""
    sentences = {"gaussian": _coverage_sentence, "categorical": _accuracy_sentence, "ranking": _direction_sentence}
    return sentences[entry.kind](entry)


def _direction_sentence(entry: Entry) -> str:
    m = entry.members[-1]
    names = ("ause", "ause_inverted", "ause_inverted_noise", "ause_inverted_bound")
    given, inverted, noise, bound = (entry.mean(name, m) for name in names)
    if given is None or inverted is None:
        return ""
    facts = f"AUSE {significant(given)} as given, {significant(inverted)} inverted, {entry.chance_text('ause')}"
    backwards = points_backwards(given, inverted, noise, bound or 0.0)
    if backwards is None:
        return f"does not tell large errors from small ones at {m_equals(m)}, in either direction: {facts}."
    if backwards:
        return f"is inverted at {m_equals(m)}, the more certain, the larger its errors: {facts}."
    return f"points the right way at {m_equals(m)}: {facts}."


def _coverage_sentence(entry: Entry) -> str:
    m = entry.members[-1]
    area, signed = entry.mean("auce", m), entry.mean("auce_signed", m)
    if area is None or signed is None:
        return ""
    points = significant(100 * area / 0.98, 2)  # the levels span 0.98, so this is the mean gap
    off = f"on average, coverage is {points} percentage points off its level"
    curve = entry.curve("calibration", "coverage", m)
    at_90 = next((c for x, c in zip(curve.x, curve.mean, strict=True) if abs(x - 0.9) < 1e-6), None) if curve else None
    against = at_90 is not None and (at_90 - 0.9) * signed < 0
    words = _confidence_words(area, 0.0 if against else signed)
    held = (
        f" Its {percent(0.9)} interval holds {percent(at_90, 3)} of the {entry.counted};" if at_90 is not None else ""
    )
    return f"{words} at {m_equals(m)}.{held} {off}." if held else f"{words} at {m_equals(m)}: {off}."


def _accuracy_sentence(entry: Entry) -> str:
    m = entry.members[-1]
    confidences, accuracies, counts = (entry.curve("reliability", p, m) for p in ("confidence", "accuracy", "count"))
    if confidences is None or accuracies is None or counts is None:
        return ""
    bins = [
        (confidence, accuracy, number)
        for confidence, accuracy, number in zip(confidences.mean, accuracies.mean, counts.mean, strict=True)
        if confidence is not None and accuracy is not None and number is not None
    ]
    total = sum(number for _, _, number in bins)
    if not total:
        return ""
    confidence = sum(c * n for c, _, n in bins) / total
    accuracy = sum(a * n for _, a, n in bins) / total
    gap = sum(abs(a - c) * n for c, a, n in bins) / total
    facts = f"mean confidence {percent(confidence, 3)}, accuracy {percent(accuracy, 3)}"
    return f"{_confidence_words(gap, accuracy - confidence)} at {m_equals(m)}: {facts}."


def _confidence_words(gap: float, signed: float) -> str:
    """Over-confident if signed is below 0. gap: the mean distance between stated and actual frequency."""
    if gap < 0.01:
        return "is close to calibrated"
    if abs(signed) < 0.5 * gap:
        return "is over-confident at some levels and under-confident at others"
    return "is over-confident" if signed < 0 else "is under-confident"
