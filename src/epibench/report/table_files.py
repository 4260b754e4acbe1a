"""Tables of results for documents: LaTeX files and Markdown, each with notes on how to read it.

Bold marks a lead; beside published cells it marks a difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from epibench.report.class_section import class_tables
from epibench.report.entries import Entry, all_members
from epibench.report.equivalent_section import equivalent_names, equivalent_table, equivalents_on
from epibench.report.figure_files import slug
from epibench.report.metric_info import metric_info
from epibench.report.numbers import count, listed, significant
from epibench.report.published_tables import published_part
from epibench.report.runs import (
    VIEWS,
    Run,
    by_problem,
    convergence_of,
    domains_of,
    entries_on,
    headline_names,
    kl_entries,
    problem_title,
)
from epibench.report.table import Block, Table, latex_text, markdown_text
from epibench.report.tables import kl_table, metric_part, metric_table

PREVIEW = r"""\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage{textcomp}
\usepackage{booktabs}
\begin{document}
%s
\end{document}
"""
EQUIVALENT = (
    "How many members an ensemble needs to score as a method does with M, by interpolation in the mean curve of the "
    "ensemble, linear in log M; bounds beyond its ends. In brackets, the 5 to 95\u00a0% interval of resampled draws."
)


@dataclass(frozen=True)
class TableFile:
    """A table for a document. name: of its file, without an ending; of: its domain or view of the KL."""

    name: str
    of: str
    table: Table

    @property
    def about(self) -> str:
        """A line on the content of the file."""
        titles = [block.title.label for block in self.table.blocks if block.title.label]
        return f"{self._title}{f': {listed(titles)}' if titles else ''} over M"

    @property
    def latex(self) -> str:
        """The table as a float, labelled `tab:` and its name."""
        return latex_text(replace(self.table, title=self._title), self.name)

    @property
    def _title(self) -> str:
        return self.of if self.table.title == self.of else f"{self.of}. {self.table.title}"


def _run_tables(runs: Sequence[Run]) -> Iterator[TableFile]:
    """Tables of each domain of each problem, and of each view of the KL of toy problems."""
    groups = by_problem(runs)
    for problem in groups:
        group, methods = problem.runs, problem.methods
        title, prefix = problem_title(group[0].problem), group[0].problem if len(groups) > 1 else ""
        if len(group) == 1 and group[0].evaluation:  # labels of several runs have it
            title += f" ({group[0].evaluation})"
        doubts = [text for text, converged in convergence_of(group) if not converged]
        for view in VIEWS:
            if entries := kl_entries(methods, view):
                floors = [significant(one, 2) for one in sorted({e.floor for e in entries if e.floor is not None})]
                more = [*([f"The noise floor of the reference is {listed(floors)}."] if floors else []), *doubts]
                table = _with_notes(kl_table(f"{title}: {view.name}", entries), ["kl"], entries, "", more)
                yield TableFile(slug(prefix, "kl", view.direction, view.region, view.convention), table.title, table)
        regions = () if domains_of(group) else ("inside", "outside")
        labels = {name: f"{name} of the training region" for name in regions}
        for domain in problem.domains:
            images = domain.num_images if group[0].counted == "pixels" else None
            sizes = ((images, "images"), (domain.num_pixels, f"valid {group[0].counted}"))
            about = [] if domain.role == "role unknown" else [str(domain.role)]
            about += [f"{count(number)} {what}" for number, what in sizes if number]
            labels[domain.name] = f"{domain.label} ({', '.join(about)})" if about else domain.label
        convention = listed(sorted({run.results.convention for run in group}))
        for domain_name, label in labels.items():
            if not (entries := entries_on(methods, domain_name)):
                continue
            name, of, metrics = slug(prefix, domain_name), f"{title}, {label}", headline_names(entries)
            parts = [metric_part(metric, entries) for metric in metrics]
            table = metric_table(of, parts, all_members(entries), "chance")
            yield TableFile(name, of, _with_notes(table, metrics, entries, convention))
            for one in class_tables(entries)[:1]:
                yield TableFile(slug(name, "classes"), of, one)
            for metric in equivalent_names(entries)[:1]:
                if found := equivalents_on(domain_name, methods, metric):
                    by = metric_info(metric).title
                    table = equivalent_table(f"Deep-ensemble equivalent by {by}", [(Block(), found)])
                    yield TableFile(slug(name, "equivalents"), of, replace(table, notes=[EQUIVALENT]))


def _with_notes(
    table: Table, metrics: Sequence[str], entries: Sequence[Entry], convention: str, more: Sequence[str] = ()
) -> Table:
    """The table with notes on spread, draws, convention, directions and marks."""
    draws = []
    for entry in entries:
        numbers = sorted({entry.num_draws(m) for m in entry.members})
        draws.append(f"{entry.label} {' to '.join(map(count, dict.fromkeys((numbers[0], numbers[-1]))))}")
    spread = any(entry.stat(name, m).std is not None for entry in entries for name in metrics for m in entry.members)
    what = "Mean ± standard deviation (of the population) over draws" if spread else "One draw"
    better = dict.fromkeys(block.better for block in table.blocks if block.better[:1] in ("↓", "↑"))
    notes = {
        f"{what} of M members; draws: {listed(draws)}.": True,
        f"Metrics follow the convention `{convention}`.": bool(convention),
        f"{', '.join(f'{text[0]}: {text[2:]}' for text in better) or 'Lower is better'}.": True,
        "Bold: leads by at least one standard error of the difference of independent draws.": len(entries) > 1,
        "≈: the leaders cannot be told apart.": any(cell.tied for cell in table.cells),
        "°: draws share most of their members, so that their standard deviation says little.": any(
            cell.overlaps for cell in table.cells
        ),
    }
    return replace(table, notes=[*(text for text, needed in notes.items() if needed), *more])


def tables_of(runs: Sequence[Run]) -> Iterator[TableFile]:
    """The tables of runs that are short enough for a page of LaTeX, with distinct names."""
    seen: Counter[str] = Counter()
    for one in _run_tables(runs):
        if one.table.corner != "class":
            seen[one.name] += 1
            yield replace(one, name=f"{one.name}-{seen[one.name]}") if seen[one.name] > 1 else one


def preview(names: Sequence[str]) -> str:
    """A document with all tables."""
    return PREVIEW % "\n".join(rf"\input{{{name}.tex}} \clearpage" for name in names)


def render_markdown(runs: Sequence[Run]) -> str:
    """All tables of some runs in Markdown, and published cells beside them."""
    parts, of = [], ""
    for one in _run_tables(runs):
        headings = [f"### {one.of}"] if one.of != of else []
        headings += [f"#### {one.table.title}"] if one.table.title != one.of else []
        notes = " ".join(one.table.notes).replace("<", "&lt;")
        parts.append("\n\n".join([*headings, markdown_text(one.table)]) + (f"\n{notes}\n" if notes else ""))
        of = one.of
    return "\n".join([*parts, *published_part(runs)])
