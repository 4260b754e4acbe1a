"""Tables of runs for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from epibench.console import output
from epibench.published import compare, totals, warnings_of
from epibench.published.resampling import LEVEL
from epibench.report.entries import several_members, title_with_unit
from epibench.report.metric_info import BETTER_TEXT, metric_info
from epibench.report.run_page import failures, nothing_to_show
from epibench.report.runs import (
    VIEWS,
    Problem,
    Run,
    by_problem,
    convergence_of,
    kl_entries,
    read_runs,
)
from epibench.report.table import terminal_text
from epibench.report.tables import kl_table, metric_part, metric_table
from epibench.report.verdicts import finding, kl_verdict, verdict
from epibench.results import Results


def print_run_tables(results: Sequence[Results], names: Sequence[str] = ()) -> None:
    """Print the KL or the metrics of every method, and published cells."""
    for problem in by_problem(read_runs(results, names)):
        print_problem(problem)
        for line in (*failures(problem.runs), *(line for run in problem.runs for line in published_lines(run))):
            output().print(line, soft_wrap=True)


def print_problem(problem: Problem) -> None:
    """Print tables for the runs of one problem, and what was found."""
    runs, title, console = problem.runs, problem.runs[0].problem, output()
    if entries := kl_entries(problem.methods, VIEWS[0]):
        table = kl_table(f"{title}: {VIEWS[0].name}", entries)
        console.print(table.title, style="bold", soft_wrap=True)
        console.print(terminal_text(table, console.width, drop_first=True), soft_wrap=True)
        console.print(f"{kl_verdict(entries)['finding']}.", soft_wrap=True)
        for text, _ in convergence_of(runs):
            console.print(text, soft_wrap=True)
        console.print()
        return
    if not problem.domains:
        console.print(f"{title}: {nothing_to_show(runs)}", soft_wrap=True)
        return
    for name in problem.headlines:
        heading = f"{title}: {title_with_unit(name, problem.everywhere)}, {BETTER_TEXT[metric_info(name).better][2:]}"
        parts = [metric_part(name, problem.entries[domain.name], domain.label) for domain in problem.domains]
        table = metric_table(heading, parts, several_members(problem.everywhere), "chance")
        console.print(table.title, style="bold", soft_wrap=True)
        console.print(terminal_text(table, console.width, drop_first=True), soft_wrap=True)
        console.print()
    for domain in problem.first:
        verdicts = [verdict(name, problem.entries[domain.name]) for name in problem.headlines]
        console.print(f"{domain.title}: {finding(verdicts)}", soft_wrap=True)
    console.print()


def published_lines(run: Run) -> list[str]:
    """How many published cells agree, and what keeps them from being comparable; nothing where none are published."""
    counts = totals(compare(run.results))
    if not counts.compared:
        return []
    have = "has" if counts.compared == 1 else "have"
    line = (
        f"{run.name}: of {counts.published} published cells {counts.compared} {have} a value of ours; "
        f"{counts.within_std} within one published std, {counts.unlike} of {counts.judged} with p < {LEVEL:g} "
        f"({counts.expected:.1f} expected by chance)"
    )
    return [line, *(f"  {warning}" for warning in warnings_of(run.results))]
