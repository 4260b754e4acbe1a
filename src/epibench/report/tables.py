"""The tables of results: metrics and KLs over M, and scores of files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from epibench.metrics.info import GROUPS
from epibench.report.entries import (
    Entry,
    all_members,
    comparable,
    in_words,
    metric_names,
    several_members,
    title_with_unit,
)
from epibench.report.judge import judge_at
from epibench.report.metric_info import BETTER_TEXT, metric_info
from epibench.report.numbers import significant
from epibench.report.table import Block, Cell, Column, Name, Row, Table

Part = tuple[Block, str, Sequence[Entry]]  # a block without rows, the name of a metric, entries that are compared


def member_columns(members: Iterable[int]) -> list[Column]:
    """A column for each M."""
    return [Column(Name(f"M = {m}"), points=True) for m in members]


def metric_part(name: str, entries: Sequence[Entry], title: str | None = None, meaning: str = "") -> Part:
    """A metric of entries, by default under its own title."""
    better = BETTER_TEXT[metric_info(name).better] if title is None else ""
    heading = title_with_unit(name, entries) if title is None else title
    return Block(Name(heading), better, meaning), name, entries


def metric_table(title: str, parts: Sequence[Part], members: Sequence[int], aside: str = "") -> Table:
    """A table of metrics over M: a block for each part, a row for each entry.

    members: the columns; an entry without any of them has one cell beside them.
    aside: the header of a column with the noise floor, or chance; empty for chance below the labels.
    """

    def beside(name: str, entry: Entry) -> str:
        """The noise floor of a KL; chance of other metrics at the largest M."""
        value = entry.floor if name == "kl" else entry.chance(name, entry.members[-1])
        return "" if value is None else significant(value, 2)

    shown = bool(aside) and any(beside(name, entry) for _, name, entries in parts for entry in entries)
    blocks = []
    for block, name, entries in parts:
        columns, rows = [metric_cells(name, entries, m) for m in members], []
        for i, entry in enumerate(entries):
            inside, last = bool(set(entry.members) & set(members)), entry.members[-1]
            cells = [column[i] for column in columns] if inside else metric_cells(name, [entry], last)
            first = [Cell(beside(name, entry))] if shown else []
            remark, only = "" if aside else entry.chance_text(name), "" if inside else f"M = {last}"
            rows.append(Row(Name(entry.label, entry.index), [*first, *cells], remark, only))
        blocks.append(replace(block, rows=rows))
    return Table(title, [*([Column(Name(aside), soft=True)] if shown else []), *member_columns(members)], blocks)


def metric_cells(name: str, entries: Sequence[Entry], m: int) -> list[Cell]:
    """A metric of entries at an M; the leader is best, leaders that cannot be distinguished are tied."""
    rankings = [judge_at(name, group, m) for group in comparable(entries)]
    best = {label for ranking in rankings for label in ranking.best}
    tied = {label for ranking in rankings for label in ranking.tied}
    cells = []
    for entry in entries:
        (value, spread), mean, note = entry.texts(name, m), entry.mean(name, m), entry.infinite_text(name, m)
        if mean is None and note:
            number = note.removesuffix(" infinite")
            value, note = "infinite", f"{number} values" if number != note else note.removeprefix("infinite").strip()
        elif name == "kl" and entry.floor is not None and mean is not None and mean <= entry.floor:
            note = "at the floor"
        overlaps = bool(spread) and entry.overlaps_much(m)
        cell = Cell(value, spread, entry.label in best, note, entry.label in tied, overlaps)
        cells.append(cell if m in entry.members else Cell())
    return cells


def metric_tables(entries: Sequence[Entry]) -> list[Table]:
    """A table for each group of metrics over all M, with the largest numerical error of each metric."""
    tables = []
    for group in GROUPS:
        parts = []
        for name in metric_names(entries):
            if (info := metric_info(name)).group == group:
                errors = []
                for suffix, words in (("_bound", "at most"), ("_standard_error", "standard error")):
                    values = [entry.mean(name + suffix, m) for entry in entries for m in entry.members]
                    if largest := max((value for value in values if value is not None), default=0.0):
                        errors.append(f"{words} {significant(largest, 2)}")
                error = f"Numerical error: {', '.join(errors)}." if errors else ""
                parts.append(metric_part(name, entries, meaning=f"{in_words(info.meaning, entries)} {error}"))
        if parts:
            tables.append(metric_table(group, parts, all_members(entries)))
    return tables


def kl_table(title: str, entries: Sequence[Entry], aside: str = "floor") -> Table:
    """Every KL of one view, beside the noise floor."""
    return metric_table(title, [metric_part("kl", entries, "")], several_members(entries), aside)


def score_table(title: str, entries: Sequence[Entry], names: Sequence[str]) -> Table:
    """A block for each entry, a row for each M, a column for each metric, beside chance if known."""
    columns: list[Column] = []
    rows: dict[tuple[str, int], list[Cell]] = {(entry.label, m): [] for entry in entries for m in entry.members}
    for name in [name for name in names if any(name in entry.metrics for entry in entries)]:
        columns.append(Column(Name(metric_part(name, entries)[0].heading)))
        for m in all_members(entries):
            for entry, cell in zip(entries, metric_cells(name, entries, m), strict=True):
                if m in entry.members:
                    rows[entry.label, m].append(cell)
        chances = {(entry.label, m): entry.chance(name, m) for entry in entries for m in entry.members}
        if any(chance is not None for chance in chances.values()):
            columns.append(Column(Name("chance"), soft=True))
            for key, chance in chances.items():
                rows[key].append(Cell("" if chance is None else significant(chance, 2)))
    blocks = []
    for entry in entries:
        of_entry = []
        for m in entry.members:
            draws = entry.num_draws(m)
            of_entry.append(Row(Name(f"M = {m:<4} {draws} draw{'s' if draws > 1 else ''}"), rows[entry.label, m]))
        blocks.append(Block(Name(entry.label, entry.index), rows=of_entry))
    return Table(title, columns, blocks)
