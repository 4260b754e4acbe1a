"""A whole dense run: its files, resuming after any kill, and numbers that depend on the recipe alone."""

from __future__ import annotations

import math
import multiprocessing
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from child_processes import children_of, is_alive, wait_until
from fault_injection import break_second, killed_at, script_environment, written_files
from safetensors.torch import load_file
from silent_reporter import Silent, read_results, run_in
from small_dense_recipe import small_dense

import epibench
from decoded_pictures import numbers as numbers_in
from decoded_pictures import shown_pictures
from epibench.errors import InputError
from stored_pixels import stored_arrays
from street_runs import epibench_command

DECIDED = ("summary", "draws", "curves", "pictures", "domains", "methods", "training", "failed")
METRICS = {
    *("ause", "ause_bound", "ause_standard_error", "ause_random", "auce", "auce_signed", "interval_length"),
    *("rmse", "mae", "nll", "nll_infinite", "nll_gaussian", "nll_gaussian_infinite"),
    *("ause_gustafsson2020", "rmse_gustafsson2020", "rmse_spread_gustafsson2020"),
    *("crps", "crps_gaussian", "ence", "ence_bound", "interval_score"),
    *("abs_rel", "sq_rel", "delta1", "delta2", "delta3", "silog", "rmse_log", "log10", "irmse"),
    *("depth_left_out", "depth_left_out_targets"),
}
ONE_METHOD = 'methods=["ensemble"]'
Numbers = dict[str, Any]
pytestmark = pytest.mark.usefixtures("eager")


def numbers(results: Numbers) -> Numbers:
    """Return the parts of results that the recipe decides."""
    return {name: results[name] for name in DECIDED}


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("scenes")


@pytest.fixture(scope="module")
def finished(cache: Path, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "whole"
    run_in(path, small_dense(cache))
    return path


@pytest.fixture(scope="module")
def results(finished: Path) -> Numbers:
    return read_results(finished)


def trained(run: Path, copy: Path) -> Path:
    """Copy the networks of a run without its results."""
    shutil.copytree(run / "members", copy / "members")
    shutil.copy(run / "recipe.json", copy / "recipe.json")
    return copy


# Content of results


def test_the_summary_has_every_method_domain_size_and_metric(results: Numbers) -> None:
    assert set(results["summary"]) == {"ensemble", "mc_dropout"}
    for domains in results["summary"].values():
        assert list(domains) == ["clean", "wild"]
        for sizes in domains.values():
            assert list(sizes) == ["1", "2"]
            for metrics in sizes.values():
                assert set(metrics) == METRICS
                assert all(set(cell) == {"mean", "std", "n"} for cell in metrics.values())


def test_the_plan_decides_the_number_of_draws(results: Numbers) -> None:
    count = {name: results["summary"][name]["clean"]["2"]["rmse"]["n"] for name in ("ensemble", "mc_dropout")}
    assert count == {"ensemble": 3, "mc_dropout": 2}


def test_the_summary_is_mean_and_deviation_of_the_draws(results: Numbers) -> None:
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


def test_curves_have_an_abscissa_and_every_size(results: Numbers) -> None:
    for domains in results["curves"].values():
        for families in domains.values():
            assert set(families) == {"sparsification", "calibration"}
            for family in families.values():
                assert list(family["M"]) == ["1", "2"]
                for curves in family["M"].values():
                    assert all(len(curve["mean"]) == len(family["x"]) for curve in curves.values())


def test_domains_have_role_severity_and_sizes(results: Numbers) -> None:
    facts = results["domains"]
    assert {name: facts[name]["role"] for name in facts} == {"clean": "in-domain", "wild": "shifted"}
    assert {name: facts[name]["severity"] for name in facts} == {"clean": 0.0, "wild": 5.0}
    assert {name: facts[name]["num_images"] for name in facts} == {"clean": 5, "wild": 4}
    assert all(0 < facts[name]["num_pixels"] < 5 * 32 * 64 for name in facts)


def test_every_size_and_domain_has_a_cost(results: Numbers) -> None:
    for cost in results["cost"].values():
        assert cost["parameters"] > 0
        assert cost["flops"] > 0
        assert cost["train_seconds"] > 0
        assert list(cost["per_image"]) == ["1", "2"]
        assert all(each["seconds"] > 0 for each in cost["per_image"].values())
        assert all(each["flops"] >= cost["flops"] for each in cost["per_image"].values())


def test_shared_layers_and_shared_networks_cost_once(results: Numbers) -> None:
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


def test_every_network_has_its_loss(results: Numbers) -> None:
    for name, count in (("ensemble", 3), ("mc_dropout", 2)):
        logs = results["training"][name]
        assert [log["network"] for log in logs] == list(range(count))
        assert all(log["steps"] == [2, 3, 4, 6] and len(log["loss"]) == 4 for log in logs)


def test_pictures_show_every_method(results: Numbers) -> None:
    for shown in results["pictures"].values():
        assert len(shown) == 1
        assert set(shown[0]["methods"]) == {"ensemble", "mc_dropout"}
        assert all(each["M"] == 2 for each in shown[0]["methods"].values())


def test_results_hold_recipe_and_header(cache: Path, results: Numbers) -> None:
    assert results["recipe"] == small_dense(cache).model_dump(mode="json")
    header = {name: results[name] for name in ("version", "problem", "kind", "unit", "convention", "failed")}
    assert header == {
        "version": 2,
        "problem": "depth-completion",
        "kind": "gaussian",
        "unit": "m",
        "convention": "pooled",
        "failed": {},
    }


def test_no_unfinished_file_is_left(finished: Path) -> None:
    assert [file for file in finished.rglob("*") if "unfinished" in file.name or file.name.startswith(".")] == []


def test_every_network_has_its_weights_and_its_log(finished: Path) -> None:
    names = sorted(file.name for file in (finished / "members" / "ensemble").iterdir())
    assert names == [f"{number:04d}.{ending}" for number in range(3) for ending in ("csv", "safetensors")]


# The same numbers


def test_the_recipe_in_a_file_gives_the_same_numbers(finished, results, tmp_path: Path) -> None:
    recipe = finished / "recipe.json"
    status, _ = epibench_command("run", recipe, "--out", tmp_path / "again", "--jobs", 1, "--device", "cpu")
    assert status == 0
    assert numbers(read_results(tmp_path / "again")) == numbers(results)


def test_another_seed_gives_other_numbers(results: Numbers, cache: Path, tmp_path: Path) -> None:
    other = run_in(tmp_path / "run", small_dense(cache, ONE_METHOD, "seed=1"))
    assert other["summary"]["ensemble"] != results["summary"]["ensemble"]


@pytest.mark.parametrize("network", ["ensemble/2", "mc_dropout/1"])
def test_a_network_trained_alone_has_the_weights_of_the_run(
    finished: Path, cache: Path, tmp_path: Path, network: str
) -> None:
    method, number = network.split("/")
    epibench.train(small_dense(cache), tmp_path / "alone", only=[f"{method}:{number}"], device="cpu")
    file = f"members/{method}/{int(number):04d}.safetensors"
    assert [path.name for path in (tmp_path / "alone/members").rglob("*.safetensors")] == [Path(file).name]
    alone, among = (load_file(path / file) for path in (tmp_path / "alone", finished))
    assert alone.keys() == among.keys()
    assert [name for name in alone if not alone[name].equal(among[name])] == []


@pytest.fixture(scope="module")
def one_start(cache: Path, tmp_path_factory) -> Path:
    """An ensemble whose networks all start from the initial weights of network 0."""
    path = tmp_path_factory.mktemp("runs") / "one-start"
    run_in(path, small_dense(cache, ONE_METHOD, "ensemble.same_start=true"))
    return path


@pytest.mark.parametrize("network", range(3))
def test_with_one_start_only_network_0_equals_that_of_the_plain_ensemble(
    finished: Path, one_start: Path, network: int
) -> None:
    file = f"members/ensemble/{network:04d}.safetensors"
    plain, fixed = (load_file(path / file) for path in (finished, one_start))
    assert all(plain[name].equal(fixed[name]) for name in plain) is (network == 0)


def test_an_ensemble_from_one_start_has_the_same_numbers_after_a_kill(
    one_start: Path, cache: Path, tmp_path: Path
) -> None:
    recipe = small_dense(cache, ONE_METHOD, "ensemble.same_start=true")
    with killed_at("members/ensemble/0001.unfinished.safetensors"):
        run_in(tmp_path / "run", recipe)
    assert (tmp_path / "run/members/ensemble/0001.unfinished.safetensors").exists()
    assert numbers(run_in(tmp_path / "run", recipe)) == numbers(read_results(one_start))


def test_a_finished_run_is_not_trained_or_evaluated_again(finished: Path, results: Numbers, cache: Path) -> None:
    again = Silent()
    assert numbers(run_in(finished, small_dense(cache), reporter=again)) == numbers(results)
    assert again.steps == []


# Kills

KILLED = """
import os, signal, sys
from pathlib import Path
from epibench.cli import main
from fault_injection import save_often, stop_at_file

recipe, runs = sys.argv[1], Path(sys.argv[2])
save_often()
for number, point in enumerate(sys.argv[3:]):
    when, pattern, count = point.split()
    child = os.fork()  # imports are paid for once
    if child == 0:
        stop_at_file(setattr, pattern, int(count), when, lambda: os.kill(os.getpid(), signal.SIGKILL))
        sys.argv = ["epibench", "run", recipe, "--out", str(runs / str(number)), "--jobs", "1", "--device", "cpu"]
        main()
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, (point, status)
"""
# When a file is put in its place: before or after, which, and for which time.
POINTS = (
    "after members/ensemble/0000.unfinished.safetensors 1",
    "after members/ensemble/0002.safetensors 1",
    "before members/mc_dropout/0001.safetensors 1",
    "after evaluation/ensemble/clean-*.unfinished.safetensors 2",
    "before evaluation/mc_dropout/wild-*.json 1",
)


@pytest.fixture(scope="module")
def killed(finished: Path, tmp_path_factory) -> Path:
    """Folders of runs, each killed at one of the points."""
    place = tmp_path_factory.mktemp("killed")
    (place / "script.py").write_text(KILLED)
    command = [sys.executable, place / "script.py", finished / "recipe.json", place, *POINTS]
    subprocess.run(command, check=True, timeout=300, env=script_environment())
    return place


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_run_ends_with_the_same_numbers_and_tables_of_losses(
    finished: Path, results: Numbers, cache: Path, killed: Path, point: str
) -> None:
    folder = killed / str(POINTS.index(point))
    assert not (folder / "results.json").exists()
    assert numbers(run_in(folder, small_dense(cache))) == numbers(results)
    tables = {file.relative_to(finished): file.read_text() for file in finished.rglob("*.csv")}
    assert {name: (folder / name).read_text() for name in tables} == tables


SLOW = """
import time
from epibench.cli import main
from fault_injection import before_each_step, is_first, save_often

save_often()
before_each_step(lambda step: time.sleep(2.0 if is_first("first") else 0))
if __name__ == "__main__":
    main()
"""


def test_processes_of_a_killed_run_end_and_the_run_continues(results: Numbers, cache: Path, tmp_path: Path) -> None:
    """One process has no work left when the command is killed, the other is still busy."""
    recipe, folder = small_dense(cache, ONE_METHOD), tmp_path / "run"
    (tmp_path / "recipe.json").write_text(recipe.model_dump_json())
    (tmp_path / "script.py").write_text(SLOW)
    command = [sys.executable, "script.py", "run", "recipe.json", "--out", folder, "--jobs", "2", "--device", "cpu"]
    silent = {"stderr": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    parent = subprocess.Popen(command, cwd=tmp_path, env=script_environment(), **silent)
    try:
        wait_until(lambda: len([*folder.rglob("000?.safetensors")]) == 2 and any(folder.rglob("*.unfinished.*")))
        children = children_of(parent.pid)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    assert len(children) >= 2
    wait_until(lambda: not any(is_alive(child) for child in children), 10)
    assert not (folder / "results.json").exists()
    ended = run_in(folder, recipe)
    for part in ("summary", "draws", "curves"):
        assert ended[part]["ensemble"] == results[part]["ensemble"]


def test_stopped_training_continues_from_its_state(cache: Path, tmp_path: Path) -> None:
    recipe, reporter = small_dense(cache), Silent()
    state = "0000.unfinished.safetensors"
    with killed_at(f"members/ensemble/{state}", count=2):
        epibench.train(recipe, tmp_path / "run", device="cpu", jobs=1)
    with written_files() as names:
        epibench.train(recipe, tmp_path / "run", device="cpu", jobs=1, progress=reporter)
    assert reporter.done == {"train ensemble": 4, "train mc_dropout": 0}
    assert names.count("0001.unfinished.safetensors") == 4  # of either method, after steps 2 and 4
    assert names.count(state) == 2  # of MC-dropout alone


# Stores


@pytest.fixture(scope="module")
def stored(finished: Path, cache: Path, tmp_path_factory) -> Path:
    path = trained(finished, tmp_path_factory.mktemp("stored") / "run")
    run_in(path, small_dense(cache, "evaluation.store=true"))
    return path


@pytest.mark.parametrize("domain", ["clean", "wild"])
@pytest.mark.parametrize(("method", "plan"), [("ensemble", "random"), ("mc_dropout", "prefix")])
def test_stored_predictions_have_the_scores_of_the_run(stored: Path, method: str, plan: Any, domain: str) -> None:
    store, draws = stored / "predictions" / method / f"{domain}.zarr", read_results(stored)["draws"][method][domain]
    (scored,) = epibench.score(store, members=(1, 2), draws=3, plan=plan).scores
    assert len(scored.draws) == len(draws)
    for ours, theirs in zip(draws, scored.draws, strict=True):
        run, again = ours["metrics"], theirs.metrics
        assert ours["M"] == theirs.M
        assert run["ause"] == pytest.approx(again["ause"], abs=run["ause_bound"] + 1e-9)
        assert run["ence"] == pytest.approx(again["ence"], abs=run["ence_bound"] + again["ence_bound"] + 1e-9)
        same = ("rmse", "mae", "nll", "nll_gaussian", "crps", "crps_gaussian", "interval_score", "auce")
        for metric in (*same, "abs_rel", "sq_rel", "delta1", "silog", "rmse_log", "irmse", "depth_left_out"):
            assert run[metric] == pytest.approx(again[metric], rel=1e-6, abs=1e-9), metric


@pytest.mark.parametrize("domain", ["clean", "wild"])
@pytest.mark.parametrize("method", ["ensemble", "mc_dropout"])
def test_pictures_have_the_moments_of_the_draw(stored: Path, method: str, domain: str) -> None:
    results, arrays = read_results(stored), stored_arrays(stored / "predictions" / method / f"{domain}.zarr")
    (shown,) = shown_pictures(stored, domain)
    members = next(draw["members"] for draw in results["draws"][method][domain] if draw["M"] == 2)
    mean, variance = (arrays[name][members, shown.image].astype(np.float64) for name in ("mean", "variance"))
    std, drawn = np.sqrt(variance.mean(0) + mean.var(0)), shown.methods[method]
    assert np.abs(numbers_in(drawn.mean) - mean.mean(0)).max() <= max(1 / 128, drawn.mean.scale)
    assert np.abs(numbers_in(drawn.std) - std).max() <= max(1 / 128, drawn.std.scale)
    valid, target = arrays["valid"][shown.image], arrays["target"][shown.image]
    assert ((numbers_in(shown.target) > 0) == valid).all()
    assert np.abs(numbers_in(shown.target) - target)[valid].max() <= 1 / 128
    assert 0 < (numbers_in(shown.sparse_depth) > 0).mean() < valid.mean()


def test_storing_changes_no_number(stored: Path, results: Numbers) -> None:
    assert numbers(read_results(stored)) == numbers(results)


def test_a_store_describes_its_content(stored: Path) -> None:
    store = zarr.open_group(stored / "predictions" / "mc_dropout" / "wild.zarr", mode="r")
    attributes = ("complete", "method", "domain", "unit", "quantity")
    assert [store.attrs[name] for name in attributes] == [True, "MC-dropout", "wild", "m", "depth"]
    assert (store["mean"].shape, store["target"].shape) == ((4, 4, 32, 64), (4, 32, 64))
    assert list(store["group"][:]) == [0, 0, 1, 1]


@pytest.fixture(scope="module")
def stopped(finished: Path, cache: Path, tmp_path_factory) -> tuple[Path, Silent]:
    """A run that was killed while it evaluated and stored, after its second portion, and then continued."""
    path, reporter = trained(finished, tmp_path_factory.mktemp("stopped") / "run"), Silent()
    recipe = small_dense(cache, "evaluation.store=true")
    with killed_at("evaluation/ensemble/clean-*.unfinished.safetensors", count=2, when="before"):
        run_in(path, recipe)
    run_in(path, recipe, reporter=reporter)
    return path, reporter


def test_a_stopped_evaluation_continues_from_its_state(stopped, stored: Path) -> None:
    path, reporter = stopped
    assert reporter.done["evaluate ensemble on clean"] == 2
    assert numbers(read_results(path)) == numbers(read_results(stored))


def test_an_unfinished_store_is_completed(stopped, stored: Path) -> None:
    ours, theirs = (path / "predictions" / "ensemble" / "clean.zarr" for path in (stopped[0], stored))
    assert zarr.open_group(ours, mode="r").attrs["complete"]
    expected, found = stored_arrays(theirs), stored_arrays(ours)
    for name in ("mean", "variance", "target", "valid"):
        assert np.array_equal(found[name], expected[name])


# Networks that fail

HOT = '{"hot": {"method": "ensemble", "label": "Hot", "options": {"learning_rate": 1e6, "optimiser": "sgd"}}}'
DIVERGING = (f"variants={HOT}", 'methods=["hot", "ensemble"]')


@pytest.fixture(scope="module")
def diverging(cache: Path, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("diverging") / "run"
    run_in(path, small_dense(cache, *DIVERGING))
    return path


def test_a_method_that_diverges_is_named_and_leaves_the_others(diverging: Path, results: Numbers, cache: Path) -> None:
    found = read_results(diverging)
    assert found["summary"] == {"ensemble": results["summary"]["ensemble"]}
    assert list(found["failed"]) == ["hot"]
    message = found["failed"]["hot"]
    assert re.match("3 of 3 networks failed: hot: network 0: the loss became NaN or infinite", message)
    key = re.search(r"lower (\S+)", message)[1]
    assert small_dense(cache, *DIVERGING, f"{key}=1e-3").method("hot").learning_rate == 1e-3


def test_processes_give_the_same_numbers_and_the_same_failures(diverging: Path, cache: Path, tmp_path: Path) -> None:
    reporter = Silent()
    found = run_in(tmp_path / "run", small_dense(cache, *DIVERGING), jobs=2, reporter=reporter)
    expected = read_results(diverging)
    for part in ("summary", "draws", "curves"):
        assert found[part] == expected[part]
    same = "3 of 3 networks failed: hot: network 0: the loss became NaN or infinite by step "
    assert all(list(one["failed"]) == ["hot"] and one["failed"]["hot"].startswith(same) for one in (found, expected))
    assert (reporter.advanced["train hot"], reporter.advanced["train ensemble"]) == (18, 18)  # three times six steps
    assert multiprocessing.active_children() == []


def test_networks_that_have_diverged_are_not_trained_again(diverging: Path, cache: Path) -> None:
    again, before = Silent(), read_results(diverging)
    assert numbers(run_in(diverging, small_dense(cache, *DIVERGING), reporter=again)) == numbers(before)
    assert again.steps == []


def test_a_failed_method_makes_the_status_2(diverging: Path) -> None:
    recipe = diverging / "recipe.json"
    status, said = epibench_command("run", recipe, "--out", diverging, "--jobs", 1, "--device", "cpu")
    assert status == 2
    assert said.splitlines()[-1].startswith("epibench: 3 of 3 networks failed: hot: network 0")


@pytest.fixture(scope="module")
def broken(finished: Path, cache: Path, tmp_path_factory) -> Path:
    """A run whose second network starts with a NaN."""
    path = tmp_path_factory.mktemp("broken") / "run"
    with pytest.MonkeyPatch.context() as patch:
        break_second(patch, "ensemble")
        run_in(path, small_dense(cache, ONE_METHOD))
    return path


def test_one_network_that_diverges_fails_its_method(broken: Path) -> None:
    message = read_results(broken)["failed"]["ensemble"]
    assert message.startswith("1 of 3 networks failed: ensemble: network 1: the loss became NaN")


def test_networks_that_diverge_can_be_left_out(broken: Path, results: Numbers, cache: Path, tmp_path: Path) -> None:
    recipe, reporter = small_dense(cache, ONE_METHOD, "ensemble.diverged=drop"), Silent()
    found = run_in(shutil.copytree(broken, tmp_path / "run"), recipe, reporter=reporter)
    assert reporter.trained == []
    assert found["failed"] == {}
    facts = found["methods"]["ensemble"]
    assert (facts["num_networks"], facts["num_members"]) == (2, 2)
    assert facts["notes"] == ["1 of 3 diverged and are left out."]
    assert found["summary"]["ensemble"]["clean"]["1"]["rmse"]["n"] == 2
    ours, theirs = (
        sorted(each["metrics"]["rmse"] for each in one["draws"]["ensemble"]["clean"] if each["M"] == 1)
        for one in (found, results)
    )
    assert set(ours) < set(theirs)


def test_too_few_remaining_networks_are_an_error(broken: Path, cache: Path, tmp_path: Path) -> None:
    recipe = small_dense(cache, ONE_METHOD, "ensemble.diverged=drop", "members=[1,3]")
    message = run_in(shutil.copytree(broken, tmp_path / "run"), recipe)["failed"]["ensemble"]
    assert message.startswith("ensemble: 1 of 3 networks diverged; M = 3 is impossible")


def test_the_failure_of_a_source_is_reported_once(cache: Path, tmp_path: Path) -> None:
    starting = ("pruned.num_members=2", "laplace.num_networks=2", "members=[1]")
    hot = ("ensemble.num_members=2", "ensemble.learning_rate=1e6", "ensemble.optimiser=sgd")
    reporter = Silent()
    recipe = small_dense(cache, 'methods=["ensemble","pruned","laplace"]', *hot, *starting)
    results = run_in(tmp_path / "run", recipe, reporter=reporter)
    for network in range(2):
        said = [text for text in reporter.said if f"ensemble: network {network}: the loss became NaN" in text]
        assert [text for text in said if " failed: " not in text] == said[:1]
    short = "2 of 2 networks failed: they start from those of ensemble"
    assert (results["failed"]["pruned"], results["failed"]["laplace"]) == (short, short)
    # A recipe without that method reports it with each method that starts from it.
    alone = small_dense(cache, 'methods=["pruned","laplace"]', *hot, *starting)
    results = run_in(tmp_path / "run", alone)
    assert "(ensemble: network 0: the loss became NaN" in results["failed"]["pruned"]


def test_a_method_of_single_networks_notes_that_its_m_is_1(cache: Path, tmp_path: Path) -> None:
    results = run_in(tmp_path / "run", small_dense(cache, 'methods=["swa"]', "members=[2]"))
    assert list(results["summary"]["swa"]["clean"]) == ["1"]
    note = "It has no members that predict together: M is 1, and not 2."
    assert results["methods"]["swa"]["notes"] == [note]
    results = run_in(tmp_path / "run", small_dense(cache, 'methods=["swa"]', "members=[1,2]"))
    assert results["methods"]["swa"]["notes"] == []


def test_predictions_that_are_not_finite_fail_their_method(cache: Path, tmp_path: Path) -> None:
    one_huge_step = ("training.epoch_steps=1", "ensemble.num_epochs=1", "ensemble.optimiser=sgd")
    results = run_in(tmp_path / "run", small_dense(cache, *one_huge_step, "ensemble.learning_rate=1e6"))
    assert list(results["failed"]) == ["ensemble"]
    assert "values of 'std' are NaN, infinite or negative" in results["failed"]["ensemble"]
    assert list(results["summary"]) == ["mc_dropout"]


def test_a_network_file_of_another_recipe_is_refused(finished: Path, cache: Path, tmp_path: Path) -> None:
    recipe = small_dense(cache, ONE_METHOD, "ensemble.learning_rate=1e-4")
    epibench.train(recipe, tmp_path / "run", only=["ensemble:0"], device="cpu")
    file = "members/ensemble/0000.safetensors"
    shutil.copy(finished / file, tmp_path / "run" / file)
    results = run_in(tmp_path / "run", recipe)
    assert "0000.safetensors: made with other settings" in results["failed"]["ensemble"]


def test_a_crop_larger_than_the_images_is_refused_before_a_file_is_written(cache: Path, tmp_path: Path) -> None:
    recipe = small_dense(cache, ONE_METHOD, "training.crop=[64,64]")
    with pytest.raises(InputError, match=r"a crop of 64×64 does not fit into an image of 32×64; lower training\.crop"):
        run_in(tmp_path / "run", recipe)
    assert not (tmp_path / "run").exists()


# Other methods


@pytest.fixture(scope="module")
def sampled(cache: Path, tmp_path_factory) -> Numbers:
    recipe = small_dense(cache, 'methods=["map", "sgld", "sghmc", "cyclical"]')
    return run_in(tmp_path_factory.mktemp("sampled") / "run", recipe)


@pytest.mark.parametrize("method", ["map", "sgld", "sghmc", "cyclical"])
def test_every_method_trains_and_is_evaluated(sampled: Numbers, method: str) -> None:
    assert sampled["failed"] == {}
    sizes = sampled["summary"][method]["wild"]
    assert list(sizes) == (["1"] if method == "map" else ["1", "2"])
    assert all(cell["rmse"]["n"] == 2 and cell["rmse"]["mean"] > 0 for cell in sizes.values())


@pytest.mark.parametrize("method", ["sgld", "sghmc", "cyclical"])
def test_each_snapshot_of_a_chain_is_a_member(sampled: Numbers, method: str) -> None:
    facts = sampled["methods"][method]
    assert (facts["num_networks"], facts["num_members"], facts["num_groups"]) == (2, 4, 2)


def test_every_network_is_drawn_with_one_pass_each(cache: Path, tmp_path: Path) -> None:
    settings = ('methods=["mc_dropout"]', "mc_dropout.num_passes=1", "members=[1]")
    results = run_in(tmp_path / "run", small_dense(cache, *settings))
    assert results["summary"]["mc_dropout"]["clean"]["1"]["rmse"]["n"] == 2


def test_mixed_precision_gives_nearly_the_same_error(results: Numbers, cache: Path, tmp_path: Path) -> None:
    settings = ("training.precision=bf16-mixed", "evaluation.precision=bf16-mixed", ONE_METHOD)
    mixed = run_in(tmp_path / "run", small_dense(cache, *settings))
    ours, theirs = (found["summary"]["ensemble"]["clean"]["2"]["rmse"]["mean"] for found in (mixed, results))
    assert ours != theirs
    assert ours == pytest.approx(theirs, rel=0.05)


# Refused recipes


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
def test_missing_data_are_refused_before_a_file_is_written(cache, setting: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        run_in(tmp_path / "run", small_dense(cache, setting))
    assert not (tmp_path / "run").exists()


def test_a_root_without_the_data_is_named(cache: Path, tmp_path: Path) -> None:
    settings = ('data.train={"kind": "virtual_kitti"}', f"data.root={tmp_path / 'nowhere'}")
    with pytest.raises(InputError, match="nowhere"):
        run_in(tmp_path / "run", small_dense(cache, *settings))


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
def test_an_impossible_recipe_is_refused_in_words(cache: Path, setting: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        small_dense(cache, setting)


def test_the_folder_of_another_recipe_is_refused(finished: Path, cache: Path) -> None:
    with pytest.raises(InputError, match=r"holds a run of another recipe: training\.epoch_steps \(3 there, 4 now\)"):
        run_in(finished, small_dense(cache, "training.epoch_steps=4"))
