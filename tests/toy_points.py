"""Points of the toy problems."""

from __future__ import annotations

from typing import Any

from epibench.data.batch import Points
from epibench.data.sets.toy import ToyProblem, make_toy, sample


def toy_points(name: str, number: int) -> Points:
    """New points of the training region."""
    return sample(name, "train", number, 0)


def toy_problem(name: str, number: int | None = None) -> Any:
    """A problem with all of its points, or the first ones."""
    problem = make_toy(name)
    return ToyProblem(name, Points(problem.train.inputs[:number], problem.train.target[:number]))
