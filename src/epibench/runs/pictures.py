"""What the pictures of a toy run show, as numbers: what some draws predict, beside truth and reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from epibench.data.sets.toy import GRID_SIDE, ToyProblem, true_class, true_mean, true_std
from epibench.members.draws import Draws
from epibench.recipes.toy import ToyRecipe
from epibench.reference.predictions import Reference

EVERY = 4  # of the 1,000 grid points of regression; a line needs no more
DIGITS = 4


def draw_pictures(
    recipe: ToyRecipe,
    toy: ToyProblem,
    reference: Reference | None,
    found: dict[str, tuple[Draws, dict[str, Tensor]]],
    direct: Tensor | None,
) -> dict[str, Any]:
    """Grid, truth, data, reference, direct regression (the mean on the grid) and, for each method and M, some draws."""
    regression = toy.kind == "gaussian"
    pictures: dict[str, Any] = {
        "grid": _regression_grid(toy) if regression else _classification_grid(toy),
        "truth": _regression_truth(toy) if regression else {"class": true_class(toy.grid).tolist()},
        "data": _data(toy),
        "reference": None if reference is None else _prediction(reference.predictive()),
        "methods": {name: _examples(recipe, draws, grid) for name, (draws, grid) in found.items()},
    }
    if direct is not None:
        pictures["direct"] = {"mean": _rounded(direct[::EVERY])}
    return pictures


def _examples(recipe: ToyRecipe, draws: Draws, grid: dict[str, Tensor]) -> dict[str, Any]:
    """The first draws of each M that is drawn; of a method without several M, its own."""
    sizes = [size for size in recipe.pictures.members if size in draws.sizes] or list(draws.sizes[:1])
    return {
        str(size): [
            _prediction({name: values[number] for name, values in grid.items()})
            for number in draws.of_size(size)[: recipe.pictures.examples]
        ]
        for size in sizes
    }


def _prediction(predicted: dict[str, Tensor]) -> dict[str, list[float]]:
    if "probs" in predicted:
        return {"probs": _rounded(predicted["probs"][:, 0])}
    shown = {"mean": predicted["mean"], "std": predicted["variance"].sqrt()}
    if "aleatoric" in predicted:
        shown["aleatoric_std"] = predicted["aleatoric"].sqrt()
    return {name: _rounded(values[::EVERY]) for name, values in shown.items()}


def _regression_grid(toy: ToyProblem) -> dict[str, list[float]]:
    return {"x": _rounded(toy.grid[::EVERY, 0])}


def _classification_grid(toy: ToyProblem) -> dict[str, list[float]]:
    axis = _rounded(toy.grid[: GRID_SIDE[toy.name], 0])
    return {"x1": axis, "x2": axis}


def _regression_truth(toy: ToyProblem) -> dict[str, list[float]]:
    x = toy.grid[::EVERY, 0].double().numpy()
    return {"mean": _rounded(torch.from_numpy(true_mean(x))), "std": _rounded(torch.from_numpy(true_std(x)))}


def _data(toy: ToyProblem) -> dict[str, Any]:
    inputs, target = toy.train.inputs, toy.train.target
    if toy.kind == "gaussian":
        return {"x": _rounded(inputs[:, 0]), "y": _rounded(target)}
    return {"x1": _rounded(inputs[:, 0]), "x2": _rounded(inputs[:, 1]), "class": target.tolist()}


def _rounded(values: Tensor) -> list[float]:
    return [float(value) for value in np.round(values.double().cpu().numpy(), DIGITS)]
