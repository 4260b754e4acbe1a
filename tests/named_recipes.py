"""Recipes by their names, with settings."""

from __future__ import annotations

from typing import Any

from epibench.recipes import RECIPES, apply_settings

NAMES = tuple(RECIPES)


def recipe_of(name: str, *settings: str) -> Any:
    """A recipe that comes with the package, with settings as `--set` takes them."""
    return apply_settings(RECIPES[name], settings)
