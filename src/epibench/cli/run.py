"""`epibench run`: train, evaluate, report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epibench.cli.options import Device, Settings
from epibench.cli.steps import (
    ExecutorName,
    Jobs,
    Out,
    RecipeOrRun,
    finished,
    folder_of,
    local_recipe,
    opened_run,
)
from epibench.errors import InputError
from epibench.progress import Reporter

if TYPE_CHECKING:
    from epibench.results import Results
    from epibench.runs.folder import RunFolder


def run(
    recipe: RecipeOrRun,
    out: Out = None,
    settings: Settings = None,
    device: Device = "auto",
    executor: ExecutorName = "local",
    jobs: Jobs = None,
) -> None:
    """Train, evaluate, report. A run that was stopped goes on where it stopped; what is there is not done again."""
    from epibench.recipes import apply_settings, find_recipe

    recipe = local_recipe(recipe)
    chosen = apply_settings(find_recipe(recipe), settings or [])
    with opened_run(chosen, folder_of(recipe, chosen, out), device, jobs, executor) as opened:
        results = finished(opened)
        if results is None:
            from epibench.runs.run import train_and_evaluate

            results = train_and_evaluate(opened)
    publish(opened.folder, results, opened.reporter)


def publish(folder: RunFolder, results: Results, reporter: Reporter) -> None:
    """Write the page of a run, print the tables of its newest evaluation, and name the files."""
    from epibench.cli.report import print_run_tables
    from epibench.report import write_run_page
    from epibench.report.runs import older_runs, read_runs

    page = write_run_page([results], folder.report_file)
    print_run_tables([results])
    older = [run.evaluation for run in older_runs(read_runs([results]))]
    reporter.say(f"results: {folder.results_file}")
    reporter.say(f"report:  {page}" + (f", with earlier evaluations: {'; '.join(older)}" if older else ""))
    if results.failed:
        raise InputError("; ".join(results.failed.values()))
