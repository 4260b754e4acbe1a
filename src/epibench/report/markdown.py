"""The numbers of runs as Markdown, to put into a document: KL or metrics over M, and every published cell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from epibench.published import (
    PublishedCell,
    Row,
    SeriesComparison,
    by_series,
    compare,
    distinct,
    grounds_of,
    totals,
    unlike_by_chance,
    warnings_of,
)
from epibench.published.resampling import LEVEL
from epibench.report.entries import Entry, all_members, title_with_unit
from epibench.report.equivalent_section import Equivalents, equivalent_names, equivalent_rows, equivalents_on
from epibench.report.judge import judge_at
from epibench.report.metric_info import metric_info
from epibench.report.numbers import probability_text, signed_percent, significant, told_apart
from epibench.report.runs import (
    VIEWS,
    Run,
    by_problem,
    convergence_of,
    entries_on,
    headline_names,
    kl_entries,
    methods_of,
    scored_domains,
)
from epibench.report.tables import class_tables

PUBLISHED_COLUMNS = ("M", "published", "n", "ours", "median", "n", "ours − published", "in std", "p", "told apart")


def render_markdown(runs: Sequence[Run]) -> str:
    """All tables of some runs."""
    parts = []
    for group in by_problem(runs):
        methods = methods_of(group)
        for domain in scored_domains(group, methods):
            entries = entries_on(methods, domain.name)
            parts.append(f"### {group[0].results.problem}: {domain.label} ({domain.role})\n\n{domain_table(entries)}")
            for table in class_tables(entries)[:1]:
                parts.append(f"#### {table['title']} {table['m']}\n\n{class_table(table, entries)}")
            for name in equivalent_names(entries)[:1]:
                if found := equivalents_on(domain.name, methods, name):
                    title = f"#### In ensemble members, by {metric_info(name).title}"
                    parts.append(f"{title}\n\n{equivalents_table(found)}")
        doubts = "".join(f"{_escaped(text)}\n\n" for text, converged in convergence_of(group) if not converged)
        for view in VIEWS:
            if entries := kl_entries(methods, view):
                parts.append(f"### {group[0].results.problem}: {view.name}\n\n{doubts}{kl_table(entries)}")
    if any(cell.mean is not None for run in runs for cell in compare(run.results)):
        parts.append(published_part(runs))
    return "\n".join(parts)


def markdown_table(head: Sequence[str], num_left: int, rows: Iterable[Sequence[str]]) -> str:
    """Lines of a table; after the first columns all are of numbers."""
    rule = ["---" if i < num_left else "--:" for i in range(len(head))]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *rows))


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")


def kl_table(entries: Sequence[Entry]) -> str:
    """Mean ± std over draws at every M, beside the noise floor; the leader of an M is bold."""
    columns = all_members(entries)
    cells = _cells("kl", entries, columns)
    rows = [
        [_escaped(entry.label), significant(entry.floor, 2), *row] for entry, row in zip(entries, cells, strict=True)
    ]
    return markdown_table(["", "floor", *(f"M = {m}" for m in columns)], 1, rows)


def domain_table(entries: Sequence[Entry]) -> str:
    """Mean ± std over draws of the headline metrics at every M, beside chance; the leader of an M is bold."""
    columns = all_members(entries)
    rows = []
    for name in headline_names(entries):
        title = _escaped(title_with_unit(name, entries))
        for entry, cells in zip(entries, _cells(name, entries, columns), strict=True):
            chance = entry.chance(name, entry.members[-1])
            rows.append([title, _escaped(entry.label), "" if chance is None else significant(chance, 2), *cells])
    return markdown_table(["metric", "method", "chance", *(f"M = {m}" for m in columns)], 2, rows)


def _cells(name: str, entries: Sequence[Entry], columns: Sequence[int]) -> list[list[str]]:
    """A metric of every entry at every M."""
    best = {m: judge_at(name, entries, m).best for m in columns}
    return [
        [_bold(_escaped(entry.text(name, m)), entry.label in best[m]) if m in entry.members else "" for m in columns]
        for entry in entries
    ]


def equivalents_table(found: Equivalents) -> str:
    """How many ensemble members each method is worth at every M, with the interval in brackets."""
    columns = sorted({m for _, by_size in found for m in by_size})
    rows = [
        [_escaped(row["entry"].label), *(_escaped(f"{cell.value} {cell.spread}".strip()) for cell in row["cells"])]
        for row in equivalent_rows(found, columns)
    ]
    return markdown_table(["method", *(f"M = {m}" for m in columns)], 1, rows)


def _bold(text: str, bold: bool) -> str:
    return f"**{text}**" if bold else text


def class_table(table: dict[str, Any], entries: Sequence[Entry]) -> str:
    """A row for each class; the leader is bold."""
    rows = []
    for row in table["rows"]:
        texts = [f"{cell.value.strip()} {cell.spread.removesuffix(' ≈')}".strip() for cell in row["cells"]]
        cells = [_bold(_escaped(text), cell.best) for text, cell in zip(texts, row["cells"], strict=True)]
        rows.append([_escaped(row["style"].name), row["pixels"], *cells])
    return markdown_table(
        ["class", f"share of {table['counted']}", *(_escaped(entry.label) for entry in entries)], 1, rows
    )


def published_part(runs: Sequence[Run]) -> str:
    """Counts over distinct cells, series by series, then each run's cells with the grounds that they stand on."""
    compared = [(run, compare(run.results)) for run in runs]
    cells = [cell for _, of_run in compared for cell in of_run]
    counts, series = totals(distinct(cells)), by_series(cells)
    text = (
        f"### Beside what was published\n\nOf {counts.published} distinct published cells {counts.compared} have a "
        f"value of ours; {counts.within_std} lie within one published std.\n"
    )
    if series:
        low, high = unlike_by_chance(series)
        text += (
            f"{counts.unlike} of {counts.judged} have p < {LEVEL:g}, where chance alone gives {counts.expected:.1f} on "
            f"average and {low} to {high} in 90 of 100 cases.\n\n{series_table(series)}"
        )
    for run, of_run in compared:
        if any(cell.mean is not None for cell in of_run):
            said = " ".join((*warnings_of(run.results), *grounds_of(run.results)))
            text += f"\n#### {run.name}\n\n{said}\n\n{published_table(of_run)}"
    return text


def series_table(series: Iterable[SeriesComparison]) -> str:
    """A row per series: by how much its cells differ, how many have a small p, and p of all of them together."""
    rows = []
    for each in series:
        shares = [(cell.difference or 0.0) / cell.row.mean for cell in each.cells]
        ends = " … ".join(dict.fromkeys((signed_percent(min(shares)), signed_percent(max(shares)))))
        together = _bold(probability_text(each.together.p), each.together.p < LEVEL)
        first = each.cells[0].row
        counted = [str(len(each.cells)), ends, str(each.unlike), together]
        rows.append([_problem(first), first.series.replace("*", ""), *counted])
    head = ("problem", "series", "cells", "ours − published", f"cells with p < {LEVEL:g}", "p of the series")
    return markdown_table(head, 2, rows)


def published_table(cells: Iterable[PublishedCell]) -> str:
    """A row per cell: both means ± std and their independent draws, our median, the difference, and both judgements.

    `in std` is the difference in published stds (agrees up to 1), `p` how probable it is by chance (agrees from 0.05);
    what does not agree is bold. `told apart`: by how much the published draws would have to be lower or higher than
    ours to come out with p < 0.05 in 80 of 100 cases.
    """
    return markdown_table(("problem", "series", *PUBLISHED_COLUMNS), 2, map(_published_row, cells))


def _problem(row: Row) -> str:
    # The panels of the toy problems are problems, those of the others are metrics with their unit.
    return row.panel.lower() if row.is_kl else row.metric


def _published_row(cell: PublishedCell) -> list[str]:
    row = cell.row
    columns = [_problem(row), row.series.replace("*", ""), str(row.members), _measured(row.mean, row.std)]
    columns.append(str(cell.num_published))
    if cell.mean is None or cell.difference is None:
        return [*columns, "no finite value", *[""] * (len(PUBLISHED_COLUMNS) - 4)]
    signed = f"{'+' if cell.difference > 0 else ''}{_digits(cell.difference, 3)}".replace("-", "−")
    in_std = _bold(f"{abs(cell.difference) / row.std:.2f}", not cell.within_std) if row.std else ""
    ours = [_measured(cell.mean, cell.std), "" if cell.median is None else _digits(cell.median, 3), str(cell.num_ours)]
    p = "" if cell.p is None else _bold(probability_text(cell.p), not cell.agrees)
    return [*columns, *ours, signed, in_std, p, told_apart(cell.detectable)]


def _measured(mean: float, std: float | None) -> str:
    return _digits(mean, 3) if std is None else f"{_digits(mean, 3)} ± {_digits(std, 2)}"


def _digits(value: float, digits: int) -> str:
    """A number to some significant digits; large ones in full, as no one writes 2.24e+03 mm."""
    return f"{value:.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"
