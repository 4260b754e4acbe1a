"""A whole dense run: what it writes, that it goes on after any kill, that the recipe alone decides its numbers."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from silent_reporter import Silent, run_in
from small_dense_recipe import break_second, small_dense

from by_name import by_name
from epibench.data.batch import Batch
from epibench.errors import InputError
from epibench.evaluation.scoring import ScoreSettings, prepare
from epibench.methods import METHODS
from epibench.recipes import apply_settings
from epibench.recipes.dense import DenseRecipe
from epibench.runs import image_evaluation, trainers
from epibench.runs.checkpoints import Checkpoints, save_tensors
from epibench.runs.folder import RunFolder
from epibench.runs.train_job import TrainJob
from epibench.runs.trainers import train_job
from epibench.store.formats import open_store
from epibench.street import StreetDataset
from epibench.street.dataset import as_sample
from epibench.training import network as training
from epibench.training.state import TrainingState

NUMBERS = ("summary", "draws", "curves", "pictures", "domains", "methods", "training", "failed")
METRICS = {
    *("ause", "ause_bound", "ause_standard_error", "ause_random", "auce", "auce_signed", "interval_length"),
    *("rmse", "mae", "nll", "nll_infinite", "nll_gaussian", "nll_gaussian_infinite"),
    *("ause_gustafsson2020", "rmse_gustafsson2020", "rmse_spread_gustafsson2020"),
    *("crps", "crps_gaussian", "ence", "ence_bound", "interval_score"),
    *("abs_rel", "sq_rel", "delta1", "delta2", "delta3", "silog", "rmse_log", "log10", "irmse"),
    *("depth_left_out", "depth_left_out_targets"),
}


def carry_out(recipe: DenseRecipe, path: Path, jobs: int = 1, reporter: Silent | None = None) -> dict[str, Any]:
    """All that the run says, as it stands in its file."""
    return run_in(path, recipe, jobs, reporter)


def numbers(results: dict[str, Any]) -> dict[str, Any]:
    """What the recipe decides."""
    return {name: results[name] for name in NUMBERS}


pytestmark = pytest.mark.usefixtures("eager")

# What saves as often as it can, in portions of one batch; also in a script that dies.
EAGER = """
from epibench.cli import main
from epibench.members import on_images
from epibench.training import network as training
from epibench.training.state import Pacer

training.LOG_EVERY = 2
Pacer.due = lambda pacer: True
on_images.PORTION_PIXELS = {"cpu": 1}
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("scenes")


@pytest.fixture(scope="module")
def finished(cache: Path, tmp_path_factory) -> tuple[DenseRecipe, Path, dict[str, Any]]:
    recipe, path = small_dense(cache), tmp_path_factory.mktemp("runs") / "whole"
    return recipe, path, carry_out(recipe, path)


# What it writes


def test_the_summary_has_every_method_domain_size_and_metric(finished) -> None:
    _, _, results = finished
    assert set(results["summary"]) == {"ensemble", "mc_dropout"}
    for domains in results["summary"].values():
        assert list(domains) == ["clean", "wild"]
        for sizes in domains.values():
            assert list(sizes) == ["1", "2"]
            for metrics in sizes.values():
                assert set(metrics) == METRICS
                assert all(set(cell) == {"mean", "std", "n"} for cell in metrics.values())


def test_the_number_of_draws_is_that_of_the_plan(finished) -> None:
    _, _, results = finished
    count = {name: results["summary"][name]["clean"]["2"]["rmse"]["n"] for name in ("ensemble", "mc_dropout")}
    assert count == {"ensemble": 3, "mc_dropout": 2}


def test_the_summary_is_that_of_the_draws(finished) -> None:
    _, _, results = finished
    for name, domains in results["summary"].items():
        for domain, sizes in domains.items():
            for size, metrics in sizes.items():
                drawn = [each["metrics"] for each in results["draws"][name][domain] if each["M"] == int(size)]
                for metric, cell in metrics.items():
                    values = [each[metric] for each in drawn]
                    mean = sum(values) / len(values)
                    std = math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
                    assert cell["mean"] == pytest.approx(mean, rel=1e-9)
                    assert cell["std"] == pytest.approx(std, rel=1e-6, abs=1e-12)


def test_curves_have_an_abscissa_and_every_size(finished) -> None:
    _, _, results = finished
    for domains in results["curves"].values():
        for families in domains.values():
            assert set(families) == {"sparsification", "calibration"}
            for family in families.values():
                assert list(family["M"]) == ["1", "2"]
                for curves in family["M"].values():
                    assert all(len(curve["mean"]) == len(family["x"]) for curve in curves.values())


def test_domains_say_what_they_are(finished) -> None:
    _, _, results = finished
    facts = results["domains"]
    assert {name: facts[name]["role"] for name in facts} == {"clean": "in-domain", "wild": "shifted"}
    assert {name: facts[name]["severity"] for name in facts} == {"clean": 0.0, "wild": 5.0}
    assert {name: facts[name]["num_images"] for name in facts} == {"clean": 5, "wild": 4}
    assert all(0 < facts[name]["num_pixels"] < 5 * 32 * 64 for name in facts)


def test_the_cost_is_there_for_every_size_and_domain(finished) -> None:
    _, _, results = finished
    for cost in results["cost"].values():
        assert cost["parameters"] > 0
        assert cost["flops"] > 0
        assert cost["train_seconds"] > 0
        assert list(cost["per_image"]) == ["1", "2"]
        assert all(each["seconds"] > 0 for each in cost["per_image"].values())
        assert all(each["flops"] >= cost["flops"] for each in cost["per_image"].values())


def test_what_members_share_is_counted_once_and_trained_once(finished) -> None:
    _, _, results = finished
    ensemble, dropout = (results["cost"][name] for name in ("ensemble", "mc_dropout"))
    assert ensemble["per_image"]["2"]["flops"] == 2 * ensemble["flops"]
    assert ensemble["per_image"]["2"]["weight_bytes"] == 2 * ensemble["per_image"]["1"]["weight_bytes"]
    assert dropout["flops"] < dropout["per_image"]["2"]["flops"] < 2 * dropout["flops"]
    assert dropout["per_image"]["2"]["weight_bytes"] == dropout["per_image"]["1"]["weight_bytes"]
    steps = {
        name: {m: each["steps"] for m, each in results["cost"][name]["training"].items()} for name in results["cost"]
    }
    assert steps == {"ensemble": {"1": 6, "2": 12}, "mc_dropout": {"1": 6, "2": 6}}
    assert ensemble["training"]["2"]["seconds"] == pytest.approx(ensemble["train_seconds"] * 2 / 3)


def test_every_network_has_its_loss(finished) -> None:
    _, _, results = finished
    for name, count in (("ensemble", 3), ("mc_dropout", 2)):
        logs = results["training"][name]
        assert [log["network"] for log in logs] == list(range(count))
        assert all(log["steps"] == [2, 3, 4, 6] and len(log["loss"]) == 4 for log in logs)


def test_pictures_show_every_method(finished) -> None:
    _, _, results = finished
    for shown in results["pictures"].values():
        assert len(shown) == 1
        assert set(shown[0]["methods"]) == {"ensemble", "mc_dropout"}
        assert all(each["M"] == 2 for each in shown[0]["methods"].values())


def test_the_results_say_what_they_were_made_with(finished) -> None:
    recipe, _, results = finished
    assert DenseRecipe.model_validate(results["recipe"]) == recipe
    told = {name: results[name] for name in ("version", "problem", "kind", "unit", "convention", "failed")}
    assert told == {
        "version": 2,
        "problem": "depth-completion",
        "kind": "gaussian",
        "unit": "m",
        "convention": "pooled",
        "failed": {},
    }


def test_nothing_unfinished_is_left(finished) -> None:
    _, path, _ = finished
    assert [file for file in path.rglob("*") if "unfinished" in file.name or file.name.startswith(".")] == []


def test_every_network_has_its_weights_and_its_log(finished) -> None:
    _, path, _ = finished
    names = sorted(file.name for file in (path / "members" / "ensemble").iterdir())
    assert names == [f"{number:04d}.{ending}" for number in range(3) for ending in ("csv", "safetensors")]


# The same numbers


def test_networks_trained_at_once_by_processes_give_the_same_numbers(finished, cache: Path, tmp_path: Path) -> None:
    _, _, results = finished
    together = carry_out(small_dense(cache, 'methods=["ensemble"]'), tmp_path / "run", jobs=2)
    for part in ("summary", "draws", "curves"):
        assert together[part]["ensemble"] == results[part]["ensemble"]


def test_the_recipe_in_a_file_gives_the_same_numbers(finished, tmp_path: Path, command_line) -> None:
    _, path, results = finished
    status, _ = command_line("run", path / "recipe.json", "--out", tmp_path / "again", "--jobs", 1, "--device", "cpu")
    assert status == 0
    assert numbers(by_name(json.loads((tmp_path / "again" / "results.json").read_text()))) == numbers(results)


def test_another_seed_gives_other_numbers(finished, cache: Path, tmp_path: Path) -> None:
    _, _, results = finished
    other = carry_out(small_dense(cache, 'methods=["ensemble"]', "seed=1"), tmp_path / "run")
    assert other["summary"]["ensemble"] != results["summary"]["ensemble"]


@pytest.mark.parametrize(("method", "network"), [("ensemble", 2), ("mc_dropout", 1)])
def test_a_network_trained_alone_is_the_one_of_the_run(finished, method: str, network: int, tmp_path: Path) -> None:
    recipe, path, _ = finished
    train_job(TrainJob(recipe, method, (network,), tmp_path / "members", "cpu"), lambda message: None)
    alone, among = (load_file(each / "members" / method / f"{network:04d}.safetensors") for each in (tmp_path, path))
    assert alone.keys() == among.keys()
    assert [name for name in alone if not torch.equal(alone[name], among[name])] == []


@pytest.fixture(scope="module")
def one_start(cache: Path, tmp_path_factory) -> tuple[DenseRecipe, Path, dict[str, Any]]:
    """An ensemble whose networks all start from the initial weights of network 0."""
    recipe = small_dense(cache, 'methods=["ensemble"]', "ensemble.same_start=true")
    path = tmp_path_factory.mktemp("runs") / "one-start"
    return recipe, path, carry_out(recipe, path)


@pytest.mark.parametrize("network", range(3))
def test_of_an_ensemble_from_one_start_only_network_0_is_that_of_the_plain_one(
    finished, one_start, network: int
) -> None:
    file = f"members/ensemble/{network:04d}.safetensors"
    plain, fixed = (load_file(path / file) for _, path, _ in (finished, one_start))
    assert all(torch.equal(plain[name], fixed[name]) for name in plain) is (network == 0)


def test_an_ensemble_from_one_start_that_was_killed_ends_as_if_it_had_not_been(
    one_start, tmp_path: Path, monkeypatch
) -> None:
    recipe, _, results = one_start
    save = Checkpoints.save_state

    def save_and_die(files: Checkpoints, *state: Any) -> None:
        save(files, *state)
        if files.networks == (1,):
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save_state", save_and_die)
        with pytest.raises(Killed):
            carry_out(recipe, tmp_path / "run")
    assert (tmp_path / "run/members/ensemble/0001.unfinished.safetensors").exists()
    assert numbers(carry_out(recipe, tmp_path / "run")) == numbers(results)


def test_a_finished_run_is_not_trained_or_evaluated_again(finished, tmp_path: Path) -> None:
    recipe, path, results = finished
    again = Silent()
    assert numbers(carry_out(recipe, path, reporter=again)) == numbers(results)
    assert again.steps == []


# Kills

KILLED = (
    EAGER
    + """
import os, signal, sys
from fnmatch import fnmatch
from pathlib import Path

recipe, runs, replace = sys.argv[1], Path(sys.argv[2]), os.replace


def run_and_die(folder, when, ending, count):
    left = count

    def replace_or_die(source, target):
        nonlocal left
        left -= fnmatch(str(target), f"*{ending}")
        if left == 0 and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        replace(source, target)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = replace_or_die
    sys.argv = ["epibench", "run", recipe, "--out", str(folder), "--jobs", "1", "--device", "cpu"]
    main()


for number, point in enumerate(sys.argv[3:]):
    when, ending, count = point.split()
    child = os.fork()  # imports are paid for once
    if child == 0:
        run_and_die(runs / str(number), when, ending, int(count))
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, (point, status)
"""
)
# When a file is put in its place: before or after, which, and for which time.
POINTS = (
    "after members/ensemble/0000.unfinished.safetensors 1",
    "after members/ensemble/0002.safetensors 1",
    "before members/mc_dropout/0001.safetensors 1",
    "after evaluation/ensemble/clean-*.unfinished.safetensors 1",
    "before evaluation/mc_dropout/wild-*.json 1",
)


@pytest.fixture(scope="module")
def killed(finished, tmp_path_factory) -> Path:
    """Folders of runs, each killed at one of the points."""
    _, path, _ = finished
    place = tmp_path_factory.mktemp("killed")
    (place / "script.py").write_text(KILLED)
    command = [sys.executable, place / "script.py", path / "recipe.json", place, *POINTS]
    subprocess.run(command, check=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return place


@pytest.mark.parametrize("point", POINTS)
def test_a_run_that_was_killed_ends_as_if_it_had_not_been(finished, killed: Path, point: str) -> None:
    recipe, _, results = finished
    folder = killed / str(POINTS.index(point))
    assert not (folder / "results.json").exists()
    assert numbers(carry_out(recipe, folder)) == numbers(results)


@pytest.mark.parametrize("point", POINTS)
def test_the_table_of_losses_is_whole_after_a_kill(finished, killed: Path, point: str) -> None:
    recipe, path, _ = finished
    folder = killed / str(POINTS.index(point))
    carry_out(recipe, folder)
    tables = {file.relative_to(path): file.read_text() for file in path.rglob("*.csv")}
    assert {name: (folder / name).read_text() for name in tables} == tables


SLOW = (
    EAGER
    + """
import sys, time


take_step = training._Run.take_step


def take_step_slowly(run, batch):
    time.sleep(0.2)
    take_step(run, batch)


training._Run.take_step = take_step_slowly
if __name__ == "__main__":
    main()
"""
)


def test_a_run_with_processes_that_was_killed_leaves_nobody_and_goes_on(finished, cache: Path, tmp_path: Path) -> None:
    _, _, results = finished
    recipe, folder, script = small_dense(cache, 'methods=["ensemble"]'), tmp_path / "run", tmp_path / "script.py"
    (tmp_path / "recipe.json").write_text(recipe.model_dump_json())
    script.write_text(SLOW)
    command = [sys.executable, script, "run", tmp_path / "recipe.json", "--out", folder, "--jobs", "2"]
    parent = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: any(folder.rglob("*.unfinished.safetensors")), 60)
        children = children_of(parent.pid)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    assert len(children) >= 2
    wait_until(lambda: not any(Path(f"/proc/{child}").exists() for child in children), 10)
    assert not (folder / "results.json").exists()
    ended = carry_out(recipe, folder)
    for part in ("summary", "draws", "curves"):
        assert ended[part]["ensemble"] == results[part]["ensemble"]


def children_of(process: int) -> list[int]:
    found = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii")
    return [int(child) for child in found.split()]


def wait_until(happened, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.05)


class Killed(BaseException):
    """As a kill: nothing catches it."""


def test_training_that_was_stopped_goes_on_from_its_state(finished, tmp_path: Path, monkeypatch) -> None:
    recipe, _, _ = finished
    begun = []

    def noting(plan, keys, device, state, callbacks, workers):
        begun.append(0 if state is None else state.step)
        return training.train_network(plan, keys, device, state, callbacks, workers)

    def save_and_die(files: Checkpoints, state: TrainingState, seconds: float, machine: str) -> None:
        save(files, state, seconds, machine)
        if state.step == 4:
            raise Killed

    save = Checkpoints.save_state
    monkeypatch.setattr(trainers, "train_network", noting)
    monkeypatch.setattr(Checkpoints, "save_state", save_and_die)
    with pytest.raises(Killed):
        carry_out(recipe, tmp_path / "run")
    monkeypatch.setattr(Checkpoints, "save_state", save)
    carry_out(recipe, tmp_path / "run")
    assert begun == [0, 4, 0, 0, 0, 0]


@pytest.fixture(scope="module")
def stopped(stored, tmp_path_factory) -> tuple[Path, Silent]:
    """A run that was stopped while it evaluated and stored, after its second portion; then it went on."""
    recipe = DenseRecipe.model_validate(stored[1]["recipe"])
    path, reporter = tmp_path_factory.mktemp("stopped") / "run", Silent()
    with pytest.MonkeyPatch.context() as patch:

        def save_once(place: Path, tensors: Any, notes: Any) -> None:
            if place.exists():
                raise Killed
            save_tensors(place, tensors, notes)

        patch.setattr(image_evaluation, "save_tensors", save_once)
        with pytest.raises(Killed):
            carry_out(recipe, path)
    carry_out(recipe, path, reporter=reporter)
    return path, reporter


def test_an_evaluation_that_was_stopped_goes_on_from_its_state(stopped) -> None:
    _, reporter = stopped
    assert reporter.done["evaluate ensemble on clean"] == 2


def test_a_store_that_was_begun_is_completed(stopped, stored) -> None:
    ours, theirs = (open_store(path / "predictions" / "ensemble" / "clean.zarr") for path in (stopped[0], stored[0]))
    assert ours.complete
    for name in ("mean", "variance", "target", "valid"):
        whole = tuple(slice(None) for _ in ours.arrays[name].shape)
        assert np.array_equal(ours.arrays[name].read(whole), theirs.arrays[name].read(whole))


# Networks that fail

HOT = '{"hot": {"method": "ensemble", "label": "Hot", "options": {"learning_rate": 1e6, "optimiser": "sgd"}}}'


@pytest.fixture(scope="module")
def diverging(cache: Path, tmp_path_factory) -> tuple[DenseRecipe, Path, dict[str, Any]]:
    recipe = small_dense(cache, f"variants={HOT}", 'methods=["hot", "ensemble"]')
    path = tmp_path_factory.mktemp("diverging") / "run"
    return recipe, path, carry_out(recipe, path)


def test_a_method_that_diverges_leaves_the_others(diverging, finished) -> None:
    _, _, results = diverging
    assert results["summary"] == {"ensemble": finished[2]["summary"]["ensemble"]}


def test_a_method_that_diverges_is_named(diverging) -> None:
    _, _, results = diverging
    assert list(results["failed"]) == ["hot"]
    assert re.match("3 of 3 networks failed: hot: network 0: the loss became NaN or infinite", results["failed"]["hot"])


def test_the_remedy_is_a_setting_that_there_is(diverging) -> None:
    recipe, _, results = diverging
    key = re.search(r"lower (\S+)", results["failed"]["hot"])[1]
    assert apply_settings(recipe, [f"{key}=1e-3"]).method("hot").learning_rate == 1e-3


def test_networks_that_have_diverged_are_not_trained_again(diverging) -> None:
    recipe, path, results = diverging
    again = Silent()
    assert numbers(carry_out(recipe, path, reporter=again)) == numbers(results)
    assert again.steps == []


def test_a_method_that_fails_makes_the_status_2(diverging, command_line) -> None:
    _, path, _ = diverging
    status, said = command_line("run", path / "recipe.json", "--out", path, "--jobs", 1, "--device", "cpu")
    assert status == 2
    assert said.splitlines()[-1].startswith("epibench: 3 of 3 networks failed: hot: network 0")


@pytest.fixture
def second_diverges(monkeypatch) -> None:
    """The second network of the ensemble begins with a weight that is not a number."""
    break_second(monkeypatch, "ensemble")


def test_one_network_that_diverges_stops_its_method(cache: Path, tmp_path: Path, second_diverges) -> None:
    results = carry_out(small_dense(cache, 'methods=["ensemble"]'), tmp_path / "run")
    assert results["failed"]["ensemble"].startswith("1 of 3 networks failed: ensemble: network 1: the loss became NaN")


def test_why_a_source_failed_is_told_once(cache: Path, tmp_path: Path) -> None:
    starting = ("pruned.num_members=2", "laplace.num_networks=2", "members=[1]")
    hot = ("ensemble.num_members=2", "ensemble.learning_rate=1e6", "ensemble.optimiser=sgd")
    reporter = Silent()
    recipe = small_dense(cache, 'methods=["ensemble","pruned","laplace"]', *hot, *starting)
    results = carry_out(recipe, tmp_path / "run", reporter=reporter)
    for network in range(2):
        told = [text for text in reporter.said if f"ensemble: network {network}: the loss became NaN" in text]
        assert [text for text in told if " failed: " not in text] == told[:1]
    short = "2 of 2 networks failed: they start from those of ensemble"
    assert (results["failed"]["pruned"], results["failed"]["laplace"]) == (short, short)
    # A recipe without that method says nothing else of it.
    alone = small_dense(cache, 'methods=["pruned","laplace"]', *hot, *starting)
    results = carry_out(alone, tmp_path / "run")
    assert "(ensemble: network 0: the loss became NaN" in results["failed"]["pruned"]


def test_networks_that_diverge_can_be_left_out(cache: Path, tmp_path: Path, second_diverges) -> None:
    settings = ('methods=["ensemble"]', "ensemble.diverged=drop")
    results = carry_out(small_dense(cache, *settings), tmp_path / "run")
    assert results["failed"] == {}
    facts = results["methods"]["ensemble"]
    assert (facts["num_networks"], facts["num_members"]) == (2, 2)
    assert facts["notes"] == ["1 of 3 diverged and are left out."]
    assert results["summary"]["ensemble"]["clean"]["1"]["rmse"]["n"] == 2


def test_those_left_predict_as_among_all(finished, cache: Path, tmp_path: Path, second_diverges) -> None:
    _, _, whole = finished
    settings = ('methods=["ensemble"]', "ensemble.diverged=drop")
    results = carry_out(small_dense(cache, *settings), tmp_path / "run")
    ours, theirs = (
        sorted(each["metrics"]["rmse"] for each in found["draws"]["ensemble"]["clean"] if each["M"] == 1)
        for found in (results, whole)
    )
    assert set(ours) < set(theirs)


def test_too_few_left_for_a_size_are_an_error_that_says_so(cache: Path, tmp_path: Path, second_diverges) -> None:
    settings = ('methods=["ensemble"]', "ensemble.diverged=drop", "members=[1,3]")
    results = carry_out(small_dense(cache, *settings), tmp_path / "run")
    words = "ensemble: 1 of 3 networks diverged; M = 3 is impossible"
    assert results["failed"]["ensemble"].startswith(words)


def test_a_method_of_single_networks_says_that_its_m_is_1(cache: Path, tmp_path: Path) -> None:
    results = carry_out(small_dense(cache, 'methods=["swa"]', "members=[2]"), tmp_path / "run")
    assert list(results["summary"]["swa"]["clean"]) == ["1"]
    note = "It has no members that predict together: M is 1, and not 2."
    assert results["methods"]["swa"]["notes"] == [note]
    results = carry_out(small_dense(cache, 'methods=["swa"]', "members=[1,2]"), tmp_path / "run")
    assert results["methods"]["swa"]["notes"] == []


def test_predictions_that_are_not_finite_fail_their_method(cache: Path, tmp_path: Path, monkeypatch) -> None:
    load = Checkpoints.load_weights

    def load_or_break(files: Checkpoints, snapshot: int) -> dict[str, torch.Tensor]:
        weights = load(files, snapshot)
        if files.folder.name == "ensemble" and files.networks == (1,):
            weights["mean.bias"].fill_(1e38)  # finite, but 100 times as much is not
        return weights

    monkeypatch.setattr(Checkpoints, "load_weights", load_or_break)
    results = carry_out(small_dense(cache), tmp_path / "run")
    assert list(results["failed"]) == ["ensemble"]
    assert list(results["summary"]) == ["mc_dropout"]


def test_a_network_file_of_another_recipe_is_refused(finished, cache: Path, tmp_path: Path) -> None:
    _, path, _ = finished
    recipe = small_dense(cache, 'methods=["ensemble"]', "ensemble.learning_rate=1e-4")
    RunFolder(tmp_path / "run").claim(recipe)
    place = tmp_path / "run" / "members" / "ensemble" / "0000.safetensors"
    place.parent.mkdir(parents=True)
    place.write_bytes((path / "members" / "ensemble" / "0000.safetensors").read_bytes())
    results = carry_out(recipe, tmp_path / "run")
    assert "0000.safetensors: made with other settings" in results["failed"]["ensemble"]


def test_a_crop_that_does_not_fit_is_refused_before_anything_is_written(cache: Path, tmp_path: Path) -> None:
    recipe = small_dense(cache, 'methods=["ensemble"]', "training.crop=[64,64]")
    with pytest.raises(InputError, match=r"a crop of 64×64 does not fit into an image of 32×64; lower training\.crop"):
        carry_out(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_broken_training_image_is_no_divergence(cache: Path, tmp_path: Path, monkeypatch) -> None:
    def broken(self: StreetDataset, index: int) -> Batch:
        if self.length == 6 and index == 3:
            raise InputError("0003.png: truncated")
        return as_sample(self.frame(index), self.task)

    recipe = small_dense(cache, 'methods=["ensemble"]', "data.train.num_images=6", "ensemble.diverged=drop")
    monkeypatch.setattr(StreetDataset, "__getitem__", broken)
    results = carry_out(recipe, tmp_path / "run")
    assert results["failed"] == {"ensemble": "0003.png: truncated"}
    assert results["methods"] == {}


# Stores


@pytest.fixture(scope="module")
def stored(cache: Path, tmp_path_factory) -> tuple[Path, dict[str, Any]]:
    path = tmp_path_factory.mktemp("stored") / "run"
    return path, carry_out(small_dense(cache, "evaluation.store=true"), path)


@pytest.mark.parametrize("domain", ["clean", "wild"])
@pytest.mark.parametrize(("method", "plan"), [("ensemble", "random"), ("mc_dropout", "prefix")])
def test_stored_predictions_score_as_the_run_did(stored, method: str, plan: Any, domain: str) -> None:
    path, results = stored
    store = open_store(path / "predictions" / method / f"{domain}.zarr")
    scored = prepare(store, ScoreSettings(sizes=(1, 2), max_draws=3, plan=plan)).run().score.model_dump(mode="json")
    assert len(scored["draws"]) == len(results["draws"][method][domain])
    for ours, theirs in zip(results["draws"][method][domain], scored["draws"], strict=True):
        run, store_says = ours["metrics"], theirs["metrics"]
        assert ours["M"] == theirs["M"]
        assert run["ause"] == pytest.approx(store_says["ause"], abs=run["ause_bound"] + 1e-9)
        assert run["ence"] == pytest.approx(store_says["ence"], abs=run["ence_bound"] + store_says["ence_bound"] + 1e-9)
        same = ("rmse", "mae", "nll", "nll_gaussian", "crps", "crps_gaussian", "interval_score", "auce")
        for metric in (*same, "abs_rel", "sq_rel", "delta1", "silog", "rmse_log", "irmse", "depth_left_out"):
            assert run[metric] == pytest.approx(store_says[metric], rel=1e-6, abs=1e-9), metric


def test_storing_changes_no_number(stored, finished) -> None:
    assert stored[1]["summary"] == finished[2]["summary"]


def test_a_store_says_what_it_holds(stored) -> None:
    path, _ = stored
    store = open_store(path / "predictions" / "mc_dropout" / "wild.zarr")
    said = (store.complete, store.method, store.domain, store.unit, store.quantity, store.num_members, store.shape)
    assert said == (True, "MC-dropout", "wild", "m", "depth", 4, (4, 32, 64))
    assert list(store.group) == [0, 0, 1, 1]


# Other methods


@pytest.fixture(scope="module")
def sampled(cache: Path, tmp_path_factory) -> dict[str, Any]:
    recipe = small_dense(cache, 'methods=["map", "sgld", "sghmc", "cyclical"]')
    return carry_out(recipe, tmp_path_factory.mktemp("sampled") / "run")


@pytest.mark.parametrize("method", ["map", "sgld", "sghmc", "cyclical"])
def test_every_method_trains_and_is_evaluated(sampled, method: str) -> None:
    assert sampled["failed"] == {}
    sizes = sampled["summary"][method]["wild"]
    assert list(sizes) == (["1"] if METHODS[method].single else ["1", "2"])
    assert all(cell["rmse"]["n"] == 2 and cell["rmse"]["mean"] > 0 for cell in sizes.values())


@pytest.mark.parametrize("method", ["sgld", "sghmc", "cyclical"])
def test_chains_have_as_many_members_as_snapshots(sampled, method: str) -> None:
    facts = sampled["methods"][method]
    assert (facts["num_networks"], facts["num_members"], facts["num_groups"]) == (2, 4, 2)


def test_every_network_is_drawn_with_one_pass_each(cache: Path, tmp_path: Path) -> None:
    settings = ('methods=["mc_dropout"]', "mc_dropout.num_passes=1", "members=[1]")
    results = carry_out(small_dense(cache, *settings), tmp_path / "run")
    assert results["summary"]["mc_dropout"]["clean"]["1"]["rmse"]["n"] == 2


def test_mixed_precision_comes_to_nearly_the_same(finished, cache: Path, tmp_path: Path) -> None:
    _, _, results = finished
    settings = ("training.precision=bf16-mixed", "evaluation.precision=bf16-mixed", 'methods=["ensemble"]')
    mixed = carry_out(small_dense(cache, *settings), tmp_path / "run")
    ours, theirs = (found["summary"]["ensemble"]["clean"]["2"]["rmse"]["mean"] for found in (mixed, results))
    assert ours != theirs
    assert ours == pytest.approx(theirs, rel=0.05)


# What is refused


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (
            'data.train={"kind": "virtual_kitti"}',
            r"--set data\.root=DIR.*'virtual_kitti', or --set data\.train\.root=DIR",
        ),
        (
            'data.domains.wild={"kind": "kitti"}',
            r"--set data\.root=DIR.*'kitti', or --set data\.domains\.wild\.root=DIR",
        ),
        ("data.domains.wild.domain=stormy", "stormy"),
        ('data.domains.wild.without=["rainbows"]', "rainbows"),
    ],
)
def test_data_that_is_not_there_is_refused_before_anything_is_written(cache, setting, words, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        carry_out(small_dense(cache, setting), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_root_without_the_data_is_named(cache: Path, tmp_path: Path) -> None:
    settings = ('data.train={"kind": "virtual_kitti"}', f"data.root={tmp_path / 'nowhere'}")
    with pytest.raises(InputError, match="nowhere"):
        carry_out(small_dense(cache, *settings), tmp_path / "run")


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("data.domains={}", "data.domains: give at least one domain"),
        ('data.domains={"a/b": {"kind": "street"}}', "data.domains: 'a/b' cannot be a name"),
        ('data.train={"kind": "cityscape"}', "data.train"),
        ("evaluation.uncertainty=entropy", "uncertainty 'entropy' is not one of gaussian predictions"),
        ("network.width=4", "network.width"),
        ("members=[1,4]", "M = 4 is impossible: a draw of ensemble has at most 3 members"),
        ('methods=["ensemble","boosting"]', "'boosting' is unknown"),
        ("training.epoch_stepz=3", "the nearest is training.epoch_steps"),
        ("data.domains.storm.domain=wild", "has no such setting"),
    ],
)
def test_a_recipe_that_cannot_be_is_refused_in_words(cache: Path, setting: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        small_dense(cache, setting)


def test_the_folder_of_another_recipe_is_refused(finished, cache: Path) -> None:
    _, path, _ = finished
    with pytest.raises(InputError, match=r"holds a run of another recipe: training\.epoch_steps \(3 there, 4 now\)"):
        carry_out(small_dense(cache, "training.epoch_steps=4"), path)
