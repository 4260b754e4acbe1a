"""The recipes that compare the methods of the field: who is among them, and that costs are what they say."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from epibench.methods import Method
from epibench.recipes import RECIPES, DenseRecipe, ToyRecipe
from epibench.recipes.comparisons import TIMES

ON_IMAGES = [
    *(f"street-{task}-methods{size}" for task in ("depth", "segmentation") for size in ("", "-large")),
    *("folder-segmentation-methods", "folder-segmentation-methods-small"),
]
METHODS = [name for name, value in RECIPES["toy-regression"] if isinstance(value, Method)]
CHAINS = {"sgld", "sghmc", "cyclical"}


def dense(name: str) -> DenseRecipe:
    recipe = RECIPES[name]
    assert isinstance(recipe, DenseRecipe)
    return recipe


@pytest.mark.parametrize("name", ON_IMAGES)
def test_every_method_is_compared_on_images(name: str) -> None:
    recipe = dense(name)
    assert {recipe.method(each).name for each in recipe.methods} == {*METHODS} - CHAINS - {"ml"}


@pytest.mark.parametrize("name", ["toy-regression-methods", "toy-classification-methods"])
def test_every_method_for_points_is_compared_with_the_reference(name: str) -> None:
    recipe = RECIPES[name]
    assert isinstance(recipe, ToyRecipe)
    on_points = {each for each in METHODS if recipe.method(each).only_images is None}
    assert set(recipe.methods) == on_points - {"ml", "sgld", "cyclical"}


@pytest.mark.parametrize("name", ON_IMAGES)
@pytest.mark.parametrize(("variant", "ratio"), [("map_wide", TIMES), ("ensemble_narrow", 1 / TIMES)])
def test_a_larger_and_a_smaller_network_cost_what_their_labels_say(name: str, variant: str, ratio: float) -> None:
    recipe = dense(name)
    if variant not in recipe.variants:
        assert name == "street-depth-methods"  # its networks are as narrow as can be
        return
    classes = 11 if recipe.likelihood == "categorical" else None
    inputs = {"image": torch.zeros(1, 3, 64, 128, dtype=torch.uint8), "sparse_depth": torch.zeros(1, 1, 64, 128)}
    plain, other = (recipe.builder(classes, method=each)().eval() for each in ("ensemble", variant))
    flops = list[int]()
    for network in (plain, other):
        with torch.inference_mode(), FlopCounterMode(display=False) as counter:
            network(inputs)
        flops.append(counter.get_total_flops())
    assert flops[1] / flops[0] == pytest.approx(ratio, rel=0.05)


@pytest.mark.parametrize("name", ON_IMAGES)
def test_training_costs_what_one_network_costs_unless_the_label_says_so(name: str) -> None:
    recipe = dense(name)
    one = recipe.method("ensemble").num_epochs
    longer = {each for each in recipe.methods if recipe.method(each).num_epochs > one}
    assert longer == {"map_long", "snapshot_long"}
    for each in longer:
        assert recipe.method(each).num_epochs == TIMES * one
        assert f"{TIMES} × as long" in recipe.label(each)
