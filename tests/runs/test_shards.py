"""An evaluation in shards: whoever evaluates which stretches, in whatever order, the numbers are the same."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from silent_reporter import Silent, run_in
from small_dense_recipe import small_dense
from small_recipes import small
from small_segmentation_recipe import small_segmentation

from by_name import by_name
from epibench.errors import InputError
from epibench.evaluation.loop import EvaluationTotals
from epibench.members.networks import NetworkPool
from epibench.plans import consecutive
from epibench.recipes import Recipe
from epibench.recipes.only import networks_of_shard
from epibench.runs import run, stretches
from epibench.runs.evaluate_job import EvaluationJobs, Stretch, evaluate_job, in_parts
from epibench.runs.folder import RunFolder
from epibench.runs.image_evaluation import DomainTask
from epibench.runs.machine import Machine, Run
from epibench.runs.stretches import Stretches, packed, unpacked

NUMBERS = ("methods", "summary", "curves", "draws", "domains", "pictures", "training")
KINDS = ("segmentation", "depth")


def recipe_of(kind: str, cache: Path) -> Recipe:
    """Three members of an ensemble and two passes, on two domains of a few images."""
    few = ("data.domains.clean.num_images=5", "data.domains.wild.num_images=3", "ensemble.num_members=3")
    more = ("mc_dropout.num_networks=1", "mc_dropout.num_passes=2", "members=[1,2]", "draws=2")
    small = small_segmentation if kind == "segmentation" else small_dense
    return small(cache, *few, *more, "training.epoch_steps=2", "evaluation.batch_size=1")


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretches of two images."""
    monkeypatch.setattr(stretches, "STRETCH_PIXELS", 1)
    monkeypatch.setattr(stretches, "STRETCH_IMAGES", 2)


@pytest.fixture(scope="module")
def made(eager: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs that were carried out in one process, in stretches of two images."""
    folders, root = {}, tmp_path_factory.mktemp("shards")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stretches, "STRETCH_PIXELS", 1)
        patch.setattr(stretches, "STRETCH_IMAGES", 2)
        for kind in KINDS:
            folders[kind] = root / kind
            run_in(folders[kind], recipe_of(kind, root / "scenes"))
    return folders


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def trained(made: dict[str, Path], kind: str, tmp_path: Path) -> Run:
    """The same networks, not evaluated."""
    return unevaluated(made[kind], kind, tmp_path)


def unevaluated(made: Path, kind: str, path: Path) -> Run:
    folder = Path(shutil.copytree(made, path / "run"))
    shutil.rmtree(folder / "evaluation")
    (folder / "results.json").unlink()
    machine = Machine.of(torch.device("cpu"), 1)
    return Run(recipe_of(kind, made.parent / "scenes"), RunFolder(folder), machine, Silent())


def numbers(folder: Path) -> dict[str, Any]:
    """All that a run has found, without times."""
    results = by_name(json.loads((folder / "results.json").read_text()))
    return {name: results[name] for name in NUMBERS}


@pytest.mark.parametrize("count", [1, 3, 8])
def test_shards_in_any_order_give_what_one_process_gives(made, trained, kind, count: int) -> None:
    order = list(range(1, count + 1))
    random.Random(count).shuffle(order)
    for number in order:
        run.evaluate_shard(trained, number, count)
    assert not trained.folder.results_file.exists()
    trained.reporter.steps.clear()
    run.merge(trained)
    assert not [step for step in trained.reporter.steps if step.startswith("measure")]  # a shard has measured it
    assert numbers(trained.folder.path) == numbers(made[kind])
    assert not list(trained.folder.path.rglob("*.stretches"))


def test_a_shard_evaluates_its_part_and_nothing_twice(trained, monkeypatch) -> None:
    passes: list[int] = []
    outputs = NetworkPool.outputs

    def counted(pool: NetworkPool, inputs: Any, members: slice, images: range, size: Any = None) -> Any:
        passes.append(len(images) * (members.stop - members.start))
        return outputs(pool, inputs, members, images, size)

    monkeypatch.setattr(NetworkPool, "outputs", counted)
    monkeypatch.setattr("epibench.runs.image_evaluation.cost_per_image", lambda *given: {})
    monkeypatch.setattr("epibench.runs.image_evaluation.count_flops", lambda *given: None)
    counts = []
    for number in (1, 2, 2, 3):
        passes.clear()
        run.evaluate_shard(trained, number, 3)
        counts.append(sum(passes))
    assert counts[2] == 0
    assert sum(counts) == (3 + 2) * (5 + 3)
    assert max(counts) <= 22  # of 40, cut at stretches of two images
    passes.clear()
    run.merge(trained)
    assert passes == []


def test_evaluate_takes_what_shards_have_evaluated_and_does_the_rest(made, trained, kind, monkeypatch) -> None:
    run.evaluate_shard(trained, 2, 3)
    evaluated: list[str] = []
    see = DomainTask.take_stretches
    monkeypatch.setattr(
        DomainTask, "take_stretches", lambda task, *rest: (see(task, *rest), evaluated.append(task.name))[0]
    )
    run.evaluate(trained)
    assert evaluated
    assert numbers(trained.folder.path) == numbers(made[kind])


def test_jobs_as_plain_data_do_the_same(made, trained, kind) -> None:
    jobs = EvaluationJobs(trained).jobs(5)
    assert len(jobs) >= 5
    done: dict[int, int] = {}
    for number, job in reversed([*enumerate(jobs)]):
        evaluate_job(job, partial(done.__setitem__, number))  # each message says how many images are done
    assert sum(done.values()) == sum(job.num_images for job in jobs) == 2 * (5 + 3)
    assert EvaluationJobs(trained).jobs(5) == []
    run.merge(trained)
    assert numbers(trained.folder.path) == numbers(made[kind])


def test_an_evaluation_that_is_killed_within_a_stretch_goes_on_and_gives_the_same(made, trained, kind) -> None:
    for stop in (1, 3, 4, 6):
        killed = Killer(stop)
        with pytest.raises(KeyboardInterrupt):
            run.evaluate(Run(trained.recipe, trained.folder, trained.machine, killed))
    run.evaluate(trained)
    assert numbers(trained.folder.path) == numbers(made[kind])


class Killer(Silent):
    """A reporter that ends it all after so many images."""

    def __init__(self, images: int) -> None:
        super().__init__()
        self.left = images

    def step(self, name: str, total: int, done: int = 0) -> Any:
        killer = self

        class Step:
            def __enter__(self) -> Any:
                return self

            def __exit__(self, *error: object) -> None: ...

            def __call__(self, units: int, note: str = "") -> None:
                killer.left -= units
                if name.startswith("evaluate") and killer.left < 0:
                    raise KeyboardInterrupt

        return Step()


def test_merge_says_what_is_missing(trained, command_line) -> None:
    run.evaluate_shard(trained, 1, 3)
    folder = trained.folder.path
    status, said = command_line("merge", folder)
    assert status == 2
    assert f"{folder}: not evaluated are " in said
    assert "mc_dropout on clean (3 of 3 stretches of images)" in said
    assert f"epibench evaluate {folder} with the same --set and the --shard that is missing" in said


def test_the_commands(made, trained, kind, command_line) -> None:
    folder = trained.folder.path
    for number in (2, 1):
        status, said = command_line("evaluate", folder, "--shard", f"{number}/2")
        assert status == 0
        assert f"epibench merge {folder}" in said
    assert command_line("merge", folder)[0] == 0
    assert numbers(folder) == numbers(made[kind])
    assert (folder / "report.html").is_file()
    assert "finished already" in command_line("merge", folder)[1]


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "1/0", "-1/3", "1/3/5", "1.0/3"])
def test_a_shard_that_is_none_is_refused(made, command_line, text: str) -> None:
    status, said = command_line("evaluate", made["depth"], "--shard", text)
    assert status == 2
    assert f"--shard {text}: give the number of the shard" in said


def test_models_have_no_shards(command_line) -> None:
    status, said = command_line("evaluate", "--model", "x.pt", "--shard", "1/2")
    assert status == 2
    assert "models are not" in said


def test_a_store_is_refused_in_shards(trained) -> None:
    options = trained.recipe.evaluation.model_copy(update={"store": True})
    stored = Run(trained.recipe.model_copy(update={"evaluation": options}), trained.folder, trained.machine, Silent())
    before = trained.folder.recipe_file.read_bytes()
    with pytest.raises(InputError, match="one process writes a store; leave out --shard"):
        run.evaluate_shard(stored, 1, 2)
    assert trained.folder.recipe_file.read_bytes() == before


def test_a_damaged_stretch_is_named(trained) -> None:
    run.evaluate_shard(trained, 1, 1)
    path = next(trained.folder.path.rglob("*.stretches/000000.safetensors"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    run.merge(trained)  # the others are there
    results = json.loads(trained.folder.results_file.read_text())
    assert len(results["failed"]) == 1
    assert f"{path}: damaged: its checksum does not fit what it holds; remove it" in next(
        iter(results["failed"].values())
    )


def test_parts_are_of_about_the_same_work_and_leave_nothing_out() -> None:
    chosen = random.Random(0)
    for count in (1, 2, 7, 100):
        works = [chosen.randrange(1, 50) for _ in range(60)]
        every = [Stretch(SimpleNamespace(), number, work) for number, work in enumerate(works)]  # type: ignore[arg-type]
        parts = in_parts(every, count)
        assert len(parts) == count
        assert [each for part in parts for each in part] == every
        assert max(sum(each.work for each in part) for part in parts) <= sum(works) / count + max(works)
    assert in_parts([], 3) == [[], [], []]


def test_consecutive_numbers_lie_in_one_range() -> None:
    assert list(consecutive([])) == []
    assert list(consecutive([3])) == [range(3, 4)]
    assert list(consecutive([7, 0, 1, 5, 2, 8])) == [range(3), range(5, 6), range(7, 9)]


def test_states_are_packed_without_loss_and_small_where_bins_are_empty() -> None:
    sparse = torch.zeros(3, 5000, dtype=torch.float64)
    sparse[1, 77], sparse[2, 4999] = 0.1, -3
    state = {"sparse": sparse, "full": torch.rand(40, 50), "counts": torch.zeros(2, 2000, dtype=torch.int64)}
    state["one"] = torch.tensor(5)
    small = packed(state)
    assert sum(values.numel() for values in small.values()) < 2000 + 40
    again = unpacked(small)
    assert set(again) == set(state)
    for name, values in state.items():
        assert again[name].dtype == values.dtype
        assert torch.equal(again[name], values)


def test_the_first_complete_file_wins(tmp_path) -> None:
    files = Stretches(tmp_path, "key", 5, 2)
    assert (len(files), files.images(2), files.missing()) == (3, range(4, 5), [0, 1, 2])
    files.save(1, {"a": torch.ones(2)}, EvaluationTotals(2, 10, 0.5, 0.25))
    files.save(1, {"a": torch.zeros(2)}, EvaluationTotals(2, 10, 1, 1))
    state, done = files.load(1) or ({}, EvaluationTotals())
    assert torch.equal(state["a"], torch.ones(2))
    assert asdict(done) == {"images": 2, "pixels": 10, "forward_seconds": 0.5, "scoring_seconds": 0.25}
    assert files.missing() == [0, 2]
    files.save(2, {"a": torch.ones(2)}, EvaluationTotals(2, 10, 0.5, 0.25))
    with pytest.raises(InputError, match=r"000002\.safetensors: its 'images' is 2, not 1; remove it"):
        files.load(2)


# Training


def test_shards_of_networks_leave_none_out_and_are_of_about_the_same_steps(tmp_path) -> None:
    recipe = recipe_of("depth", tmp_path)
    every = {("ensemble", 0), ("ensemble", 1), ("ensemble", 2), ("mc_dropout", 0)}
    for count in (1, 2, 4, 9):
        shards = [networks_of_shard(recipe, number + 1, count) for number in range(count)]
        named = [(name, network) for shard in shards for name, numbers in shard.items() for network in numbers or ()]
        assert len(named) == 4
        assert set(named) == every
        assert max(sum(len(numbers or ()) for numbers in shard.values()) for shard in shards) == max(1, 4 // count)


def test_networks_that_are_trained_together_stay_together() -> None:
    recipe = small("toy-regression")
    shards = [networks_of_shard(recipe, number + 1, 3) for number in range(3)]
    assert [name for shard in shards for name in shard] == list(recipe.methods)
    assert all(networks is None for shard in shards for networks in shard.values())


def test_an_array_of_tasks_trains_and_evaluates(made, tmp_path) -> None:
    """Plain processes stand in for the tasks of a scheduler."""
    recipe = recipe_of("depth", made["depth"].parent / "scenes")
    (tmp_path / "recipe.json").write_text(recipe.model_dump_json())
    scheduler(tmp_path, f'exec {sys.executable} -m epibench "$@"')
    for step in (("train", "recipe.json", "--out", "run"), ("evaluate", "run")):
        tasks = [array_task(tmp_path, {"SLURM_ARRAY_TASK_ID": index}, *step) for index in (0, 1)]
        for task in tasks:
            output = task.communicate(timeout=240)[0]
            assert task.returncode == 0, output
    subprocess.run([tmp_path / "bin" / "epibench", "merge", "run"], cwd=tmp_path, check=True, capture_output=True)
    # Their stretches are those of the default lengths, with which all images are one: sums may differ in a bit.
    found, wanted = numbers(tmp_path / "run"), numbers(made["depth"])
    assert found["training"] == wanted["training"]
    for name, domains in found["summary"].items():
        for domain, of_size in domains.items():
            rmse = [of_size[size]["rmse"]["mean"] for size in of_size]
            assert rmse == pytest.approx([wanted["summary"][name][domain][size]["rmse"]["mean"] for size in of_size])


@pytest.mark.parametrize(
    "variables",
    [
        {"SLURM_ARRAY_TASK_ID": 1, "SLURM_ARRAY_TASK_COUNT": 4},
        {"SLURM_ARRAY_TASK_ID": 4, "SLURM_ARRAY_TASK_COUNT": 4, "SLURM_ARRAY_TASK_MIN": 3},
        {"JOB_COMPLETION_INDEX": 1, "COUNT": 4},
        {"SKYPILOT_NODE_RANK": 1, "SKYPILOT_NUM_NODES": 4},
        {"INDEX": 1, "COUNT": 4},
    ],
)
def test_a_task_of_every_scheduler_knows_its_part(tmp_path, variables: dict[str, int]) -> None:
    scheduler(tmp_path, 'echo "$@"')
    assert array_task(tmp_path, variables, "evaluate", "runs/a b").communicate()[0] == "evaluate runs/a b --shard 2/4\n"


def test_a_task_without_a_number_says_so(tmp_path) -> None:
    scheduler(tmp_path, "echo never")
    task = array_task(tmp_path, {}, "evaluate", "run")
    assert "INDEX: is not set" in task.communicate()[0]
    assert task.returncode != 0


def scheduler(folder: Path, command: str) -> None:
    """A folder with a command `epibench` in it."""
    (folder / "bin").mkdir()
    (folder / "bin" / "epibench").write_text(f"#!/bin/sh\n{command}\n")
    (folder / "bin" / "epibench").chmod(0o755)


def array_task(folder: Path, variables: dict[str, int], *arguments: str) -> subprocess.Popen[str]:
    script = Path(__file__).parents[2] / "examples" / "array.sh"
    own = {name: str(value) for name, value in variables.items()}
    if list(variables) == ["SLURM_ARRAY_TASK_ID"]:
        own["SLURM_ARRAY_TASK_COUNT"] = "2"
    environment = {**os.environ, **own, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    command = ["sh", str(script), *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=pipe, stderr=subprocess.STDOUT, text=True)
