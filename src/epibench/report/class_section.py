"""Tables of the metrics of every class, and the loss of each class under a shift."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from epibench.report.entries import ClassStyles, Entry, counted_in, in_words
from epibench.report.judge import compared_at, judge
from epibench.report.metric_info import BETTER_TEXT, PER_CLASS, metric_info, ordered, sort_key
from epibench.report.numbers import MISSING, change, fixed, listed, m_equals, percent, significant
from epibench.report.page import Option, Switch
from epibench.report.runs import EvalDomain
from epibench.report.table import Block, Cell, Column, Name, Row, Table, Tone

SHARE = "share_per_class"
UP_TO_ONE = ("iou_per_class", "accuracy_per_class")  # their bars end at 1, other bars at the largest value
MOST_NAMED = 3  # classes in a sentence
Value = float | None
Scored = tuple[EvalDomain, Sequence[Entry]]  # a domain, and the entries on it


def per_class_names(entries: Sequence[Entry]) -> list[str]:
    """The metrics with a value for each class, in the order of the page, without the share of pixels."""
    names = dict.fromkeys(name for entry in entries for metrics in entry.score.summary.values() for name in metrics)
    per_class = [name for name in ordered(names, "categorical") if name.endswith(PER_CLASS) and name != SHARE]
    return [name for name in per_class if any(entry.per_class(name, m) for entry in entries for m in entry.members)]


def class_tables(entries: Sequence[Entry]) -> list[Table]:
    """A table for each metric of every class and method, at the M of comparisons."""
    m, m_of = compared_at(entries)
    where = f"at {m_equals(m)}" if m is not None else "at the largest M of each"
    styles, tables = _styles(entries), []
    for name in per_class_names(entries):
        values = _values(name, entries)
        rows = {}
        for k in range(max(map(len, values))):
            parts, style = [entry.of_class(name, k) for entry in entries], styles.of(k)
            ranking, cells = judge(name, parts, m_of), []
            for entry in parts:
                value, spread = entry.texts(name, m_of[entry.label])
                bar = _bar(name, values, [entry.mean(name, m_of[entry.label])])
                best, tied = entry.label in ranking.best, entry.label in ranking.tied
                cells.append(Cell(value, spread, best, tied=tied, bar=bar))
            rows[k] = Row(Name(style.name, colour=style.colour if styles.colours else None), cells)
        if rows:
            tables.append(_table(f"{metric_info(name).title} {where}", entries, rows))
    return tables


def class_section(first: Sequence[Scored], others: Sequence[Scored]) -> dict[str, Any] | None:
    """Classes of the hardest shift beside the training domain; None without metrics of classes.

    first: the training domain and the hardest shift, or one of them.
    """
    before = next((scored for scored in first if not scored[0].shifted), None)
    layers: list[dict[str, Any]] = []
    everywhere = [entry for _, entries in (*first, *others) for entry in entries]
    for name in per_class_names(everywhere):
        # Every table has the training domain on one side, so it needs a table only if it is alone.
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
    """A metric of every class of a domain beside the classes of the same name of another; the worst first."""
    domain, entries = after
    columns, m_of = _values(name, entries), compared_at(entries)[1]
    if not any(columns):
        return None
    others = {entry.label: entry for entry in before[1]} if before else {}
    starts: list[dict[str, Value]] = []  # by the name of the class, at the same M
    for entry in entries:
        other = others.get(entry.label)
        stats = other.per_class(name, m_of[entry.label]) if other else []
        starts.append({other.classes.of(k).name: stat.mean for k, stat in enumerate(stats) if other})
    better, title = metric_info(name).better, metric_info(name).title.removesuffix(" per class")
    beside, bars = any(starts), [*columns, *(list(start.values()) for start in starts)]
    styles, shares, found = _styles(entries), _shares(entries), []
    for k in range(max(map(len, columns))):
        style, cells, losses = styles.of(k), [], []
        olds = [start.get(style.name) for start in starts]
        for old, column in zip(olds, columns, strict=True):
            value = column[k] if k < len(column) else None
            start = old if beside else 0.0  # beside nothing, a class is as bad as its value
            if start is not None and value is not None and better != "neither":
                losses.append(sort_key(better, value) - sort_key(better, start))
            if old is None or value is None:
                cells.append(Cell(_digits(value), tone="same", bar=_bar(name, bars, [value]) or (0.0, 0.0)))
                continue
            lost = sort_key(better, value) - sort_key(better, old)
            tone: Tone = "same" if lost == 0 else "bad" if lost > 0 else "good"
            changed = change(old, value) if old != value else ""
            text = f"{_digits(old)} → {_digits(value)}"
            cells.append(Cell(text, changed, tone=tone, bar=_bar(name, bars, [old, value])))
        mean_loss = sum(losses) / len(losses) if losses else None
        nothing = better == "higher" and set(olds) == {0.0}
        share = shares[k] if k < len(shares) else None
        key = mean_loss is None, nothing, -(mean_loss or 0.0), -(share or 0.0), k
        found.append((key, mean_loss, Row(Name(style.name, colour=style.colour), cells)))
    found.sort(key=lambda one: one[0])
    losers = [(lost, row.name.label) for (_, nothing, *_), lost, row in found if lost is not None and not nothing]
    worse, sentence = [label for lost, label in losers if lost > 0][:MOST_NAMED], ""
    shown = before[0] if before and beside else None
    if shown and worse:
        rest = f", {losers[-1][1]} least" if losers[-1][1] not in worse else ""
        number = sum(nothing for (_, nothing, *_), *_ in found)
        none = f" {number} of {len(found)} classes have {title} 0 on {shown.label} already." if number else ""
        sentence = f"By {title}, {listed(worse)} {'suffers' if len(worse) == 1 else 'suffer'} most{rest}.{none}"
    rows = {k: row for (*_, k), _, row in found}
    table = _table(f"{title} of every class on {domain.label}", entries, rows)
    return {"domain": domain, "before": shown, "finding": sentence, "table": table}


def _table(title: str, entries: Sequence[Entry], rows: dict[int, Row]) -> Table:
    """Rows by the number of the class; a column for each entry, after shares of pixels if known."""
    columns = [Column(Name(entry.label, entry.index), points=True) for entry in entries]
    if shares := _shares(entries):
        columns.insert(0, Column(Name(f"share of {counted_in(entries)}"), soft=True))
        for k, row in rows.items():
            share = shares[k] if k < len(shares) else None
            rows[k] = Row(row.name, [Cell(MISSING if share is None else percent(share)), *row.cells])
    return Table(title, columns, [Block(rows=list(rows.values()))], "class")


def _values(name: str, entries: Sequence[Entry]) -> list[list[Value]]:
    m_of = compared_at(entries)[1]
    return [[stat.mean for stat in entry.per_class(name, m_of[entry.label])] for entry in entries]


def _shares(entries: Sequence[Entry]) -> list[Value]:
    """The share of pixels of each class, from the first entry with shares."""
    found = (entry.per_class(SHARE, entry.members[-1]) for entry in entries)
    return [stat.mean for stat in next(filter(None, found), [])]


def _styles(entries: Sequence[Entry]) -> ClassStyles:
    return next((entry.classes for entry in entries if entry.classes.names), ClassStyles())


def _bar(name: str, columns: Sequence[Sequence[Value]], values: Sequence[Value]) -> tuple[float, float] | None:
    """Both ends of some values on a bar, which ends at 1 or at the largest value of all columns."""
    sizes = [abs(value) for column in columns for value in column if value is not None]
    end = 1.0 if name in UP_TO_ONE else max(sizes, default=0.0) or 1.0
    ends = [min(max(value / end, 0.0), 1.0) for value in values if value is not None]
    return (min(ends), max(ends)) if ends else None


def _digits(value: Value) -> str:
    return fixed(value, 3) if value is not None and abs(value) < 10 else significant(value, 3)
