"""Tables of means and stds per M and file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from epibench.report.entries import Entry, comparable
from epibench.report.metric_info import BETTER_TEXT, GROUPS, metric_info, ordered, sort_key
from epibench.report.numbers import aligned, significant, spread_text, value_text
from epibench.report.verdicts import infinite_note, title_with_unit

OVERLAP_MARK = "°"


@dataclass(frozen=True)
class Cell:
    """One number in a table, as aligned text."""

    value: str
    spread: str
    best: bool = False
    note: str = ""


@dataclass(frozen=True)
class Row:
    """One file's numbers."""

    label: str
    style: int
    cells: list[Cell]


@dataclass(frozen=True)
class Block:
    """One metric's rows."""

    title: str
    better: str
    meaning: str
    numerical_error: str
    rows: list[Row]


@dataclass(frozen=True)
class Table:
    """A group of metrics over all M."""

    title: str
    columns: list[int]
    spread_width: int
    blocks: list[Block]


def metric_names(entries: Sequence[Entry]) -> list[str]:
    """All metrics that any file has, in the order of the page."""
    return ordered((name for entry in entries for name in entry.metrics), entries[0].kind)


def all_members(entries: Sequence[Entry]) -> list[int]:
    """Every M that any file was scored at."""
    return sorted({m for entry in entries for m in entry.members})


def metric_tables(entries: Sequence[Entry]) -> list[Table]:
    """One table for each group of metrics."""
    names, columns = metric_names(entries), all_members(entries)
    tables = []
    for group in GROUPS:
        blocks = [_block(name, entries, columns) for name in names if metric_info(name).group == group]
        if blocks:
            width = spread_width(row for block in blocks for row in block.rows)
            tables.append(Table(group, columns, width, blocks))
    return tables


def spread_width(rows: Iterable[Row]) -> int:
    """Characters that the widest std takes, so that all cells of a table can reserve them."""
    return max((len(cell.spread) for row in rows for cell in row.cells if cell.spread.startswith("±")), default=0)


def _block(name: str, entries: Sequence[Entry], columns: list[int]) -> Block:
    info = metric_info(name)
    by_column = [_column(name, entries, m) for m in columns]
    rows = [Row(entry.label, entry.index, [column[i] for column in by_column]) for i, entry in enumerate(entries)]
    title = title_with_unit(info, entries)
    return Block(title, BETTER_TEXT[info.better], info.meaning, _numerical_error(name, entries), rows)


def _column(name: str, entries: Sequence[Entry], m: int) -> list[Cell]:
    stats = [entry.stat(name, m) for entry in entries]
    best = {label for group in comparable(entries) for label in best_labels(name, group, m)}
    values = aligned([value_text(s.mean, s.std) if _scored(e, m) else "" for e, s in zip(entries, stats, strict=True)])
    cells = []
    for entry, stat, value in zip(entries, stats, values, strict=True):
        mark = OVERLAP_MARK if entry.overlaps_much(m) and stat.std is not None and stat.mean is not None else ""
        infinite = infinite_note(entry, name, m)
        spread = infinite if stat.mean is None else spread_text(stat.mean, stat.std) + mark
        cells.append(Cell(value, spread, entry.label in best, "" if stat.mean is None else infinite))
    return cells


def _scored(entry: Entry, m: int) -> bool:
    return m in entry.members


def best_labels(name: str, entries: Sequence[Entry], m: int) -> set[str]:
    """The files with the best mean of a metric at an M; none where there is nothing to compare."""
    better = metric_info(name).better
    keys = {entry.label: sort_key(better, mean) for entry in entries if (mean := entry.stat(name, m).mean) is not None}
    if better == "neither" or len(keys) < 2:
        return set()
    return {label for label, key in keys.items() if key == min(keys.values())}


def _numerical_error(name: str, entries: Sequence[Entry]) -> str:
    """The largest error that streaming may have added, and what chance would score, in words; empty if neither is."""
    texts = []
    for suffix, words in (("_bound", "at most"), ("_standard_error", "standard error")):
        found = [entry.stat(name + suffix, m).mean for entry in entries for m in entry.members]
        largest = max((value for value in found if value is not None), default=0.0)
        if largest:
            texts.append(f"{words} {significant(largest, 2)}")
    found = [entry.stat(f"{name}_random", entry.members[-1]).mean for entry in entries]
    chance = ", ".join(significant(value, 2) for value in dict.fromkeys(found) if value is not None)
    said = [f"Numerical error: {', '.join(texts)}."] if texts else []
    return " ".join([*said, f"By chance: {chance}."] if chance else said)
