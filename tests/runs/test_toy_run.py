"""A whole toy run: its files, resuming, and numbers that depend on the recipe alone."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fault_injection import Killed, few_draws_at_once, killed_at
from safetensors.torch import load_file
from silent_reporter import Silent, read_results, run_in
from small_recipes import small

import epibench
from epibench.errors import InputError
from toy_references import toy_grid, write_made_up_reference

SINGLE = ("map", "ml", "swa")  # methods whose networks do not predict together
ONE_METHOD = 'methods=["ensemble"]'


def computed(path: Path) -> dict[str, Any]:
    """Return all results of a run that are not measured."""
    return epibench.load_results(path).computed()


@pytest.fixture(scope="module", params=["toy-regression", "toy-classification"])
def finished(request, tmp_path_factory) -> tuple[Any, Path, dict[str, Any]]:
    recipe, path = small(request.param), tmp_path_factory.mktemp("runs") / "run"
    return recipe, path, run_in(path, recipe)


def test_every_method_has_a_summary_of_every_size_inside_and_outside(finished) -> None:
    recipe, _, results = finished
    for name in recipe.methods:
        for domain in ("inside", "outside"):
            sizes = results["summary"][name][domain]
            assert list(sizes) == (["1"] if name in SINGLE else ["1", "2", "4"])
            metric = "rmse" if results["kind"] == "gaussian" else "accuracy"
            assert all(cell[metric]["mean"] >= 0 for cell in sizes.values())


def test_pictures_show_each_method_at_each_size(finished) -> None:
    _, _, results = finished
    assert set(results["toy"]["methods"]) == set(results["methods"])
    for name, sizes in results["toy"]["methods"].items():
        assert list(sizes) == (["1"] if name in SINGLE else ["2", "4"])
        for examples in sizes.values():
            shown = examples[0]["mean" if results["kind"] == "gaussian" else "probs"]
            assert len(shown) == (250 if results["kind"] == "gaussian" else 3600)


def test_the_same_recipe_gives_the_same_numbers(finished, tmp_path: Path) -> None:
    recipe, path, _ = finished
    run_in(tmp_path / "again", recipe)
    assert computed(tmp_path / "again") == computed(path)


def test_metrics_of_some_draws_at_a_time_equal_those_of_all(finished, tmp_path: Path) -> None:
    recipe, path, _ = finished
    again = shutil.copytree(path, tmp_path / "again")
    (again / "results.json").unlink()
    with few_draws_at_once(3):
        run_in(again, recipe)
    assert computed(again) == computed(path)


@pytest.fixture(scope="module")
def two_methods(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("two") / "run"
    run_in(path, small("toy-regression", 'methods=["ensemble", "sghmc"]'))
    return path


def test_the_recipe_in_the_results_runs_again_without_training(two_methods: Path, tmp_path: Path) -> None:
    run, again = shutil.copytree(two_methods, tmp_path / "run"), Silent()
    (tmp_path / "mine.json").write_text(json.dumps(read_results(run)["recipe"]))
    (run / "results.json").unlink()
    epibench.run(tmp_path / "mine.json", run, device="cpu", progress=again)
    assert again.trained == []
    assert computed(run) == computed(two_methods)


def test_methods_that_leave_the_results_are_named_with_the_setting_that_returns_them(
    two_methods: Path, tmp_path: Path
) -> None:
    run, alone, again = shutil.copytree(two_methods, tmp_path / "run"), Silent(), Silent()
    run_in(run, small("toy-regression", 'methods=["sghmc"]'), reporter=alone)
    (line,) = [said for said in alone.said if "ensemble" in said]
    setting = re.search(r"--set '(.*)'", line)
    assert setting is not None
    results = run_in(run, small("toy-regression", setting[1]), reporter=again)
    assert set(results["methods"]) == {"ensemble", "sghmc"}
    assert again.trained == []
    assert not any("--set" in said for said in again.said)


def test_another_seed_gives_other_numbers(two_methods: Path, tmp_path: Path) -> None:
    other = run_in(tmp_path / "other", small("toy-regression", ONE_METHOD, "seed=1"))
    assert other["summary"]["ensemble"] != read_results(two_methods)["summary"]["ensemble"]


@pytest.mark.parametrize(("saves", "epoch"), [(1, 1), (2, 5), (3, 21)])
@pytest.mark.usefixtures("eager")
def test_a_killed_run_continues_and_ends_with_the_same_numbers(
    two_methods: Path, saves: int, epoch: int, tmp_path: Path
) -> None:
    recipe, again = small("toy-regression", 'methods=["ensemble", "sghmc"]'), Silent()
    state = "members/sghmc/0000-0001.unfinished.safetensors"
    with killed_at(state, count=saves):
        run_in(tmp_path / "killed", recipe)
    assert (tmp_path / "killed" / state).exists()
    run_in(tmp_path / "killed", recipe, reporter=again)
    assert again.done["train sghmc"] == epoch
    assert "train ensemble" not in again.steps
    assert computed(tmp_path / "killed") == computed(two_methods)


@pytest.fixture(scope="module")
def one_start(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("one-start") / "run"
    run_in(path, small("toy-regression-fixed", "ensemble.num_epochs=8"))
    return path


@pytest.mark.usefixtures("eager")
def test_an_ensemble_from_one_start_has_the_same_numbers_after_a_kill(one_start: Path, tmp_path: Path) -> None:
    recipe = small("toy-regression-fixed", "ensemble.num_epochs=8")
    with killed_at("members/ensemble_fixed/*.unfinished.safetensors"):
        run_in(tmp_path / "killed", recipe)
    run_in(tmp_path / "killed", recipe)
    assert computed(tmp_path / "killed") == computed(one_start)


def test_ensembles_from_one_start_share_network_0_with_the_plain_ones(one_start: Path) -> None:
    plain, fixed = (
        load_file(one_start / "members" / name / "0000-0007.safetensors")["parameters"]
        for name in read_results(one_start)["methods"]
    )
    assert [first.equal(second) for first, second in zip(plain, fixed, strict=True)] == [True] + 7 * [False]


@pytest.mark.parametrize("problem", ["toy-regression", "toy-classification"])
def test_kl_has_every_convention_direction_region_and_size_with_its_floor(problem: str, tmp_path: Path) -> None:
    path = write_made_up_reference(tmp_path / "reference.npz", problem)
    results = run_in(tmp_path / "run", small(problem, f"reference.path={path}", 'methods=["map", "ensemble"]'))
    floors = results["reference"]["floor"]
    assert all(
        kl > 0 for by_direction in floors.values() for regions in by_direction.values() for kl in regions.values()
    )
    for region in ("grid", "train"):
        cells, draws = (results[part]["ensemble"][region] for part in ("summary", "draws"))
        assert list(cells) == ["1", "2", "4"]
        assert set(cells["2"]) == {"kl", "kl_reverse", "kl_gustafsson2020", "kl_reverse_gustafsson2020"}
        for name, stat in cells["2"].items():
            values = [draw["metrics"][name] for draw in draws if draw["M"] == 2]
            assert stat["n"] == len(values) == 3
            assert stat["mean"] == pytest.approx(sum(values) / 3)


@pytest.mark.parametrize("problem", ["toy-regression", "toy-classification"])
def test_a_published_reference_has_predictions_and_nothing_else(problem: str, tmp_path: Path) -> None:
    grid, path = toy_grid(problem), tmp_path / "published.npz"
    if problem == "toy-regression":
        arrays = {"x": grid[:, 0], "mean": np.zeros(1000), "variance": np.ones(1000)}
    else:
        arrays = {"x": grid, "probs": np.full((3600, 2), 0.5)}
    np.savez(path, **arrays)
    results = run_in(tmp_path / "run", small(problem, f"reference.path={path}", ONE_METHOD))
    assert results["summary"]["ensemble"]["grid"]["4"]["kl_gustafsson2020"]["mean"] > 0
    assert "neither its training data nor its convergence can be checked" in results["reference"]["notes"][0]


@pytest.mark.parametrize("shape", [(3600, 3), (60, 60, 2), (3600,)])
def test_a_published_reference_of_another_shape_is_refused(shape: tuple[int, ...], tmp_path: Path) -> None:
    path = tmp_path / "published.npz"
    np.savez(path, x=toy_grid("toy-classification"), probs=np.full(shape, 0.5))
    with pytest.raises(InputError, match="'probs' has shape"):
        run_in(tmp_path / "run", small("toy-classification", f"reference.path={path}"))


@pytest.mark.parametrize(
    ("setting", "word"),
    [
        ("data.seed=1", "training data"),
        ("prior_scale=2", "prior_scale"),
        ("hidden=[5]", "hidden"),
        ("reference.path=nowhere.npz", "nowhere.npz"),
        ("data.path=nowhere.npz", "nowhere.npz"),
    ],
)
def test_a_reference_that_does_not_fit_is_refused_before_anything_is_written(setting, word, tmp_path: Path) -> None:
    path = write_made_up_reference(tmp_path / "reference.npz", "toy-regression")
    with pytest.raises(InputError, match=word):
        run_in(tmp_path / "run", small("toy-regression", f"reference.path={path}", setting))
    assert not (tmp_path / "run").exists()


class StopsAtFirstStep(Silent):
    """A reporter that ends a run before its first step."""

    def step(self, name: str, total: int, done: int = 0) -> Any:
        raise Killed


def test_sizes_that_a_method_cannot_draw_are_named_before_training_and_noted(tmp_path: Path) -> None:
    reporter, recipe = (
        StopsAtFirstStep(),
        small("toy-regression", 'methods=["ensemble", "mc_dropout"]', "members=[2,8]"),
    )
    with pytest.raises(Killed):
        run_in(tmp_path / "run", recipe, reporter=reporter)
    note = "M = 8 left out: a draw has at most 4 members (mc_dropout.num_passes)."
    assert reporter.said[1:] == [f"mc_dropout: {note}"]  # after the name of the run
    assert run_in(tmp_path / "run", recipe)["methods"]["mc_dropout"]["notes"] == [note]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", b"no zip"])
def test_a_damaged_reference_is_refused_before_anything_is_written(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "reference.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"reference.npz: not a readable .npz file .*\. Fix: make one with"):
        run_in(tmp_path / "run", small("toy-regression", f"reference.path={tmp_path}/reference.npz"))
    assert not (tmp_path / "run").exists()


R_HATS = {at: {"r_hat_within_limit": 0.02} for at in ("train", "outside")}
NOT_CONVERGED = {"traced_points": 98, "traced_points_inside": 65, "probability": R_HATS}


@pytest.fixture(scope="module")
def unconverged(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A recipe whose reference has not converged; one half of its chains excludes predictions of the other half."""
    path = tmp_path_factory.mktemp("unconverged") / "reference.npz"
    write_made_up_reference(path, "toy-classification", excluded=True, diagnostics=NOT_CONVERGED)
    return small("toy-classification", f"reference.path={path}", ONE_METHOD)


def test_results_note_an_infinite_noise_floor_and_missing_convergence(unconverged: Any, tmp_path: Path) -> None:
    facts = run_in(tmp_path / "run", unconverged)["reference"]
    assert facts["floor"]["pooled"]["reference_to_method"]["grid"] is None
    assert "The noise floor is infinite" in facts["notes"][0]
    verdict = "NOT converged: R-hat ≤ 1.05 at 2 % of points (goal 95 %)"
    assert (facts["converged"], facts["convergence"]) == (False, verdict)


def test_a_reference_that_has_not_converged_is_named_before_training(unconverged: Any, tmp_path: Path) -> None:
    reporter = StopsAtFirstStep()
    with pytest.raises(Killed):
        run_in(tmp_path / "run", unconverged, reporter=reporter)
    assert "NOT converged: R-hat ≤ 1.05 at 2 % of points (goal 95 %). Fix: " in reporter.said[1]


DIVERGING = ('methods=["ensemble", "sgld"]', "sgld.num_chains=16", "sgld.learning_rate=0.6")


def test_chains_that_diverge_fail_their_method_and_leave_the_others(tmp_path: Path) -> None:
    results = run_in(tmp_path / "run", small("toy-regression", *DIVERGING, "sgld.diverged=stop"))
    assert list(results["failed"]) == ["sgld"]
    words = r"sgld: \d+ of 16 networks diverged.*lower sgld.learning_rate.*sgld.diverged=drop"
    assert re.match(words, results["failed"]["sgld"])
    assert list(results["summary"]) == ["ensemble"]


def test_chains_that_diverge_can_be_left_out(tmp_path: Path) -> None:
    results = run_in(tmp_path / "run", small("toy-regression", *DIVERGING, "sgld.diverged=drop"))
    facts = results["methods"]["sgld"]
    assert 0 < facts["num_networks"] < 16
    assert facts["notes"] == [f"{16 - facts['num_networks']} of 16 diverged and are left out."]
    assert results["summary"]["sgld"]["inside"]["4"]["rmse"]["n"] == min(3, facts["num_networks"])


def test_predictions_that_are_not_finite_fail_their_method(tmp_path: Path) -> None:
    settings = ("ensemble.optimiser=sgd", "ensemble.learning_rate=1", "ensemble.diverged=drop", "ensemble.num_epochs=5")
    results = run_in(tmp_path / "run", small("toy-regression", ONE_METHOD, *settings))
    assert "lower ensemble.learning_rate" in results["failed"]["ensemble"]


def test_members_of_other_data_are_refused(tmp_path: Path) -> None:
    data = tmp_path / "d.npz"
    recipe, x = small("toy-regression", ONE_METHOD, f"data.path={data}"), np.linspace(-3, 3, 40)
    np.savez(data, x=x, y=np.sin(x))
    run_in(tmp_path / "run", recipe)
    np.savez(data, x=x, y=np.cos(x))
    assert "other data" in run_in(tmp_path / "run", recipe)["failed"]["ensemble"]
