"""The sizes M of a recipe against what its methods can draw."""

from __future__ import annotations

import pytest

from epibench.errors import InputError
from epibench.methods import Method
from epibench.recipes import RECIPES, apply_settings

QUICK = RECIPES["street-segmentation-quick"]
EIGHT = apply_settings(QUICK, ["ensemble.num_members=8", "members=[1,2,4,8]"])


def test_a_method_with_a_smaller_pool_leaves_out_what_it_cannot_draw() -> None:
    assert EIGHT.method("mc_dropout").draw_sizes(EIGHT.members) == (1, 2, 4)


def test_the_note_names_the_setting_that_raises_the_pool() -> None:
    note = "M = 8 left out: a draw has at most 4 members (mc_dropout.num_passes)."
    assert EIGHT.left_out("mc_dropout") == [note]


def test_a_method_that_can_draw_every_size_has_no_note() -> None:
    assert EIGHT.left_out("ensemble") == []


def test_sizes_of_the_recipe_that_no_chosen_method_can_draw_are_left_out() -> None:
    recipe = apply_settings(RECIPES["street-segmentation"], ['methods=["mc_dropout"]', "mc_dropout.num_passes=2"])
    assert recipe.method("mc_dropout").draw_sizes(recipe.members) == (1, 2)


def test_a_method_without_several_members_has_no_note_on_sizes() -> None:
    assert apply_settings(QUICK, ['methods=["map"]', "members=[4]"]).left_out("map") == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ["members=[1,99]"],
            "members: M = 99 is impossible: a draw of ensemble has at most 5 members. "
            "Fix: give smaller M, or raise ensemble.num_members.",
        ),
        (
            ["ensemble.num_members=8", "members=[8]"],
            "members: M = 8 is impossible: a draw of mc_dropout has at most 4 members. "
            "Fix: give smaller M, or raise mc_dropout.num_passes.",
        ),
        (
            ['methods=["deep"]', 'variants.deep={"method": "ensemble", "options": {"num_members": 3}}', "members=[4]"],
            "members: M = 4 is impossible: a draw of deep has at most 3 members. "
            "Fix: give smaller M, or raise variants.deep.options.num_members.",
        ),
    ],
    ids=["by no method", "none by one method", "by a variant"],
)
def test_what_cannot_be_drawn_is_refused_with_the_setting_to_raise(settings: list[str], message: str) -> None:
    with pytest.raises(InputError) as refused:
        apply_settings(QUICK, settings)
    assert str(refused.value) == message


METHODS = {name: value for name, value in QUICK if isinstance(value, Method)}


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if not method.single])
def test_every_method_with_several_members_names_the_option_of_its_limit(name: str) -> None:
    assert METHODS[name].pool_option in type(METHODS[name]).model_fields
