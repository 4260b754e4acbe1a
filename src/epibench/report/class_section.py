"""Metrics of every class: tables of them, and what a shift takes from each class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from epibench.metrics.info import MetricInfo
from epibench.report.entries import ClassStyles, Entry, counted_in, in_words
from epibench.report.judge import compared_at, judge
from epibench.report.metric_info import BETTER_TEXT, PER_CLASS, metric_info, ordered, sort_key
from epibench.report.numbers import change, fixed, listed, m_equals, percent, significant
from epibench.report.page import Option, Switch
from epibench.report.runs import EvalDomain
from epibench.report.table import Block, Cell, Column, Name, Row, Table, Tone
from epibench.results import Stat

SHARE = "share_per_class"
UP_TO_ONE = ("iou_per_class", "accuracy_per_class")  # their bars end at 1, those of the others at the largest value
MOST_NAMED = 3  # classes in a sentence
Scored = tuple[EvalDomain, Sequence[Entry]]  # a domain, and the entries on it


def per_class_names(entries: Sequence[Entry]) -> list[str]:
    """The metrics that any entry has for each class, in the order of the page; not the share of pixels."""
    names = dict.fromkeys(name for entry in entries for metrics in entry.summary.values() for name in metrics)
    per_class = [name for name in ordered(names, "categorical") if name.endswith(PER_CLASS) and name != SHARE]
    return [name for name in per_class if any(entry.per_class(name, m) for entry in entries for m in entry.members)]


def class_tables(entries: Sequence[Entry]) -> list[Table]:
    """A table for each metric of every class and method, at the M where entries are compared."""
    m, m_of = compared_at(entries)
    where = f"at {m_equals(m)}" if m is not None else "at the largest M of each"
    styles, tables = _styles(entries), []
    for name in per_class_names(entries):
        columns = _columns(name, entries)
        end, rows = _bar_end(name, columns), []
        for k in range(max(map(len, columns))):
            parts = [entry.of_class(name, k) for entry in entries]
            ranking, cells = judge(name, parts, m_of), []
            for entry in parts:
                value, spread = entry.texts(name, m_of[entry.label])
                share = _bar_share(entry.mean(name, m_of[entry.label]), end)
                bar = None if share is None else (share, share)
                best, tied = entry.label in ranking.best, entry.label in ranking.tied
                cells.append(Cell(value, spread, best, tied=tied, bar=bar))
            style = styles.of(k)
            rows.append((k, Row(Name(style.name, colour=style.colour if styles.colours else None), cells)))
        if rows:
            tables.append(_table(f"{metric_info(name).title} {where}", entries, rows))
    return tables


def _table(title: str, entries: Sequence[Entry], rows: Sequence[tuple[int, Row]]) -> Table:
    """A column for each entry, after the share of pixels of each class where any entry has it."""
    shares = next((stats for entry in entries if (stats := entry.per_class(SHARE, entry.members[-1]))), [])
    columns = [Column(Name(entry.label, entry.index), points=True) for entry in entries]
    shown = [row for _, row in rows]
    if shares:
        columns.insert(0, Column(Name(f"share of {counted_in(entries)}"), soft=True))
        texts = ["–" if k >= len(shares) or (mean := shares[k].mean) is None else percent(mean) for k, _ in rows]
        shown = [Row(row.name, [Cell(text), *row.cells]) for text, row in zip(texts, shown, strict=True)]
    return Table(title, columns, [Block(rows=shown)], "class")


def _columns(name: str, entries: Sequence[Entry]) -> list[list[Stat]]:
    m_of = compared_at(entries)[1]
    return [entry.per_class(name, m_of[entry.label]) for entry in entries]


def _styles(entries: Sequence[Entry]) -> ClassStyles:
    """Names and colours from the first entry that has names."""
    return next((entry.classes for entry in entries if entry.classes.names), ClassStyles())


def _bar_end(name: str, columns: Sequence[Sequence[Stat]]) -> float:
    """The value at which bars are full."""
    values = [abs(stat.mean) for column in columns for stat in column if stat.mean is not None]
    return 1.0 if name in UP_TO_ONE else max(values, default=0.0) or 1.0


def _bar_share(value: float | None, end: float) -> float | None:
    """How long the bar of a value is; None where there is none."""
    return None if value is None else min(max(value / end, 0.0), 1.0)


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
    """A metric of every class of one domain beside classes of the same name of another one; the worst first."""
    domain, entries = after
    info, styles, columns = metric_info(name), _styles(entries), _columns(name, entries)
    if not any(columns):
        return None
    m_of, starts = compared_at(entries)[1], []
    others = {entry.label: entry for entry in before[1]} if before else {}
    for entry in entries:  # the value of each class on the other domain, by the name of the class, at the same M
        other = others.get(entry.label)
        stats = other.per_class(name, m_of[entry.label]) if other else []
        starts.append({other.classes.of(k).name: stat for k, stat in enumerate(stats)} if other else {})
    end = _bar_end(name, [*columns, *(list(start.values()) for start in starts)])
    shares = next((stats for entry in entries if (stats := entry.per_class(SHARE, entry.members[-1]))), [])
    found = []
    for k in range(max(map(len, columns))):
        style = styles.of(k)
        values = [column[k].mean if k < len(column) else None for column in columns]
        olds = [start[style.name].mean if style.name in start else None for start in starts]
        cells = [_shift_cell(info, old, value, end) for old, value in zip(olds, values, strict=True)]
        lost, nothing = _lost(info, olds, values, any(starts)), info.better == "higher" and set(olds) == {0.0}
        share = shares[k].mean if k < len(shares) else None
        key = lost is None, nothing, -(lost or 0.0), -(share or 0.0)
        found.append((key, lost, nothing, k, Row(Name(style.name, colour=style.colour), cells)))
    found.sort(key=lambda one: one[0])
    shown = before[0] if before and any(starts) else None
    sentence = ""
    known = [(lost, row.name.label) for _, lost, nothing, _, row in found if lost is not None and not nothing]
    worse = [label for lost, label in known if lost > 0][:MOST_NAMED]
    title = info.title.removesuffix(" per class")
    if shown and worse:
        rest = f", {known[-1][1]} least" if known[-1][1] not in worse else ""
        number = sum(nothing for _, _, nothing, _, _ in found)
        none = f" {number} of {len(found)} classes have {title} 0 on {shown.label} already." if number else ""
        sentence = f"By {title}, {listed(worse)} {'suffers' if len(worse) == 1 else 'suffer'} most{rest}.{none}"
    table = _table(f"{title} of every class on {domain.label}", entries, [(k, row) for _, _, _, k, row in found])
    return {"domain": domain, "before": shown, "finding": sentence, "table": table}


def _shift_cell(info: MetricInfo, old: float | None, value: float | None, end: float) -> Cell:
    """What a shift does to one class of a method: both values, and what lies between them on a bar."""
    share = _bar_share(value, end) or 0.0
    if value is None or old is None:
        return Cell(_digits(value), tone="same", bar=(share, share))
    low, high = sorted((_bar_share(old, end) or 0.0, share))
    lost = sort_key(info.better, value) - sort_key(info.better, old)
    tone: Tone = "same" if info.better == "neither" or lost == 0 else "bad" if lost > 0 else "good"
    changed = change(old, value) if old != value else ""
    return Cell(f"{_digits(old)} → {_digits(value)}", changed, tone=tone, bar=(low, high))


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
