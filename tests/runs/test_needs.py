"""What a run needs of disk and memory is computed before it begins, and refused where it is not there."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import pytest
import torch
from silent_reporter import Silent, run_in
from small_dense_recipe import small_dense
from small_segmentation_recipe import small_segmentation
from torch import nn

from epibench.data.batch import Batch
from epibench.errors import InputError
from epibench.free_memory import free_memory
from epibench.recipes.dense import DenseRecipe
from epibench.runs import needs
from epibench.runs.checks import STEPS
from epibench.runs.domains import ImageData
from epibench.runs.dry_run import pass_memory, step_memory
from epibench.runs.folder import RunFolder
from epibench.runs.image_evaluation import DomainTask
from epibench.runs.machine import Machine, Run
from epibench.runs.needs import Need, Needs, Resource

Usage = namedtuple("Usage", "free")


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("scenes")


def needs_of(recipe: DenseRecipe, path: Path, jobs: int = 1) -> Needs:
    run = Run(recipe, RunFolder(path), Machine.of(torch.device("cpu"), jobs), Silent())
    return Needs(run, ImageData(recipe), STEPS)


def sizes(resource: Resource) -> dict[str, int]:
    return {need.what: need.size for need in resource.needs}


def weights_of(recipe: DenseRecipe) -> int:
    return sum(each.nbytes for each in recipe.network.build(None).state_dict().values())


# Disk


def test_weights_of_all_networks_take_room_and_those_that_are_there_no_more(cache: Path, tmp_path: Path) -> None:
    recipe = small_dense(cache)
    weights = weights_of(recipe)
    assert sizes(needs_of(recipe, tmp_path / "run").disk)["weights"] == 5 * weights  # three and two networks
    run_in(tmp_path / "run", small_dense(cache, 'methods=["ensemble"]', "data.domains.clean.num_images=1"))
    assert sizes(needs_of(recipe, tmp_path / "run").disk)["weights"] == 2 * weights
    written = (tmp_path / "run/members/ensemble/0000.safetensors").stat().st_size
    assert written == pytest.approx(weights, rel=0.1)


def test_networks_that_others_start_from_take_room_as_far_as_they_are_needed(cache: Path, tmp_path: Path) -> None:
    recipe = small_dense(cache, 'methods=["laplace"]', "laplace.num_networks=2", "ensemble.num_members=3")
    needs = needs_of(recipe, tmp_path / "run")
    assert sizes(needs.disk)["weights"] == (2 + 2) * weights_of(recipe)
    assert needs.untrained("ensemble") == 2


def test_every_kept_snapshot_takes_room(cache: Path, tmp_path: Path) -> None:
    recipe = small_dense(cache, 'methods=["sgld"]')
    assert sizes(needs_of(recipe, tmp_path).disk)["weights"] == 2 * 2 * weights_of(recipe)


def test_what_is_fitted_takes_room_until_it_is_there(cache: Path, tmp_path: Path) -> None:
    """Mean, standard deviation and deviations of two snapshots for each of two networks."""
    recipe = small_dense(cache, 'methods=["swag"]', "data.domains.clean.num_images=1")
    needed = sizes(needs_of(recipe, tmp_path / "run").disk)["what is fitted"]
    assert needed == 2 * (2 + 2) * weights_of(recipe)
    run_in(tmp_path / "run", recipe)
    files = list((tmp_path / "run/members/swag").glob("*.posterior.safetensors"))
    assert sum(file.stat().st_size for file in files) == pytest.approx(needed, rel=0.1)
    assert sizes(needs_of(recipe, tmp_path / "run").disk)["what is fitted"] == 0


def test_unfinished_states_are_as_large_as_estimated(cache: Path, tmp_path: Path, eager, monkeypatch) -> None:
    from epibench.runs.checkpoints import Checkpoints

    recipe, written = small_dense(cache, 'methods=["ensemble"]', "draws=1"), list[int]()
    save = Checkpoints.save_state

    def note(files, *state) -> None:
        save(files, *state)
        written.append(files.unfinished.stat().st_size)

    monkeypatch.setattr(Checkpoints, "save_state", note)
    state = needs_of(recipe, tmp_path / "run").state("ensemble")
    run_in(tmp_path / "run", recipe)
    assert max(written) == pytest.approx(state, rel=0.1)  # names and the log are beside the tensors


@pytest.mark.parametrize("make", [small_dense, small_segmentation])
def test_metric_states_are_those_of_the_evaluation(make, cache: Path, tmp_path: Path, eager, monkeypatch) -> None:
    recipe, kept = make(cache, 'methods=["mc_dropout"]'), dict[str, int]()
    evaluate = DomainTask.evaluate

    def note(task: DomainTask, evaluation) -> None:
        states = [each for suite in evaluation.suites for each in suite.state().values()]
        kept[task.domain] = sum(each.nbytes for each in states)
        evaluate(task, evaluation)

    monkeypatch.setattr(DomainTask, "evaluate", note)
    computed = needs_of(recipe, tmp_path / "run")
    run_in(tmp_path / "run", recipe)
    assert kept == {domain: computed.metric_states("mc_dropout", domain) for domain in ("clean", "wild")}


def test_a_full_disk_is_refused_before_anything_is_written(cache: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(2_000_000))
    reporter = Silent()
    with pytest.raises(
        InputError, match=r"^disk: about .* are free: .* [MG]B are short; give another --out, or make room"
    ):
        run_in(tmp_path / "run", small_dense(cache), reporter=reporter)
    assert not (tmp_path / "run").exists()
    assert reporter.steps == []


# Memory


def test_memory_grows_with_the_networks_that_are_trained_at_once(cache: Path, tmp_path: Path) -> None:
    recipe = small_dense(cache, 'methods=["ensemble"]')
    one, two, many = (needs_of(recipe, tmp_path, jobs).training("ensemble") for jobs in (1, 2, 9))
    assert [need.size for need in two] == [2 * need.size for need in one]
    assert [need.size for need in many] == [3 * need.size for need in one]  # there are no more than three networks
    parameters = sum(each.nbytes for each in recipe.network.build(None).parameters())
    assert one[0].size == weights_of(recipe) + 3 * parameters  # gradient, and both moments of Adam
    assert [need.certain for need in one] == [True, False]


def test_memory_is_needed_for_what_is_fitted(cache: Path, tmp_path: Path) -> None:
    """Where it is more than training takes."""
    recipe = small_dense(cache, 'methods=["swag"]', "swag.num_epochs=4000", "swag.num_snapshots=2000", "draws=1")
    (needed,) = (each for each in needs_of(recipe, tmp_path).memories if each.name == "memory")
    assert sizes(needed)["what is fitted to networks of swag"] == 2 * 2002 * weights_of(recipe)


def test_too_little_memory_for_the_certain_part_is_refused(cache: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(needs, "free_memory", lambda: 1_000)
    with pytest.raises(InputError, match=r"^memory: about .* are short; take fewer --jobs"):
        run_in(tmp_path / "run", small_dense(cache))
    assert not (tmp_path / "run").exists()


def test_too_little_memory_by_the_estimate_is_a_warning(cache: Path, tmp_path: Path, monkeypatch) -> None:
    recipe, reporter = small_dense(cache, 'methods=["ensemble"]', "data.domains.clean.num_images=1"), Silent()
    monkeypatch.setattr(needs, "free_memory", lambda: 200_000_000)
    run_in(tmp_path / "run", recipe, reporter=reporter)
    said = [line for line in reporter.said if line.startswith(("needs about", "memory may not suffice"))]
    assert len(said) == 2
    assert " of memory (0.2 GB free); an estimate" in said[0]
    assert said[1].endswith("take fewer --jobs, a smaller batch_size or training.crop, or fewer draws")


def test_what_is_short_is_told() -> None:
    gpu = Resource("GPU memory", (Need("weights", 3 * 10**9), Need("a step", 2 * 10**9, False)), 4 * 10**9, "wait")
    assert gpu.check() == "about 5.0 GB are needed (weights 3.0 GB, a step 2.0 GB; an estimate), 4.0 GB are free"
    with pytest.raises(InputError, match=r"^GPU memory may not suffice: .*, 1.0 GB less; wait$"):
        gpu.check_estimate()
    with pytest.raises(InputError, match=r"^GPU memory: .* 2.0 GB are free: 1.0 GB are short; wait$"):
        Resource(gpu.name, gpu.needs, 2 * 10**9, gpu.remedy).check()


def test_the_limit_of_a_container_counts(tmp_path: Path, monkeypatch) -> None:
    limit, used = tmp_path / "max", tmp_path / "current"
    monkeypatch.setattr("epibench.free_memory.MEMORY_FILES", ((str(limit), str(used)),))
    whole = free_memory()
    limit.write_text("max\n")
    used.write_text("1000\n")
    assert free_memory() == pytest.approx(whole, rel=0.5)
    limit.write_text("501000\n")
    assert free_memory() == 500_000


# Tried without content


class Doubled(nn.Module):
    """Keeps its input, of one channel, and what tanh gives, for the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, inputs):
        return (inputs["image"] * self.scale).tanh().expand(-1, 2, -1, -1)


def test_a_step_is_counted_with_its_activations() -> None:
    sample = Batch({"image": torch.zeros(1, 8, 8)}, torch.zeros(8, 8), torch.ones(8, 8, dtype=torch.bool))

    def loss(raw, target):
        return raw.sum(1) - target

    small, large = (step_memory(Doubled, loss, sample, number) for number in (100, 200))
    maps = 100 * 8 * 8 * 4  # of one tensor
    assert large - small == pytest.approx(small, rel=0.01)
    assert 3 * maps <= small <= 8 * maps
    peak, shape = pass_memory(Doubled, sample, 100)
    assert shape == (100, 2, 8, 8)
    assert peak == 2 * maps  # what is scaled, and what tanh gives


def test_a_network_that_needs_real_numbers_leaves_the_step_unknown(cache: Path, tmp_path: Path, monkeypatch) -> None:
    def fails(*given: object) -> int:
        raise RuntimeError("cannot be tried")

    monkeypatch.setattr(needs, "step_memory", fails)
    computed = needs_of(small_dense(cache), tmp_path)
    assert [need.size for need in computed.training("ensemble")][1] == computed.state("ensemble")  # while it is saved
