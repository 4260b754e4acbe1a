"""The recipes of dense problems: what the paper fixes (Section 4.2, Appendix C), and what settings reach."""

import pytest

from epibench.data.sets import DATA_SETS
from epibench.data.sets.kitti import KittiSource
from epibench.data.sets.virtual_kitti import VirtualKittiSource
from epibench.errors import InputError
from epibench.members.draws import make_draws
from epibench.recipes import RECIPES, DenseRecipe, apply_settings
from epibench.recipes.settings import fixed
from epibench.training.rules import poly

STREET = DATA_SETS["street"]


def recipe(name: str) -> DenseRecipe:
    found = RECIPES[name]
    assert isinstance(found, DenseRecipe)
    return found


def test_the_published_experiment_is_the_published_one() -> None:
    kitti = recipe("kitti-depth")
    assert (kitti.network.width, kitti.network.blocks, kitti.network.grey) == (32, (3, 4, 6, 3), True)
    assert kitti.network.image_max == 255
    assert kitti.training.crop == (352, 352)
    assert (kitti.training.sparse_share, kitti.training.decay_all, kitti.training.precision) == (0.05, True, "32-true")
    for method in (kitti.ensemble, kitti.mc_dropout):
        assert method.num_epochs * kitti.training.epoch_steps == 40_000
        assert (method.optimiser, method.learning_rate, method.decay, method.batch_size) == ("adam", 1e-5, "none", 4)
    assert (kitti.ensemble.num_members, kitti.mc_dropout.num_networks, kitti.mc_dropout.rate) == (33, 16, 0.5)
    assert kitti.mc_dropout.num_passes == 32


def test_weight_decay_is_half_the_published_one_as_our_loss_is_half_the_published_one() -> None:
    assert recipe("kitti-depth").training.weight_decay == 5e-4 / 2


def test_the_published_experiment_goes_from_virtual_to_real() -> None:
    data = recipe("kitti-depth").data
    assert isinstance(data.train, VirtualKittiSource)
    assert (data.train.split, data.train.version, data.train.crop) == ("train", "1.3.1", (352, 1216))
    kitti = data.domains["kitti"]
    assert isinstance(kitti, KittiSource)
    assert (kitti.split, kitti.crop) == ("selection", (352, 1216))


def test_ensembles_are_drawn_in_random_sets_and_dropout_networks_once_each() -> None:
    kitti = recipe("kitti-depth")
    roll = kitti.ensemble.members(range(33))
    assert (roll.plan, roll.group, len(roll.members)) == ("random", None, 33)
    sets = [kitti.ensemble.max_draws(size, kitti.draws) for size in kitti.members]
    assert sets == [32, 16, 16, 16, 16, 4]
    passes = kitti.mc_dropout.members(range(16))
    draws = make_draws(len(passes.members), (32,), plan=passes.plan, max_draws=kitti.draws, group=passes.group)
    assert len(draws.sets) == 16


@pytest.mark.parametrize("name", ["street-depth", "street-depth-large"])
def test_street_recipes_train_on_clean_and_are_tested_on_other_scenes_of_it_and_on_wild(name: str) -> None:
    data = recipe(name).data
    clean = data.domains["clean"]
    assert data.train.kind == clean.kind == "street"
    assert data.train.shift == clean.shift == 0
    assert data.train.seed != clean.seed
    shifts = [source.shift for source in data.domains.values()]
    assert shifts == sorted(shifts, key=lambda shift: shift or 0)
    assert shifts[-1] == 5


def test_wild_has_exact_targets_so_that_errors_can_be_compared() -> None:
    for source in recipe("street-depth-large").data.domains.values():
        assert source.kind == "street"
        assert source.world.target == 0


def test_a_domain_can_be_changed_and_its_root_named() -> None:
    changed = apply_settings(recipe("kitti-depth"), ["data.domains.kitti.root=/elsewhere", "data.train.num_images=9"])
    assert changed.data.domains["kitti"].model_dump()["root"] == "/elsewhere"
    assert changed.data.train.num_images == 9


def test_missing_data_names_the_setting() -> None:
    kitti = recipe("kitti-depth")
    with pytest.raises(InputError, match=r"data\.root.*data\.train\.root"):
        kitti.data.train.open("depth", kitti.data.folders, "data.train")


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("network.width=4", "network.width"),
        ("data.train.kind=imagenet", "data.train"),
        ("data.domains={}", "data.domains"),
        ('data.domains={"a/b": {"kind": "street"}}', "a/b"),
        ("evaluation.uncertainty=entropy", "entropy"),
        ("training.crop=[0, 3]", "training.crop"),
        ("members=[64]", "M = 64"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_trained(setting: str, words: str) -> None:
    with pytest.raises(InputError) as error:
        apply_settings(recipe("street-depth"), [setting])
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_the_same_world_by_another_name_is_the_same_origin() -> None:
    full, five, none = (STREET(domain="wild", severity=severity) for severity in (None, 5, 0))
    assert full.origin == five.origin != none.origin
    assert none.origin == STREET().origin
    assert len({full.label, none.label, STREET().label}) == 3


def test_a_run_goes_on_where_its_data_was_moved_to() -> None:
    here, there = (
        apply_settings(recipe("kitti-depth"), [f"data.root={root}", f"data.cache={root}"]) for root in ("/a", "/b")
    )
    assert fixed(here.model_dump(mode="json")) == fixed(there.model_dump(mode="json"))


def test_predictions_of_images_that_differ_in_size_can_be_stored() -> None:
    changed = apply_settings(recipe("kitti-depth"), ["evaluation.store=true", "data.domains.kitti.crop=null"])
    assert changed.evaluation.store


def test_prior_and_weight_decay_decide_only_the_networks_that_they_act_on() -> None:
    before = recipe("street-depth")
    prior, decayed = (
        apply_settings(before, [each]) for each in ("training.prior_scale=2", "training.weight_decay=0.1")
    )
    assert prior.training_settings("ensemble") == before.training_settings("ensemble")
    assert prior.training_settings("sgld") != before.training_settings("sgld")
    assert decayed.training_settings("ensemble") != before.training_settings("ensemble")
    assert decayed.training_settings("sgld") == before.training_settings("sgld")


@pytest.mark.parametrize("name", ["street-depth", "street-depth-large", "street-to-kitti", "kitti-depth"])
def test_other_methods_are_trained_for_a_comparable_time(name: str) -> None:
    found = recipe(name)
    for method in ("map", "ml", "sgld", "sghmc", "cyclical"):
        assert found.method(method).num_epochs <= 4 * found.ensemble.num_epochs
        assert found.method(method).batch_size == found.ensemble.batch_size
    apply_settings(found, ['methods=["map", "ml", "sgld", "sghmc", "cyclical"]'])  # snapshots suffice


@pytest.mark.parametrize("name", [name for name, each in RECIPES.items() if isinstance(each, DenseRecipe)])
def test_members_of_one_training_cost_as_much_training_as_a_network_of_the_ensemble(name: str) -> None:
    found = recipe(name)
    own = {"num_members", "sets", "num_sets", "decay"}
    trained = found.ensemble.model_dump(exclude=own)
    for method in ("snapshot", "swa", "swag", "multi_swag"):
        assert found.method(method).model_dump(include=set(trained)) == trained
        assert found.method(method).keep[-1] == found.ensemble.num_epochs
    assert {found.method(method).decay for method in ("swa", "swag", "multi_swag")} == {found.ensemble.decay}
    apply_settings(found, ['methods=["ensemble", "swa", "swag", "multi_swag"]'])  # samples suffice


def test_the_published_segmentation_is_the_published_one() -> None:
    cityscapes = recipe("cityscapes-segmentation")
    network, training = cityscapes.network, cityscapes.training
    assert (network.depth, network.output_stride, network.head_width, network.rates) == (101, 8, 512, (12, 24, 36))
    assert (network.normalisation, network.ceil_mode, network.leaky, network.head_init) == (
        "gustafsson2020",
        True,
        True,
        "default",
    )
    assert network.absolute_scale
    assert training.loss_parts == 2
    assert network.dropout_places == "stages"
    assert (training.crop, training.scale, training.scale_step) == ((512, 512), (0.5, 2.1), 0.1)
    assert (training.scale_rule, training.pad, training.decay_all) == ("opencv", False, True)
    for source in (cityscapes.data.train, cityscapes.data.domains["synscapes"]):
        assert (source.selection, source.absent, source.scale_rule) == ("published", "replace", "opencv")
    for method, steps in ((cityscapes.ensemble, 40_000), (cityscapes.mc_dropout, 60_000)):
        assert method.num_epochs * training.epoch_steps == steps
        assert (method.optimiser, method.learning_rate, method.decay, method.batch_size) == (
            "momentum",
            0.01,
            "poly",
            8,
        )


def test_published_segmentation_without_pretrained_weights_is_refused_unless_asked_for() -> None:
    for name in ("cityscapes-segmentation", "cityscapes-in-domain"):
        network = recipe(name).network
        with pytest.raises(
            InputError, match=r"network.backbone_weights: .* give the file .* or null for random weights"
        ):
            network.build(19, pretrained=True)
        asked = apply_settings(recipe(name), ["network.backbone_weights=null", "network.width=8", "network.depth=18"])
        assert asked.network.build(19, pretrained=True) is not None


@pytest.mark.parametrize(
    ("name", "like"), [("kitti-in-domain", "kitti-depth"), ("cityscapes-in-domain", "cityscapes-segmentation")]
)
def test_in_domain_recipes_differ_in_their_data_alone(name: str, like: str) -> None:
    inside, shifted = recipe(name), recipe(like)
    assert {source.origin for source in inside.data.domains.values()} == {inside.data.train.origin}
    assert (inside.network, inside.ensemble, inside.mc_dropout) == (
        shifted.network,
        shifted.ensemble,
        shifted.mc_dropout,
    )
    assert inside.training.model_copy(update={"sparse_share": shifted.training.sparse_share}) == shifted.training
    assert inside.training.sparse_share is None  # scans are real


def test_sparse_depth_cannot_be_drawn_for_classes() -> None:
    with pytest.raises(InputError, match=r"training.sparse_share: segmentation has no sparse depth"):
        apply_settings(recipe("street-segmentation"), ["training.sparse_share=0.05"])


def test_a_batch_without_equal_parts_is_refused() -> None:
    words = r"ensemble.batch_size: 4 images have no 3 equal parts; give a multiple of training.loss_parts"
    with pytest.raises(InputError, match=words):
        apply_settings(recipe("street-segmentation"), ["training.loss_parts=3"])


def test_parts_of_the_loss_decide_the_trained_networks() -> None:
    whole = recipe("street-segmentation")
    parts = apply_settings(whole, ["training.loss_parts=2"])
    assert parts.training_settings("ensemble") != whole.training_settings("ensemble")


def test_places_of_dropout_are_choices_or_modules() -> None:
    own = apply_settings(recipe("street-depth"), ['network.dropout_places=["encoder.4"]'])
    assert own.network.build(None).dropout_places == ("encoder.4",)
    for wrong in ("stages", "[]", "3"):
        with pytest.raises(
            InputError, match=r"network.dropout_places: give concatenations or decoder, or names of modules"
        ):
            apply_settings(recipe("street-depth"), [f"network.dropout_places={wrong}"])


@pytest.mark.parametrize("name", [name for name, each in RECIPES.items() if isinstance(each, DenseRecipe)])
@pytest.mark.parametrize("method", ["sgld", "sghmc", "cyclical"])
def test_chains_on_images_are_warmed_up_and_refreshed(name: str, method: str) -> None:
    """As long as a network of the ensemble at least; batch norm's statistics are those of each snapshot."""
    chain, ensemble = recipe(name).method(method), recipe(name).ensemble
    assert chain.warm_up_epochs >= ensemble.num_epochs
    assert min(chain.keep) > chain.warm_up_epochs
    assert chain.num_epochs == 4 * ensemble.num_epochs
    assert chain.fits


@pytest.mark.parametrize("name", ["street-depth", "street-segmentation"])
def test_the_chains_of_small_street_recipes_are_the_tuned_ones(name: str) -> None:
    """What docs/results/sgmcmc.md found on validation scenes."""
    found = recipe(name)
    chosen = (found.sghmc.learning_rate, found.sghmc.temperature, found.training.prior_scale)
    assert chosen == pytest.approx((1e-4, 1e-4, 3.0), rel=1e-12)


def test_who_augments_and_what_is_kept_in_memory_decide_no_network() -> None:
    street = recipe("street-depth")
    changed = apply_settings(street, ["training.augment=device", "training.cache=2.5"])
    assert isinstance(changed, DenseRecipe)
    assert changed.training_settings("ensemble") == street.training_settings("ensemble")


def test_recipes_train_on_at_the_rates_of_the_last_fifth_of_a_training() -> None:
    segmentation = recipe("street-segmentation")
    pruned, ensemble = segmentation.pruned, segmentation.ensemble
    assert (pruned.num_epochs, ensemble.num_epochs) == (2, 10)
    whole, last = poly(ensemble.learning_rate), pruned.schedule
    for step in range(1, 21):
        assert last(step, 20).rate == pytest.approx(whole(80 + step, 100).rate, rel=1e-9, abs=1e-12)
