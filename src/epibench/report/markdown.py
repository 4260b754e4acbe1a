"""The numbers of runs as Markdown, to put into a document: KL or metrics over M, and every published cell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from epibench.published import PublishedCell, compare, distinct, grounds_of, totals, warnings_of
from epibench.report.entries import Entry, all_members, title_with_unit
from epibench.report.judge import judge_at
from epibench.report.numbers import significant
from epibench.report.runs import (
    VIEWS,
    Run,
    by_problem,
    entries_on,
    headline_names,
    kl_entries,
    methods_of,
    scored_domains,
)
from epibench.report.tables import class_tables

PUBLISHED_COLUMNS = ("M", "published", "n", "ours", "n", "ours − published", "in std", "in errors")


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
        for view in VIEWS:
            if entries := kl_entries(methods, view):
                parts.append(f"### {group[0].results.problem}: {view.name}\n\n{kl_table(entries)}")
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


def _bold(text: str, bold: bool) -> str:
    return f"**{text}**" if bold else text


def class_table(table: dict[str, Any], entries: Sequence[Entry]) -> str:
    """A row for each class; the leader is bold."""
    rows = []
    for row in table["rows"]:
        texts = [f"{cell.value.strip()} {cell.spread.removesuffix(' ≈')}".strip() for cell in row["cells"]]
        cells = [_bold(_escaped(text), cell.best) for text, cell in zip(texts, row["cells"], strict=True)]
        rows.append([_escaped(row["style"].name), row["pixels"], *cells])
    return markdown_table(["class", "share of pixels", *(_escaped(entry.label) for entry in entries)], 1, rows)


def published_part(runs: Sequence[Run]) -> str:
    """Counts over distinct cells, then each run's cells with the grounds that they stand on."""
    counts = totals(distinct([cell for run in runs for cell in compare(run.results)]))
    text = (
        f"### Beside what was published\n\nOf {counts.published} distinct published cells {counts.compared} have a "
        f"value of ours; {counts.within_std} lie within one published std, {counts.within_error} of {counts.judged} "
        "within the combined Monte Carlo error.\n"
    )
    for run in runs:
        if cells := compare(run.results):
            said = " ".join((*warnings_of(run.results), *grounds_of(run.results)))
            text += f"\n#### {run.name}\n\n{said}\n\n{published_table(cells)}"
    return text


def published_table(cells: Iterable[PublishedCell]) -> str:
    """A row per cell: both means ± std and their independent draws, the difference, and both judgements.

    `in std` is the difference in published stds (agrees up to 1), `in errors` in standard errors of the difference
    (agrees up to 2); what does not agree is bold.
    """
    return markdown_table(("problem", "series", *PUBLISHED_COLUMNS), 2, map(_published_row, cells))


def _published_row(cell: PublishedCell) -> list[str]:
    row = cell.row
    # The panels of the toy problems are problems, those of the others are metrics with their unit.
    what = row.panel.lower() if row.is_kl else row.metric
    columns = [what, row.series.replace("*", ""), str(row.members), _measured(row.mean, row.std)]
    columns.append(str(cell.num_published))
    if cell.mean is None or cell.difference is None:
        return [*columns, "no finite value", "", "", "", ""]
    signed = f"{'+' if cell.difference > 0 else ''}{_digits(cell.difference, 3)}".replace("-", "−")
    in_std = _multiple(cell.difference, row.std, cell.within_std)
    in_errors = _multiple(cell.difference, cell.error, cell.within_error)
    return [*columns, _measured(cell.mean, cell.std), str(cell.num_ours), signed, in_std, in_errors]


def _measured(mean: float, std: float | None) -> str:
    return _digits(mean, 3) if std is None else f"{_digits(mean, 3)} ± {_digits(std, 2)}"


def _digits(value: float, digits: int) -> str:
    """A number to some significant digits; large ones in full, as no one writes 2.24e+03 mm."""
    return f"{value:.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"


def _multiple(difference: float, unit: float | None, agrees: bool | None) -> str:
    """A difference in multiples of a unit; bold where it does not agree, empty where there is no unit."""
    if not unit or agrees is None:
        return ""
    return _bold(f"{abs(difference) / unit:.2f}", not agrees)
