"""Which figure, panel and series of the paper a method of a recipe stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from epibench.recipes.experiment import QUICK

TOY = "toy_problems_quantative_results"  # spelled as the paper's source does
PANELS = {"toy-regression": "Regression", "toy-classification": "Classification"}
FIGURES = {
    "": TOY,
    "-sgd": f"{TOY}_SGD",
    "-momentum": f"{TOY}_SGDMOM",
    "-less-training": f"{TOY}_SGDMOM_less_training",
    "-dropout": f"{TOY}_mcdropout_adam",
}
SERIES = {
    "": {"ensemble": "Ensembling", "mc_dropout": "MC-dropout", "sgld": "SGLD", "sghmc": "SGHMC"},
    "-sgd": {"ensemble": "Ensembling - SGD", "mc_dropout": "MC-dropout - SGD", "sgld": "SGLD", "sghmc": "SGHMC"},
    "-momentum": {
        "ensemble": "Ensembling - SGDMOM",
        "mc_dropout": "MC-dropout - SGDMOM",
        "sgld": "SGLD",
        "sghmc": "SGHMC",
    },
    "-less-training": {
        "ensemble": "Ensembling - SGDMOM",
        "mc_dropout": "MC-dropout - SGDMOM",
        "sgld": "SGLD-64",
        "sghmc": "SGHMC-64",
    },
}


@dataclass(frozen=True)
class Place:
    """A figure and panel of the paper, and the run's method behind each of its series that there is one for."""

    figure: str
    panel: str
    methods: dict[str, str]


def is_quick(name: str) -> bool:
    """Whether a recipe is the quick variant of another."""
    return name.endswith(QUICK)


def base_recipe(name: str) -> str:
    """The name of a recipe without the suffix of its quick variant."""
    return name.removesuffix(QUICK)


def place_of(recipe: Mapping[str, Any]) -> Place | None:
    """Where the paper shows what a recipe does; None for a recipe of our own."""
    name = base_recipe(str(recipe.get("name") or ""))
    problem = next((problem for problem in PANELS if name.startswith(problem)), None)
    if problem is None or (variant := name.removeprefix(problem)) not in FIGURES:
        return None
    if problem == "toy-classification" and variant == "-less-training":
        return None
    if variant == "-dropout":
        methods = _by_rate(recipe)
    else:
        methods = {series: method for method, series in SERIES[variant].items()}
    return Place(FIGURES[variant], PANELS[problem], methods)


def _by_rate(recipe: Mapping[str, Any]) -> dict[str, str]:
    """Methods of the dropout figure by the name of their rate; the star marks the rate that the paper chose."""
    methods = {}
    for method, variant in {"mc_dropout": recipe.get("mc_dropout"), **(recipe.get("variants") or {})}.items():
        options = variant if isinstance(variant, Mapping) else {}
        rate = (options.get("options") or {}).get("rate", options.get("rate"))
        if isinstance(rate, int | float):
            methods.update({f"p = {rate:g}": method, f"*p = {rate:g}": method})
    return methods
