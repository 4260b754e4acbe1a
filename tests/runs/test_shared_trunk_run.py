"""A shared trunk from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from silent_reporter import read_results
from small_dense_recipe import small_dense

from street_runs import epibench_command


def recipe_file(folder: Path, *settings: str) -> Path:
    given = ('methods=["shared_trunk"]', "draws=2", "evaluation.pictures=0", *settings)
    path = folder / "own.json"
    path.write_text(small_dense(folder / "cache", *given).model_dump_json(), encoding="utf-8")
    return path


def test_one_trunk_can_be_trained_by_itself_before_the_whole_run(tmp_path: Path) -> None:
    recipe, out = recipe_file(tmp_path), ("--out", tmp_path / "run", "--device", "cpu")
    assert epibench_command("train", recipe, *out, "--only", "shared_trunk:1")[0] == 0
    weights = tmp_path / "run" / "members" / "shared_trunk"
    assert [path.name for path in weights.glob("*.safetensors")] == ["0001.safetensors"]
    assert epibench_command("run", recipe, *out)[0] == 0
    results = read_results(tmp_path / "run")
    facts = results["methods"]["shared_trunk"]
    assert (facts["num_networks"], facts["num_members"], facts["num_groups"]) == (2, 6, 2)
    assert set(results["summary"]["shared_trunk"]["clean"]) == {"1", "2"}


@pytest.mark.parametrize(
    ("shared", "words"), [("foo", "'foo' is not possible; give 0 to 2"), ("9", "9 is not possible")]
)
def test_an_unknown_layer_is_refused_at_once(shared: str, words: str) -> None:
    status, said = epibench_command(
        "data", "check", "toy-regression-methods-quick", "--set", f"shared_trunk.shared={shared}"
    )
    assert status == 2
    assert f"shared_trunk.shared: {words}" in " ".join(said.split())


def test_the_option_of_a_variant_is_named_in_full(tmp_path: Path) -> None:
    variants = '{"late": {"method": "shared_trunk", "options": {"shared": "encodr"}}}'
    recipe = recipe_file(tmp_path, f"variants={variants}", 'methods=["late"]')
    status, said = epibench_command("run", recipe, "--out", tmp_path / "run", "--device", "cpu")
    assert status == 2
    assert "variants.late.options.shared: 'encodr' is not possible" in " ".join(said.split())


def test_a_toy_problem_refuses_methods_for_images() -> None:
    status, said = epibench_command("data", "check", "toy-regression-methods-quick", "--set", 'methods=["tta"]')
    assert status == 2
    assert "tta is for images alone" in " ".join(said.split())


def test_an_unknown_stage_is_refused_before_training(tmp_path: Path) -> None:
    recipe = recipe_file(tmp_path, "shared_trunk.shared=encodr")
    status, said = epibench_command("run", recipe, "--out", tmp_path / "run", "--device", "cpu")
    assert status == 2
    assert "shared_trunk.shared: 'encodr' is not possible" in " ".join(said.split())
    assert not (tmp_path / "run" / "members" / "shared_trunk").exists()
