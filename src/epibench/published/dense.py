"""The published figures of depth completion and segmentation, and where a run of ours has the same quantities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from epibench.published.independence import independent_draws
from epibench.published.rows import Row

METHODS = {"Ensembling": "ensemble", "MC-dropout": "mc_dropout"}
IN_MILLIMETRES = {"m": 1000.0, "mm": 1.0}


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
FIGURES = (DEPTH, SEGMENTATION)


def dense_figure(recipe_name: str) -> DenseFigure | None:
    """The figure that shows what a recipe does; None where there is none."""
    return next((figure for figure in FIGURES if recipe_name.startswith(figure.recipes)), None)


def dense_stat(row: Row, results: Mapping[str, Any], figure: DenseFigure) -> dict[str, Any]:
    """Our mean, std and number of draws behind a published cell, in its unit; empty where there are none."""
    found: Any = results.get("summary")
    for key in (METHODS[row.series], figure.domain, str(row.members), figure.metrics[row.metric]):
        found = found.get(key) if isinstance(found, Mapping) else None
    factor = _factor(row, results)
    mean, std = (found.get(part) if isinstance(found, Mapping) else None for part in ("mean", "std"))
    if not isinstance(mean, int | float) or factor is None:
        return {}
    return {"mean": factor * mean, "std": factor * std if isinstance(std, int | float) else None, "n": found.get("n")}


def _factor(row: Row, results: Mapping[str, Any]) -> float | None:
    """What turns our unit into that of a published cell; None where our unit is unknown."""
    if row.metric.endswith("[mm]"):
        return IN_MILLIMETRES.get(str(results.get("unit")))
    return 100.0 if row.metric.endswith("[%]") else 1.0


def dense_draws(row: Row, figure: DenseFigure) -> int:
    """Independent draws behind a published cell: sets that can be disjoint, or dropout networks."""
    method = METHODS[row.series]
    networks = figure.num_networks[method]
    if method == "mc_dropout":
        return networks
    return independent_draws(figure.num_sets[row.members], row.members, {"num_members": networks})
