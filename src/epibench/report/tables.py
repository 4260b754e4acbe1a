"""Tables of pages: metrics and KLs over M, metrics of every class, and what a shift takes from each class."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from epibench.metrics.info import GROUPS, MetricInfo
from epibench.report.entries import (
    ClassStyles,
    Entry,
    all_members,
    comparable,
    counted_in,
    in_words,
    metric_names,
    several_members,
    title_with_unit,
)
from epibench.report.judge import compared_at, judge, judge_at
from epibench.report.metric_info import BETTER_TEXT, PER_CLASS, metric_info, ordered, sort_key
from epibench.report.numbers import aligned, change, fixed, listed, m_equals, percent, significant
from epibench.report.page import Option, Switch
from epibench.report.runs import EvalDomain
from epibench.results import Stat

OVERLAP_MARK, TIE_MARK = "°", " ≈"
SHARE = "share_per_class"
UP_TO_ONE = ("iou_per_class", "accuracy_per_class")  # their bars end at 1, those of the others at the largest value
MOST_NAMED = 3  # classes in a sentence


@dataclass(frozen=True)
class TableCell:
    """One number in a table, as aligned text; share: of the length of a bar."""

    value: str
    spread: str
    best: bool = False
    note: str = ""
    share: float | None = None


def metric_tables(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """One table for each group of metrics, over all M."""
    columns, tables = all_members(entries), []
    for group in GROUPS:
        blocks: list[dict[str, Any]] = []
        for name in metric_names(entries):
            if (info := metric_info(name)).group == group:
                block = {"title": title_with_unit(name, entries), "better": BETTER_TEXT[info.better]}
                meaning = f"{in_words(info.meaning, entries)} {_numerical_error(name, entries)}"
                blocks.append({**block, "meaning": meaning, "rows": rows_over_members(name, entries, columns)})
        if blocks:
            width = spread_width(row["cells"] for block in blocks for row in block["rows"])
            tables.append({"title": group, "columns": columns, "spread_width": width, "blocks": blocks})
    return tables


def kl_table(entries: Sequence[Entry]) -> dict[str, Any]:
    """Every KL of one view, beside the noise floor; that of a point estimate is told in words."""
    columns = several_members(entries)
    rows = rows_over_members("kl", entries, columns)
    return {"columns": columns, "spread_width": spread_width(row["cells"] for row in rows), "rows": rows}


def spread_width(rows: Iterable[Sequence[TableCell]]) -> int:
    """Characters that the widest std takes, so that all cells of a table can reserve them."""
    return max((len(cell.spread) for row in rows for cell in row if cell.spread.startswith("±")), default=0)


def rows_over_members(name: str, entries: Sequence[Entry], columns: Sequence[int]) -> list[dict[str, Any]]:
    """Each method's numbers; aside: what chance would score, or the noise floor. only: in place of cells."""
    by_column = [_column(name, entries, m) for m in columns]
    rows = []
    for i, entry in enumerate(entries):
        last, outside = entry.members[-1], not set(entry.members) & set(columns)
        only = f"{entry.infinite_text(name, last) or entry.text(name, last)} at {m_equals(last)}" if outside else ""
        aside = significant(entry.floor, 2) if name == "kl" else entry.chance_text(name)
        rows.append({"entry": entry, "cells": [column[i] for column in by_column], "aside": aside, "only": only})
    return rows


def _column(name: str, entries: Sequence[Entry], m: int) -> list[TableCell]:
    """A metric at an M: the leader is bold where it can be told from the others, and those that cannot are marked."""
    rankings = [judge_at(name, group, m) for group in comparable(entries)]
    best = {label for ranking in rankings for label in ranking.best}
    tied = {label for ranking in rankings for label in ranking.tied}
    texts = [entry.texts(name, m) if m in entry.members else ("", "") for entry in entries]
    values = aligned([value for value, _ in texts])
    cells = []
    for entry, value, (_, spread) in zip(entries, values, texts, strict=True):
        stat = entry.stat(name, m)
        if entry.overlaps_much(m) and spread:
            spread += OVERLAP_MARK
        if entry.label in tied:
            spread += TIE_MARK
        note = entry.infinite_text(name, m)
        if stat.mean is None and name != "kl":
            spread, note = note, ""
        elif name == "kl" and entry.floor is not None and stat.mean is not None and stat.mean <= entry.floor:
            note = "at the floor"
        cells.append(TableCell(value, spread, entry.label in best, note))
    return cells


def _numerical_error(name: str, entries: Sequence[Entry]) -> str:
    """The largest error that streaming may have added, in words; empty if there is none."""
    texts = []
    for suffix, words in (("_bound", "at most"), ("_standard_error", "standard error")):
        values = [entry.mean(name + suffix, m) for entry in entries for m in entry.members]
        largest = max((value for value in values if value is not None), default=0.0)
        if largest:
            texts.append(f"{words} {significant(largest, 2)}")
    return f"Numerical error: {', '.join(texts)}." if texts else ""


def per_class_names(entries: Sequence[Entry]) -> list[str]:
    """The metrics that any entry has for each class, in the order of the page; not the share of pixels."""
    names = dict.fromkeys(name for entry in entries for metrics in entry.summary.values() for name in metrics)
    per_class = [name for name in ordered(names, "categorical") if name.endswith(PER_CLASS) and name != SHARE]
    return [name for name in per_class if any(entry.per_class(name, m) for entry in entries for m in entry.members)]


def class_tables(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """A table for each metric of every class and method, at the M where entries are compared."""
    return [table for name in per_class_names(entries) if (table := _class_table(name, entries)) is not None]


def _class_table(name: str, entries: Sequence[Entry]) -> dict[str, Any] | None:
    m, m_of = compared_at(entries)
    columns = _class_columns(name, entries)
    number = max(len(column) for column in columns)
    if number == 0:
        return None
    styles, pixels = _styles(entries), _pixel_shares(entries, number)
    end = _bar_end(name, [stat.mean for column in columns for stat in column])
    of_class = [[entry.of_class(name, k) for entry in entries] for k in range(number)]
    texts = [[entry.texts(name, m_of[entry.label]) for entry in row] for row in of_class]
    values = [aligned([row[i][0] for row in texts]) for i in range(len(entries))]
    rows: list[dict[str, Any]] = []
    for k, row in enumerate(of_class):
        ranking, cells = judge(name, row, m_of), []
        for i, entry in enumerate(row):
            spread = texts[k][i][1] + (TIE_MARK if entry.label in ranking.tied else "")
            share = _bar_share(entry.mean(name, m_of[entry.label]), end)
            cells.append(TableCell(values[i][k], spread, entry.label in ranking.best, share=share))
        rows.append({"style": styles.of(k), "pixels": _pixel_text(pixels[k]), "cells": cells})
    return {
        "title": metric_info(name).title,
        "m": f"at {m_equals(m)}" if m is not None else "at the largest M of each",
        "spread_width": spread_width(row["cells"] for row in rows),
        "rows": rows,
        "with_pixels": any(share is not None for share in pixels),
        "counted": counted_in(entries),
        "coloured": bool(styles.colours),
    }


def _class_columns(name: str, entries: Sequence[Entry]) -> list[list[Stat]]:
    m_of = compared_at(entries)[1]
    return [entry.per_class(name, m_of[entry.label]) for entry in entries]


def _styles(entries: Sequence[Entry]) -> ClassStyles:
    """Names and colours from the first entry that has names."""
    return next((entry.classes for entry in entries if entry.classes.names), ClassStyles())


def _pixel_shares(entries: Sequence[Entry], number: int) -> list[float | None]:
    """The share of pixels of each class, from the first entry that has it."""
    shares = next((stats for entry in entries if (stats := entry.per_class(SHARE, entry.members[-1]))), [])
    return [shares[k].mean if k < len(shares) else None for k in range(number)]


def _pixel_text(share: float | None) -> str:
    return "" if share is None else percent(share)


def _bar_end(name: str, values: Sequence[float | None]) -> float:
    """The value at which bars are full."""
    if name in UP_TO_ONE:
        return 1.0
    return max((abs(value) for value in values if value is not None), default=0.0) or 1.0


def _bar_share(value: float | None, end: float) -> float | None:
    """How long the bar of a value is; None where there is none."""
    return None if value is None else min(max(value / end, 0.0), 1.0)


Scored = tuple[EvalDomain, Sequence[Entry]]  # a domain, and the entries on it


def class_section(first: Sequence[Scored], others: Sequence[Scored]) -> dict[str, Any] | None:
    """Classes of the hardest shift beside the domain trained for; None where no metric has values for classes.

    first: the domain that methods were trained for and the hardest shift, or one of them.
    """
    before = next((scored for scored in first if not scored[0].shifted), None)
    layers: list[dict[str, Any]] = []
    everywhere = [entry for _, entries in (*first, *others) for entry in entries]
    for name in per_class_names(everywhere):
        # The domain trained for is one side of every table, so it needs none of its own but where it is alone.
        shown, rest = (
            [table for a in afters if (table := shift_table(name, before if a[0].shifted else None, a))]
            for afters in (first[-1:], others)
        )
        if shown or rest:
            info = metric_info(name)
            title = info.title.removesuffix(" per class")
            words = {"title": title, "better": BETTER_TEXT[info.better], "meaning": in_words(info.meaning, everywhere)}
            option = Option(str(len(layers)), title, not layers)
            layers.append({"option": option, **words, "shown": shown, "others": rest})
    switch = Switch("metric", "Metric", [layer["option"] for layer in layers])
    return {"switch": switch, "layers": layers} if layers else None


def shift_table(name: str, before: Scored | None, after: Scored) -> dict[str, Any] | None:
    """A metric of every class of one domain beside that of the classes of the same name of another; the worst first.

    lost: in the mean over methods, the larger, the worse. nothing: whether there was nothing to lose.
    """
    domain, entries = after
    columns, starts = _class_columns(name, entries), _starts(name, before, entries)
    number = max((len(column) for column in columns), default=0)
    if number == 0:
        return None
    info, styles, pixels = metric_info(name), _styles(entries), _pixel_shares(entries, number)
    means = [stat.mean for column in columns for stat in column]
    end = _bar_end(name, [*means, *(mean for start in starts for mean in start.values())])
    rows: list[dict[str, Any]] = []
    for k in range(number):
        style = styles.of(k)
        values = [column[k].mean if k < len(column) else None for column in columns]
        olds = [start.get(style.name) for start in starts]
        cells = [_shift_cell(info, old, value, end) for old, value in zip(olds, values, strict=True)]
        row = {"style": style, "pixels": _pixel_text(pixels[k]), "cells": cells}
        nothing = info.better == "higher" and set(olds) == {0.0}
        rows.append({**row, "lost": _lost(info, olds, values, any(starts)), "nothing": nothing})
    rows.sort(key=lambda r: (r["lost"] is None, r["nothing"], -(r["lost"] or 0.0), -(pixels[r["style"].number] or 0.0)))
    shown = before[0] if before and any(starts) else None
    found, with_pixels = _class_finding(info, rows, shown), any(row["pixels"] for row in rows)
    table = {"domain": domain, "before": shown, "entries": entries, "finding": found}
    return {**table, "with_pixels": with_pixels, "counted": counted_in(entries), "rows": rows}


def _starts(name: str, before: Scored | None, entries: Sequence[Entry]) -> list[dict[str, float | None]]:
    """For each entry the value of each class on the other domain, by the name of the class, at the same M."""
    m_of = compared_at(entries)[1]
    others = {entry.label: entry for entry in before[1]} if before else {}
    starts = []
    for entry in entries:
        other = others.get(entry.label)
        stats = other.per_class(name, m_of[entry.label]) if other else []
        starts.append({other.classes.of(k).name: stat.mean for k, stat in enumerate(stats)} if other else {})
    return starts


def _shift_cell(info: MetricInfo, old: float | None, value: float | None, end: float) -> dict[str, Any]:
    """What a shift does to one class of a method: both values, and what lies between them on a bar."""
    share = _bar_share(value, end) or 0.0
    if value is None or old is None:
        return {"text": _digits(value), "change": "", "tone": "same", "low": share, "high": share}
    low, high = sorted((_bar_share(old, end) or 0.0, share))
    lost = sort_key(info.better, value) - sort_key(info.better, old)
    tone = "same" if info.better == "neither" or lost == 0 else "bad" if lost > 0 else "good"
    changed = change(old, value) if old != value else ""
    return {"text": f"{_digits(old)} → {_digits(value)}", "change": changed, "tone": tone, "low": low, "high": high}


def _digits(value: float | None) -> str:
    return fixed(value, 3) if value is not None and abs(value) < 10 else significant(value, 3)


def _lost(info: MetricInfo, olds: Sequence[float | None], values: Sequence[float | None], beside: bool) -> float | None:
    """How much worse a class is than before, in the mean over methods; beside nothing, how bad it is."""
    if info.better == "neither":
        return None
    if not beside:
        olds = [0.0] * len(values)
    pairs = [(old, value) for old, value in zip(olds, values, strict=True) if old is not None and value is not None]
    losses = [sort_key(info.better, value) - sort_key(info.better, old) for old, value in pairs]
    return sum(losses) / len(losses) if losses else None


def _class_finding(info: MetricInfo, rows: Sequence[dict[str, Any]], before: EvalDomain | None) -> str:
    """The classes that suffer most, in a sentence; empty without another domain, or where none does."""
    known = [row for row in rows if row["lost"] is not None and not row["nothing"]]
    worse = [row["style"].name for row in known if row["lost"] > 0][:MOST_NAMED]
    if before is None or not worse:
        return ""
    title, spared = info.title.removesuffix(" per class"), known[-1]["style"].name
    rest = f", {spared} least" if spared not in worse else ""
    verb = "suffers" if len(worse) == 1 else "suffer"
    number = sum(row["nothing"] for row in rows)
    nothing = f" {number} of {len(rows)} classes have {title} 0 on {before.label} already." if number else ""
    return f"By {title}, {listed(worse)} {verb} most{rest}.{nothing}"
