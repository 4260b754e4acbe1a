"""`epibench recipes`: all recipes, or one of them in full."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from epibench.cli.console import output, show
from epibench.cli.options import Settings
from epibench.errors import InputError

if TYPE_CHECKING:
    from epibench.recipes import Recipe


def recipes(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[RECIPE]", help="Write this recipe as JSON, to be edited and run; or that of a run."),
    ] = None,
    settings: Settings = None,
) -> None:
    """All recipes, with what they do and cost; or one of them in full: recipes RECIPE > mine.json."""
    if name is not None:
        from epibench.recipes import apply_settings, find_recipe

        typer.echo(json.dumps(apply_settings(find_recipe(name), settings or []).model_dump(mode="json"), indent=1))
    elif settings:
        raise InputError("--set changes one recipe: give its name, too")
    else:
        print_recipes()


def print_recipes() -> None:
    """All recipes with what they do and cost; the quick variants in one line."""
    from rich.table import Table

    from epibench.recipes import RECIPES
    from epibench.results import QUICK

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("recipe", no_wrap=True)
    table.add_column("what it does")
    table.add_column("networks", justify="right")
    table.add_column("time", justify="right", no_wrap=True)
    for recipe in RECIPES.values():
        if not recipe.name.endswith(QUICK):
            networks = sum(recipe.method(name).num_trained for name in recipe.methods)
            table.add_row(recipe.name, recipe.about, f"{networks:,}", time_of(recipe))
    output().print(table)
    show("")
    show(
        "Times are rough: on two cores, or on one large GPU. Toy recipes, street-depth and street-segmentation also "
        f"as RECIPE{QUICK}, smaller: two or three minutes."
    )


def time_of(recipe: Recipe) -> str:
    """About how long a recipe takes, as `14 min` or `50 h, GPU`."""
    if recipe.minutes is None:
        return "–"
    time = f"{recipe.minutes:g} min" if recipe.minutes <= 120 else f"{recipe.minutes / 60:.0f} h"
    return time if recipe.machine == "two cores" else f"{time}, GPU"
