"""What a shift takes from each class: a metric of every class on two domains, those that suffer most first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from epibench.report.class_styles import ClassStyle, ClassStyles
from epibench.report.class_tables import bar_end, bar_share, pixel_shares, pixel_text, styles_of
from epibench.report.domain_verdicts import compared_at
from epibench.report.domains import Domain
from epibench.report.entries import Entry, Stat
from epibench.report.metric_info import MetricInfo, metric_info, sort_key
from epibench.report.numbers import change, fixed, significant
from epibench.report.page import listed

NOTEWORTHY = 3  # classes that are named in a sentence
LARGE = 10.0  # from here on three decimals are too many


@dataclass(frozen=True)
class ShiftCell:
    """What a shift does to one class of a method: both values, and what lies between them on a bar."""

    text: str
    change: str
    tone: str
    low: float = 0.0
    high: float = 0.0


@dataclass(frozen=True)
class ShiftRow:
    """One class of a domain, for every method."""

    style: ClassStyle
    pixels: str
    cells: list[ShiftCell]
    lost: float | None  # the mean over methods; the larger, the worse
    nothing: bool  # whether there was nothing to lose


@dataclass(frozen=True)
class ShiftTable:
    """Every class of a domain, those that suffer most first; beside the domain trained for where there is one."""

    domain: Domain
    before: Domain | None
    entries: Sequence[Entry]
    finding: str
    with_pixels: bool
    rows: list[ShiftRow]


def shift_table(
    name: str, before: tuple[Domain, Sequence[Entry]] | None, after: tuple[Domain, Sequence[Entry]]
) -> ShiftTable | None:
    """A metric of every class of one domain beside that of the classes of the same name of another."""
    domain, entries = after
    columns, starts = _at_comparison(name, entries), _starts(name, before, entries)
    count = max((len(column) for column in columns), default=0)
    if count == 0:
        return None
    info, styles, pixels = metric_info(name), styles_of(entries), pixel_shares(entries, count)
    means = [stat.mean for column in columns for stat in column]
    end = bar_end(name, [*means, *(mean for start in starts for mean in start.values())])
    rows = []
    for k in range(count):
        style = styles.of(k)
        values = [column[k].mean if k < len(column) else None for column in columns]
        olds = [start.get(style.name) for start in starts]
        cells = [_shift_cell(info, old, value, end) for old, value in zip(olds, values, strict=True)]
        nothing = info.better == "higher" and set(olds) == {0.0}
        rows.append(ShiftRow(style, pixel_text(pixels[k]), cells, _lost(info, olds, values, any(starts)), nothing))
    rows.sort(key=lambda row: (row.lost is None, row.nothing, -(row.lost or 0.0), -(pixels[row.style.number] or 0.0)))
    shown = before[0] if before and any(starts) else None
    return ShiftTable(domain, shown, entries, _finding(info, rows, shown), any(row.pixels for row in rows), rows)


def _at_comparison(name: str, entries: Sequence[Entry]) -> list[list[Stat]]:
    _, m_of = compared_at(entries)
    return [entry.per_class(name, m_of[entry.label]) for entry in entries]


def _starts(
    name: str, before: tuple[Domain, Sequence[Entry]] | None, entries: Sequence[Entry]
) -> list[dict[str, float | None]]:
    """For each entry the value of each class on the other domain, by the name of the class, at the same M."""
    _, m_of = compared_at(entries)
    others = {entry.label: entry for entry in before[1]} if before else {}
    found = []
    for entry in entries:
        other = others.get(entry.label)
        stats = other.per_class(name, m_of[entry.label]) if other else []
        styles = styles_of([other]) if other else ClassStyles()
        found.append({styles.of(k).name: stat.mean for k, stat in enumerate(stats)})
    return found


def _shift_cell(info: MetricInfo, old: float | None, value: float | None, end: float) -> ShiftCell:
    if value is None or old is None:
        shown = bar_share(value, end) or 0.0
        return ShiftCell(_digits(value), "", "same", shown, shown)
    low, high = sorted((bar_share(old, end) or 0.0, bar_share(value, end) or 0.0))
    lost = sort_key(info.better, value) - sort_key(info.better, old)
    tone = "same" if info.better == "neither" or lost == 0 else "bad" if lost > 0 else "good"
    changed = change(old, value) if old != value else ""
    return ShiftCell(f"{_digits(old)} → {_digits(value)}", changed, tone, low, high)


def _digits(value: float | None) -> str:
    return fixed(value, 3) if value is not None and abs(value) < LARGE else significant(value, 3)


def _lost(info: MetricInfo, olds: Sequence[float | None], values: Sequence[float | None], beside: bool) -> float | None:
    """How much worse a class is than before, in the mean over methods; beside nothing, how bad it is."""
    if info.better == "neither":
        return None
    if not beside:
        olds = [0.0] * len(values)
    pairs = [(old, value) for old, value in zip(olds, values, strict=True) if old is not None and value is not None]
    found = [sort_key(info.better, value) - sort_key(info.better, old) for old, value in pairs]
    return sum(found) / len(found) if found else None


def _finding(info: MetricInfo, rows: Sequence[ShiftRow], before: Domain | None) -> str:
    """The classes that suffer most, in a sentence; empty without another domain, or where none does."""
    known = [row for row in rows if row.lost is not None and not row.nothing]
    worse = [row.style.name for row in known if row.lost is not None and row.lost > 0][:NOTEWORTHY]
    if before is None or not worse:
        return ""
    title, spared = info.title.removesuffix(" per class"), known[-1].style.name
    rest = f", {spared} least" if spared not in worse else ""
    verb = "suffers" if len(worse) == 1 else "suffer"
    number = sum(row.nothing for row in rows)
    nothing = f" {number} of {len(rows)} classes have {title} 0 on {before.label} already." if number else ""
    return f"By {title}, {listed(worse)} {verb} most{rest}.{nothing}"
