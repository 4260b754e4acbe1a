"""The recipes hold what the paper fixes (facts in its Appendix B), one for each figure."""

import json
from functools import partial
from pathlib import Path

import pytest

from epibench.errors import InputError
from epibench.members.draws import make_draws
from epibench.recipes import RECIPES, find_recipe
from epibench.recipes.toy import ToyRecipe


def test_every_recipe_goes_by_its_name_and_has_a_quick_variant() -> None:
    assert all(name == recipe.name for name, recipe in RECIPES.items())
    full = [name for name in RECIPES if name.startswith("toy") and not name.endswith("-quick")]
    assert len(full) == 13  # one for each figure, two on where ensembles start, two with the methods of the field
    assert all(f"{name}-quick" in RECIPES for name in full)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_survives_a_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps(RECIPES[name].model_dump(mode="json")))
    assert find_recipe(str(path)) == RECIPES[name]


def test_step_sizes_of_the_chains_are_the_published_ones() -> None:
    regression, classification = RECIPES["toy-regression"], RECIPES["toy-classification"]
    assert (regression.sgld.learning_rate, classification.sgld.learning_rate) == (0.01, 0.05)
    assert (regression.sghmc.learning_rate, classification.sghmc.learning_rate) == (0.001, 0.01)
    for recipe in (regression, classification):
        assert recipe.sgld.num_epochs == recipe.sghmc.num_epochs == 256 * 150
        assert recipe.sghmc.friction == 0.1
        assert recipe.sgld.power == recipe.sghmc.power == 0.9
        assert recipe.sgld.keep[0] == int(0.75 * 256 * 150)
        assert recipe.sgld.keep[-1] == 256 * 150


def test_chains_are_as_many_as_the_published_scripts_read() -> None:
    regression, classification = RECIPES["toy-regression"], RECIPES["toy-classification-sgd"]
    assert (regression.sgld.num_chains, regression.sghmc.num_chains) == (6, 6)
    assert (classification.sgld.num_chains, classification.sghmc.num_chains) == (7, 10)


@pytest.mark.parametrize("base", ["toy-regression", "toy-classification", "street-depth", "street-segmentation"])
def test_ensembles_from_one_start_differ_in_nothing_else(base: str) -> None:
    recipe = RECIPES[f"{base}-fixed"]
    plain, fixed = (recipe.method(name) for name in recipe.methods)
    assert plain == RECIPES[base].method("ensemble").model_copy(update={"num_sets": {}})
    assert fixed == plain.model_copy(update={"same_start": True})
    assert (plain.one_start, fixed.one_start) == (False, True)


def test_less_training_is_a_quarter_for_the_chains_alone() -> None:
    less, full = RECIPES["toy-regression-less-training"], RECIPES["toy-regression-momentum"]
    assert less.sgld.num_epochs == less.sghmc.num_epochs == 64 * 150
    assert less.ensemble == full.ensemble
    assert less.mc_dropout == full.mc_dropout


@pytest.mark.parametrize(
    ("name", "optimiser", "rate"),
    [
        ("toy-regression", "adam", 1e-3),
        ("toy-classification", "adam", 1e-3),
        # Published for a loss of 2U/N: 0.01 and 0.001.
        ("toy-regression-sgd", "sgd", 0.02),
        ("toy-regression-momentum", "momentum", 0.002),
        ("toy-classification-sgd", "sgd", 0.05),
        ("toy-classification-momentum", "momentum", 0.01),
    ],
)
def test_optimisers_and_rates(name: str, optimiser: str, rate: float) -> None:
    recipe = RECIPES[name]
    for method in (recipe.ensemble, recipe.mc_dropout):
        assert (method.optimiser, method.learning_rate) == (optimiser, rate)
        assert method.decay == ("none" if optimiser == "adam" else "poly")
    assert (recipe.ensemble.num_epochs, recipe.mc_dropout.num_epochs) == (150, 300)
    assert recipe.ensemble.num_members == 1024


def test_dropout_rates() -> None:
    assert RECIPES["toy-regression"].mc_dropout.rate == 0.2
    assert RECIPES["toy-classification"].mc_dropout.rate == 0.1
    assert RECIPES["toy-classification-sgd"].mc_dropout.rate == 0.2
    for name, rates in (("toy-regression", [0.05, 0.1, 0.2]), ("toy-classification", [0.05, 0.1, 0.2, 0.5])):
        recipe = RECIPES[f"{name}-dropout"]
        assert [recipe.method(each).rate for each in recipe.methods] == rates  # type: ignore[attr-defined]
        assert [recipe.label(each) for each in recipe.methods] == [f"MC-dropout, p = {rate}" for rate in rates]


@pytest.mark.parametrize("figure", ["", "-sgd", "-momentum", "-dropout"])
@pytest.mark.parametrize(("problem", "largest"), [("toy-regression", 256), ("toy-classification", 128)])
def test_dropout_passes_are_repeated_three_times_up_to_the_published_m(problem: str, largest: int, figure: str) -> None:
    recipe = RECIPES[problem + figure]
    method = recipe.method(next(name for name in recipe.methods if name.startswith("mc_dropout")))
    assert (method.passes, method.draw_sizes(recipe.members)[-1]) == ((largest, 3), largest)


@pytest.mark.parametrize("figure", ["", "-sgd", "-momentum"])
@pytest.mark.parametrize(("problem", "most"), [("toy-regression", 128), ("toy-classification", 20)])
def test_ensembles_have_as_many_disjoint_sets_as_published(problem: str, most: int, figure: str) -> None:
    recipe = RECIPES[problem + figure]
    table = recipe.ensemble.members(range(recipe.ensemble.num_trained))
    limit = partial(recipe.ensemble.max_draws, default=recipe.draws)
    draws = make_draws(len(table.members), recipe.members, plan=table.plan, max_draws=limit)
    counts = [len(draws.of_size(size)) for size in recipe.members]
    assert counts == [min(most, 1024 // size) for size in (8, 16, 32, 64, 128, 256)]


def test_an_unknown_recipe_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"toy-regresion.*toy-regression"):
        find_recipe("toy-regresion")


@pytest.mark.parametrize(
    ("content", "word"),
    [("{", "readable"), ("[1]", "JSON object"), ('{"name": "x"}', "problem"), ('{"nam": 1}', "field required")],
)
def test_a_broken_recipe_file_is_refused_with_its_name(content: str, word: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text(content)
    with pytest.raises(InputError) as error:
        find_recipe(str(path))
    assert str(path) in str(error.value)
    assert word in str(error.value)


def test_a_missing_recipe_file_is_refused() -> None:
    with pytest.raises(InputError, match="no such recipe file"):
        find_recipe("nowhere/recipe.json")


def test_recipes_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        RECIPES["toy-regression"].seed = 1  # type: ignore[misc]
    assert isinstance(RECIPES["toy-regression"], ToyRecipe)
