"""The paper's plots: their 269 cells, 203 of them of the toy problems, and which of them a recipe stands for."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from epibench.results import QUICK

TOY = "toy_problems_quantative_results"  # spelled as the paper's source does
PANELS = {"toy-regression": "Regression", "toy-classification": "Classification"}
TOY_FIGURES = {
    "": TOY,
    "-sgd": f"{TOY}_SGD",
    "-momentum": f"{TOY}_SGDMOM",
    "-less-training": f"{TOY}_SGDMOM_less_training",
    "-dropout": f"{TOY}_mcdropout_adam",
}
TOY_SERIES = {
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
DENSE_METHODS = {"Ensembling": "ensemble", "MC-dropout": "mc_dropout"}


@dataclass(frozen=True)
class Row:
    """One published cell: where it is shown, and its mean and population std."""

    figure: str
    panel: str
    metric: str
    series: str
    members: int
    mean: float
    std: float

    @property
    def identity(self) -> tuple[str, str, int, float, float]:
        """What two rows have in common if they show the same result in two figures."""
        return self.panel, self.metric, self.members, self.mean, self.std

    @property
    def is_kl(self) -> bool:
        """Whether it is of a toy problem, where the KL is the only metric."""
        return self.metric.startswith("KL")


@dataclass(frozen=True)
class ToyPanel:
    """A panel of a figure, and the run's method behind each of its series that there is one for."""

    figure: str
    panel: str
    methods: dict[str, str]


@dataclass(frozen=True)
class DenseFigure:
    """A figure of the paper: our domain, our metric behind each of its panels, and the draws behind its cells."""

    recipes: str  # names of recipes begin with it
    figure: str
    domain: str
    metrics: dict[str, str]
    num_networks: dict[str, int]
    num_sets: dict[int, int]  # random sets of ensemble networks for each M


DEPTH = DenseFigure(
    recipes="kitti-depth",
    figure="depth_completion_ause_auce",
    domain="kitti",
    metrics={"AUSE": "ause", "AUCE": "auce", "RMSE [mm]": "rmse"},
    num_networks={"ensemble": 33, "mc_dropout": 16},
    num_sets={1: 32, 2: 16, 4: 16, 8: 16, 16: 16, 32: 4},
)
SEGMENTATION = DenseFigure(
    recipes="cityscapes",
    figure="segmentation_ause_ece_miou",
    domain="cityscapes",
    metrics={"AUSE": "ause", "ECE": "ece", "mIoU [%]": "miou"},
    num_networks={"ensemble": 26, "mc_dropout": 8},
    num_sets=dict.fromkeys((1, 2, 4, 8, 16), 8),
)


@cache
def published_rows() -> tuple[Row, ...]:
    """Every published cell, in the order of the paper's figures."""
    text = resources.files("epibench.published").joinpath("results.csv").read_text(encoding="utf-8")
    return tuple(
        Row(
            line["figure"],
            line["panel"],
            line["metric"],
            line["series"],
            int(line["M"]),
            float(line["mean"]),
            float(line["std"]),
        )
        for line in csv.DictReader(text.splitlines())
    )


def distinct_rows(rows: Iterable[Row]) -> list[Row]:
    """Rows without those that repeat an earlier one: some series are shown in several figures."""
    return list({row.identity: row for row in reversed(list(rows))}.values())[::-1]


def is_quick(name: str) -> bool:
    """Whether a recipe is the quick variant of another."""
    return name.endswith(QUICK)


def base_recipe(name: str) -> str:
    """The name of a recipe without the suffix of its quick variant."""
    return name.removesuffix(QUICK)


def dense_figure(recipe_name: str) -> DenseFigure | None:
    """The figure that shows what a recipe does; None where there is none."""
    return next((figure for figure in (DEPTH, SEGMENTATION) if recipe_name.startswith(figure.recipes)), None)


def toy_panel(recipe: Mapping[str, Any]) -> ToyPanel | None:
    """Where the paper shows what a recipe does; None for a recipe of our own."""
    name = base_recipe(str(recipe.get("name") or ""))
    problem = next((problem for problem in PANELS if name.startswith(problem)), None)
    if problem is None or (variant := name.removeprefix(problem)) not in TOY_FIGURES:
        return None
    if problem == "toy-classification" and variant == "-less-training":
        return None
    if variant == "-dropout":
        methods = _methods_by_rate(recipe)
    else:
        methods = {series: method for method, series in TOY_SERIES[variant].items()}
    return ToyPanel(TOY_FIGURES[variant], PANELS[problem], methods)


def _methods_by_rate(recipe: Mapping[str, Any]) -> dict[str, str]:
    """Methods of the dropout figure by the name of their rate; the star marks the rate that the paper chose."""
    methods = {}
    for method, variant in {"mc_dropout": recipe.get("mc_dropout"), **(recipe.get("variants") or {})}.items():
        options = variant or {}
        rate = (options.get("options") or {}).get("rate", options.get("rate"))
        if rate is not None:
            methods.update({f"p = {rate:g}": method, f"*p = {rate:g}": method})
    return methods
