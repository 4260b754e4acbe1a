"""The KL to the reference over M: a chart with the noise floor and a table for each view, and ours beside published."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from epibench.published import Cell as PublishedCell
from epibench.report.charts import Decor, Layer, Series, line_chart
from epibench.report.figures import Figure, axis_members, band_ends, lines_of, within_reach
from epibench.report.kl_verdicts import Place, groups, places_at
from epibench.report.numbers import MISSING, aligned, m_equals, measured, significant, spread_text, value_text
from epibench.report.runs import CONVENTIONS, DIRECTIONS, REGIONS, Method, View
from epibench.report.svg import log_axis, member_axis, nice_axis
from epibench.report.tables import Cell, Row, spread_width

WIDTH, LEAST_HEIGHT = 460.0, 335.0
SMALL = (300.0, 200.0)
FAR = 30.0  # a level that is so many times as large as all lines is named, not drawn
FARTHEST_BELOW = 100.0  # a floor that is smaller than the smallest KL by more than this is named, not drawn


@dataclass(frozen=True)
class KlRow:
    """One method's KLs over M, beside the noise floor of its reference; of a point estimate, its only one in words."""

    row: Row
    floor: str
    only: str = ""


@dataclass(frozen=True)
class KlTable:
    """All KLs of one view."""

    columns: list[int]
    spread_width: int
    rows: list[KlRow]


def view_name(view: View) -> str:
    """A view in words."""
    return f"{DIRECTIONS[view.direction]}, {REGIONS[view.region]}, {CONVENTIONS[view.convention]}"


def kl_chart(methods: Sequence[Method], view: View) -> Markup | None:
    """KL over M on logarithmic axes, ± std as bands, the noise floor as a shaded zone; None without any KL."""
    members = axis_members([method.members(view) for method in methods])
    series = [_series(method, view, members) for method in methods if method.members(view)]
    ends = list(_ends(lines_of(series)))
    if not ends:
        return None
    drawn, remarks = within_reach(series, min(ends) / FAR, max(ends) * FAR)
    ends += _ends(drawn)
    floors = distinct_floors(methods, view)
    near = [(floor, name) for floor, name in floors if floor * FARTHEST_BELOW >= min(ends)]
    lower = min([min(ends) / 1.25, *(floor / 1.9 for floor, _ in near)])
    y_axis = log_axis(lower, max(ends) * 1.15, DIRECTIONS[view.direction])
    below = [(0.02, 0.03, "start", f"{name}, below this chart") for floor, name in floors if (floor, name) not in near]
    parts = [*(f"{s.label} from {s.texts[0]} to {s.texts[-1]}" for s in series), *(name for _, name in floors)]
    return line_chart(
        [Layer(drawn, {m: m_equals(m) for m in members})],
        member_axis(members, WIDTH - 60),
        y_axis,
        f"{view_name(view)}, over {m_equals(members[0])} to {members[-1]}: {'; '.join(parts)}",
        # As tall as the list of methods beside it.
        size=(WIDTH, max(LEAST_HEIGHT, 240.0 + 26 * len(series))),
        decor=Decor(markers=True, floors=near, remarks=[*remarks, *below[:1]]),
    )


def _series(method: Method, view: View, axis: Sequence[int]) -> Series:
    """A method's KL over M; that of a point estimate is a level, if its M = 1 has no place on the axis."""
    sizes = method.members(view)
    level = not set(sizes) & set(axis)
    stats = [method.stat(view, m) for m in sizes * len(axis)] if level else [method.stat(view, m) for m in sizes]
    return Series(
        f"{method.label} ({m_equals(sizes[0])})" if level else method.label,
        method.index,
        axis if level else sizes,
        # Zero has no place on a logarithmic axis.
        [stat.mean if stat.mean is not None and stat.mean > 0 else None for stat in stats],
        [None if level else stat.std for stat in stats],
        [measured(stat.mean, stat.std) for stat in stats],
        look="level" if level else "file",
        name=method.label,
    )


def _ends(series: Iterable[Series]) -> Iterable[float]:
    """Ends of bands; those near zero would stretch a logarithmic axis and are cut at a third of their mean."""
    for one in series:
        for y, std in zip(one.y, one.std, strict=True):
            if y is not None:
                yield from (max(y - (std or 0.0), y / 3), y + (std or 0.0))


def distinct_floors(methods: Sequence[Method], view: View) -> list[tuple[float, str]]:
    """The noise floors of the runs, each once, with its name; runs are named where they differ."""
    runs: dict[float, list[str]] = {}
    for method in methods:
        floor = method.run.floor(view)
        if floor is not None and floor > 0 and method.run.name not in runs.setdefault(floor, []):
            runs[floor].append(method.run.name)
    several = len(runs) > 1
    return [
        (floor, f"noise floor {significant(floor, 2)}{f' ({names[0]})' if several else ''}")
        for floor, names in runs.items()
    ]


def kl_table(methods: Sequence[Method], view: View) -> KlTable:
    """Every KL of a view; the smallest mean of an M is bold, those that cannot be told from it are marked."""
    having = [method for method in methods if method.members(view)]
    columns = axis_members([method.members(view) for method in having])
    by_column = [_column(having, view, m) for m in columns]
    rows = []
    for i, method in enumerate(having):
        row = Row(method.label, method.index, [column[i] for column in by_column])
        rows.append(KlRow(row, _floor_text(method, view), _only(method, view, columns)))
    return KlTable(columns, spread_width(row.row for row in rows), rows)


def _only(method: Method, view: View, columns: Sequence[int]) -> str:
    """The KL of a method whose M has no column."""
    sizes = method.members(view)
    if set(sizes) & set(columns):
        return ""
    place = Place(method, view, sizes[-1])
    return f"{place.infinite or place.text} at {m_equals(place.m)}"


def _floor_text(method: Method, view: View) -> str:
    floor = method.run.floor(view)
    return MISSING if floor is None else significant(floor, 2)


def _column(methods: Sequence[Method], view: View, m: int) -> list[Cell]:
    places = {place.label: place for place in places_at(methods, view, m)}
    found = groups(list(places.values()))
    closest = [place.label for place in found[0]] if found and len(places) > 1 else []
    stats = {label: place.stat for label, place in places.items()}
    values = aligned([value_text(s.mean, s.std) if (s := stats.get(o.label)) else "" for o in methods])
    cells = []
    for method, value in zip(methods, values, strict=True):
        if method.label not in places:
            cells.append(Cell(value, ""))
            continue
        place, stat = places[method.label], stats[method.label]
        tied = " ≈" if method.label in closest and len(closest) > 1 else ""
        note = "at the floor" if place.at_floor else place.infinite
        cells.append(Cell(value, spread_text(stat.mean, stat.std) + tied, method.label in closest[:1], note))
    return cells


def published_figure(method: Method, cells: Sequence[PublishedCell], metric: str = "") -> tuple[Method, Figure]:
    """A method's numbers over M, and the published line in grey; those of a metric are named after it."""
    title = f"{method.label}: {metric}" if metric else method.label
    return method, Figure(title, "", chart=_published_chart(method, cells, title, log=not metric))


def _published_chart(method: Method, cells: Sequence[PublishedCell], title: str, log: bool) -> Markup:
    x = [cell.row.members for cell in cells]
    theirs = Series(
        "published",
        method.index,
        x,
        [cell.row.mean for cell in cells],
        [cell.row.std for cell in cells],
        [measured(cell.row.mean, cell.row.std) for cell in cells],
        look="published",
    )
    means = [cell.mean if cell.mean else None for cell in cells]
    texts = [measured(cell.mean, cell.std) for cell in cells]
    ours = Series("ours", method.index, x, means, [cell.std for cell in cells], texts)
    ends = list(_ends([theirs, ours]) if log else band_ends([theirs, ours]))
    y_axis = log_axis(min(ends) / 1.15, max(ends) * 1.15) if log else nice_axis(min(ends), max(ends))
    return line_chart(
        [Layer([theirs, ours], {m: m_equals(m) for m in x})],
        member_axis(x, SMALL[0] - 60),
        y_axis,
        f"{title}, ours and published over M",
        size=SMALL,
        decor=Decor(markers=True),
    )
