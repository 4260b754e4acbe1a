"""Tables of metrics that have a value for each class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from epibench.report.class_styles import ClassStyle, ClassStyles
from epibench.report.entries import Entry, Stat, common_members
from epibench.report.metric_info import BETTER_TEXT, PER_CLASS, MetricInfo, metric_info, ordered, sort_key
from epibench.report.numbers import aligned, m_equals, percent, spread_text, value_text

SHARE = "share_per_class"
FIRST = tuple(f"{name}{PER_CLASS}" for name in ("iou", "accuracy", "ause", "ece", "brier", "nll"))
UP_TO_ONE = ("iou_per_class", "accuracy_per_class")  # their bars end at 1, those of the others at the largest value


@dataclass(frozen=True)
class ClassCell:
    """A file's value for a class, as aligned text; share: of the length of a bar."""

    value: str
    spread: str
    share: float | None = None
    best: bool = False


@dataclass(frozen=True)
class ClassRow:
    """The values of one class."""

    style: ClassStyle
    pixels: str  # the share of pixels; empty where that is not known
    cells: list[ClassCell]


@dataclass(frozen=True)
class PerClassTable:
    """One metric of every class and file."""

    title: str
    better: str
    meaning: str
    m: str
    spread_width: int
    rows: list[ClassRow]
    with_pixels: bool
    coloured: bool


def per_class_names(entries: Sequence[Entry]) -> list[str]:
    """The metrics that any entry has for each class, in the order of the page; not the share of pixels."""
    names = dict.fromkeys(name for entry in entries for metrics in entry.summary.values() for name in metrics)
    found = [name for name in ordered(names, "categorical") if name.endswith(PER_CLASS) and name != SHARE]
    having = [name for name in found if any(entry.per_class(name, m) for entry in entries for m in entry.members)]
    return [*(name for name in FIRST if name in having), *(name for name in having if name not in FIRST)]


def class_tables(entries: Sequence[Entry]) -> list[PerClassTable]:
    """A table for each metric, at the largest common M or else at each file's largest."""
    found = [_class_table(name, entries) for name in per_class_names(entries)]
    return [table for table in found if table is not None]


def _class_table(name: str, entries: Sequence[Entry]) -> PerClassTable | None:
    common = common_members(entries)
    m_of = [common[-1] if common else entry.members[-1] for entry in entries]
    columns = [entry.per_class(name, m) for entry, m in zip(entries, m_of, strict=True)]
    count = max(len(column) for column in columns)
    if count == 0:
        return None
    info, styles, pixels = metric_info(name), styles_of(entries), pixel_shares(entries, count)
    end = bar_end(name, [stat.mean for column in columns for stat in column])
    cells = [_cells(column, count, end) for column in columns]
    keys = [[_key(info, column, k) for column in columns] for k in range(count)]
    rows = [
        ClassRow(styles.of(k), pixel_text(pixels[k]), _with_best([column[k] for column in cells], keys[k]))
        for k in range(count)
    ]
    where = f"at {m_equals(common[-1])}" if common else "at each file's largest M"
    width = max((len(cell.spread) for row in rows for cell in row.cells), default=0)
    with_pixels = any(share is not None for share in pixels)
    return PerClassTable(
        info.title, BETTER_TEXT[info.better], info.meaning, where, width, rows, with_pixels, bool(styles.colours)
    )


def styles_of(entries: Sequence[Entry]) -> ClassStyles:
    """Names and colours from the first file that has names."""
    raw = next((entry.raw for entry in entries if entry.raw.get("class_names")), {})
    return ClassStyles(raw.get("class_names") or (), raw.get("class_colours") or ())


def pixel_shares(entries: Sequence[Entry], count: int) -> list[float | None]:
    """The share of pixels of each class, from the first file that has it."""
    found = next((stats for entry in entries if (stats := entry.per_class(SHARE, entry.members[-1]))), [])
    return [found[k].mean if k < len(found) else None for k in range(count)]


def bar_end(name: str, values: Sequence[float | None]) -> float:
    """The value at which bars are full."""
    if name in UP_TO_ONE:
        return 1.0
    return max((abs(value) for value in values if value is not None), default=0.0) or 1.0


def pixel_text(share: float | None) -> str:
    """A share of pixels in per cent; empty where it is not known."""
    return "" if share is None else percent(share)


def _cells(stats: Sequence[Stat], count: int, end: float) -> list[ClassCell]:
    padded = [*stats, *[Stat(None, None, 0)] * (count - len(stats))]
    values = aligned([value_text(s.mean, s.std) for s in padded])
    return [
        ClassCell(value, spread_text(s.mean, s.std), bar_share(s.mean, end))
        for value, s in zip(values, padded, strict=True)
    ]


def bar_share(value: float | None, end: float) -> float | None:
    """How long the bar of a value is; None where there is none."""
    return None if value is None else min(max(value / end, 0.0), 1.0)


def _key(info: MetricInfo, stats: Sequence[Stat], k: int) -> float | None:
    mean = stats[k].mean if k < len(stats) else None
    return None if mean is None or info.better == "neither" else sort_key(info.better, mean)


def _with_best(cells: list[ClassCell], keys: Sequence[float | None]) -> list[ClassCell]:
    known = [key for key in keys if key is not None]
    if len(set(known)) < 2:
        return cells
    return [replace(cell, best=key == min(known)) for cell, key in zip(cells, keys, strict=True)]
