"""`epibench run`: train, evaluate, report; and `epibench recipes`."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from epibench.cli.progress import ConsoleReporter
from epibench.cli.report import print_run_tables
from epibench.cli.score import resolve_device
from epibench.errors import InputError
from epibench.recipes import RECIPES, DenseRecipe, Recipe, apply_settings, find_recipe
from epibench.recipes.experiment import QUICK
from epibench.recipes.settings import fixed
from epibench.report import write_run_page
from epibench.results import RunResults, load_results
from epibench.runs.folder import RunFolder
from epibench.runs.run import carry_out
from epibench.runs.train import Machine

RUNS = Path("runs")


def run_recipe(name: str, out: Path | None, settings: list[str], device: str, executor: str, jobs: int | None) -> None:
    """Carry a recipe out in its folder, or go on where it stopped; then show what came out."""
    if executor != "local":
        raise InputError(f"--executor '{executor}' is unknown: there is local")
    recipe = apply_settings(find_recipe(name), settings)
    folder = RunFolder(out if out is not None else RUNS / recipe.name)
    reporter = ConsoleReporter(Console(stderr=True))
    reporter.say(f"{recipe.name} in {folder.path}")
    results = load_results(folder.results) if folder.results.is_file() else None
    if results is not None and not results.intact:
        reporter.say(f"{folder.results}: damaged, its checksum does not fit what it holds; it is made anew")
        results = None
    if results is not None and not results.failed and belongs(results, recipe):
        folder.claim(recipe)
        reporter.say("finished already; remove its results.json to evaluate it again")
    else:
        machine = Machine.of(torch.device(resolve_device(device)), jobs)
        results = carry_out(recipe, folder, machine, reporter)
    page = write_run_page([results.model_dump(mode="json")], folder.report)
    print_run_tables(results.model_dump(mode="json"), Console())
    reporter.say(f"results: {folder.results}")
    reporter.say(f"report:  {page}")
    if results.failed:
        raise InputError("; ".join(results.failed.values()))


def belongs(results: RunResults, recipe: Recipe) -> bool:
    """Whether results are those of a recipe."""
    if isinstance(recipe, DenseRecipe) and results.data_versions != recipe.data.versions:
        return False  # the street, or a class table, is another now
    return fixed(results.recipe) == fixed(recipe.model_dump(mode="json"))


def recipe_text(name: str, settings: list[str]) -> str:
    """A recipe with settings as the JSON of a recipe file."""
    return json.dumps(apply_settings(find_recipe(name), settings).model_dump(mode="json"), indent=1)


def print_recipes(console: Console) -> None:
    """All recipes with what they do and cost; the quick variants in one line."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("recipe", no_wrap=True)
    table.add_column("what it does")
    table.add_column("networks", justify="right")
    table.add_column("time", justify="right", no_wrap=True)
    for recipe in RECIPES.values():
        if not recipe.name.endswith(QUICK):
            networks = sum(recipe.method(name).num_trained for name in recipe.methods)
            table.add_row(recipe.name, recipe.about, f"{networks:,}", time_of(recipe))
    console.print(table)
    console.print(
        f"\nTimes are rough: on two cores, or on one large GPU. Toy recipes, street-depth and street-segmentation also "
        f"as RECIPE{QUICK}, smaller: two or three minutes.",
        highlight=False,
        soft_wrap=True,
    )


def time_of(recipe: Recipe) -> str:
    """About how long a recipe takes, as `14 min` or `50 h, GPU`."""
    if recipe.minutes is None:
        return "–"
    time = f"{recipe.minutes:g} min" if recipe.minutes <= 120 else f"{recipe.minutes / 60:.0f} h"
    return time if recipe.machine == "two cores" else f"{time}, GPU"
