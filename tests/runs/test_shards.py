"""An evaluation in shards: any process evaluates any of them in any order, the numbers are the same."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from small_dense_recipe import small_dense
from small_recipes import small
from small_segmentation_recipe import small_segmentation

import epibench
from epibench.errors import InputError
from epibench.evaluation.loop import EvaluationTotals
from epibench.plans import consecutive
from epibench.recipes import Recipe
from epibench.recipes.only import networks_of_shard
from epibench.runs.evaluate_job import Stretch, in_parts
from epibench.runs.stretches import Stretches, packed, unpacked
from street_runs import epibench_command, flip_bit, numbers

KINDS = ("segmentation", "depth")


def recipe_of(kind: str, cache: Path) -> Recipe:
    """Three members of an ensemble and two passes, on two domains of a few images."""
    few = ("data.domains.clean.num_images=5", "data.domains.wild.num_images=3", "ensemble.num_members=3")
    more = ("mc_dropout.num_networks=1", "mc_dropout.num_passes=2", "members=[1,2]", "draws=2")
    small = small_segmentation if kind == "segmentation" else small_dense
    return small(cache, *few, *more, "training.epoch_steps=2", "evaluation.batch_size=1")


@pytest.fixture(autouse=True, scope="module")
def short() -> Iterator[None]:
    """Stretches of two images."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("epibench.runs.stretches.STRETCH_PIXELS", 1)
        patch.setattr("epibench.runs.stretches.STRETCH_IMAGES", 2)
        yield


@pytest.fixture(scope="module")
def made(eager: None, short: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs that were carried out in one process."""
    root = tmp_path_factory.mktemp("shards")
    for kind in KINDS:
        epibench.run(recipe_of(kind, root / "scenes"), root / kind, device="cpu", jobs=1)
    return {kind: root / kind for kind in KINDS}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def trained(made: dict[str, Path], kind: str, tmp_path: Path) -> Path:
    """The folder of the same networks, not evaluated."""
    folder = Path(shutil.copytree(made[kind], tmp_path / "run"))
    shutil.rmtree(folder / "evaluation")
    for name in ("results.json", "report.html"):
        (folder / name).unlink()
    return folder


def evaluate_shard(folder: Path, number: int, count: int) -> str:
    status, said = epibench_command("evaluate", folder, "--shard", f"{number}/{count}")
    assert status == 0, said
    return said


def stretches(folder: Path) -> set[Path]:
    """The files of stretches that wait to be merged."""
    return set(folder.glob("evaluation/*/*.stretches/*.safetensors"))


@pytest.mark.parametrize("count", [1, 3, 8])
def test_shards_in_any_order_give_what_one_process_gives(made, trained: Path, kind: str, count: int) -> None:
    order = list(range(1, count + 1))
    random.Random(count).shuffle(order)
    for number in order:
        assert f"epibench merge {trained}" in evaluate_shard(trained, number, count)
    assert not (trained / "results.json").exists()
    status, said = epibench_command("merge", trained)
    assert status == 0
    assert "\nmeasure " not in said  # a shard has measured it
    assert numbers(epibench.load_results(trained)) == numbers(epibench.load_results(made[kind]))
    assert (trained / "report.html").is_file()
    assert not list(trained.rglob("*.stretches"))
    assert "finished already" in epibench_command("merge", trained)[1]


def test_a_shard_evaluates_its_part_and_nothing_twice(trained: Path) -> None:
    there = set[Path]()
    for number in (1, 2, 3):
        evaluate_shard(trained, number, 3)
        own = stretches(trained) - there
        assert 2 <= len(own) <= 4  # of ten, of two methods on two domains
        there |= own
        before = {path: path.stat().st_mtime_ns for path in there}
        evaluate_shard(trained, number, 3)
        assert {path: path.stat().st_mtime_ns for path in stretches(trained)} == before
    assert len(there) == 2 * (3 + 2)
    said = epibench_command("merge", trained)[1]
    assert "\nmerge ensemble on clean" in said
    assert "\nevaluate " not in said


def test_merge_says_what_is_missing(trained: Path) -> None:
    evaluate_shard(trained, 1, 3)
    status, said = epibench_command("merge", trained)
    assert status == 2
    assert f"{trained}: not evaluated are " in said
    assert "mc_dropout on clean (3 of 3 stretches of images)" in said
    assert f"epibench evaluate {trained} with the same --set and the --shard that is missing" in said


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "1/0", "-1/3", "1/3/5", "1.0/3"])
def test_a_shard_that_is_none_is_refused(made, text: str) -> None:
    status, said = epibench_command("evaluate", made["depth"], "--shard", text)
    assert status == 2
    assert f"--shard {text}: give the number of the shard" in said


def test_models_have_no_shards() -> None:
    status, said = epibench_command("evaluate", "--model", "x.pt", "--shard", "1/2")
    assert status == 2
    assert "models are not" in said


def test_a_store_is_refused_in_shards(trained: Path) -> None:
    before = (trained / "recipe.json").read_bytes()
    status, said = epibench_command("evaluate", trained, "--shard", "1/2", "--set", "evaluation.store=true")
    assert status == 2
    assert "one process writes a store; leave out --shard" in said
    assert (trained / "recipe.json").read_bytes() == before


def test_a_damaged_stretch_is_named(trained: Path) -> None:
    evaluate_shard(trained, 1, 1)
    path = min(stretches(trained))
    flip_bit(path)
    status, said = epibench_command("merge", trained)
    assert status == 2
    assert f"{path}: damaged: its checksum does not fit what it holds; remove it" in said.splitlines()[-1]
    assert len(epibench.load_results(trained).failed) == 1  # the others are there


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
    found, wanted = (epibench.load_results(path) for path in (tmp_path / "run", made["depth"]))
    for name, facts in wanted.methods.items():
        assert found.methods[name].training == facts.training
    for score in wanted.scores:
        own = found.score(score.method, score.domain)
        assert own is not None
        rmse, expected = ([each.metrics["rmse"] for each in one.draws] for one in (own, score))
        assert rmse == pytest.approx(expected)


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
