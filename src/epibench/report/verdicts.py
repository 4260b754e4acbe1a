"""The plain-language summary: who is best and how surely, what more members bought, over- or under-confidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from epibench.report.charts import lollipop
from epibench.report.entries import Entry, Stat, common_members, comparable
from epibench.report.metric_info import BETTER_TEXT, HEADLINES, MetricInfo, metric_info, sort_key
from epibench.report.numbers import change, fixed, m_equals, measured, percent, significant, value_text

CLEAR = 2.0  # a gap of so many std of the draws is called clear
CLOSE = 1.0  # and below so many it is called too close


@dataclass(frozen=True)
class Bar:
    """One file's value in a card."""

    label: str
    style: int
    strip: Markup
    text: str
    note: str = ""


@dataclass(frozen=True)
class Card:
    """One metric's values at one M, with the verdict in words."""

    title: str
    better: str
    meaning: str
    headline: str
    bars: list[Bar]
    sentences: list[str]


@dataclass(frozen=True)
class Gain:
    """What going from the smallest to the largest M did to one metric of one file."""

    values: str
    change: str
    judgement: str
    tone: str
    reached: str


def title_with_unit(info: MetricInfo, entries: Sequence[Entry]) -> str:
    """The title, with the unit if the metric has one and the files agree on it."""
    units = {entry.unit for entry in entries}
    unit = units.pop() if len(units) == 1 else ""
    return f"{info.title} ({unit})" if info.in_unit and unit else info.title


def headline_names(entries: Sequence[Entry]) -> list[str]:
    """The headline metrics that any of the files has."""
    present = {name for entry in entries for name in entry.metrics}
    return [name for name in HEADLINES.get(entries[0].kind, ()) if name in present]


def card(name: str, entries: Sequence[Entry]) -> Card:
    """A metric compared over files at their largest common M, best first."""
    info = metric_info(name)
    common = common_members(entries)
    m_of = {entry.label: common[-1] if common else entry.members[-1] for entry in entries}
    stats = {entry.label: entry.stat(name, m_of[entry.label]) for entry in entries}
    ranked = rank(entries, stats, info)
    if len(entries) == 1:
        headline, sentences = _alone(entries[0], name)
    elif len(comparable(entries)) > 1:
        headline, sentences, ranked = _range(stats), ["Not ranked: the files are of different domains."], list(entries)
    elif not common:
        headline, sentences = "No common M", ["The files share no M; each is shown at its largest."]
    else:
        headline, sentences = _verdict(ranked, name, common)
    bars = value_bars(name, ranked, m_of) if len(entries) > 1 else []
    return Card(title_with_unit(info, entries), BETTER_TEXT[info.better], info.meaning, headline, bars, sentences)


def value_bars(name: str, entries: Sequence[Entry], m_of: dict[str, int]) -> list[Bar]:
    """Each file's value at an M as a lollipop on a common scale that includes zero."""
    stats = [entry.stat(name, m_of[entry.label]) for entry in entries]
    ends = [s.mean + sign * (s.std or 0.0) for s in stats if s.mean is not None for sign in (-1, 1)]
    lower, upper = min([0.0, *ends]), max([0.0, *ends])
    bars = []
    for entry, stat in zip(entries, stats, strict=True):
        m = m_of[entry.label]
        text = measured(stat.mean, stat.std)
        words = f"{entry.label}: {text} at {m_equals(m)}"
        strip = lollipop(stat, entry.index, lower, upper, words, entry.overlaps_much(m))
        bars.append(Bar(entry.label, entry.index, strip, text, infinite_note(entry, name, m)))
    return bars


def infinite_note(entry: Entry, name: str, m: int) -> str:
    """How many values were infinite, if any."""
    number = entry.stat(f"{name}_infinite", m).mean
    if not number:
        return ""
    return f"{significant(number, 3) if number < 100 else fixed(number, 0)} infinite"


def rank(entries: Sequence[Entry], stats: dict[str, Stat], info: MetricInfo) -> list[Entry]:
    """Files from best to worst; those without a value come last."""

    def key(entry: Entry) -> tuple[bool, float]:
        mean = stats[entry.label].mean
        return mean is None, 0.0 if mean is None else sort_key(info.better, mean)

    return sorted(entries, key=key)


def _range(stats: dict[str, Stat]) -> str:
    means = [stat.mean for stat in stats.values() if stat.mean is not None]
    return f"{significant(min(means))} to {significant(max(means))}" if means else "No values"


def _alone(entry: Entry, name: str) -> tuple[str, list[str]]:
    m = entry.members[-1]
    stat, draws = entry.stat(name, m), entry.num_draws(m)
    where = f"At {m_equals(m)}, {'from one draw' if draws == 1 else f'mean and std of {draws} draws'}."
    shared = [f"{_overlap_reason(entry.overlap(m) or 0.0)}."] if entry.overlaps_much(m) else []
    return f"{measured(stat.mean, stat.std)} {infinite_note(entry, name, m)}".rstrip(), [where, *shared]


def _verdict(ranked: Sequence[Entry], name: str, common: list[int]) -> tuple[str, list[str]]:
    m = common[-1]
    first, second = ranked[0], ranked[1]
    best, next_best = first.stat(name, m), second.stat(name, m)
    if best.mean is None or next_best.mean is None:
        return "Not comparable", [f"Fewer than two files have a value at {m_equals(m)}."]
    if best.mean == next_best.mean:
        return "Equal", [f"{first.label} and {second.label} have the same value at {m_equals(m)}."]
    distance = _distance(first, second, name, m)
    lead = f"At {m_equals(m)}, {second.label} is next, {_relative(best.mean, next_best.mean)}."
    if within_numerical_error(first, second, name, m):
        return "Too close to call", [lead, "The gap is within the numerical error of the streamed values."]
    if distance is None:
        word, sentence = _without_spread(first, second, name, common)
        return f"{first.label} {word}", [lead, sentence]
    if distance < CLOSE:
        return "Too close to call", [lead, f"The gap is only {spreads(distance)}."]
    word = "leads" if distance >= CLEAR else "leads narrowly"
    return f"{first.label} {word}", [lead, f"The gap is {spreads(distance)}."]


def _relative(best: float, other: float) -> str:
    if best <= 0 or other <= 0:
        return f"{significant(abs(other - best), 2)} {'higher' if other > best else 'lower'}"
    if other >= 2 * best:
        return f"{significant(other / best, 2)} times as high"
    return f"{percent(abs(other / best - 1))} {'higher' if other > best else 'lower'}"


def spreads(distance: float) -> str:
    """A distance in std of the draws, in words."""
    return "more than 10 std of the draws" if distance > 10 else f"{significant(distance, 2)} std of the draws"


def _distance(first: Entry, second: Entry, name: str, m: int) -> float | None:
    """The gap over the larger std; None where one file's draws give no spread that can be relied on."""
    a, b = first.stat(name, m), second.stat(name, m)
    if a.mean is None or b.mean is None or a.std is None or b.std is None or max(a.std, b.std) == 0:
        return None
    if first.overlaps_much(m) or second.overlaps_much(m):
        return None
    return abs(a.mean - b.mean) / max(a.std, b.std)


def within_numerical_error(first: Entry, second: Entry, name: str, m: int) -> bool:
    """Whether streaming could have swapped two files: three standard errors if known, else the bounds."""
    errors = 0.0
    for entry in (first, second):
        standard_error = entry.stat(f"{name}_standard_error", m).mean
        bound = entry.stat(f"{name}_bound", m).mean
        errors += 3 * standard_error if standard_error is not None else bound or 0.0
    a, b = first.stat(name, m).mean, second.stat(name, m).mean
    return a is not None and b is not None and abs(a - b) <= errors


def _without_spread(first: Entry, second: Entry, name: str, common: list[int]) -> tuple[str, str]:
    """How sure a lead is where the draws at the largest M do not tell: by those at the next smaller M that do."""
    m = common[-1]
    shared = max(first.overlap(m) or 0.0, second.overlap(m) or 0.0)
    if first.overlaps_much(m) or second.overlaps_much(m):
        reason = _overlap_reason(shared)
    else:
        reason = "There is no spread of draws to judge the gap by"
    for smaller in reversed(common[:-1]):
        distance = _distance(first, second, name, smaller)
        if distance is not None:
            word, words = _earlier(first, second, name, smaller, distance)
            return word, f"{reason}; at {m_equals(smaller)} {words}."
    return "is ahead", f"{reason}."


def _overlap_reason(shared: float) -> str:
    return f"The draws share {percent(shared)} of their members there, so that their std says little"


def _earlier(first: Entry, second: Entry, name: str, m: int, distance: float) -> tuple[str, str]:
    better = metric_info(name).better
    a, b = first.stat(name, m).mean or 0.0, second.stat(name, m).mean or 0.0
    if distance < CLOSE:
        return "is ahead, not clearly", f"the two are {spreads(distance)} apart, too close to call"
    leader = first if sort_key(better, a) <= sort_key(better, b) else second
    words = f"{leader.label} is ahead by {spreads(distance)}"
    if leader is second:
        return "is ahead, not clearly", words
    return "leads" if distance >= CLEAR else "leads narrowly", words


def gain(entry: Entry, name: str) -> Gain | None:
    """What more members bought; None for one M or undefined values."""
    members, info = entry.members, metric_info(name)
    start, end = entry.stat(name, members[0]), entry.stat(name, members[-1])
    if len(members) < 2 or start.mean is None or end.mean is None:
        return None
    values = f"{value_text(start.mean, start.std)} → {value_text(end.mean, end.std)}"
    moved = sort_key(info.better, start.mean) - sort_key(info.better, end.mean)
    spread = max(entry.stat(name, m).std or 0.0 for m in members)
    if start.std is None and end.std is None:
        judgement, tone = "", "same"
    elif abs(moved) < CLOSE * spread or moved == 0:
        judgement, tone = "no clear change", "same"
    else:
        judgement, tone = ("better", "good") if moved > 0 else ("worse", "bad")
    reached = _better_before(entry, name) or (_reached(entry, name, start.mean, end.mean) if tone == "good" else "")
    return Gain(values, change(start.mean, end.mean), judgement, tone, reached)


def _better_before(entry: Entry, name: str) -> str:
    """The M in between that is better than both ends by more than the spread, if there is one."""
    better, members = metric_info(name).better, entry.members
    values = {m: stat for m in members if (stat := entry.stat(name, m)).mean is not None}
    best = min(values, key=lambda m: sort_key(better, values[m].mean or 0.0))
    for end in (members[0], members[-1]):
        lead = sort_key(better, values[end].mean or 0.0) - sort_key(better, values[best].mean or 0.0)
        if lead <= CLOSE * max(values[end].std or 0.0, values[best].std or 0.0):
            return ""
    return f"best at {m_equals(best)}: {value_text(values[best].mean, values[best].std)}"


def _reached(entry: Entry, name: str, start: float, end: float) -> str:
    for m in entry.members[1:-1]:
        mean = entry.stat(name, m).mean
        if mean is not None and (mean - start) / (end - start) >= 0.9:
            return f"{percent(0.9)} by {m_equals(m)}"
    return ""


def confidence_sentence(entry: Entry) -> str:
    """Whether a file is over- or under-confident at its largest M; empty where that is unknown."""
    return _coverage_sentence(entry) if entry.kind == "gaussian" else _accuracy_sentence(entry)


def _coverage_sentence(entry: Entry) -> str:
    m = entry.members[-1]
    area, signed = entry.stat("auce", m).mean, entry.stat("auce_signed", m).mean
    if area is None or signed is None:
        return ""
    points = significant(100 * area / 0.98, 2)  # the levels span 0.98, so this is the mean gap
    off = f"on average, coverage is {points} percentage points off its level"
    curve = entry.curve("calibration", "coverage", m)
    at_90 = next((c for x, c in zip(curve.x, curve.mean, strict=True) if abs(x - 0.9) < 1e-6), None) if curve else None
    against = at_90 is not None and (at_90 - 0.9) * signed < 0
    if area < 0.01:
        verdict = "is close to calibrated"
    elif abs(signed) < 0.5 * area or against:
        verdict = "is over-confident at some levels and under-confident at others"
    else:
        verdict = "is over-confident" if signed < 0 else "is under-confident"
    held = f" Its {percent(0.9)} interval holds {percent(at_90, 3)} of the pixels;" if at_90 is not None else ""
    return f"{verdict} at {m_equals(m)}.{held} {off}." if held else f"{verdict} at {m_equals(m)}: {off}."


def _accuracy_sentence(entry: Entry) -> str:
    m = entry.members[-1]
    parts = [entry.curve("reliability", part, m) for part in ("confidence", "accuracy", "count")]
    if any(part is None for part in parts):
        return ""
    bins = [b for b in zip(*(part.mean for part in parts if part), strict=True) if None not in b]
    total = sum(count or 0.0 for _, _, count in bins)
    if not total:
        return ""
    confidence = sum((c or 0.0) * (n or 0.0) for c, _, n in bins) / total
    accuracy = sum((a or 0.0) * (n or 0.0) for _, a, n in bins) / total
    facts = f"mean confidence {percent(confidence, 3)}, accuracy {percent(accuracy, 3)}"
    # Less than draws differ by says nothing, nor does half a point.
    if abs(confidence - accuracy) < max(0.005, entry.stat("accuracy", m).std or 0.0):
        return f"is neither over- nor under-confident on average at {m_equals(m)}: {facts}."
    side = "over" if confidence > accuracy else "under"
    return f"is {side}-confident on average at {m_equals(m)}: {facts}."
