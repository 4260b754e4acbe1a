"""Networks that start from those of another method: on stacked small networks and on tiny ones for images."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from silent_reporter import Silent
from small_dense_recipe import small_dense
from small_recipes import small
from torch import nn

from epibench.errors import InputError
from epibench.methods.optimised import Optimised
from epibench.mirror import is_read
from epibench.networks.shaping import shape_like
from epibench.progress import Advance
from epibench.recipes import DenseRecipe, Recipe, apply_settings
from epibench.recipes.only import networks_of_shard
from epibench.runs.checkpoints import Checkpoints
from epibench.runs.folder import RunFolder
from epibench.runs.image_experiment import ImageExperiment
from epibench.runs.machine import Machine, Run
from epibench.runs.train import Trained, TrainingProgress, collect_trained, train_networks
from epibench.runs.train_job import TrainJob, jobs_of, source_jobs, waves
from epibench.runs.trainers import train_job
from epibench.training import network
from epibench.training.state import Pacer, Weights

CPU = torch.device("cpu")


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
    base = small("toy-regression") if kind == "toy" else small_dense(folder / "cache")
    return apply_settings(base, given)


def carry_out(recipe: Recipe, folder: Path) -> tuple[Run, dict[str, str]]:
    run = Run(recipe, RunFolder(folder / "run"), Machine(torch.device("cpu"), jobs=1, workers=0), Silent())
    train_networks(run, {"continued": None, "ensemble": None}, failed := {})
    return run, failed


def last_weights(trained: Trained, number: int) -> Weights:
    job = trained.jobs[number]
    kept = job.files.load_weights(len(job.files.keep) - 1)
    if isinstance(job.recipe, DenseRecipe):
        return kept
    return {name: each[job.networks.index(number)] for name, each in kept.items()}


@pytest.fixture(params=["toy", "images"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_without_epochs_networks_are_those_of_the_source(kind: str, tmp_path: Path) -> None:
    run, failed = carry_out(make_recipe(kind, tmp_path), tmp_path)
    assert failed == {}
    ours, theirs = collect_trained(run, "continued"), collect_trained(run, "ensemble")
    assert ours.networks == [0, 1]
    for number in ours.networks:
        mine, other = last_weights(ours, number), last_weights(theirs, number)
        assert mine.keys() == other.keys()
        assert all(torch.equal(mine[name], other[name]) for name in mine)
    assert 0 < ours.seconds <= theirs.seconds + 60


def test_training_goes_on_from_what_the_method_makes_of_them(kind: str, tmp_path: Path) -> None:
    names = ("continued", "ensemble")
    as_they_are, _ = carry_out(make_recipe(kind, tmp_path, num_epochs=1), tmp_path)
    first, source = (last_weights(collect_trained(as_they_are, name), 1) for name in names)
    doubled, _ = carry_out(make_recipe(kind, tmp_path / "2", num_epochs=0, doubled=True), tmp_path / "2")
    start = last_weights(collect_trained(doubled, "continued"), 1)
    assert all(torch.equal(start[name], 2 * source[name]) for name in source)
    assert any(not torch.equal(first[name], source[name]) for name in source)


def test_another_source_is_another_training(kind: str, tmp_path: Path) -> None:
    jobs = [
        TrainJob(make_recipe(kind, tmp_path, *change), "continued", (0,), tmp_path / "members", "cpu")
        for change in ((), ("ensemble.learning_rate=0.5",), ("map.learning_rate=0.5",))
    ]
    first, other, same = (job.files.fingerprint for job in jobs)
    assert first != other
    assert first == same


def test_what_decides_the_source_decides_those_that_start_from_it(tmp_path: Path) -> None:
    """Of chains that is the prior, of all others weight decay."""
    changes = (), ("training.prior_scale=0.5",), ("training.weight_decay=0.5",)
    for of, same in (("sgld", []), ("ensemble", [1])):
        recipes = [make_recipe("images", tmp_path, *change, of=of) for change in changes]
        first, *others = (recipe.training_settings("continued") for recipe in recipes)
        assert [number for number, other in enumerate(others, 1) if other == first] == same


def test_a_job_elsewhere_is_given_the_networks_that_it_starts_from(kind: str, tmp_path: Path) -> None:
    run, _ = carry_out(make_recipe(kind, tmp_path), tmp_path)
    job = jobs_of(run, "continued")[-1]
    needed = [source.files.weights(0) for source in source_jobs(job)]
    assert needed
    for path in needed:
        assert path.exists()
        assert is_read(path.relative_to(run.folder.path).as_posix(), job.reads)
    if kind == "images":  # and no others
        other = run.folder.members / "ensemble" / "0000.safetensors"
        assert not is_read(other.relative_to(run.folder.path).as_posix(), job.reads)


def test_networks_that_are_not_trained_are_not_said_to_be(kind: str, tmp_path: Path) -> None:
    said = []
    for _ in range(2):
        run = Run(make_recipe(kind, tmp_path), RunFolder(tmp_path / "run"), Machine(CPU, 1, 0), reporter := Silent())
        train_networks(run, {"continued": None}, {})
        said.append([text for text in reporter.said if "trained already" in text])
    assert said[0] == []
    assert said[1] == [f"{name}: 2 of 2 networks trained already" for name in ("ensemble", "continued")]


def test_sizes_are_read_only_of_networks_that_may_have_lost_channels(tmp_path: Path, monkeypatch: Any) -> None:
    recipe = make_recipe("images", tmp_path, 'methods=["ensemble", "continued"]')
    run, _ = carry_out(recipe, tmp_path)
    read, load = list[Path](), Checkpoints.load_weights
    monkeypatch.setattr(Checkpoints, "load_weights", lambda own, at: read.append(own.folder) or load(own, at))
    experiment = ImageExperiment(run)
    sizes = [experiment.drawn_if_enough(name, collect_trained(run, name)).pool.sizes for name in recipe.methods]
    assert [folder.name for folder in read] == ["continued"]
    assert [{key: each.shape for key, each in own.items()} for own in sizes[1:]] == [
        {key: each.shape for key, each in sizes[0].items()}
    ]


def test_a_kill_and_a_resume_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "LOG_EVERY", 1)
    monkeypatch.setattr(Pacer, "due", lambda pacer: True)
    found = []
    for folder in ("whole", "killed"):
        recipe = make_recipe("images", tmp_path, "training.epoch_steps=4", num_epochs=1, doubled=True)
        run, _ = carry_out(apply_settings(recipe, ['methods=["ensemble"]']), tmp_path / "sources")
        job = TrainJob(recipe, "continued", (0,), run.folder.members, "cpu")
        job = replace(job, members=tmp_path / folder)
        source = tmp_path / folder / "ensemble"
        source.parent.mkdir(parents=True)
        source.symlink_to(run.folder.members / "ensemble")

        def kill(message: Any) -> None:
            if message[0] == 2:
                raise KeyboardInterrupt

        if folder == "killed":
            with pytest.raises(KeyboardInterrupt):
                train_job(job, kill)
            assert job.files.step() > 0
        train_job(job, lambda message: None)
        found.append(job.files.load_weights(0))
    whole, killed = found
    assert all(torch.equal(whole[name], killed[name]) for name in whole)


def test_networks_that_others_start_from_are_trained_first(tmp_path: Path) -> None:
    recipe = make_recipe("images", tmp_path, 'methods=["continued", "mc_dropout"]')
    asked = {"continued": (1,), "mc_dropout": None}
    assert waves(recipe, asked, together=False) == [{"mc_dropout": None}, {"ensemble": [1]}, {"continued": (1,)}]
    assert waves(recipe, asked, together=True) == [{"mc_dropout": None, "ensemble": [1]}, {"continued": (1,)}]


def test_methods_are_shown_from_the_first_beginning_to_the_last_end(tmp_path: Path) -> None:
    recipe = make_recipe("images", tmp_path, 'methods=["continued", "mc_dropout"]')
    jobs = [TrainJob(recipe, name, (n,), tmp_path, "cpu") for name, n in (("ensemble", 0), ("ensemble", 1), ("map", 0))]
    seen = list[str]()

    class Noting(Silent):
        @contextmanager
        def step(self, name: str, total: int, done: int = 0) -> Iterator[Advance]:
            seen.append(f"{name} begins")
            yield lambda units, note="", /: seen.append(f"{name}: {units} {note}".strip())
            seen.append(f"{name} ends")

    with ExitStack() as stack:
        shown, end = TrainingProgress(Noting(), stack, jobs), recipe.training_steps("ensemble")
        messages = [(0, (0, "")), (0, (1, "a")), (2, (0, "")), (0, None), (1, (0, "")), (1, None), (1, None)]
        for number, message in messages:
            shown.receive(number, message)
    first = ["train ensemble begins", "train ensemble: 0", "train ensemble: 1 a", "train map begins", "train map: 0"]
    rest = [f"train ensemble: {end - 1}", "train ensemble: 0", f"train ensemble: {end}", "train ensemble ends"]
    assert seen == [*first, *rest, "train ensemble: 0", "train map ends"]  # an end that comes twice changes nothing


def test_what_a_method_has_not_fitted_yet_is_told(tmp_path: Path) -> None:
    recipe = apply_settings(small("toy-regression"), ['methods=["swag"]', "swag.num_networks=2"])
    run = Run(recipe, RunFolder(tmp_path), Machine(CPU, jobs=1, workers=0), Silent())
    train_networks(run, {"swag": None}, {})
    collect_trained(run, "swag")
    (job,) = jobs_of(run, "swag")
    job.files.posterior(1).unlink()
    with pytest.raises(InputError, match="swag: nothing was fitted to network 1 yet; run the same command again"):
        collect_trained(run, "swag")


def test_a_shard_has_networks_with_those_that_they_start_from(tmp_path: Path) -> None:
    recipe = make_recipe("images", tmp_path, 'methods=["ensemble", "continued"]')
    shards = [networks_of_shard(recipe, number, 2) for number in (1, 2)]
    number = recipe.method("ensemble").num_trained
    assert sorted(network for shard in shards for network in shard.get("ensemble") or ()) == list(range(number))
    for shard in shards:
        assert set(shard.get("continued") or ()) == set(shard.get("ensemble") or ()) & {0, 1}


def test_a_source_that_diverges_is_no_start(tmp_path: Path) -> None:
    recipe = make_recipe("images", tmp_path, "ensemble.learning_rate=1e6", "ensemble.optimiser=sgd")
    run, _ = carry_out(recipe, tmp_path)
    trained = collect_trained(run, "continued")
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
    def wide(self, folder: Path, **variant: Any) -> DenseRecipe:
        own = {"wide": {"method": "map", "options": {"num_epochs": 1}, "network": {"width": 16}, **variant}}
        given = [f"variants={json.dumps(own)}", 'methods=["wide"]', "members=[1]"]
        recipe = apply_settings(small_dense(folder / "cache"), given)
        assert isinstance(recipe, DenseRecipe)
        return recipe

    def test_are_built_and_trained_so(self, tmp_path: Path) -> None:
        recipe = self.wide(tmp_path)
        assert recipe.network.width != 16
        run = Run(recipe, RunFolder(tmp_path / "run"), Machine(torch.device("cpu"), jobs=1, workers=0), Silent())
        train_networks(run, {"wide": [0]}, failed := {})
        assert failed == {}
        job = TrainJob(recipe, "wide", (0,), run.folder.members, "cpu")
        assert job.files.load_weights(0)["image_stem.0.weight"].shape[0] == 16
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
        base = apply_settings(
            small_dense(tmp_path / "cache"), ["network=mine:Network", 'network.options={"width": 32, "depth": 3}']
        )
        own = {"wide": {"method": "map", "options": {"num_epochs": 1}, "network": {"options": {"width": 8}}}}
        recipe = apply_settings(base, [f"variants={json.dumps(own)}"])
        assert isinstance(recipe, DenseRecipe)
        assert recipe.network_of("wide").model_dump()["options"] == {"width": 8, "depth": 3}

    def test_toy_problems_have_none(self) -> None:
        with pytest.raises(InputError, match=r"variants.wide.network: all networks of a toy problem are alike"):
            apply_settings(small("toy-regression"), ['variants={"wide": {"method": "map", "network": {"width": 3}}}'])


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
