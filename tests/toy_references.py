"""References of toy problems with predictions that are made up."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from epibench.data.sets.toy import make_toy
from epibench.reference.predictions import Reference, write_reference


def toy_grid(problem: str) -> np.ndarray:
    """Return the points of a problem at which KLs are computed, (point, coordinate)."""
    return make_toy(problem).grid.numpy()


def write_made_up_reference(path: Path, problem: str, excluded: bool = False, **about: Any) -> Path:
    """Write random predictions in the reference's format; excluded: one half excludes a prediction."""
    toy = make_toy(problem)
    torch.manual_seed(0)
    points = len(toy.grid)
    if toy.kind == "gaussian":
        values = {name: torch.rand(3, points).double() + 0.1 for name in ("mean", "aleatoric", "epistemic")}
    else:
        values = {"probs": torch.softmax(torch.randn(3, points, 2).double(), 2)}
        if excluded:
            values["probs"][2, 0] = torch.tensor([0.0, 1.0])
    about = {"prior_scale": 1.0, "hidden": [10, 10], **about}
    write_reference(Reference(path, toy.kind, toy.grid, values, toy.train.inputs, toy.train.target, about))
    return path
