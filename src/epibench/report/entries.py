"""One method on one domain, whether scored from a file or part of a run: what tables, charts and the judge ask."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from epibench.data.classes import class_colour
from epibench.report.metric_info import PER_CLASS, metric_info, ordered, sort_key
from epibench.report.numbers import fixed, listed, m_equals, measured, percent, significant, spread_text, value_text
from epibench.results import RGB, ClassStat, Counted, CurveFamilies, Draw, PoolSize, Score, Stat, Summary

MUCH_OVERLAP = 0.5
NO_STAT = Stat(mean=None, std=None, n=0)

Values = list[float | None]


@dataclass(frozen=True)
class ClassStyle:
    """A class: its number, its name and its colour."""

    number: int
    name: str
    colour: RGB


@dataclass(frozen=True)
class ClassStyles:
    """Names and colours as results give them; numbers, and the colours of class tables that give none, for the rest."""

    names: Sequence[str] = ()
    colours: Sequence[RGB] = ()

    def of(self, number: int) -> ClassStyle:
        """The style of a class."""
        name = self.names[number] if number < len(self.names) else f"class {number}"
        colour = self.colours[number] if number < len(self.colours) else class_colour(number)
        return ClassStyle(number, name, colour)


@dataclass(frozen=True)
class CurveAt:
    """One curve at one M: the mean over draws at each x and its std, if there is one; the draws that were kept."""

    x: list[float]
    mean: Values
    std: Values
    draws: Sequence[Values] = ()


@dataclass(frozen=True, eq=False)
class Entry:
    """One method on one domain, with a short label and a place in the order of styles."""

    index: int
    label: str
    score: Score | None
    classes: ClassStyles = ClassStyles()
    floor: float | None = None  # the noise floor, of KLs to a reference that was itself sampled

    @property
    def kind(self) -> str:
        """The kind of predictions."""
        return self.score.kind if self.score else ""

    @property
    def summary(self) -> Summary:
        """Metrics by M and name."""
        return self.score.summary if self.score else {}

    @property
    def curves(self) -> CurveFamilies:
        """Families of curves by name."""
        return self.score.curves if self.score else {}

    @property
    def draws(self) -> Sequence[Draw]:
        """All metrics of every draw."""
        return self.score.draws if self.score else ()

    @property
    def pool(self) -> PoolSize:
        """The size of the pool."""
        return self.score.pool if self.score else PoolSize(0)

    @property
    def unit(self) -> str:
        """The unit of targets, empty without one."""
        return (self.score.unit or "") if self.score else ""

    @property
    def counted(self) -> Counted:
        """The name of one target."""
        return self.score.counted if self.score else "pixels"

    @property
    def members(self) -> list[int]:
        """Every M that was scored, ascending."""
        return sorted(m for m, metrics in self.summary.items() if metrics)

    @property
    def metrics(self) -> list[str]:
        """Metrics of any M that are single numbers, in the order of the page."""
        names = [name for metrics in self.summary.values() for name, stat in metrics.items() if isinstance(stat, Stat)]
        return [name for name in ordered(names, self.kind) if not name.endswith(PER_CLASS)]

    def stat(self, name: str, m: int) -> Stat:
        """A metric at an M; without a mean where there is none."""
        stat = self.summary.get(m, {}).get(name)
        return stat if isinstance(stat, Stat) else NO_STAT

    def mean(self, name: str, m: int) -> float | None:
        """The mean of a metric over the draws of an M."""
        return self.stat(name, m).mean

    def bound(self, name: str, m: int) -> float:
        """The largest numerical error that streaming may have added to a metric."""
        return self.mean(f"{name}_bound", m) or 0.0

    def chance(self, name: str, m: int) -> float | None:
        """What an uncertainty that knows nothing would score; None for metrics that no chance is known of."""
        return self.mean(f"{name}_random", m)

    def text(self, name: str, m: int) -> str:
        """A metric as mean ± std, without digits below its numerical error."""
        stat = self.stat(name, m)
        return measured(stat.mean, stat.std, self.bound(name, m))

    def texts(self, name: str, m: int) -> tuple[str, str]:
        """The same in two parts, for columns."""
        stat, bound = self.stat(name, m), self.bound(name, m)
        return value_text(stat.mean, stat.std, bound), spread_text(stat.mean, stat.std, bound)

    def chance_text(self, name: str) -> str:
        """What chance scores at the largest M, as `chance 0.43`; empty where that is not known."""
        chance = self.chance(name, self.members[-1])
        return "" if chance is None else f"chance {significant(chance, 2)}"

    def infinite_text(self, name: str, m: int) -> str:
        """How many values of a metric were infinite, if any."""
        number = self.mean(f"{name}_infinite", m)
        if not number:
            return ""
        draws = self.num_draws(m)
        if name == "kl":  # of which there is one for each draw
            return f"infinite in {number:g} of {draws} draws ({percent(number / draws)})" if draws > 1 else "infinite"
        return f"{significant(number, 3) if number < 100 else fixed(number, 0)} infinite"

    def per_class(self, name: str, m: int) -> list[Stat]:
        """A metric of each class at an M; empty if there is none."""
        stat = self.summary.get(m, {}).get(name)
        if not isinstance(stat, ClassStat):
            return []
        stds = stat.std or [None] * len(stat.mean)
        return [Stat.model_construct(mean=a, std=b, n=stat.n) for a, b in zip(stat.mean, stds, strict=True)]

    def of_class(self, name: str, number: int) -> Entry:
        """The entry with a metric of one class as its only metric, so that it can be read and judged as any other."""
        parts = (name, f"{name}_bound")
        summary: Summary = {
            m: {part: stats[number] for part in parts if number < len(stats := self.per_class(part, m))}
            for m in self.members
        }
        return replace(self, score=self.score.model_copy(update={"summary": summary}) if self.score else None)

    def num_draws(self, m: int) -> int:
        """How many draws were scored at an M."""
        return max((stat.n for stat in self.summary.get(m, {}).values()), default=0)

    def overlap(self, m: int) -> float:
        """The share of members that two draws have in common."""
        return (self.score.overlap.get(m) if self.score else None) or 0.0

    def overlaps_much(self, m: int) -> bool:
        """Whether draws share so many members that their std says little; one draw alone has no std."""
        return self.num_draws(m) > 1 and self.overlap(m) > MUCH_OVERLAP

    def curve(self, family: str, part: str, m: int) -> CurveAt | None:
        """One curve of a family at an M, if it was kept."""
        curves = self.curves.get(family)
        curve = curves.M.get(m, {}).get(part) if curves else None
        if curves is None or curve is None or not curve.mean:
            return None
        stds = list(curve.std or [None] * len(curve.mean))
        return CurveAt(list(curves.x), list(curve.mean), stds, [list(values) for values in curve.draws or []])


def counted_in(entries: Sequence[Entry]) -> Counted:
    """What the targets of entries are called: values where they do not agree."""
    words = {entry.counted for entry in entries}
    return words.pop() if len(words) == 1 else "values"


def in_words(text: str, entries: Sequence[Entry]) -> str:
    """A text about pixels, for entries that have perhaps samples, values or points instead."""
    word = counted_in(entries)
    return re.sub(r"\bpixel(s?)\b", lambda match: word if match[1] else word[:-1], text)


def all_members(entries: Sequence[Entry]) -> list[int]:
    """Every M that any entry was scored at."""
    return sorted({m for entry in entries for m in entry.members})


def common_members(entries: Sequence[Entry]) -> list[int]:
    """Every M that all of the entries were scored at."""
    return sorted(set.intersection(*(set(entry.members) for entry in entries))) if entries else []


def several_members(entries: Sequence[Entry]) -> list[int]:
    """Every M for an axis or a table; the M = 1 of point estimates has no column where all others have more members."""
    members = all_members([entry for entry in entries if entry.members != [1]])
    return members if len(members) > 1 else all_members(entries)


def comparable(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Entries in groups whose numbers can be compared: one domain, one unit."""
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.score.domain if entry.score else "", entry.unit), []).append(entry)
    return list(groups.values())


def metric_names(entries: Sequence[Entry]) -> list[str]:
    """All metrics that any entry has, in the order of the page."""
    return ordered((name for entry in entries for name in entry.metrics), entries[0].kind) if entries else []


def title_with_unit(name: str, entries: Sequence[Entry]) -> str:
    """The title of a metric, with the unit if it has one and the entries agree on it."""
    info, units = metric_info(name), {entry.unit for entry in entries}
    unit = units.pop() if len(units) == 1 else ""
    return f"{info.title} ({unit})" if info.in_unit and unit else info.title


def mean_error(name: str, entries: Sequence[Entry]) -> float | None:
    """How bad a metric is in the mean over entries, each at its largest M; the larger, the worse."""
    means = [entry.mean(name, entry.members[-1]) for entry in entries]
    keys = [sort_key(metric_info(name).better, mean) for mean in means if mean is not None]
    return sum(keys) / len(keys) if keys else None


def overlap_warnings(entries: Sequence[Entry]) -> list[str]:
    """A sentence for the entries whose draws share most of their members, together where they share alike."""
    labels: dict[str, list[str]] = {}
    for entry in entries:
        shares = [f"{percent(entry.overlap(m))} at {m_equals(m)}" for m in entry.members if entry.overlaps_much(m)]
        if shares and entry.label not in (of_shares := labels.setdefault(listed(shares, 4), [])):
            of_shares.append(entry.label)
    return [
        f"{listed(names)}: two draws share more than {percent(MUCH_OVERLAP)} of their members ({shares}). "
        "The std there says little about how much another set of members would differ."
        for shares, names in labels.items()
    ]
