"""Pruned networks in runs: they start from those of another method, are smaller, and what was pruned stays away."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from silent_reporter import Silent, run_in
from small_dense_recipe import small_dense
from small_recipes import small
from small_segmentation_recipe import small_segmentation
from torch import Tensor, nn
from torch.nn import functional

import epibench
from epibench.data.batch import stack
from epibench.errors import InputError
from epibench.methods import METHODS
from epibench.methods.pruned import KeepZeros, Pruned
from epibench.networks.mlp import StackedMLP
from epibench.networks.shaping import shape_like
from epibench.recipes import Recipe
from epibench.training.rules import Adam, Pace, Step
from made_up_images import made_up_images
from trained_runs import TrainedRun, assert_same_weights, train, train_killed

ONLY = ('methods=["pruned"]', "members=[1,2]")
STRUCTURES = ("channels", "weights")
TOY_NETWORK = StackedMLP(1, 1, heads=2)


class OwnNetwork(nn.Module):
    """A network of the user's, which says nothing of its channels."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(4, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 2, 1))

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Mean and log variance."""
        outputs: Tensor = self.layers(torch.cat((inputs["image"].float() / 255, inputs["sparse_depth"] / 10), 1))
        return outputs


def make_recipe(kind: str, folder: Path, *settings: str) -> Recipe:
    if kind == "toy":
        return small("toy-regression", *ONLY, "pruned.num_members=3", *settings)
    make = small_dense if kind == "depth" else small_segmentation
    few = [f"{name}.{option}" for name in ("ensemble", "pruned") for option in ("num_members=2", "num_epochs=1")]
    wide = [] if kind == "depth" else ["network.head_width=16"]
    return make(folder / "cache", *ONLY, *few, "pruned.batch_size=2", *wide, *settings)


def last_weights(run: TrainedRun, name: str, number: int) -> dict[str, Tensor]:
    return run.kept(name, number)[-1]


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("kind", ["toy", "depth", "segmentation"])
def test_nothing_pruned_and_nothing_trained_is_the_source(kind: str, structure: str, tmp_path: Path) -> None:
    given = ("pruned.share=0", "pruned.num_epochs=0", f"pruned.structure={structure}")
    run = train(make_recipe(kind, tmp_path, *given), tmp_path / "run")
    for number in (0, 1):
        assert_same_weights(run.kept("pruned", number), run.kept("ensemble", number)[-1:])


@pytest.mark.parametrize("kind", ["toy", "depth", "segmentation"])
def test_single_weights_that_are_pruned_stay_0_in_training(kind: str, tmp_path: Path) -> None:
    begun, trained = (
        train(
            make_recipe(kind, tmp_path, "pruned.structure=weights", "pruned.share=0.7", f"pruned.num_epochs={epochs}"),
            tmp_path / str(epochs),
        )
        for epochs in (0, 2)
    )
    start, end = (last_weights(run, "pruned", 1) for run in (begun, trained))
    moved = 0
    for name, before in start.items():
        assert torch.equal(end[name][before == 0], before[before == 0]) or "num_batches" in name
        moved += int((end[name] != before).sum())
    assert moved > 0
    if kind == "toy":
        matrices = [matrix for layer in TOY_NETWORK.layers(end["parameters"]) for matrix in layer.weight]
    else:
        matrices = [each for each in end.values() if each.ndim > 1]
    assert [int((each == 0).sum()) for each in matrices] == [round(0.7 * each.numel()) for each in matrices]


def test_units_of_toy_networks_stay_0_in_training(tmp_path: Path) -> None:
    settings = ("pruned.share=0.3", "pruned.num_epochs=20")
    run = train(make_recipe("toy", tmp_path, *settings), tmp_path / "run")
    source, trained = (last_weights(run, name, 1) for name in ("ensemble", "pruned"))
    begun = run.recipe.method("pruned").begin(source, TOY_NETWORK)
    start, end = (TOY_NETWORK.layers(each["parameters"]) for each in (begun, trained))
    for before, after in zip(start, end, strict=True):
        assert torch.equal(before.weight == 0, after.weight == 0)
        assert not torch.equal(before.weight, after.weight)
    assert ((end[0].weight == 0).all(2).sum(1) == 3).all()


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    """Depth networks without half of their channels."""
    folder = tmp_path_factory.mktemp("dense")
    return train(make_recipe("depth", folder), folder / "run")


class TestSmallerNetworks:
    def test_have_half_of_the_channels_and_other_weights_than_at_the_start(self, dense: TrainedRun) -> None:
        ours, theirs = (last_weights(dense, name, 1) for name in ("pruned", "ensemble"))
        assert ours.keys() == theirs.keys()
        name = "encoder.2.0.conv1.weight"
        assert (ours[name].shape, theirs[name].shape) == ((32, 16, 3, 3), (64, 32, 3, 3))
        assert ours["decoder.2.0.weight"].shape == (32 // 2 + 64 // 2, 16 // 2, 3, 3)
        start = dense.recipe.method("pruned").begin(theirs, dense.recipe.builder(None)())
        assert {key: each.shape for key, each in start.items()} == {key: each.shape for key, each in ours.items()}
        assert not torch.equal(start[name], ours[name])

    def test_predict_through_the_pool_as_by_themselves(self, dense: TrainedRun) -> None:
        pool = dense.pool("pruned")
        inputs = {"image": torch.randint(0, 256, (1, 3, 32, 64), dtype=torch.uint8)}
        inputs["sparse_depth"] = torch.rand(1, 1, 32, 64)
        found = pool.outputs(inputs, slice(0, 2), range(1)).values["mean"]
        for number in (0, 1):
            weights = last_weights(dense, "pruned", number)
            alone = shape_like(pool.build(), weights)
            alone.load_state_dict(dict(weights))
            with torch.inference_mode():
                mean = alone.eval()(inputs)[:, 0]
            torch.testing.assert_close(found[number].reshape(mean.shape), mean, rtol=1e-4, atol=1e-4)

    def test_take_less_memory_than_those_of_the_source(self, dense: TrainedRun) -> None:
        ours, theirs = dense.pool("pruned"), dense.pool("ensemble")
        first = ours.table.members[0]
        weights = last_weights(dense, "pruned", 0)
        assert ours.num_bytes(first) == sum(each.nbytes for each in weights.values())
        assert ours.num_bytes(first) < theirs.num_bytes(first) / 3


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("kind", ["toy", "depth"])
def test_a_kill_and_a_resume_change_nothing(kind: str, structure: str, tmp_path: Path) -> None:
    recipe = make_recipe(kind, tmp_path, f"pruned.structure={structure}", "pruned.num_epochs=4")
    only = "pruned" if kind == "toy" else "pruned:1"
    whole = train(recipe, tmp_path / "run", only)
    whole.copy_sources("pruned", tmp_path / "killed")
    killed = train_killed(recipe, tmp_path / "killed", only, stop_at=2)
    assert_same_weights(killed.kept("pruned", 1), whole.kept("pruned", 1))


@pytest.mark.parametrize("kind", ["depth", "segmentation"])
def test_a_run_scores_them_and_says_what_they_cost(kind: str, tmp_path: Path) -> None:
    recipe = make_recipe(kind, tmp_path, 'methods=["ensemble", "pruned"]')
    results = run_in(tmp_path / "run", recipe)
    assert results["failed"] == {}
    whole, small_one = (results["cost"][name] for name in ("ensemble", "pruned"))
    assert small_one["parameters"] < 0.5 * whole["parameters"]
    assert small_one["flops"] < 0.5 * whole["flops"]
    run = TrainedRun(recipe, tmp_path / "run")
    learnt = [name for name, _ in recipe.builder(19 if kind == "segmentation" else None)().named_parameters()]
    assert small_one["parameters"] == sum(last_weights(run, "pruned", 0)[name].numel() for name in learnt)
    assert results["summary"]["pruned"].keys() == results["summary"]["ensemble"].keys()


@pytest.mark.parametrize("kind", ["depth", "segmentation"])
def test_they_are_models_for_data_of_another_kind(kind: str, tmp_path: Path) -> None:
    run = train(make_recipe(kind, tmp_path), tmp_path / "run")
    data = made_up_images(3, classes=19 if kind == "segmentation" else None)
    found = epibench.evaluate(f"run:{run.folder},method=pruned", {"made-up": data}, device="cpu").scores[0]
    expected = []
    for number in (0, 1):
        weights = last_weights(run, "pruned", number)
        network = shape_like(run.recipe.builder(19 if kind == "segmentation" else None)(), weights).eval()
        network.load_state_dict(weights)
        with torch.inference_mode():
            raw = torch.cat([network(stack([each]).inputs) for each in data])
        target = torch.stack([each.target for each in data])
        raw = functional.interpolate(raw, (32, 64), mode="bilinear", align_corners=True)
        errors = (raw[:, 0] - target).square() if kind == "depth" else (raw.argmax(1) == target).double()
        expected.append(float(errors.mean()))
    name, power = ("rmse", 2) if kind == "depth" else ("accuracy", 1)
    values = [draw.metrics[name] ** power for draw in found.draws if draw.M == 1]
    assert sorted(values) == pytest.approx(sorted(expected))
    assert len(set(expected)) == 2


class TestNetworksOfTheUser:
    def recipe(self, folder: Path, structure: str) -> Recipe:
        own = json.dumps({"kind": "own", "name": "test_pruned:OwnNetwork"})
        few = ["pruned.num_members=2", "pruned.num_epochs=1", f"network={own}", f"pruned.structure={structure}"]
        return small_dense(folder / "cache", *ONLY, *few)

    def test_lose_single_weights(self, tmp_path: Path) -> None:
        run = train(self.recipe(tmp_path, "weights"), tmp_path / "run")
        weights = last_weights(run, "pruned", 0)
        assert sum(int((each == 0).sum()) for each in weights.values()) == round(0.5 * (16 * 4 * 9 + 2 * 16))

    def test_are_refused_where_channels_are_asked_for(self, tmp_path: Path) -> None:
        recipe, reporter = self.recipe(tmp_path, "channels"), Silent()
        with pytest.raises(InputError, match=r"^pruned: OwnNetwork does not say which channels .*: structure=weights$"):
            train(recipe, tmp_path / "run", reporter=reporter)
        assert not reporter.trained  # not even those to start from


class TestKeepZeros:
    def test_what_is_0_stays_and_the_rest_moves_as_the_rule_says(self) -> None:
        parameters = torch.tensor([1.0, 0.0, -2.0, 0.0])
        plain, kept = parameters.clone(), parameters.clone()
        rule = KeepZeros(Adam())
        states = Adam().start(plain), rule.start(kept)
        for number in range(1, 4):
            step, gradient = Step(number, Pace(0.1), 1, None), torch.full((4,), 0.5 * number)
            Adam().update(plain, gradient, states[0], step)
            rule.update(kept, gradient, states[1], step)
        assert torch.equal(kept, plain * torch.tensor([1, 0, 1, 0]))
        assert (rule.noisy, rule.decoupled) == (False, False)

    def test_is_left_out_where_nothing_is_masked(self) -> None:
        assert isinstance(Pruned(structure="weights").rule, KeepZeros)
        assert Pruned(structure="weights", share=0).rule == Pruned().rule == Adam()


@pytest.mark.parametrize("options", [{"share": 1.0}, {"share": -0.1}, {"structure": "filters"}, {"num_epochs": -1}])
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(options))):
        METHODS["pruned"](**options)
