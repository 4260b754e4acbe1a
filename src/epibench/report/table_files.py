"""Tables of results for documents: LaTeX files and Markdown, each with notes on how to read it.

Bold marks a lead of the judge, and nothing else; beside published cells, bold marks a difference.
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
    methods_of,
    problem_title,
    scored_domains,
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
    def title(self) -> str:
        """What it is of, and what it shows of that."""
        return self.of if self.table.title == self.of else f"{self.of}. {self.table.title}"

    @property
    def about(self) -> str:
        """What the file shows, in a line."""
        titles = [block.title.label for block in self.table.blocks if block.title.label]
        return f"{self.title}{f': {listed(titles)}' if titles else ''} over M"

    @property
    def latex(self) -> str:
        """The table as a float, labelled `tab:` and its name."""
        return latex_text(replace(self.table, title=self.title), self.name)


def run_tables(runs: Sequence[Run]) -> Iterator[TableFile]:
    """Tables of each domain of each problem, and of each way to measure the KL of toy problems."""
    groups = by_problem(runs)
    for group in groups:
        methods, problem = methods_of(group), group[0].problem
        title, prefix = problem_title(problem), problem if len(groups) > 1 else ""
        if len(group) == 1 and group[0].evaluation:  # of several runs every label says it
            title += f" ({group[0].evaluation})"
        doubts = [text for text, converged in convergence_of(group) if not converged]
        for view in VIEWS:
            if entries := kl_entries(methods, view):
                floors = [significant(one, 2) for one in sorted({e.floor for e in entries if e.floor is not None})]
                more = [*([f"The noise floor of the reference is {listed(floors)}."] if floors else []), *doubts]
                table = with_notes(kl_table(f"{title}: {view.name}", entries), ["kl"], entries, "", more)
                name = slug(prefix, "kl", view.direction, view.region, view.convention)
                yield TableFile(name, table.title, table)
        labels = {}
        for domain in scored_domains(group, methods):
            images = domain.num_images if group[0].counted == "pixels" else None
            sizes = ((images, "images"), (domain.num_pixels, f"valid {group[0].counted}"))
            about: list[str] = ["" if domain.role == "role unknown" else domain.role]
            about += [f"{count(number)} {what}" for number, what in sizes if number]
            labels[domain.name] = f"{domain.label} ({', '.join(filter(None, about))})" if any(about) else domain.label
        if not domains_of(group):
            labels = {name: f"{name} of the training region" for name in ("inside", "outside")}
        convention = listed(sorted({run.results.convention for run in group}))
        for domain_name, label in labels.items():
            if not (entries := entries_on(methods, domain_name)):
                continue
            name, of = slug(prefix, domain_name), f"{title}, {label}"
            yield TableFile(name, of, headline_table(of, entries, convention))
            for one in class_tables(entries)[:1]:
                yield TableFile(slug(name, "classes"), of, one)
            for metric in equivalent_names(entries)[:1]:
                if found := equivalents_on(domain_name, methods, metric):
                    by = metric_info(metric).title
                    table = equivalent_table(f"Deep-ensemble equivalent by {by}", [(Block(), found)])
                    yield TableFile(slug(name, "equivalents"), of, replace(table, notes=[EQUIVALENT]))


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
    for one in run_tables(runs):
        if one.table.corner != "class":
            seen[one.name] += 1
            yield replace(one, name=f"{one.name}-{seen[one.name]}") if seen[one.name] > 1 else one


def preview(names: Sequence[str]) -> str:
    """A document that shows all tables."""
    return PREVIEW % "\n".join(rf"\input{{{name}.tex}} \clearpage" for name in names)


def render_markdown(runs: Sequence[Run]) -> str:
    """All tables of some runs in Markdown, and what was published beside them."""
    parts, of = [], ""
    for one in run_tables(runs):
        headings = [f"### {one.of}"] if one.of != of else []
        headings += [f"#### {one.table.title}"] if one.table.title != one.of else []
        notes = " ".join(one.table.notes).replace("<", "&lt;")
        parts.append("\n\n".join([*headings, markdown_text(one.table)]) + (f"\n{notes}\n" if notes else ""))
        of = one.of
    return "\n".join([*parts, *published_part(runs)])
