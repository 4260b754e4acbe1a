"""`epibench run`: train, evaluate, report."""

from __future__ import annotations

from typing import Annotated

import typer

from epibench.cli.options import Device, Settings
from epibench.cli.steps import Jobs, Out, RecipeOrRun, finished, folder_of, open_run, publish
from epibench.errors import InputError


def run(
    recipe: RecipeOrRun,
    out: Out = None,
    settings: Settings = None,
    device: Device = "auto",
    executor: Annotated[str, typer.Option(metavar="NAME", help="Where it runs: local.")] = "local",
    jobs: Jobs = None,
) -> None:
    """Train, evaluate, report. A run that was stopped goes on where it stopped; what is there is not done again."""
    if executor != "local":
        raise InputError(f"--executor '{executor}' is unknown: there is local")
    from epibench.recipes import apply_settings, find_recipe

    chosen = apply_settings(find_recipe(recipe), settings or [])
    opened = open_run(chosen, folder_of(recipe, chosen, out), device, jobs)
    results = finished(opened)
    if results is None:
        from epibench.runs.run import carry_out

        results = carry_out(chosen, opened.folder, opened.machine, opened.reporter)
    publish(opened, results)
