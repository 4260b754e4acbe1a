"""The contract as runs carry it out: every method on stacked small networks and on a tiny one for images."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from silent_reporter import Silent
from small_dense_recipe import small_dense
from small_recipes import small
from torch import Tensor

from epibench.data.loading import Stream, batches
from epibench.errors import InputError
from epibench.members.networks import NetworkPool
from epibench.members.stacked import StackedPool
from epibench.methods import METHODS
from epibench.methods.optimised import Optimised
from epibench.recipes import DenseRecipe, Recipe, apply_settings
from epibench.runs.folder import RunFolder
from epibench.runs.image_experiment import ImageExperiment
from epibench.runs.image_training import augment_of, open_training_data
from epibench.runs.machine import Machine, Run
from epibench.runs.toy import ToyExperiment
from epibench.runs.train import Trained, collect_trained, train_networks
from epibench.runs.train_job import TrainJob
from epibench.runs.trained_views import view_of
from epibench.runs.trainers import train_job
from epibench.training import network, stacked
from epibench.training.state import Pacer
from epibench.training.statistics import batch_norm_statistics


class Mixed(Optimised):
    """Random sets of all snapshots of all networks."""

    name: ClassVar[str] = "mixed"
    label: ClassVar[str] = "Mixed"

    @property
    def num_trained(self) -> int:
        return 3

    @property
    def keep(self) -> tuple[int, ...]:
        return (self.num_epochs - 1, self.num_epochs)


KINDS = ("toy", "images")
ON_POINTS = tuple(name for name, method in METHODS.items() if method.only_images is None)
NAMES = {"toy": ON_POINTS, "images": tuple(METHODS)}


def make_recipe(kind: str, folder: Path) -> Recipe:
    settings = [f"methods={json.dumps(NAMES[kind])}"]
    if kind == "toy":
        plain = ("map", "ml", "ensemble", "mc_dropout", "pruned", "shared_trunk")
        longer = [f"{name}.num_epochs=4" for name in plain]
        return apply_settings(small("toy-regression"), [*longer, *settings])
    few = ["ml.num_restarts=2", "ml.num_epochs=2", "ml.batch_size=2", "tta.num_networks=2"]
    shared = {"num_networks": 2, "num_members": 2, "num_epochs": 2, "batch_size": 2}
    few += [f"batch_ensemble.{option}={value}" for option, value in shared.items()]
    return apply_settings(small_dense(folder / "cache"), [*few, *settings])


@dataclass(frozen=True)
class Case:
    """A method that was trained in a run, and the pool of its members."""

    recipe: Recipe
    name: str
    trained: Trained
    pool: StackedPool | NetworkPool

    def outputs(self, members: slice) -> dict[str, Tensor]:
        """What some members predict for some inputs, (member, …)."""
        if isinstance(self.pool, StackedPool):
            return self.pool.outputs(torch.linspace(-4, 4, 9)[:, None], members)
        generator = torch.Generator().manual_seed(3)
        image = torch.randint(0, 256, (2, 3, 32, 64), dtype=torch.uint8, generator=generator)
        inputs = {"image": image, "sparse_depth": 20 * torch.rand(2, 1, 32, 64, generator=generator)}
        return dict(self.pool.outputs(inputs, members, range(2)).values)


@pytest.fixture(scope="module")
def case_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Case]:
    """Every method is trained once."""
    folders = {kind: tmp_path_factory.mktemp(kind) for kind in KINDS}

    @cache
    def case(kind: str, name: str) -> Case:
        recipe = make_recipe(kind, folders[kind])
        machine = Machine(torch.device("cpu"), jobs=1, workers=0)
        run = Run(recipe, RunFolder(folders[kind] / "run"), machine, Silent())
        train_networks(run, {name: None}, failed := {})
        assert failed == {}
        trained = collect_trained(run, name)
        if isinstance(recipe, DenseRecipe):
            return Case(recipe, name, trained, ImageExperiment(run).drawn(name, trained).pool)
        return Case(recipe, name, trained, ToyExperiment(run).pool(trained))

    return case


@pytest.fixture(params=[(kind, name) for kind in KINDS for name in NAMES[kind]], ids=lambda pair: "-".join(pair))
def case(request: pytest.FixtureRequest, case_of: Callable[[str, str], Case]) -> Case:
    return case_of(*request.param)


def test_the_pool_is_what_the_method_says(case: Case) -> None:
    method = case.recipe.method(case.name)
    assert case.trained.networks == list(range(method.num_trained))
    assert case.pool.table == method.members(range(method.num_trained))


def test_members_predict_finite_values_that_differ(case: Case) -> None:
    outputs = case.outputs(slice(0, case.pool.num_members))
    assert all(torch.isfinite(values).all() for values in outputs.values())
    assert len(torch.unique(outputs["mean"].flatten(1), dim=0)) == case.pool.num_members


def test_a_member_predicts_alone_as_among_others(case: Case) -> None:
    together = case.outputs(slice(0, case.pool.num_members))
    for member in reversed(range(case.pool.num_members)):
        alone = case.outputs(slice(member, member + 1))
        assert all(torch.equal(alone[name][0], together[name][member]) for name in together)


def beside_sources(job: TrainJob, folder: Path) -> Path:
    """A folder for another training, in which the networks that it starts from are found."""
    for source in job.recipe.sources(job.method):
        (folder / source).symlink_to(job.members / source)
    return folder


def kept(job: TrainJob, number: int) -> list[dict[str, Tensor]]:
    """All weights that were kept of a network."""
    row = job.networks.index(number)
    weights = [job.files.load_weights(snapshot) for snapshot in range(len(job.files.keep))]
    if isinstance(job.recipe, DenseRecipe):
        return weights
    return [{name: each[row] for name, each in weights.items()} for weights in weights]


def assert_same(one: list[dict[str, Tensor]], other: list[dict[str, Tensor]]) -> None:
    assert len(one) == len(other)
    for ours, theirs in zip(one, other, strict=True):
        assert ours.keys() == theirs.keys()
        assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


def test_a_network_that_is_trained_by_itself_is_the_one_among_others(case: Case, tmp_path: Path) -> None:
    among = case.trained.jobs[1]
    alone = replace(among, networks=(1,), members=beside_sources(among, tmp_path))
    train_job(alone, lambda message: None)
    assert_same(kept(alone, 1), kept(among, 1))


def test_random_sets_may_mix_the_snapshots_of_all_networks() -> None:
    settings = ['methods=["test_methods_in_runs:Mixed"]', "members=[6]"]
    recipe = apply_settings(small("toy-regression"), settings)
    assert recipe.method("Mixed").largest_draw == 6
    with pytest.raises(InputError, match="M = 7 is impossible: a draw of Mixed has at most 6 members"):
        apply_settings(recipe, ["members=[7]"])


class StoppedError(Exception):
    """The process was killed."""


def test_a_training_that_was_stopped_ends_as_if_it_had_not(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pacer, "due", lambda pacer: True)
    monkeypatch.setattr(network, "LOG_EVERY", 2)
    monkeypatch.setattr(stacked, "next_segment", lambda epochs, seconds: 1)
    whole = case.trained.jobs[0]
    if not case.recipe.training_steps(case.name):
        assert case.recipe.method(case.name).source is not None  # there is nothing to stop
        return
    job = replace(whole, members=beside_sources(whole, tmp_path))
    stop = 2 if case.recipe.problem == "toy-regression" else 4  # in the second epoch; a state was saved in the first

    def tell(message: Any) -> None:
        if message[0] >= stop:
            raise StoppedError

    with pytest.raises(StoppedError):
        train_job(job, tell)
    assert not job.ended
    assert 0 < job.files.step() < stop
    train_job(job, lambda message: None)
    assert job.ended
    assert_same(kept(job, 0), kept(whole, 0))


class TestRefreshedSnapshots:
    """Chains on images whose statistics of batch norm are computed anew for every snapshot."""

    @pytest.fixture(scope="class")
    def job(self, tmp_path_factory: pytest.TempPathFactory) -> TrainJob:
        folder = tmp_path_factory.mktemp("refreshed")
        settings = ["sghmc.refresh_batches=3", "sghmc.warm_up_epochs=1", 'methods=["sghmc"]']
        job = TrainJob(small_dense(folder / "cache", *settings), "sghmc", (1,), folder / "run", "cpu")
        train_job(job, lambda message: None)
        return job

    def test_each_member_has_those_of_its_own_weights(self, job: TrainJob) -> None:
        assert isinstance(job.recipe, DenseRecipe)
        method, trained = job.recipe.method("sghmc"), view_of(job)(1)
        samples = open_training_data(job.recipe)
        order, change = (trained.key("statistics", purpose) for purpose in ("order", "change"))
        seen = list(batches(Stream(samples, augment_of(job.recipe), order, change), range(6), 2))
        members = method.members([1]).members
        for member in members:
            weights, before = method.weights(member, trained), job.files.load_weights(member.snapshot)
            network = job.recipe.builder(None)()
            network.load_state_dict(before)
            expected = batch_norm_statistics(network, (batch.inputs for batch in seen))
            assert weights.keys() == before.keys()
            for name, values in weights.items():
                assert torch.equal(values, expected.get(name, before[name]))
            changed = {name for name in before if not torch.equal(weights[name], before[name])}
            assert changed == set(expected)
        first, second = (method.weights(member, trained)["encoder.0.0.norm1.running_mean"] for member in members)
        assert not torch.equal(first, second)

    def test_statistics_that_are_lost_are_made_anew(self, job: TrainJob) -> None:
        before = dict(view_of(job)(1).posterior)
        job.files.posterior(1).unlink()
        assert not job.ended
        train_job(job, lambda message: None)
        assert_same([dict(view_of(job)(1).posterior)], [before])

    def test_another_number_of_batches_trains_nothing_again(self, job: TrainJob) -> None:
        recipe = apply_settings(job.recipe, ["sghmc.refresh_batches=4"])
        other = replace(job, recipe=recipe)
        assert other.files.finished() is not None
        assert other.unfitted == [1]
