"""`epibench run`: train, evaluate, report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from epibench.cli.console import ConsoleReporter
from epibench.cli.options import Device, Settings, at_least, resolve_device
from epibench.errors import InputError

if TYPE_CHECKING:
    from epibench.recipes import Recipe
    from epibench.results import RunResults

RUNS = Path("runs")


def run(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="A recipe (see epibench recipes), or a recipe file (.json).")
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The folder of the run. Default: runs/RECIPE.")
    ] = None,
    settings: Settings = None,
    device: Device = "auto",
    executor: Annotated[str, typer.Option(metavar="NAME", help="Where it runs: local.")] = "local",
    jobs: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            callback=at_least(1),
            help="Large networks trained at once. Default: one per core, or one on a GPU.",
        ),
    ] = None,
) -> None:
    """Train, evaluate, report. A run that was stopped goes on where it stopped."""
    if executor != "local":
        raise InputError(f"--executor '{executor}' is unknown: there is local")
    from epibench.recipes import apply_settings, find_recipe

    chosen = apply_settings(find_recipe(recipe), settings or [])
    from epibench.cli.report import print_run_tables
    from epibench.report import write_run_page
    from epibench.results import load_results
    from epibench.runs.folder import RunFolder

    folder = RunFolder(out if out is not None else RUNS / chosen.name)
    reporter = ConsoleReporter()
    reporter.say(f"{chosen.name} in {folder.path}")
    results = load_results(folder.results) if folder.results.is_file() else None
    if results is not None and not results.intact:
        reporter.say(f"{folder.results}: damaged, its checksum does not fit what it holds; it is made anew")
        results = None
    if results is not None and not results.failed and belongs(results, chosen):
        folder.claim(chosen)
        reporter.say("finished already; remove its results.json and evaluation/ to evaluate it again")
    else:
        import torch

        from epibench.runs.run import carry_out
        from epibench.runs.train import Machine

        machine = Machine.of(torch.device(resolve_device(device)), jobs)
        results = carry_out(chosen, folder, machine, reporter)
    page = write_run_page([results], folder.report)
    print_run_tables([results])
    reporter.say(f"results: {folder.results}")
    reporter.say(f"report:  {page}")
    if results.failed:
        raise InputError("; ".join(results.failed.values()))


def belongs(results: RunResults, recipe: Recipe) -> bool:
    """Whether results are those of a recipe."""
    from epibench.recipes import DenseRecipe
    from epibench.recipes.settings import fixed

    if isinstance(recipe, DenseRecipe) and results.data_versions != recipe.data.versions:
        return False  # the street, or a class table, is another now
    return fixed(results.recipe) == fixed(recipe.model_dump(mode="json"))
