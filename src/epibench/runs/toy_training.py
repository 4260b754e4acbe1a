"""Training on toy problems as a recipe sets it."""

from __future__ import annotations

from pathlib import Path

from epibench.data.batch import Points
from epibench.data.sets.toy import ToyProblem, make_toy
from epibench.methods.contract import Method
from epibench.methods.map import Direct
from epibench.networks.mlp import StackedMLP
from epibench.recipes import Recipe, ToyRecipe
from epibench.training.stacked import OBJECTIVES, StackedTraining

TOY_OUTPUTS = {"gaussian": 1, "categorical": 2, "direct": 1}


def toy_problem(recipe: Recipe) -> ToyProblem:
    """Return the toy problem of a recipe, with its training data."""
    assert isinstance(recipe, ToyRecipe)
    path = None if recipe.data.path is None else Path(recipe.data.path)
    return make_toy(recipe.problem, recipe.data.seed, path)


def toy_network(recipe: ToyRecipe, toy: ToyProblem, kind: str | None = None) -> StackedMLP:
    """Return the stacked networks of a recipe, with the heads and outputs of the kind of problem."""
    kind = kind or toy.kind
    return StackedMLP(toy.grid.shape[1], TOY_OUTPUTS[kind], OBJECTIVES[kind].heads, recipe.hidden)


def stacked_training(recipe: ToyRecipe, toy: ToyProblem, method: Method) -> StackedTraining:
    """Return a method's training on a toy problem, whose loss is U/N for the negative log posterior U."""
    kind = "direct" if isinstance(method, Direct) else toy.kind
    plain = StackedTraining(
        **vars(method.training),
        network=toy_network(recipe, toy, kind),
        objective=OBJECTIVES[kind],
        data=Points(toy.train.inputs, toy.train.target),
        # The published code multiplies the prior term by the probability that dropout keeps a unit.
        prior_precision=(1 - method.dropout) / recipe.prior_scale**2 if method.prior else 0.0,
        drop_diverged=method.diverged == "drop",
    )
    return method.stack(plain)
