"""`epibench train`: the first step of a run, alone."""

from __future__ import annotations

from epibench.cli.options import Device, Settings
from epibench.cli.steps import Jobs, Out, RecipeOrRun, folder_of, local_folder, local_recipe, open_run
from epibench.errors import InputError


def train(
    recipe: RecipeOrRun, out: Out = None, settings: Settings = None, device: Device = "auto", jobs: Jobs = None
) -> None:
    """Train the networks of a recipe that are missing, and nothing else. What is trained is not trained again."""
    from epibench.recipes import apply_settings, find_recipe

    recipe = local_recipe(recipe)
    chosen = apply_settings(find_recipe(recipe), settings or [])
    opened = open_run(chosen, folder_of(recipe, chosen, None if out is None else local_folder(out)), device, jobs)
    from epibench.runs import run

    failed = run.train(opened)
    opened.reporter.say(f"networks: {opened.folder.members}; epibench evaluate {opened.folder.path} evaluates them")
    if failed:
        raise InputError("; ".join(failed.values()))
