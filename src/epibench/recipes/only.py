"""A part of a recipe's networks, e.g. `ensemble:3-5` or `2/8`, for training on several machines."""

from __future__ import annotations

import re
from collections.abc import Sequence

from epibench.errors import ArgumentError
from epibench.plans import equal_parts
from epibench.recipes.dense import DenseRecipe
from epibench.recipes.experiment import Recipe

PART = re.compile(r"(\d+)(?:-(\d+))?")


def networks_asked_for(texts: Sequence[str], recipe: Recipe, option: str = "only") -> dict[str, tuple[int, ...] | None]:
    """The networks by method, None for all of one: `METHOD`, `METHOD:3-5`, `METHOD:0,4-6`. option: names them."""
    asked: dict[str, tuple[int, ...] | None] = {}
    for text in texts:
        name, colon, numbers = text.partition(":")
        if name not in recipe.methods:
            raise ArgumentError(
                f"{option} {text}: {recipe.name} has no method '{name}'; it has {', '.join(recipe.methods)}"
            )
        before = asked.get(name, ())
        if not colon or before is None:
            asked[name] = None
            continue
        if not isinstance(recipe, DenseRecipe):
            raise ArgumentError(f"{option} {text}: the networks of {name} are trained together; give {option} {name}")
        chosen = _numbers(numbers, f"{option} {text}", recipe.method(name).num_trained)
        asked[name] = tuple(sorted({*before, *chosen}))
    return asked


def _numbers(text: str, place: str, count: int) -> list[int]:
    """Return the numbers of `0,4-6`, all below `count`."""
    chosen = list[int]()
    for part in text.split(","):
        match = PART.fullmatch(part)
        if match is None:
            raise ArgumentError(f"{place}: '{part}' is no number of a network; give numbers as 3-5 or 0,4")
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last or last >= count:
            raise ArgumentError(f"{place}: there is no '{part}'; the networks have the numbers 0 to {count - 1}")
        chosen += range(first, last + 1)
    return chosen


def networks_of_shard(recipe: Recipe, number: int, count: int) -> dict[str, tuple[int, ...] | None]:
    """The networks of one of `count` shards (from 1) with about equal steps, perhaps none."""
    together = not isinstance(recipe, DenseRecipe)
    units = [(name, 0) for name in recipe.methods] if together else every_network(recipe)
    # Networks that start from other networks are trained with them: both are one unit of work.
    works = dict[tuple[str, int], int]()
    for name, network in units:
        steps = recipe.training_steps(name) * (recipe.method(name).num_trained if together else 1)
        first = (_first(recipe, name), network)
        works[first] = works.get(first, 0) + max(1, steps)
    parts = dict(zip(works, equal_parts(list(works.values()), count), strict=True))
    chosen: dict[str, tuple[int, ...] | None] = {}
    for name, network in units:
        if parts[_first(recipe, name), network] == number - 1:
            chosen[name] = None if together else (*(chosen.get(name) or ()), network)
    return chosen


def _first(recipe: Recipe, name: str) -> str:
    """Return the method at the start of a method's chain of sources."""
    return (name, *recipe.sources(name))[-1]


def every_network(recipe: Recipe) -> list[tuple[str, int]]:
    """Return all networks of a recipe, by method and number."""
    return [(name, network) for name in recipe.methods for network in range(recipe.method(name).num_trained)]


def parse_shard(text: str) -> tuple[int, int]:
    """Return the numbers of `2/8`."""
    number, slash, count = text.partition("/")
    if not (slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise ArgumentError(f"shard {text}: give the number of the shard and how many there are, as 1/8 to 8/8")
    return int(number), int(count)
