"""The contract as runs carry it out: every method on stacked small networks and on a tiny one for images."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from small_dense_recipe import small_dense
from small_recipes import small
from test_methods import SMALL
from torch import Tensor

from epibench.errors import InputError
from epibench.methods import METHODS
from epibench.methods.optimised import Optimised
from epibench.recipes import Recipe
from trained_runs import TrainedRun, assert_same_weights, train, train_killed


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


def make_recipe(kind: str, folder: Path, *settings: str) -> Recipe:
    if kind == "toy":
        plain = ("map", "ml", "ensemble", "mc_dropout", "pruned", "shared_trunk")
        return small("toy-regression", *(f"{name}.num_epochs=4" for name in plain), *settings)
    few = ["ml.num_restarts=2", "ml.num_epochs=2", "ml.batch_size=2", "tta.num_networks=2"]
    shared = {"num_networks": 2, "num_members": 2, "num_epochs": 2, "batch_size": 2}
    few += [f"batch_ensemble.{option}={value}" for option, value in shared.items()]
    return small_dense(folder / "cache", *few, *settings)


@dataclass(frozen=True)
class Case:
    """A method that was trained in a run, and the pool of its members."""

    kind: str
    name: str
    run: TrainedRun
    pool: Any

    def outputs(self, members: slice) -> dict[str, Tensor]:
        """What some members predict for some inputs, (member, …)."""
        if self.kind == "toy":
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
        recipe = make_recipe(kind, folders[kind], f"methods={json.dumps(NAMES[kind])}")
        run = train(recipe, folders[kind] / "run", name)
        return Case(kind, name, run, run.pool(name))

    return case


@pytest.fixture(params=[(kind, name) for kind in KINDS for name in NAMES[kind]], ids=lambda pair: "-".join(pair))
def case(request: pytest.FixtureRequest, case_of: Callable[[str, str], Case]) -> Case:
    return case_of(*request.param)


def test_the_pool_is_what_the_method_says(case: Case) -> None:
    method = case.run.recipe.method(case.name)
    assert case.run.collected(case.name).networks == list(range(method.num_trained))
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


def test_a_network_that_is_trained_by_itself_is_the_one_among_others(case: Case, tmp_path: Path) -> None:
    """On points too: behind the first one, which was trained before."""
    recipe, only = case.run.recipe, f"{case.name}:1"
    case.run.copy_sources(case.name, tmp_path)
    if case.kind == "toy":
        option = next(option for option in SMALL[case.name] if option.startswith("num_"))
        first = (f'methods=["{case.name}"]', "members=[1]", "pictures.members=[1]", f"{case.name}.{option}=1")
        train(make_recipe("toy", tmp_path, *first), tmp_path, only := case.name)
    alone = train(recipe, tmp_path, only)
    assert_same_weights(alone.kept(case.name, 1), case.run.kept(case.name, 1))


def test_random_sets_may_mix_the_snapshots_of_all_networks() -> None:
    settings = ['methods=["test_methods_in_runs:Mixed"]', "pictures.members=[6]"]
    assert small("toy-regression", *settings, "members=[6]").method("Mixed").largest_draw == 6
    with pytest.raises(InputError, match="M = 7 is impossible: a draw of Mixed has at most 6 members"):
        small("toy-regression", *settings, "members=[7]")


def test_a_training_that_was_stopped_ends_as_if_it_had_not(case: Case, tmp_path: Path) -> None:
    recipe = case.run.recipe
    if not recipe.training_steps(case.name):
        assert recipe.method(case.name).source is not None  # there is nothing to stop
        return
    case.run.copy_sources(case.name, tmp_path)
    only, stop = (case.name, 2) if case.kind == "toy" else (f"{case.name}:0", 4)  # in the second epoch
    stopped = train_killed(recipe, tmp_path, only, stop_at=stop)
    assert_same_weights(stopped.kept(case.name, 0), case.run.kept(case.name, 0))


STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


class TestRefreshedSnapshots:
    """Chains on images whose statistics of batch norm are computed anew for every snapshot."""

    def recipe(self, folder: Path, num_batches: int) -> Recipe:
        settings = [f"sghmc.refresh_batches={num_batches}", "sghmc.warm_up_epochs=1", 'methods=["sghmc"]']
        return small_dense(folder / "cache", *settings)

    @pytest.fixture(scope="class")
    def run(self, tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
        folder = tmp_path_factory.mktemp("refreshed")
        return train(self.recipe(folder, 3), folder / "run", "sghmc:1")

    def test_each_member_has_those_of_its_own_weights(self, run: TrainedRun) -> None:
        method, trained = run.recipe.method("sghmc"), run.network("sghmc", 1)
        members, kept = method.members([1]).members, run.kept("sghmc", 1)
        weights = [dict(method.weights(member, trained)) for member in members]
        expected = [run.refreshed("sghmc", 1, kept[member.snapshot], 3) for member in members]
        assert_same_weights(weights, expected)
        for ours, before in zip(weights, kept, strict=True):
            changed = {name for name in before if not torch.equal(ours[name], before[name])}
            assert changed == {name for name in before if name.endswith(STATISTICS)}
        first, second = (each["encoder.0.0.norm1.running_mean"] for each in weights)
        assert not torch.equal(first, second)

    def test_statistics_that_are_lost_are_made_anew(self, run: TrainedRun) -> None:
        before, written = dict(run.network("sghmc", 1).posterior), run.written("sghmc")
        (run.folder / "members" / "sghmc" / "0001.posterior.safetensors").unlink()
        assert run.network("sghmc", 1).posterior == {}
        train(run.recipe, run.folder, "sghmc:1")
        assert_same_weights([dict(run.network("sghmc", 1).posterior)], [before])
        assert run.written("sghmc") == written

    def test_another_number_of_batches_trains_nothing_again(self, run: TrainedRun) -> None:
        before, written = dict(run.network("sghmc", 1).posterior), run.written("sghmc")
        other = train(self.recipe(run.folder.parent, 4), run.folder, "sghmc:1")
        assert run.written("sghmc") == written
        found = dict(other.network("sghmc", 1).posterior)
        assert found.keys() == before.keys()
        assert any(not torch.equal(found[name], before[name]) for name in before)
