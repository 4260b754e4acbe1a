"""A method on a domain, as tables, charts and the judge read it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from epibench.data.classes import class_colour
from epibench.report.metric_info import PER_CLASS, metric_info, ordered
from epibench.report.numbers import fixed, listed, m_equals, measured, percent, significant, spread_text, value_text
from epibench.results import RGB, ClassStat, Counted, Score, Stat

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
    """Names and colours of classes in results; `class 3` and a default colour where results have none."""

    names: Sequence[str] = ()
    colours: Sequence[RGB] = ()

    def of(self, number: int) -> ClassStyle:
        """The style of a class."""
        name = self.names[number] if number < len(self.names) else f"class {number}"
        colour = self.colours[number] if number < len(self.colours) else class_colour(number)
        return ClassStyle(number, name, colour)


@dataclass(frozen=True)
class CurveAt:
    """A curve at one M: mean and std over draws at each x, and single draws if kept."""

    x: list[float]
    mean: Values
    std: Values
    draws: Sequence[Values] = ()


@dataclass(frozen=True, eq=False)
class Entry:
    """A method on one domain, with its label and style. floor: noise floor of KLs."""

    index: int
    label: str
    score: Score
    classes: ClassStyles = ClassStyles()
    floor: float | None = None

    @property
    def kind(self) -> str:
        """The kind of predictions."""
        return self.score.kind

    @property
    def unit(self) -> str:
        """The unit of targets; empty if unknown."""
        return self.score.unit or ""

    @property
    def counted(self) -> Counted:
        """The name of targets."""
        return self.score.counted

    @property
    def members(self) -> list[int]:
        """Every scored M, ascending."""
        return sorted(m for m, metrics in self.score.summary.items() if metrics)

    @property
    def metrics(self) -> list[str]:
        """Metrics of any M with one value, in the order of the page."""
        names = [
            name for metrics in self.score.summary.values() for name, stat in metrics.items() if isinstance(stat, Stat)
        ]
        return [name for name in ordered(names, self.kind) if not name.endswith(PER_CLASS)]

    def stat(self, name: str, m: int) -> Stat:
        """A metric at an M; its mean is None if unknown."""
        stat = self.score.summary.get(m, {}).get(name)
        return stat if isinstance(stat, Stat) else NO_STAT

    def mean(self, name: str, m: int) -> float | None:
        """The mean of a metric over the draws of an M."""
        return self.stat(name, m).mean

    def bound(self, name: str, m: int) -> float:
        """The largest possible numerical error of a metric from streaming."""
        return self.mean(f"{name}_bound", m) or 0.0

    def chance(self, name: str, m: int) -> float | None:
        """The score of a random uncertainty; None if unknown."""
        return self.mean(f"{name}_random", m)

    def text(self, name: str, m: int) -> str:
        """A metric as mean ± std, without digits below its numerical error."""
        stat = self.stat(name, m)
        return measured(stat.mean, stat.std, self.bound(name, m))

    def texts(self, name: str, m: int) -> tuple[str, str]:
        """The mean and `± std` of a metric as two texts."""
        stat, bound = self.stat(name, m), self.bound(name, m)
        return value_text(stat.mean, stat.std, bound), spread_text(stat.mean, stat.std, bound)

    def chance_text(self, name: str) -> str:
        """Chance at the largest M, e.g. `chance 0.43`; empty if unknown."""
        chance = self.chance(name, self.members[-1])
        return "" if chance is None else f"chance {significant(chance, 2)}"

    def infinite_text(self, name: str, m: int) -> str:
        """The number of infinite values of a metric; empty if 0."""
        number = self.mean(f"{name}_infinite", m)
        if not number:
            return ""
        draws = self.num_draws(m)
        if name == "kl":  # of which there is one for each draw
            return f"infinite in {number:g} of {draws} draws ({percent(number / draws)})" if draws > 1 else "infinite"
        return f"{significant(number, 3) if number < 100 else fixed(number, 0)} infinite"

    def per_class(self, name: str, m: int) -> list[Stat]:
        """A metric of each class at an M; empty without such a metric."""
        stat = self.score.summary.get(m, {}).get(name)
        if not isinstance(stat, ClassStat):
            return []
        stds = stat.std or [None] * len(stat.mean)
        return [Stat.model_construct(mean=a, std=b, n=stat.n) for a, b in zip(stat.mean, stds, strict=True)]

    def of_class(self, name: str, number: int) -> Entry:
        """The entry with a metric of one class as its only metric."""
        parts = (name, f"{name}_bound")
        summary = {
            m: {part: stats[number] for part in parts if number < len(stats := self.per_class(part, m))}
            for m in self.members
        }
        return replace(self, score=self.score.model_copy(update={"summary": summary}))

    def num_draws(self, m: int) -> int:
        """The number of draws at an M."""
        return max((stat.n for stat in self.score.summary.get(m, {}).values()), default=0)

    def overlaps_much(self, m: int) -> bool:
        """Whether several draws share most of their members, so that their std means little."""
        return self.num_draws(m) > 1 and (self.score.overlap.get(m) or 0.0) > MUCH_OVERLAP

    def curve(self, family: str, part: str, m: int) -> CurveAt | None:
        """A curve of a family at an M, if kept."""
        curves = self.score.curves.get(family)
        curve = curves.M.get(m, {}).get(part) if curves else None
        if curves is None or curve is None or not curve.mean:
            return None
        stds = curve.std or [None] * len(curve.mean)
        return CurveAt(curves.x, [*curve.mean], [*stds], [[*values] for values in curve.draws])


def counted_in(entries: Sequence[Entry]) -> Counted:
    """The name of targets; `values` if entries differ."""
    words = {entry.counted for entry in entries}
    return words.pop() if len(words) == 1 else "values"


def in_words(text: str, entries: Sequence[Entry]) -> str:
    """A text about pixels, with the name of the targets of entries instead."""
    word = counted_in(entries)
    return re.sub(r"\bpixel(s?)\b", lambda match: word if match[1] else word[:-1], text)


def all_members(entries: Sequence[Entry]) -> list[int]:
    """Every M of any entry, ascending."""
    return sorted({m for entry in entries for m in entry.members})


def several_members(entries: Sequence[Entry]) -> list[int]:
    """Every M of a table or axis; without M = 1 if only point estimates have it."""
    members = all_members([entry for entry in entries if entry.members != [1]])
    return members if len(members) > 1 else all_members(entries)


def comparable(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Groups of entries with one domain and unit."""
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.score.domain, entry.unit), []).append(entry)
    return list(groups.values())


def metric_names(entries: Sequence[Entry]) -> list[str]:
    """Metrics of any entry, in the order of the page."""
    return ordered((name for entry in entries for name in entry.metrics), entries[0].kind) if entries else []


def title_with_unit(name: str, entries: Sequence[Entry]) -> str:
    """The title of a metric, with its unit if all entries share it."""
    info, units = metric_info(name), {entry.unit for entry in entries}
    unit = units.pop() if len(units) == 1 else ""
    return f"{info.title} ({unit})" if info.in_unit and unit else info.title


def overlap_warnings(entries: Sequence[Entry]) -> list[str]:
    """Sentences that name entries whose draws share most of their members."""
    labels: dict[str, list[str]] = {}
    for entry in entries:
        shares = [
            f"{percent(entry.score.overlap[m] or 0.0)} at {m_equals(m)}"
            for m in entry.members
            if entry.overlaps_much(m)
        ]
        if shares and entry.label not in (of_shares := labels.setdefault(listed(shares, 4), [])):
            of_shares.append(entry.label)
    return [
        f"{listed(names)}: two draws share more than {percent(MUCH_OVERLAP)} of their members ({shares}). "
        "The std there says little about how much another set of members would differ."
        for shares, names in labels.items()
    ]
