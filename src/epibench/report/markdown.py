"""The numbers of runs as Markdown, to put into a document: KL or metrics over M, and every published cell."""

from __future__ import annotations

from collections.abc import Sequence

from epibench.published import compare, distinct, published_table, totals
from epibench.report.class_tables import PerClassTable, class_tables
from epibench.report.dense_section import scored_domains
from epibench.report.domains import entries_on
from epibench.report.entries import Entry
from epibench.report.kl_figures import view_name
from epibench.report.metric_info import metric_info
from epibench.report.numbers import MISSING, measured, significant
from epibench.report.published_section import grounds_of, warnings_of
from epibench.report.runs import VIEWS, Method, Run, View, all_members, by_problem, methods_of
from epibench.report.tables import best_labels
from epibench.report.verdicts import headline_names as headlines_of
from epibench.report.verdicts import title_with_unit


def render_markdown(runs: Sequence[Run]) -> str:
    """All tables of some runs."""
    parts = []
    for group in by_problem(runs):
        methods = methods_of(group)
        domains = scored_domains(group, methods)
        for domain in domains:
            title = f"{group[0].problem}: {domain.label} ({domain.role})"
            entries = entries_on(methods, domain.name)
            parts.append(f"### {title}\n\n{domain_table(entries)}")
            parts += [
                f"#### {table.title} {table.m}\n\n{class_part(table, entries)}" for table in class_tables(entries)[:1]
            ]
        for view in VIEWS:
            if having := [method for method in methods if method.members(view)]:
                parts.append(f"### {group[0].problem}: {view_name(view)}\n\n{kl_table(having, view)}")
    cells = [cell for run in runs for cell in compare(run.results)]
    if any(cell.mean is not None for cell in cells):
        parts.append(published_part(runs))
    return "\n".join(parts)


def kl_table(methods: Sequence[Method], view: View) -> str:
    """Mean ± std over draws at every M, beside the noise floor."""
    columns = all_members(methods, view)
    head = ["", "floor", *(f"M = {m}" for m in columns)]
    rows = [
        [_escaped(method.label), significant(method.run.floor(view), 2), *(_kl(method, view, m) for m in columns)]
        for method in methods
    ]
    return _table(head, 1, rows)


def domain_table(entries: Sequence[Entry]) -> str:
    """Mean ± std over draws of the headline metrics at every M; the best mean is bold."""
    columns = sorted({m for entry in entries for m in entry.members})
    rows = []
    for name in headlines_of(entries):
        best = {m: best_labels(name, entries, m) for m in columns}
        title = title_with_unit(metric_info(name), entries)
        for entry in entries:
            cells = [_metric(entry, name, m, entry.label in best[m]) for m in columns]
            rows.append([_escaped(title), _escaped(entry.label), *cells])
    return _table(["metric", "method", *(f"M = {m}" for m in columns)], 2, rows)


def class_part(table: PerClassTable, entries: Sequence[Entry]) -> str:
    """A row for each class; the best mean is bold."""
    rows = []
    for row in table.rows:
        texts = [f"{cell.value.strip()} {cell.spread}".strip() for cell in row.cells]
        cells = [f"**{text}**" if cell.best else text for text, cell in zip(texts, row.cells, strict=True)]
        rows.append([_escaped(row.style.name), row.pixels, *cells])
    return _table(["class", "share of pixels", *(_escaped(entry.label) for entry in entries)], 1, rows)


def _metric(entry: Entry, name: str, m: int, best: bool) -> str:
    if m not in entry.members:
        return ""
    text = measured(entry.stat(name, m).mean, entry.stat(name, m).std)
    return f"**{text}**" if best else text


def _table(head: Sequence[str], num_left: int, rows: Sequence[Sequence[str]]) -> str:
    """Lines of a table; after the first columns all are of numbers."""
    rule = ["---" if i < num_left else "--:" for i in range(len(head))]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *rows))


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")


def _kl(method: Method, view: View, m: int) -> str:
    if m not in method.members(view):
        return ""
    stat = method.stat(view, m)
    return MISSING if stat.mean is None else measured(stat.mean, stat.std)


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
            said = " ".join((*warnings_of(run), *grounds_of(run)))
            text += f"\n#### {run.name}\n\n{said}\n\n{published_table(cells)}"
    return text
