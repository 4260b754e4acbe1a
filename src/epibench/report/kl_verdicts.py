"""Which method is closest to the reference, and whether its lead exceeds the variation and the noise floor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from epibench.published import combined_error
from epibench.report.charts import lollipop
from epibench.report.entries import Stat
from epibench.report.numbers import MISSING, m_equals, measured, percent, significant
from epibench.report.page import listed
from epibench.report.runs import Method, View, common_members
from epibench.report.verdicts import Bar

CLEAR = 2.0  # a gap of so many standard errors is called clear


@dataclass(frozen=True)
class Place:
    """One method at one M, under one view."""

    method: Method
    view: View
    m: int

    @property
    def label(self) -> str:
        """The method's label."""
        return self.method.label

    @property
    def stat(self) -> Stat:
        """The KL."""
        return self.method.stat(self.view, self.m)

    @property
    def mean(self) -> float:
        """The mean KL; infinite where it is not a number."""
        mean = self.stat.mean
        return float("inf") if mean is None else mean

    @property
    def error(self) -> float | None:
        """The standard error of the mean."""
        return self.method.error(self.view, self.m)

    @property
    def floor(self) -> float | None:
        """The noise floor of the reference that it was compared with."""
        return self.method.run.floor(self.view)

    @property
    def at_floor(self) -> bool:
        """Whether the KL is no larger than that between two halves of the reference."""
        return self.floor is not None and self.mean <= self.floor

    @property
    def text(self) -> str:
        """Mean and std."""
        return measured(self.stat.mean, self.stat.std)

    @property
    def infinite(self) -> str:
        """How many draws have an infinite KL, in words, if any."""
        number, draws = self.method.num_infinite(self.view, self.m), self.stat.n
        if number and draws > 1:
            return f"infinite in {number} of {draws} draws ({percent(number / draws)})"
        return "infinite" if self.stat.mean is None else ""


@dataclass(frozen=True)
class Gap:
    """How much farther one method is than another, also in standard errors and in noise floors where known."""

    difference: float
    errors: float | None
    floors: float | None

    @property
    def words(self) -> str:
        """The gap as text."""
        parts = [f"{significant(self.errors, 2)} standard errors" if self.errors is not None else ""]
        parts.append(f"{significant(self.floors, 2)}\u00a0× the noise floor" if self.floors is not None else "")
        return f"{significant(self.difference, 2)} ({', '.join(part for part in parts if part) or 'no error known'})"


@dataclass(frozen=True)
class Standing:
    """One method's row in the table of ranks."""

    method: Method
    verdict: str
    rank: str = MISSING
    value: str = MISSING
    error: str = MISSING
    floors: str = MISSING
    gap: str = MISSING
    gap_errors: str = MISSING
    gap_floors: str = MISSING
    gain_up_to: str = MISSING


@dataclass(frozen=True)
class Verdict:
    """The answer for one view: in words, and as a table at one M."""

    headline: str
    sentences: list[str] = field(default_factory=list)
    where: str = ""
    standings: list[Standing] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)


def verdict(methods: Sequence[Method], view: View) -> Verdict:
    """Who is closest at the largest M that methods have in common, and how sure that is."""
    m, places = compared_places(methods, view)
    if not places:
        return Verdict("No KL in these results")
    where = f"At {m_equals(m)}" if m is not None else "At the largest M of each"
    found = groups(places)
    if not found:
        return Verdict("No finite KL", [f"{where}, every KL is infinite or undefined."])
    sentences = [_height(found[0][0]), *_lead(found), *_elsewhere(methods, view, found[0][0])]
    return Verdict(_headline(found), sentences, where, _standings(places, found, m), _bars(found))


def compared_places(methods: Sequence[Method], view: View) -> tuple[int | None, list[Place]]:
    """The largest M that all methods with several M share, and each method there, or else at its own largest M."""
    having = [method for method in methods if method.members(view)]
    several = [method for method in having if len(method.members(view)) > 1]
    common = common_members(several or having, view)
    m = common[-1] if common else None
    own = [m if m is not None and m in method.members(view) else method.members(view)[-1] for method in having]
    return m, [Place(method, view, size) for method, size in zip(having, own, strict=True)]


def places_at(methods: Sequence[Method], view: View, m: int) -> list[Place]:
    """The methods that have a KL at an M."""
    return [Place(method, view, m) for method in methods if m in method.members(view)]


def ranked(places: Sequence[Place]) -> list[Place]:
    """Those with a finite KL, closest first."""
    return sorted((place for place in places if place.stat.mean is not None), key=lambda place: place.mean)


def gap(closer: Place, farther: Place) -> Gap:
    """The gap between two finite KLs."""
    difference, error = farther.mean - closer.mean, combined_error(closer.error, farther.error)
    floors = [place.floor for place in (closer, farther) if place.floor]
    return Gap(difference, difference / error if error else None, difference / max(floors) if floors else None)


def indistinguishable(closer: Place, farther: Place) -> bool:
    """Whether two KLs differ by less than their combined standard error, are both at the floor, or have no error."""
    if closer.at_floor and farther.at_floor:
        return True
    errors = gap(closer, farther).errors
    return errors is None or errors < 1


def groups(places: Sequence[Place]) -> list[list[Place]]:
    """From closest to farthest; those that cannot be told from the first of a group are in it."""
    found: list[list[Place]] = []
    for place in ranked(places):
        if found and indistinguishable(found[-1][0], place):
            found[-1].append(place)
        else:
            found.append([place])
    return found


def _bars(found: Sequence[Sequence[Place]]) -> list[Bar]:
    """Each method's KL on a common logarithmic scale that starts at the noise floor, or below the smallest."""
    places = [place for group in found for place in group if place.mean > 0]
    upper = max((place.mean + (place.stat.std or 0.0) for place in places), default=1.0)
    smallest = min((place.mean for place in places), default=1.0)
    floors = [place.floor for place in places if place.floor and place.floor > smallest / 100]
    lower = min([smallest / 2, *floors])
    bars = []
    for place in places:
        words = f"{place.label}: {place.text} at {m_equals(place.m)}"
        strip = lollipop(place.stat, place.method.index, lower, upper, words, log=True)
        bars.append(Bar(place.label, place.method.index, strip, place.text))
    return bars


def _headline(found: Sequence[Sequence[Place]]) -> str:
    first = found[0]
    labels = listed([place.label for place in first])
    if len(first) == 1 and len(found) == 1:
        return f"{labels}: {first[0].text}"
    if len(first) > 1:
        reason = "at the noise floor" if all(place.at_floor for place in first) else "indistinguishable"
        return f"{labels} are {reason}" if len(found) == 1 else f"{labels} are closest, and {reason}"
    lead = gap(first[0], found[1][0])
    if lead.floors is not None and lead.floors < 1:
        return f"{labels} is closest, by less than the noise floor"
    clear = lead.errors is not None and lead.errors >= CLEAR
    return f"{labels} is closest" if clear else f"{labels} is narrowly closest"


def _height(best: Place) -> str:
    """How far the closest method is, beside the floor."""
    value, floor = f"At {m_equals(best.m)}, the KL of {best.label} is {best.text}", best.floor
    if floor is None:
        return f"{value}; no noise floor of the reference is known, so that small gaps may be the reference's own."
    if best.at_floor:
        return f"{value}: at the noise floor of {significant(floor, 2)}, below which the reference cannot tell."
    return f"{value}, {_in_floors(best.mean, floor)} the noise floor of {significant(floor, 2)}."


def _in_floors(mean: float, floor: float) -> str:
    return f"{significant(mean / floor, 2)}\u00a0×" if floor else "infinitely many ×"


def _lead(found: Sequence[Sequence[Place]]) -> list[str]:
    """How far the next method is behind, and what that is worth."""
    ordered = [place for group in found for place in group]
    if len(ordered) < 2:
        return []
    best, second = ordered[:2]
    lead = gap(best, second)
    said = f"{second.label} is next, farther by {lead.words}"
    if lead.errors is None:
        return [f"{said}: one independent draw alone does not tell whether another would turn them round."]
    if lead.floors is not None and lead.floors < 1 <= lead.errors:
        return [f"{said}: more than the draws vary, but less than another reference could change."]
    return [f"{said}."]


def _elsewhere(methods: Sequence[Method], view: View, best: Place) -> list[str]:
    """At which other M another method has the smallest mean of several."""
    others: dict[str, list[str]] = {}
    for m in best.method.members(view):
        found = ranked(places_at(methods, view, m))
        if len(found) > 1 and m != best.m and found[0].label != best.label:
            others.setdefault(found[0].label, []).append(str(m))
    return [f"At M\u00a0=\u00a0{listed(sizes)}, {label} has the smallest mean." for label, sizes in others.items()]


def _standings(places: Sequence[Place], found: Sequence[Sequence[Place]], m: int | None) -> list[Standing]:
    best, rank, standings = found[0][0], 1, []
    for group in found:
        mark = f"{rank}\u00a0=" if len(group) > 1 else str(rank)
        standings += [_standing(place, mark, group, best, m) for place in group]
        rank += len(group)
    placed = {standing.method.label for standing in standings}
    rest = [place for place in places if place.label not in placed]
    return [*standings, *(Standing(place.method, place.infinite) for place in rest)]


def _standing(place: Place, rank: str, group: Sequence[Place], best: Place, m: int | None) -> Standing:
    lead, behind = gap(best, place), place is not best
    number = place.method.num_independent(place.view, place.m)
    error = "none" if place.error is None else significant(place.error, 2)
    words = _judgement(place, group, best, lead)
    return Standing(
        method=place.method,
        verdict=words if place.m == m else f"{words}, at {m_equals(place.m)}",
        rank=rank,
        value=place.text,
        error=f"{error} (n\u00a0=\u00a0{number})",
        floors="unknown" if place.floor is None else _floors_text(place, place.floor),
        gap=significant(lead.difference, 2) if behind else MISSING,
        gap_errors=significant(lead.errors, 2) if behind else MISSING,
        gap_floors=significant(lead.floors, 2) if behind else MISSING,
        gain_up_to=gain_up_to(place.method, place.view),
    )


def _floors_text(place: Place, floor: float) -> str:
    return "at the floor" if place.at_floor else _in_floors(place.mean, floor)


def _judgement(place: Place, group: Sequence[Place], best: Place, lead: Gap) -> str:
    if place is best:
        return "closest" if len(group) == 1 else "smallest mean"
    if group[0] is best:
        return "indistinguishable from the closest"
    if lead.floors is not None and lead.floors < 1:
        return "farther, by less than the floor"
    if place is not group[0]:
        return f"farther; like {group[0].label}"
    return "farther" if lead.errors is None or lead.errors >= CLEAR else "narrowly farther"


def gain_up_to(method: Method, view: View) -> str:
    """The smallest M from which on the KL is, up to the standard error, that at the largest; none if all are."""
    places = [place for m in method.members(view) if (place := Place(method, view, m)).stat.mean is not None]
    if len(places) < 2:
        return MISSING
    last = reached = places[-1]
    for place in reversed(places[:-1]):
        error = combined_error(place.error, last.error)
        if error is None or abs(place.mean - last.mean) > error:
            break
        reached = place
    if reached is places[0]:
        return "none"
    return str(reached.m) if reached is not last else f"{last.m}, the largest"
