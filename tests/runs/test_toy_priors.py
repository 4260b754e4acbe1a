"""The prior on the weights of small networks, of every method."""

from __future__ import annotations

import pytest
from small_recipes import small

from epibench.methods import Method
from epibench.runs.toy_training import stacked_training, toy_problem


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_the_prior_has_the_scale_of_the_problem_and_is_left_out_of_maximum_likelihood_alone(scale: float) -> None:
    recipe = small("toy-regression", f"prior_scale={scale}")
    methods, toy = {name: value for name, value in recipe if isinstance(value, Method)}, toy_problem(recipe)
    found = {name: stacked_training(recipe, toy, method).prior_precision for name, method in methods.items()}
    expected = dict.fromkeys(methods, 1 / scale**2)
    assert found == {**expected, "ml": 0.0, "mc_dropout": 0.8 / scale**2}
    assert len(found) > 12
