"""Networks that start from those of another method: on stacked small networks and on tiny ones for images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from silent_reporter import Silent
from small_dense_recipe import small_dense
from small_recipes import small
from torch import Tensor, nn

import epibench
from epibench.errors import InputError
from epibench.methods.optimised import Optimised
from epibench.networks.shaping import shape_like
from epibench.recipes import Recipe
from epibench.training.state import Weights
from made_up_images import made_up_images
from trained_runs import TrainedRun, assert_same_weights, train


class Continued(Optimised):
    """Networks of another method, trained on; `doubled` starts from twice their weights."""

    name: ClassVar[str] = "continued"
    label: ClassVar[str] = "Continued"

    of: str = "ensemble"
    num_epochs: int = 0
    num_networks: int = 2
    doubled: bool = False

    @property
    def num_trained(self) -> int:
        return self.num_networks

    @property
    def source(self) -> str | None:
        return self.of

    def begin(self, weights: Weights, network: Any) -> Weights:
        return {name: 2 * each for name, each in weights.items()} if self.doubled else weights


def make_recipe(kind: str, folder: Path, *settings: str, **options: Any) -> Recipe:
    own = {"method": "test_sources:Continued", "options": {"batch_size": 2, **options}}
    given = [f"variants={json.dumps({'continued': own})}", 'methods=["continued"]', "members=[1]", *settings]
    return small("toy-regression", *given) if kind == "toy" else small_dense(folder / "cache", *given)


BOTH = 'methods=["continued", "ensemble"]'


def last_weights(run: TrainedRun, name: str, number: int) -> dict[str, Tensor]:
    return run.kept(name, number)[-1]


@pytest.fixture(params=["toy", "images"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_without_epochs_networks_are_those_of_the_source(kind: str, tmp_path: Path) -> None:
    run = train(make_recipe(kind, tmp_path, BOTH), tmp_path / "run")
    ours, theirs = run.collected("continued"), run.collected("ensemble")
    assert ours.networks == [0, 1]
    for number in ours.networks:
        assert_same_weights(run.kept("continued", number), run.kept("ensemble", number)[-1:])
    assert 0 < ours.seconds <= theirs.seconds + 60


def test_training_goes_on_from_what_the_method_makes_of_them(kind: str, tmp_path: Path) -> None:
    as_they_are = train(make_recipe(kind, tmp_path, num_epochs=1), tmp_path / "run")
    first, source = (last_weights(as_they_are, name, 1) for name in ("continued", "ensemble"))
    doubled = train(make_recipe(kind, tmp_path, num_epochs=0, doubled=True), tmp_path / "doubled")
    start = last_weights(doubled, "continued", 1)
    assert all(torch.equal(start[name], 2 * source[name]) for name in source)
    assert any(not torch.equal(first[name], source[name]) for name in source)


def test_another_source_is_another_training(kind: str, tmp_path: Path) -> None:
    run = train(make_recipe(kind, tmp_path), tmp_path / "run")
    written = run.written("continued", "ensemble")
    with pytest.raises(InputError, match=r"holds a run of another recipe: .*ensemble.*learning_rate"):
        train(make_recipe(kind, tmp_path, "ensemble.learning_rate=0.5"), run.folder)
    train(make_recipe(kind, tmp_path, "map.learning_rate=0.5"), run.folder)
    assert run.written("continued", "ensemble") == written


def test_what_decides_the_source_decides_those_that_start_from_it(tmp_path: Path) -> None:
    """Of chains that is the prior, of all others weight decay."""
    changes = (), ("training.prior_scale=0.5",), ("training.weight_decay=0.5",)
    for of, same in (("sgld", []), ("ensemble", [1])):
        recipes = [make_recipe("images", tmp_path, *change, of=of) for change in changes]
        first, *others = (recipe.training_settings("continued") for recipe in recipes)
        assert [number for number, other in enumerate(others, 1) if other == first] == same


def test_networks_that_are_not_trained_are_not_said_to_be(kind: str, tmp_path: Path) -> None:
    said = []
    for _ in range(2):
        reporter = Silent()
        train(make_recipe(kind, tmp_path), tmp_path / "run", "continued", reporter=reporter)
        said.append([text for text in reporter.said if "trained already" in text])
    assert said[0] == []
    assert said[1] == [f"{name}: 2 of 2 networks trained already" for name in ("ensemble", "continued")]


def test_networks_that_others_start_from_are_trained_first(tmp_path: Path) -> None:
    recipe, reporter = make_recipe("images", tmp_path, 'methods=["continued", "mc_dropout"]', num_epochs=1), Silent()
    run = train(recipe, tmp_path / "run", "continued:1", "mc_dropout", reporter=reporter)
    assert sorted(reporter.trained) == ["train continued", "train ensemble", "train mc_dropout"]
    assert reporter.trained[-1] == "train continued"
    assert [path.name for path in run.files("ensemble")] == ["0001.safetensors"]


def test_what_a_method_has_not_fitted_yet_is_told(tmp_path: Path) -> None:
    run = train(small_dense(tmp_path / "cache", 'methods=["swag"]', "members=[1]"), tmp_path / "run")
    (run.folder / "members" / "swag" / "0001.posterior.safetensors").unlink()
    with pytest.raises(InputError, match="swag: nothing was fitted to network 1 yet; run the same command again"):
        epibench.evaluate(f"run:{run.folder}", {"made-up": made_up_images(1)}, device="cpu")


def test_a_source_that_diverges_is_no_start(tmp_path: Path) -> None:
    recipe = make_recipe("images", tmp_path, "ensemble.learning_rate=1e6", "ensemble.optimiser=sgd")
    trained = train(recipe, tmp_path / "run", "continued").collected("continued")
    assert trained.networks == []
    assert "it starts from one that has failed (ensemble: network 0:" in trained.diverged[0]
    assert "lower continued" not in trained.diverged[0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"of": "nothing"}, "'nothing' is unknown"),
        ({"of": "continued"}, "cannot start from themselves"),
        (
            {"num_networks": 99},
            r"^variants\S+: \w+ starts from 99 networks of ensemble, which has \d+; give it more, or \w+ fewer$",
        ),
        ({"of": "swa"}, "members of swa are made of its networks after training, .*; take another method"),
    ],
)
def test_what_cannot_be_started_from_is_refused(kind: str, tmp_path: Path, options: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make_recipe(kind, tmp_path, **options)


def test_without_epochs_any_decay_will_do(kind: str, tmp_path: Path) -> None:
    assert make_recipe(kind, tmp_path, num_epochs=0, decay="poly").method("continued").keep == (0,)


class TestVariantsWithOtherNetworks:
    def wide(self, folder: Path, **variant: Any) -> Recipe:
        own = {"wide": {"method": "map", "options": {"num_epochs": 1}, "network": {"width": 16}, **variant}}
        given = [f"variants={json.dumps(own)}", 'methods=["wide"]', "members=[1]"]
        return small_dense(folder / "cache", *given)

    def test_are_built_and_trained_so(self, tmp_path: Path) -> None:
        recipe = self.wide(tmp_path)
        assert recipe.network.width != 16
        (weights,) = train(recipe, tmp_path / "run", "wide:0").kept("wide", 0)
        assert weights["image_stem.0.weight"].shape[0] == 16
        assert recipe.training_settings("wide")["network"]["width"] == 16

    @pytest.mark.parametrize(
        ("variant", "words"),
        [
            ({"network": {"widht": 16}}, "variants.wide.network.*widht"),
            (
                {"method": "test_sources:Continued", "options": {}},
                "other networks than those it starts from; give .* same network",
            ),
        ],
    )
    def test_must_fit(self, tmp_path: Path, variant: Any, words: str) -> None:
        with pytest.raises(InputError, match=words):
            self.wide(tmp_path, **variant)

    def test_of_ones_own_networks_change_only_what_they_name(self, tmp_path: Path) -> None:
        base = ["network=mine:Network", 'network.options={"width": 32, "depth": 3}']
        own = {"wide": {"method": "map", "options": {"num_epochs": 1}, "network": {"options": {"width": 8}}}}
        recipe = small_dense(tmp_path / "cache", *base, f"variants={json.dumps(own)}")
        assert recipe.network_of("wide").model_dump()["options"] == {"width": 8, "depth": 3}

    def test_toy_problems_have_none(self) -> None:
        with pytest.raises(InputError, match=r"variants.wide.network: all networks of a toy problem are alike"):
            small("toy-regression", 'variants={"wide": {"method": "map", "network": {"width": 3}}}')


class TestShapeLike:
    def test_a_network_gets_fewer_channels(self) -> None:
        make = lambda inner: nn.Sequential(  # noqa: E731
            nn.Conv2d(3, inner, 3), nn.BatchNorm2d(inner), nn.ConvTranspose2d(inner, 5, 3), nn.Conv2d(5, 2, 1)
        )
        small, large = make(4).eval(), make(8)
        shape_like(large, small.state_dict()).load_state_dict(small.state_dict())
        image = torch.rand(1, 3, 9, 9)
        assert torch.equal(large.eval()(image), small(image))
        assert (large[0].out_channels, large[1].num_features, large[2].in_channels) == (4, 4, 4)

    def test_what_does_not_fit_is_left(self) -> None:
        network = nn.Conv2d(3, 4, 3)
        for other in (nn.Conv2d(3, 8, 3), nn.Conv2d(3, 4, 1)):
            with pytest.raises(RuntimeError, match="size mismatch"):
                shape_like(network, other.state_dict()).load_state_dict(other.state_dict())
