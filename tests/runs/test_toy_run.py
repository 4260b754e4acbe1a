"""A whole toy run: what it writes, that it resumes, and that nothing but the recipe decides its numbers."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from silent_reporter import Silent, run_in
from small_recipes import small

from epibench.data.sets.toy import make_toy
from epibench.errors import InputError
from epibench.methods import METHODS
from epibench.recipes.toy import ToyRecipe
from epibench.reference.predictions import Reference, load_reference, write_reference
from epibench.runs.checkpoints import Checkpoints
from epibench.runs.checks import STEPS
from epibench.runs.folder import RunFolder
from epibench.runs.machine import Machine, Run
from epibench.runs.run import begin
from epibench.training.state import Pacer, TrainingState

NOT_NUMBERS = ("created", "seconds", "cost", "commit", "checksum")


def carry_out(recipe: ToyRecipe, path: Path, reporter: Silent | None = None) -> dict[str, Any]:
    results = run_in(path, recipe, reporter=reporter)
    return {key: value for key, value in results.items() if key not in NOT_NUMBERS}


@pytest.fixture(scope="module", params=["toy-regression", "toy-classification"])
def finished(request, tmp_path_factory) -> tuple[ToyRecipe, dict[str, Any]]:
    recipe = small(request.param)
    return recipe, carry_out(recipe, tmp_path_factory.mktemp("runs") / "run")


def test_every_method_has_a_summary_of_every_size_inside_and_outside(finished) -> None:
    recipe, results = finished
    for name in recipe.methods:
        for domain in ("inside", "outside"):
            sizes = results["summary"][name][domain]
            assert list(sizes) == (["1"] if METHODS[name].single else ["1", "2", "4"])
            metric = "rmse" if results["kind"] == "gaussian" else "accuracy"
            assert all(cell[metric]["mean"] >= 0 for cell in sizes.values())


def test_the_recipe_in_the_results_can_be_run_again(finished) -> None:
    recipe, results = finished
    assert ToyRecipe.model_validate(results["recipe"]) == recipe


def test_pictures_show_each_method_at_each_size(finished) -> None:
    _, results = finished
    for name, sizes in results["toy"]["methods"].items():
        assert list(sizes) == (["1"] if METHODS[name].single else ["2", "4"])
        for examples in sizes.values():
            shown = examples[0]["mean" if results["kind"] == "gaussian" else "probs"]
            assert len(shown) == (250 if results["kind"] == "gaussian" else 3600)


def test_the_same_recipe_gives_the_same_numbers(finished, tmp_path: Path) -> None:
    recipe, results = finished
    assert carry_out(recipe, tmp_path / "again") == results


def test_methods_that_leave_the_results_are_named_with_how_to_have_them_again(tmp_path: Path) -> None:
    two = small("toy-regression", 'methods=["ensemble", "mc_dropout"]')
    run_in(tmp_path / "run", two)
    alone, again = Silent(), Silent()
    run_in(tmp_path / "run", small("toy-regression", 'methods=["mc_dropout"]'), reporter=alone)
    (line,) = [said for said in alone.said if "ensemble" in said]
    setting = re.search(r"--set '(.*)'", line)
    assert setting is not None
    results = run_in(tmp_path / "run", small("toy-regression", setting[1]), reporter=again)
    assert set(results["methods"]) == {"ensemble", "mc_dropout"}
    assert again.trained == []
    assert not any("--set" in said for said in again.said)


def test_metrics_of_some_draws_at_a_time_are_those_of_all(finished, tmp_path: Path, monkeypatch) -> None:
    recipe, results = finished
    monkeypatch.setattr("epibench.runs.toy.DRAWS_AT_ONCE", 3)
    assert carry_out(recipe, tmp_path / "again") == results


def test_another_seed_gives_other_numbers(tmp_path: Path) -> None:
    one, other = (
        carry_out(small("toy-regression", 'methods=["ensemble"]', f"seed={seed}"), tmp_path / str(seed))
        for seed in (0, 1)
    )
    assert one["summary"] != other["summary"]


def test_a_finished_method_is_not_trained_again(tmp_path: Path) -> None:
    recipe = small("toy-regression", 'methods=["ensemble", "map"]')
    carry_out(recipe, tmp_path / "run")
    again = Silent()
    carry_out(recipe, tmp_path / "run", again)
    assert again.trained == []


class Killed(BaseException):
    """As a kill: nothing catches it."""


@pytest.mark.parametrize("epoch", [1, 5, 20])
def test_a_run_that_was_killed_goes_on_and_ends_as_if_it_had_not_been(epoch: int, tmp_path: Path, monkeypatch) -> None:
    recipe = small("toy-regression", 'methods=["ensemble", "sghmc"]')
    whole = carry_out(recipe, tmp_path / "whole")
    monkeypatch.setattr(Pacer, "due", lambda pacer: True)
    save = Checkpoints.save_state

    def save_and_die(files: Checkpoints, state: TrainingState, seconds: float, machine: str) -> None:
        save(files, state, seconds, machine)
        if files.folder.name == "sghmc" and state.step >= epoch:
            raise Killed

    monkeypatch.setattr(Checkpoints, "save_state", save_and_die)
    with pytest.raises(Killed):
        carry_out(recipe, tmp_path / "killed")
    monkeypatch.setattr(Checkpoints, "save_state", save)
    assert (tmp_path / "killed" / "members" / "sghmc" / "0000-0001.unfinished.safetensors").exists()
    again = Silent()
    assert carry_out(recipe, tmp_path / "killed", again) == whole
    assert "train ensemble" not in again.steps


def test_an_ensemble_from_one_start_that_was_killed_ends_as_if_it_had_not_been(tmp_path: Path, monkeypatch) -> None:
    recipe = small("toy-regression-fixed", "ensemble.num_epochs=8")
    whole = carry_out(recipe, tmp_path / "whole")
    monkeypatch.setattr(Pacer, "due", lambda pacer: True)
    save = Checkpoints.save_state

    def save_and_die(files: Checkpoints, *state: Any) -> None:
        save(files, *state)
        if files.folder.name == "ensemble_fixed":
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save_state", save_and_die)
        with pytest.raises(Killed):
            carry_out(recipe, tmp_path / "killed")
    assert carry_out(recipe, tmp_path / "killed") == whole


def test_ensembles_from_one_start_share_network_0_with_the_plain_ones(tmp_path: Path) -> None:
    recipe = small("toy-regression-fixed")
    carry_out(recipe, tmp_path / "run")
    plain, fixed = (
        load_file(tmp_path / "run" / "members" / name / "0000-0007.safetensors")["parameters"]
        for name in recipe.methods
    )
    assert [torch.equal(*pair) for pair in zip(plain, fixed, strict=True)] == [True] + 7 * [False]


def reference_of(recipe: ToyRecipe, path: Path) -> Path:
    """A file in the reference's format; its predictions are made up."""
    toy = make_toy(recipe.problem)
    torch.manual_seed(0)
    points = len(toy.grid)
    if toy.kind == "gaussian":
        names = ("mean", "aleatoric", "epistemic")
        values = {name: torch.rand(3, points).double() + 0.1 for name in names}
    else:
        values = {"probs": torch.softmax(torch.randn(3, points, 2).double(), 2)}
    about = {"prior_scale": 1.0, "hidden": [10, 10]}
    write_reference(Reference(path, toy.kind, toy.grid, values, toy.train.inputs, toy.train.target, about))
    return path


@pytest.mark.parametrize("problem", ["toy-regression", "toy-classification"])
def test_kl_has_every_convention_direction_region_and_size_with_its_floor(problem: str, tmp_path: Path) -> None:
    path = reference_of(small(problem), tmp_path / "reference.npz")
    results = carry_out(small(problem, f"reference.path={path}", 'methods=["map", "ensemble"]'), tmp_path / "run")
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
    toy, path = make_toy(problem), tmp_path / "published.npz"
    if toy.kind == "gaussian":
        predicted = {"mean": np.zeros(1000), "variance": np.ones(1000)}
        arrays = {"x": toy.grid[:, 0].numpy(), **predicted}
    else:
        arrays = {"x": toy.grid.numpy(), "probs": np.full((3600, 2), 0.5)}
    np.savez(path, **arrays)
    results = carry_out(small(problem, f"reference.path={path}", 'methods=["ensemble"]'), tmp_path / "run")
    assert results["summary"]["ensemble"]["grid"]["4"]["kl_gustafsson2020"]["mean"] > 0
    assert "neither its training data nor its convergence can be checked" in results["reference"]["notes"][0]


@pytest.mark.parametrize("shape", [(3600, 3), (60, 60, 2), (3600,)])
def test_a_published_reference_of_another_shape_is_refused(shape: tuple[int, ...], tmp_path: Path) -> None:
    path = tmp_path / "published.npz"
    np.savez(path, x=make_toy("toy-classification").grid.numpy(), probs=np.full(shape, 0.5))
    with pytest.raises(InputError, match="'probs' has shape"):
        carry_out(small("toy-classification", f"reference.path={path}"), tmp_path / "run")


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
    path = reference_of(small(), tmp_path / "reference.npz")
    with pytest.raises(InputError, match=word):
        carry_out(small("toy-regression", f"reference.path={path}", setting), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_sizes_that_a_method_cannot_draw_are_named_before_training(tmp_path: Path) -> None:
    reporter, recipe = Silent(), small("toy-regression", 'methods=["ensemble", "mc_dropout"]', "members=[2,8]")
    begin(Run(recipe, RunFolder(tmp_path / "run"), Machine.of(torch.device("cpu"), 1), reporter), STEPS)
    told = "mc_dropout: M = 8 left out: a draw has at most 4 members (mc_dropout.num_passes)."
    assert reporter.said == [told]


def test_results_note_sizes_that_a_method_cannot_draw(tmp_path: Path) -> None:
    recipe = small("toy-regression", 'methods=["ensemble", "mc_dropout"]', "members=[2,8]")
    facts = carry_out(recipe, tmp_path / "run")["methods"]
    assert facts["mc_dropout"]["notes"] == recipe.left_out("mc_dropout") != []


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", b"no zip"])
def test_a_damaged_reference_is_refused_before_anything_is_written(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "reference.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"reference.npz: not a readable .npz file .*\. Fix: make one with"):
        carry_out(small("toy-regression", f"reference.path={tmp_path}/reference.npz"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


ONE_METHOD = 'methods=["ensemble"]'
R_HATS = {at: {"r_hat_within_limit": 0.02} for at in ("train", "outside")}
NOT_CONVERGED = {"diagnostics": {"traced_points": 98, "traced_points_inside": 65, "probability": R_HATS}}


@pytest.fixture(scope="module")
def unconverged(tmp_path_factory: pytest.TempPathFactory) -> ToyRecipe:
    """A recipe whose reference has not converged; one half of its chains excludes what the other half predicts."""
    path = reference_of(small("toy-classification"), tmp_path_factory.mktemp("unconverged") / "reference.npz")
    made = load_reference(path)
    made.values["probs"][2, 0] = torch.tensor([0.0, 1.0])
    write_reference(dataclasses.replace(made, about={**made.about, **NOT_CONVERGED}))
    return small("toy-classification", f"reference.path={path}", ONE_METHOD)


@pytest.fixture(scope="module")
def unconverged_facts(unconverged: ToyRecipe, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    facts: dict[str, Any] = carry_out(unconverged, tmp_path_factory.mktemp("unconverged") / "run")["reference"]
    return facts


def test_an_infinite_noise_floor_is_null(unconverged_facts: dict[str, Any]) -> None:
    assert unconverged_facts["floor"]["pooled"]["reference_to_method"]["grid"] is None


def test_an_infinite_noise_floor_is_noted(unconverged_facts: dict[str, Any]) -> None:
    assert "The noise floor is infinite" in unconverged_facts["notes"][0]


def test_results_record_that_the_reference_has_not_converged(unconverged_facts: dict[str, Any]) -> None:
    told = "NOT converged: R-hat ≤ 1.05 at 2 % of points (goal 95 %)"
    assert (unconverged_facts["converged"], unconverged_facts["convergence"]) == (False, told)


def test_a_reference_that_has_not_converged_is_named_before_training(unconverged: ToyRecipe, tmp_path: Path) -> None:
    reporter = Silent()
    begin(Run(unconverged, RunFolder(tmp_path / "run"), Machine.of(torch.device("cpu"), 1), reporter), STEPS)
    assert "NOT converged: R-hat ≤ 1.05 at 2 % of points (goal 95 %). Fix: " in reporter.said[0]


DIVERGING = ('methods=["ensemble", "sgld"]', "sgld.num_chains=16", "sgld.learning_rate=0.6")


def test_chains_that_diverge_fail_their_method_and_leave_the_others(tmp_path: Path) -> None:
    results = carry_out(small("toy-regression", *DIVERGING, "sgld.diverged=stop"), tmp_path / "run")
    assert list(results["failed"]) == ["sgld"]
    words = r"sgld: \d+ of 16 networks diverged.*lower sgld.learning_rate.*sgld.diverged=drop"
    assert re.match(words, results["failed"]["sgld"])
    assert list(results["summary"]) == ["ensemble"]


def test_chains_that_diverge_can_be_left_out(tmp_path: Path) -> None:
    results = carry_out(small("toy-regression", *DIVERGING, "sgld.diverged=drop"), tmp_path / "run")
    facts = results["methods"]["sgld"]
    assert 0 < facts["num_networks"] < 16
    assert facts["notes"] == [f"{16 - facts['num_networks']} of 16 diverged and are left out."]
    assert results["summary"]["sgld"]["inside"]["4"]["rmse"]["n"] == min(3, facts["num_networks"])


def test_predictions_that_are_not_finite_fail_their_method(tmp_path: Path) -> None:
    settings = ("ensemble.optimiser=sgd", "ensemble.learning_rate=1", "ensemble.diverged=drop", "ensemble.num_epochs=5")
    results = carry_out(small("toy-regression", 'methods=["ensemble"]', *settings), tmp_path / "run")
    assert "lower ensemble.learning_rate" in results["failed"]["ensemble"]


def test_members_of_other_data_are_refused(tmp_path: Path) -> None:
    data, recipe = (
        tmp_path / "d.npz",
        small("toy-regression", 'methods=["ensemble"]', f"data.path={tmp_path / 'd.npz'}"),
    )
    x = np.linspace(-3, 3, 40)
    np.savez(data, x=x, y=np.sin(x))
    carry_out(recipe, tmp_path / "run")
    np.savez(data, x=x, y=np.cos(x))
    assert "other data" in carry_out(recipe, tmp_path / "run")["failed"]["ensemble"]
