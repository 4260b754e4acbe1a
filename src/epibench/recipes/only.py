"""Some of the networks of a recipe, as `ensemble:3-5`: so that several machines train a part each."""

from __future__ import annotations

import re
from collections.abc import Sequence

from epibench.errors import InputError
from epibench.recipes.dense import DenseRecipe
from epibench.recipes.experiment import Recipe

PART = re.compile(r"(\d+)(?:-(\d+))?")


def networks_asked_for(texts: Sequence[str], recipe: Recipe, option: str) -> dict[str, tuple[int, ...] | None]:
    """The networks by method, None for all of one: `METHOD`, `METHOD:3-5`, `METHOD:0,4-6`. option: names them."""
    asked: dict[str, tuple[int, ...] | None] = {}
    for text in texts:
        name, colon, numbers = text.partition(":")
        if name not in recipe.methods:
            raise InputError(
                f"{option} {text}: {recipe.name} has no method '{name}'; it has {', '.join(recipe.methods)}"
            )
        before = asked.get(name, ())
        if not colon or before is None:
            asked[name] = None
            continue
        if not isinstance(recipe, DenseRecipe):
            raise InputError(f"{option} {text}: the networks of {name} are trained together; give {option} {name}")
        chosen = _numbers(numbers, f"{option} {text}", recipe.method(name).num_trained)
        asked[name] = tuple(sorted({*before, *chosen}))
    return asked


def _numbers(text: str, place: str, count: int) -> list[int]:
    """`0,4-6` as numbers, all below `count`."""
    chosen = list[int]()
    for part in text.split(","):
        match = PART.fullmatch(part)
        if match is None:
            raise InputError(f"{place}: '{part}' is no number of a network; give numbers as 3-5 or 0,4")
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last or last >= count:
            raise InputError(f"{place}: there is no '{part}'; the networks have the numbers 0 to {count - 1}")
        chosen += range(first, last + 1)
    return chosen
