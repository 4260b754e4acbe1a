"""Recipes for the terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from epibench.console import output, show

if TYPE_CHECKING:
    from epibench.recipes import Recipe

WIDE = 100  # columns of a terminal on which the number of networks has room


def print_recipes(recipes: Sequence[Recipe], in_full: bool) -> None:
    """One recipe as JSON, or all with their cost, the quick ones first."""
    if in_full:
        typer.echo(json.dumps(recipes[0].model_dump(mode="json"), indent=1))
        return
    from rich.table import Table

    from epibench.results import QUICK

    quick = [recipe for recipe in recipes if recipe.name.endswith(QUICK)]
    quick.sort(key=lambda recipe: not recipe.on_images)
    others = [recipe for recipe in recipes if not recipe.name.endswith(QUICK)]
    console, rows = output(), list[list[str]]()
    heads = ("recipe", "time", "networks")[: 3 if console.width >= WIDE else 2]
    for recipe in (*quick, *others):
        networks = sum(recipe.method(name).num_trained for name in recipe.methods)
        cells = [recipe.name, time_of(recipe), f"{networks:,}"][: len(heads)]
        rows.append([*cells, recipe.about.removesuffix(f"; {QUICK[1:]}")])
    table = Table(box=None, pad_edge=False, header_style="bold")
    room = console.width
    for number, head in enumerate(heads):
        width = max(len(head), *(len(row[number]) for row in rows))
        table.add_column(head, no_wrap=True, min_width=width, justify="right" if number else "left")
        room -= width + 2
    table.add_column("purpose", no_wrap=True, overflow="ellipsis", max_width=max(room, 1))  # not the names
    for row in (*rows[: len(quick)], [], *rows[len(quick) :]):
        table.add_row(*row)
    console.print(table)
    show("")
    show("Start with: epibench run street-segmentation-quick")
    show("Times are rough: on two cores, or on one large GPU; –: not measured.")


def time_of(recipe: Recipe) -> str:
    """About how long a recipe takes, as `14 min` or `50 h, GPU`."""
    if recipe.minutes is None:
        return "–"
    time = f"{recipe.minutes:g} min" if recipe.minutes <= 120 else f"{recipe.minutes / 60:.0f} h"
    return time if recipe.machine == "two cores" else f"{time}, GPU"
