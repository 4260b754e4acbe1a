"""Settings: dotted keys, JSON values, and complaints that name the key."""

import pytest

from epibench.errors import InputError
from epibench.recipes import RECIPES, apply_settings, changes
from epibench.recipes.settings import differences, parse_setting

RECIPE = RECIPES["toy-regression"]
DENSE = RECIPES["street-depth"]


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("seed=3", "seed", 3),
        ("sgld.num_epochs=9600", "sgld.num_epochs", 9600),
        ('methods=["ensemble", "sgld"]', "methods", ["ensemble", "sgld"]),
        ("data.path=folder/a=b.npz", "data.path", "folder/a=b.npz"),
        ("reference.path=null", "reference.path", None),
        ("ensemble.optimiser=sgd", "ensemble.optimiser", "sgd"),
        ("about=", "about", ""),
    ],
)
def test_a_value_is_json_if_it_parses_and_text_otherwise(text: str, key: str, value: object) -> None:
    assert parse_setting(text) == (key, value)


def test_the_last_setting_of_a_key_wins() -> None:
    assert apply_settings(RECIPE, ["seed=1", "seed=2"]).seed == 2


def test_settings_change_nothing_else() -> None:
    changed = apply_settings(RECIPE, ["sgld.num_epochs=9600"])
    assert changed.model_copy(update={"sgld": RECIPE.sgld}) == RECIPE
    assert changed.sgld == RECIPE.sgld.model_copy(update={"num_epochs": 9600})


def test_lists_are_replaced() -> None:
    assert apply_settings(RECIPE, ["members=[8]"]).members == (8,)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("sgld.nm_epochs=1", ["sgld.nm_epochs", "toy-regression", "sgld.num_epochs"]),
        ("seeed=1", ["seeed", "nearest is seed"]),
        ("seed.x=1", ["seed.x"]),
        ("seed", ["'seed'", "key=value"]),
        ("=3", ["key=value"]),
        ("sgld.num_epochs=0", ["sgld.num_epochs", "greater than or equal to 1", "0"]),
        ("sgld.learning_rate=fast", ["sgld.learning_rate", "'fast'"]),
        ("sgld.learning_rate=NaN", ["sgld.learning_rate", "nan"]),
        ("prior_scale=0", ["prior_scale", "greater than"]),
        ("prior_scale=-1", ["prior_scale", "greater than", "-1"]),
        ("members=[512]", ["M = 512", "mc_dropout", "256"]),
        ("members=[]", ["members"]),
        ("hidden=[]", ["hidden"]),
        ('methods=["sgdl"]', ["'sgdl'", "sgld"]),
        ("methods=[]", ["methods"]),
        ("ensemble.optimiser=lbfgs", ["ensemble.optimiser", "'lbfgs'"]),
        ('variants={"x": {"method": "bogus", "label": "x"}}', ["bogus"]),
    ],
)
def test_what_does_not_fit_is_refused_with_its_key(setting: str, words: list[str]) -> None:
    with pytest.raises(InputError) as error:
        apply_settings(RECIPE, [setting])
    assert all(word in str(error.value) for word in words), str(error.value)
    assert "\n" not in str(error.value)


def test_a_new_key_adds_a_domain_which_further_settings_reach() -> None:
    settings = ['data.domains.storm={"kind": "street", "domain": "wild"}', "data.domains.storm.severity=3"]
    domains = apply_settings(DENSE, settings).data.domains
    assert list(domains) == [*DENSE.data.domains, "storm"]
    assert domains["storm"].label == "street, wild, severity 3"


def test_a_new_key_adds_a_variant() -> None:
    settings = ['variants.cold={"method": "sgld"}', "variants.cold.options.learning_rate=0.5", 'methods=["cold"]']
    changed = apply_settings(RECIPE, settings)
    assert changed.method("cold") == RECIPE.sgld.model_copy(update={"learning_rate": 0.5})


def test_an_entry_can_be_completed_by_further_settings() -> None:
    settings = ['data.domains.mine={"kind": "folder"}', "data.domains.mine.classes=camvid", "data.domains.mine.root=a"]
    mine = apply_settings(RECIPES["street-segmentation"], settings).data.domains["mine"]
    assert (mine.classes, mine.root) == ("camvid", "a")


@pytest.mark.parametrize(
    ("setting", "nearest"),
    [
        ("data.domans.storm={}", "data.domains"),
        ("data.domains.wlid-2.severity=3", "data.domains.wild-2.severity"),
        ("data.domains.wild-2.severty=3", "data.domains.wild-2.severity"),
        ("data.domains.clean.root=a", "data.domains.clean"),  # an option of other kinds of data
        ("network.rates=[1]", "network"),
        ("variants.x.label=a", "a"),
    ],
)
def test_other_unknown_keys_name_the_nearest(setting: str, nearest: str) -> None:
    with pytest.raises(InputError, match=f"no such setting; the nearest is .*{nearest}"):
        apply_settings(DENSE, [setting])


def test_the_options_of_ones_own_network_are_named_by_the_user() -> None:
    changed = apply_settings(DENSE, ["network=mine:Network", "network.options.width=32"])
    assert changed.network.model_dump() == {"kind": "own", "name": "mine:Network", "options": {"width": 32}}


@pytest.mark.parametrize("key", ["training.precision", "evaluation.precision"])
@pytest.mark.parametrize(("short", "full"), [("bf16", "bf16-mixed"), ("32", "32-true"), ("bf16-mixed", "bf16-mixed")])
def test_short_names_of_precisions(key: str, short: str, full: str) -> None:
    part, _, option = key.partition(".")
    assert apply_settings(DENSE, [f"{key}={short}"]).model_dump(mode="json")[part][option] == full


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(InputError, match=r"training\.precision"):
        apply_settings(DENSE, ["training.precision=16"])


def test_a_variant_with_an_option_that_its_method_lacks_is_refused() -> None:
    settings = ['variants={"x": {"method": "sgld", "label": "x", "options": {"rate": 1}}}', 'methods=["x"]']
    with pytest.raises(InputError, match="rate"):
        apply_settings(RECIPE, settings)


def test_changes_name_what_differs_from_the_recipe_of_that_name() -> None:
    assert changes(RECIPE) == []
    changed = apply_settings(RECIPE, ["sgld.num_chains=24", "data.path=a.npz"])
    assert changes(changed) == ["sgld.num_chains=24", 'data.path="a.npz"']


def test_differences_of_two_recipes_are_named_with_both_values() -> None:
    other = apply_settings(RECIPE, ["sgld.num_epochs=9600", "sghmc.num_epochs=9600"])
    there, now = (recipe.model_dump(mode="json") for recipe in (RECIPE, other))
    assert list(differences(there, now)) == [(f"{name}.num_epochs", 38400, 9600) for name in ("sgld", "sghmc")]
    assert list(differences(there, there)) == []


@pytest.mark.parametrize("value", ["-1", "[1]", '{"a":1}', "null"])
def test_of_a_value_of_several_kinds_no_kind_is_named(value: str) -> None:
    with pytest.raises(InputError) as error:
        apply_settings(RECIPES["street-depth"], [f"training.cache={value}"])
    assert str(error.value).startswith("training.cache: should be ")
    assert "or should be 'auto'" in str(error.value)


@pytest.mark.parametrize(
    ("recipe", "setting", "told"),
    [
        ("street-depth-methods", "tta.views=flip", """tta.views: should be a list, as tta.views=["identity","flip"]"""),
        ("street-depth", "methods=ensemble", """methods: should be a list, as methods=["ensemble","mc_dropout"]"""),
        ("toy-regression", "members=2", "members: should be a list, as members=[8,16,"),
        ("street-depth", "evaluation.window=3", "evaluation.window: should be a list, not 3"),
    ],
)
def test_how_a_list_is_written_is_shown(recipe: str, setting: str, told: str) -> None:
    with pytest.raises(InputError) as error:
        apply_settings(RECIPES[recipe], [setting])
    assert str(error.value).startswith(told)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            ["laplace.precision=0"],
            "laplace.precision: should be 'marginal' or 'validation', or should be greater than 0",
        ),
        (
            ["laplace.precision=null"],
            "laplace.precision: should be 'marginal' or 'validation', or should be a valid number",
        ),
        (
            ['variants={"other": {"method": "laplace", "options": {"precision": -1}}}'],
            "variants.other.options.precision: should be 'marginal' or 'validation', or should be greater than 0",
        ),
    ],
)
def test_a_value_of_several_kinds_is_named_by_its_key_with_all_that_it_may_be(settings: list[str], told: str) -> None:
    with pytest.raises(InputError) as error:
        apply_settings(RECIPES["toy-regression"], settings)
    assert str(error.value).startswith(told)
    assert "more)" not in str(error.value)
