"""Tables of results for documents: LaTeX files, each with all that a reader has to know in its caption, and Markdown.

Bold is what the judge calls a lead, and nothing else; beside published cells, what differs from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from epibench.report.class_section import class_tables
from epibench.report.entries import Entry, all_members, scored_entries
from epibench.report.equivalent_section import equivalent_names, equivalent_table, equivalents_on
from epibench.report.figure_files import comparable_kinds, slug
from epibench.report.metric_info import metric_info
from epibench.report.numbers import count, listed, significant
from epibench.report.published_tables import published_part
from epibench.report.runs import (
    PROBLEMS,
    VIEWS,
    Run,
    by_problem,
    convergence_of,
    domains_of,
    entries_on,
    headline_names,
    kl_entries,
    methods_of,
    scored_domains,
)
from epibench.report.table import OVERLAP, TIE, Block, Table, latex_text, markdown_text
from epibench.report.tables import kl_table, metric_part, metric_table
from epibench.results import ScoreResults

PREVIEW = r"""\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage{textcomp}
\usepackage{booktabs}
\begin{document}
%s
\end{document}
"""


@dataclass(frozen=True)
class ResultTable:
    """A table of one domain or one view of the KL: the name of a file for it, and what it is of."""

    name: str
    about: str
    table: Table


@dataclass(frozen=True)
class TableFile:
    """A table: the name of its file without an ending, what it shows, and its text."""

    name: str
    about: str
    text: str


def run_tables(runs: Sequence[Run]) -> Iterator[ResultTable]:
    """Tables of each domain of each problem, and of each way to measure the KL of toy problems."""
    groups = by_problem(runs)
    for group in groups:
        methods, problem = methods_of(group), group[0].results.problem
        title, prefix = PROBLEMS.get(problem, problem), problem if len(groups) > 1 else ""
        if len(group) == 1 and group[0].evaluation:  # of several runs every label says it
            title += f" ({group[0].evaluation})"
        doubts = [text for text, converged in convergence_of(group) if not converged]
        for view in VIEWS:
            if entries := kl_entries(methods, view):
                about = f"{title}: {view.name}"
                floors = [significant(one, 2) for one in sorted({e.floor for e in entries if e.floor is not None})]
                floor = [f"The noise floor of the reference is {listed(floors)}."] if floors else []
                table = with_notes(kl_table(about, entries), ["kl"], entries, "", [*floor, *doubts])
                yield ResultTable(slug(prefix, "kl", view.direction, view.region, view.convention), about, table)
        labels = {}
        for domain in scored_domains(group, methods):
            sizes = ((domain.num_images, "images"), (domain.num_pixels, "valid pixels"))
            size = "".join(f", {count(number)} {what}" for number, what in sizes if number)
            labels[domain.name] = f"{domain.label} ({domain.role}{size})"
        if not domains_of(group):
            summaries = [method.run.results.summary.get(method.name, {}) for method in methods]
            labels = {name: f"{name} of the training region" for summary in summaries for name in summary}
        convention = listed(sorted({run.results.convention for run in group}))
        for name, label in labels.items():
            if not (entries := entries_on(methods, name)):
                continue
            about = f"{title}, {label}"
            yield ResultTable(slug(prefix, name), about, headline_table(about, entries, convention))
            for one in class_tables(entries)[:1]:
                yield ResultTable(slug(prefix, name, "classes"), about, one)
            for metric in equivalent_names(entries)[:1]:
                by = metric_info(metric).title
                if found := equivalents_on(name, methods, metric):
                    table = equivalent_table(f"In ensemble members, by {by}", [(Block(), found)])
                    note = (
                        f"Deep-ensemble equivalent by {by}: how many members an ensemble needs to score as a method "
                        "does with M, by interpolation in the mean curve of the ensemble, linear in log M; bounds "
                        "beyond its ends. In brackets, the 5 to 95\u00a0% interval of resampled draws."
                    )
                    yield ResultTable(slug(prefix, name, "equivalents"), about, replace(table, notes=[note]))


def score_tables(results: ScoreResults) -> Iterator[ResultTable]:
    """A table for each kind, domain and unit of scored files."""
    for entries in comparable_kinds(scored_entries(results)):
        where = entries[0].domain or "scores"
        pixels = listed(sorted({count(entry.file.pixels.valid) for entry in entries if entry.file}))
        about = f"{where} ({pixels} valid pixels)"
        yield ResultTable(slug(where, entries[0].kind), about, headline_table(about, entries, results.convention))


def headline_table(title: str, entries: Sequence[Entry], convention: str) -> Table:
    """The headline metrics at every M."""
    names = headline_names(entries)
    table = metric_table(title, [metric_part(name, entries) for name in names], all_members(entries), "chance")
    return with_notes(table, names, entries, convention)


def with_notes(
    table: Table, metrics: Sequence[str], entries: Sequence[Entry], convention: str, more: Sequence[str] = ()
) -> Table:
    """The table with notes on spread, draws, convention, directions and marks."""
    draws = []
    for entry in entries:
        numbers = sorted({entry.num_draws(m) for m in entry.members})
        draws.append(f"{entry.label} {' to '.join(map(count, dict.fromkeys((numbers[0], numbers[-1]))))}")
    spread = any(entry.stat(name, m).std is not None for entry in entries for name in metrics for m in entry.members)
    what = "Mean ± standard deviation (of the population) over draws" if spread else "One draw"
    notes = [f"{what} of M members; draws: {listed(draws)}."]
    if convention:
        notes.append(f"Metrics follow the convention `{convention}`.")
    better = dict.fromkeys(block.better for block in table.blocks if block.better[:1] in ("↓", "↑"))
    directions = [f"{text[0]}: {text[2:]}" for text in better if text]
    notes.append(f"{', '.join(directions) or 'Lower is better'}.")
    if len(entries) > 1:
        notes.append("Bold: leads by at least one standard error of the difference of independent draws.")
    if any(cell.tied for cell in table.cells):
        notes.append(f"{TIE.strip()}: the leaders cannot be told apart.")
    if any(cell.overlaps for cell in table.cells):
        notes.append(f"{OVERLAP}: draws share most of their members, so that their standard deviation says little.")
    return replace(table, notes=[*notes, *more])


def tables_of(subject: Sequence[Run] | ScoreResults) -> Iterator[TableFile]:
    """Every table of runs, or of scored files, in LaTeX, with names that differ."""
    seen: dict[str, int] = {}
    for one in score_tables(subject) if isinstance(subject, ScoreResults) else run_tables(subject):
        if one.table.corner == "class":  # too long for a float
            continue
        seen[one.name] = number = seen.get(one.name, 0) + 1
        name = f"{one.name}-{number}" if number > 1 else one.name
        titles = [block.title.label for block in one.table.blocks if block.title.label]
        what = f"{one.table.title}{f': {listed(titles)}' if titles else ''} over M"
        if one.table.title != one.about:
            what = f"{one.about}: {what}"
        yield TableFile(name, what, latex_text(replace(one.table, title=one.about), name))


def preview(names: Sequence[str]) -> str:
    """A document that shows all tables."""
    return PREVIEW % "\n".join(rf"\input{{{name}.tex}} \clearpage" for name in names)


def render_markdown(runs: Sequence[Run]) -> str:
    """All tables of some runs in Markdown, and what was published beside them."""
    parts, about = [], ""
    for one in run_tables(runs):
        heading = f"### {one.about}\n\n" if one.about != about else ""
        heading += f"#### {one.table.title}\n\n" if one.table.title != one.about else ""
        notes = " ".join(one.table.notes).replace("<", "&lt;")
        parts.append(heading + markdown_text(one.table) + (f"\n{notes}\n" if notes else ""))
        about = one.about
    return "\n".join([*parts, *published_part(runs)])
