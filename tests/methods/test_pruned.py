"""Pruned networks in runs: they start from those of another method, are smaller, and what was pruned stays away."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
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

from epibench.errors import InputError
from epibench.evaluation.cost import network_cost
from epibench.members.networks import NetworkPool
from epibench.methods import METHODS
from epibench.methods.pruned import KeepZeros, Pruned
from epibench.networks.shaping import shape_like
from epibench.recipes import RECIPES, DenseRecipe, Recipe
from epibench.runs.folder import RunFolder
from epibench.runs.given_inputs import run_models
from epibench.runs.image_experiment import ImageExperiment
from epibench.runs.machine import Machine, Run
from epibench.runs.toy_training import toy_network, toy_problem
from epibench.runs.train import collect_trained, train_networks
from epibench.runs.train_job import TrainJob
from epibench.runs.trainers import train_job
from epibench.training import network, stacked
from epibench.training.rules import Adam, Pace, Step, poly
from epibench.training.state import Pacer, Weights

ONLY = ('methods=["pruned"]', "members=[1,2]")
STRUCTURES = ("channels", "weights")


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


def carry_out(recipe: Recipe, folder: Path) -> tuple[Run, dict[str, str]]:
    run = Run(recipe, RunFolder(folder), Machine(torch.device("cpu"), jobs=1, workers=0), Silent())
    train_networks(run, {"pruned": None}, failed := {})
    return run, failed


def last_weights(run: Run, name: str, number: int) -> Weights:
    """Those of a network; of stacked ones, its own."""
    job = collect_trained(run, name).jobs[number]
    weights = job.files.load_weights(0)
    if isinstance(run.recipe, DenseRecipe):
        return weights
    return {"parameters": weights["parameters"][job.networks.index(number)]}


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("kind", ["toy", "depth", "segmentation"])
def test_nothing_pruned_and_nothing_trained_is_the_source(kind: str, structure: str, tmp_path: Path) -> None:
    given = ("pruned.share=0", "pruned.num_epochs=0", f"pruned.structure={structure}")
    run, failed = carry_out(make_recipe(kind, tmp_path, *given), tmp_path / "run")
    assert failed == {}
    for number in (0, 1):
        ours, theirs = (last_weights(run, name, number) for name in ("pruned", "ensemble"))
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("kind", ["toy", "depth", "segmentation"])
def test_single_weights_that_are_pruned_stay_0_in_training(kind: str, tmp_path: Path) -> None:
    begun, trained = (
        carry_out(
            make_recipe(kind, tmp_path, "pruned.structure=weights", "pruned.share=0.7", f"pruned.num_epochs={epochs}"),
            tmp_path / str(epochs),
        )[0]
        for epochs in (0, 2)
    )
    start, end = (last_weights(run, "pruned", 1) for run in (begun, trained))
    moved = 0
    for name, before in start.items():
        assert torch.equal(end[name][before == 0], before[before == 0]) or "num_batches" in name
        moved += int((end[name] != before).sum())
    assert moved > 0
    if kind == "toy":
        matrices = [matrix for layer in toy_stack(trained).layers(end["parameters"]) for matrix in layer.weight]
    else:
        matrices = [each for each in end.values() if each.ndim > 1]
    assert [int((each == 0).sum()) for each in matrices] == [round(0.7 * each.numel()) for each in matrices]


def toy_stack(run: Run) -> Any:
    return toy_network(run.recipe, toy_problem(run.recipe))  # type: ignore[arg-type]


def test_units_of_toy_networks_stay_0_in_training(tmp_path: Path) -> None:
    settings = ("pruned.share=0.3", "pruned.num_epochs=20")
    run, _ = carry_out(make_recipe("toy", tmp_path, *settings), tmp_path / "run")
    network, source, trained = toy_stack(run), *(last_weights(run, name, 1) for name in ("ensemble", "pruned"))
    start, end = (
        network.layers(each["parameters"]) for each in (run.recipe.method("pruned").begin(source, network), trained)
    )
    for before, after in zip(start, end, strict=True):
        assert torch.equal(before.weight == 0, after.weight == 0)
        assert not torch.equal(before.weight, after.weight)
    assert ((end[0].weight == 0).all(2).sum(1) == 3).all()


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Depth networks without half of their channels."""
    folder = tmp_path_factory.mktemp("dense")
    run, failed = carry_out(make_recipe("depth", folder), folder / "run")
    assert failed == {}
    return run


class TestSmallerNetworks:
    def pool(self, run: Run, name: str) -> NetworkPool:
        pool = ImageExperiment(run).drawn(name, collect_trained(run, name)).pool
        assert isinstance(pool, NetworkPool)
        return pool

    def test_have_half_of_the_channels_and_other_weights_than_at_the_start(self, dense: Run) -> None:
        ours, theirs = (last_weights(dense, name, 1) for name in ("pruned", "ensemble"))
        assert ours.keys() == theirs.keys()
        name = "encoder.2.0.conv1.weight"
        assert (ours[name].shape, theirs[name].shape) == ((32, 16, 3, 3), (64, 32, 3, 3))
        assert ours["decoder.2.0.weight"].shape == (32 // 2 + 64 // 2, 16 // 2, 3, 3)
        start = dense.recipe.method("pruned").begin(theirs, dense.recipe.builder(None)())  # type: ignore[attr-defined]
        assert {key: each.shape for key, each in start.items()} == {key: each.shape for key, each in ours.items()}
        assert not torch.equal(start[name], ours[name])

    def test_predict_through_the_pool_as_by_themselves(self, dense: Run) -> None:
        pool = self.pool(dense, "pruned")
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

    def test_take_less_memory_and_fewer_operations_than_those_of_the_source(self, dense: Run) -> None:
        ours, theirs = self.pool(dense, "pruned"), self.pool(dense, "ensemble")
        first = ours.table.members[0]
        weights = last_weights(dense, "pruned", 0)
        assert ours.num_bytes(first) == sum(each.nbytes for each in weights.values())
        assert ours.num_bytes(first) < theirs.num_bytes(first) / 3
        inputs = {"image": torch.zeros(1, 3, 32, 64, dtype=torch.uint8), "sparse_depth": torch.zeros(1, 1, 32, 64)}
        costs = [network_cost(pool.plain_network(), inputs) for pool in (ours, theirs)]
        learnt = [name for name, _ in ours.build().named_parameters()]
        assert costs[0]["parameters"] == sum(weights[name].numel() for name in learnt)
        assert 2 * costs[0]["flops"] < costs[1]["flops"]


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("kind", ["toy", "depth"])
def test_a_kill_and_a_resume_change_nothing(
    kind: str, structure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "LOG_EVERY", 1)
    monkeypatch.setattr(Pacer, "due", lambda pacer: True)
    monkeypatch.setattr(stacked, "next_segment", lambda epochs, seconds: 1)
    recipe = make_recipe(kind, tmp_path, f"pruned.structure={structure}", "pruned.num_epochs=4")
    run, _ = carry_out(recipe, tmp_path / "run")
    whole = collect_trained(run, "pruned").jobs[1]
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed" / "ensemble").symlink_to(run.folder.members / "ensemble")
    job = replace(whole, members=tmp_path / "killed")

    def kill(message: Any) -> None:
        if message[0] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_job(job, kill)
    assert job.files.step() > 0
    train_job(job, lambda message: None)
    ours, theirs = job.files.load_weights(0), whole.files.load_weights(0)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("kind", ["depth", "segmentation"])
def test_a_run_scores_them_and_says_what_they_cost(kind: str, tmp_path: Path) -> None:
    recipe = make_recipe(kind, tmp_path, 'methods=["ensemble", "pruned"]')
    results = run_in(tmp_path / "run", recipe)
    assert results["failed"] == {}
    whole, small_one = (results["cost"][name] for name in ("ensemble", "pruned"))
    assert small_one["parameters"] < 0.5 * whole["parameters"]
    assert small_one["flops"] < 0.5 * whole["flops"]
    assert results["summary"]["pruned"].keys() == results["summary"]["ensemble"].keys()
    machine = Machine(torch.device("cpu"), jobs=1, workers=0)
    opened = run_models(tmp_path / "run", {"method": "pruned"}, machine)[1].open()  # for data of another kind
    assert isinstance(opened, nn.Module)
    weights = TrainJob(recipe, "pruned", (1,), tmp_path / "run" / "members", "cpu").files.load_weights(0)
    assert all(torch.equal(each, weights[name]) for name, each in opened.state_dict().items())


class TestNetworksOfTheUser:
    def recipe(self, folder: Path, structure: str) -> Recipe:
        own = json.dumps({"kind": "own", "name": "test_pruned:OwnNetwork"})
        few = ["pruned.num_members=2", "pruned.num_epochs=1", f"network={own}", f"pruned.structure={structure}"]
        return small_dense(folder / "cache", *ONLY, *few)

    def test_lose_single_weights(self, tmp_path: Path) -> None:
        run, failed = carry_out(self.recipe(tmp_path, "weights"), tmp_path / "run")
        assert failed == {}
        weights = last_weights(run, "pruned", 0)
        assert sum(int((each == 0).sum()) for each in weights.values()) == round(0.5 * (16 * 4 * 9 + 2 * 16))

    def test_are_refused_where_channels_are_asked_for(self, tmp_path: Path) -> None:
        recipe, reporter = self.recipe(tmp_path, "channels"), Silent()
        with pytest.raises(InputError, match=r"^pruned: OwnNetwork does not say which channels .*: structure=weights$"):
            run_in(tmp_path / "run", recipe, reporter=reporter)
        assert reporter.trained == []  # not even the networks to start from


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


def test_recipes_train_on_at_the_rates_of_the_last_fifth_of_a_training() -> None:
    recipe = RECIPES["street-segmentation"]
    pruned, ensemble = recipe.pruned, recipe.ensemble
    assert (pruned.num_epochs, ensemble.num_epochs) == (2, 10)
    whole, last = poly(ensemble.learning_rate), pruned.schedule
    for step in range(1, 21):
        assert last(step, 20).rate == pytest.approx(whole(80 + step, 100).rate, rel=1e-9, abs=1e-12)
