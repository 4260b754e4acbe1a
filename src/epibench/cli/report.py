"""`epibench report`: the page of a run made anew from its results, or one page that compares several runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from epibench.console import output, say
from epibench.errors import InputError
from epibench.files import write_text
from epibench.published import compare, totals, warnings_of
from epibench.published.resampling import LEVEL
from epibench.report import write_run_page
from epibench.report.entries import several_members, title_with_unit
from epibench.report.metric_info import BETTER_TEXT, metric_info
from epibench.report.run_page import failures, nothing_to_show
from epibench.report.runs import (
    VIEWS,
    Run,
    by_problem,
    convergence_of,
    entries_on,
    featured,
    headline_names,
    kl_entries,
    methods_of,
    read_runs,
    scored_domains,
)
from epibench.report.table import terminal_text
from epibench.report.table_files import render_markdown
from epibench.report.tables import kl_table, metric_part, metric_table
from epibench.report.verdicts import finding, kl_verdict, verdict
from epibench.results import RESULTS_NAME, Results, load_results

PAGE_NAME = "report.html"


def run_report(runs: list[Path], out: Path | None, markdown: Path | None) -> None:
    """Read every run and scored file, write the page and the Markdown, show the tables, and say where everything is."""
    results, names = [load_results(path) for path in runs], [run_name(path) for path in runs]
    folders = [run_folder(path) for path in runs]
    page = out or (folders[0] / PAGE_NAME if len(runs) == 1 else Path(PAGE_NAME))
    check_outputs(page, markdown, folders, runs)
    try:
        write_run_page(results, page, names)
        if markdown is not None:
            write_text(markdown, render_markdown(read_runs(results, names)))
    except OSError as error:
        raise InputError(
            f"{error.filename or page}: cannot be written ({error.strerror}); give another place"
        ) from None
    print_run_tables(results, names)
    for word, path in (("report: ", page), ("markdown:", markdown)):
        if path is not None:
            say(f"{word} {path}")


def run_name(path: Path) -> str:
    """What to call a run: by its folder, or by its file where that has a name of its own."""
    return path.stem if path.is_file() and path.name != RESULTS_NAME else run_folder(path).name


def run_folder(path: Path) -> Path:
    """The folder of a run, or that of its results."""
    return (path if path.is_dir() else path.parent).resolve()


def check_outputs(page: Path, markdown: Path | None, folders: Sequence[Path], runs: Sequence[Path] = ()) -> None:
    """Refuse to write over what a run, or a score, has written."""
    for path in (page, markdown):
        if path is None:
            continue
        if path.is_dir():
            raise InputError(f"{path} is a folder: give the name of a file in it")
        given = path.resolve() in [run.resolve() for run in runs]
        if given or (path.resolve().parent in folders and path.name in ("results.json", "recipe.json")):
            raise InputError(f"{path}: would be written over a file of the run; give another place")


def print_run_tables(results: Sequence[Results], names: Sequence[str] = ()) -> None:
    """The KL of every method at each M beside the noise floor, or its metrics on every domain, and published cells."""
    for runs in by_problem(read_runs(results, names)):
        print_problem(runs)
        for line in (*failures(runs), *(line for run in runs for line in published_lines(run))):
            output().print(line, soft_wrap=True)


def print_problem(runs: Sequence[Run]) -> None:
    """Tables for the runs of one problem, and what was found."""
    problem, methods, console = runs[0].problem, methods_of(runs), output()
    if entries := kl_entries(methods, VIEWS[0]):
        table = kl_table(f"{problem}: {VIEWS[0].name}", entries)
        console.print(table.title, style="bold", soft_wrap=True)
        console.print(terminal_text(table, console.width, drop_first=True), soft_wrap=True)
        console.print(f"{kl_verdict(entries)['finding']}.", soft_wrap=True)
        for text, _ in convergence_of(runs):
            console.print(text, soft_wrap=True)
        console.print()
        return
    domains = scored_domains(runs, methods)
    if not domains:
        console.print(f"{problem}: {nothing_to_show(runs)}", soft_wrap=True)
        return
    scored = {domain.name: entries_on(methods, domain.name) for domain in domains}
    everything = [entry for entries in scored.values() for entry in entries]
    headlines = headline_names(everything)
    for name in headlines:
        title = f"{problem}: {title_with_unit(name, everything)}, {BETTER_TEXT[metric_info(name).better][2:]}"
        parts = [metric_part(name, scored[domain.name], domain.label) for domain in domains]
        table = metric_table(title, parts, several_members(everything), "chance")
        console.print(table.title, style="bold", soft_wrap=True)
        console.print(terminal_text(table, console.width, drop_first=True), soft_wrap=True)
        console.print()
    for domain in featured(domains, methods):
        verdicts = [verdict(name, scored[domain.name]) for name in headlines]
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
