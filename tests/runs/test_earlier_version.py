"""Run folders of version 0.1: a finished one is shown; one that would have to go on is refused in words."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from silent_reporter import run_in
from small_dense_recipe import small_dense
from small_recipes import small

from epibench.files import fingerprint
from epibench.recipes import Recipe
from epibench.results import load_results

EARLIER = "an earlier version of epibench wrote it"


def old_toy(folder: Path) -> None:
    """All networks of a method in one file, (network, snapshot, parameter)."""
    for method in (path for path in (folder / "members").iterdir() if path.is_dir()):
        parameters = load_file(next(method.glob("*.safetensors")))["parameters"][:, None]
        notes = json.dumps({"stamp": "989faa0f59ba49dd325023518e534a3d", "seconds": 0.9})
        shutil.rmtree(method)
        save_file({"parameters": parameters}, folder / "members" / f"{method.name}.safetensors", {"notes": notes})


def old_images(folder: Path) -> None:
    """Weights without a checksum, and evaluations with a stamp."""
    for path in (folder / "members").glob("*/*.safetensors"):
        notes = json.dumps({"stamp": "98d2103b6beaaa0a3b8646e6f02a29bc", "epoch": 2, "seconds": 3.5, "log": []})
        save_file(load_file(path), path, {"notes": notes})
    for path in (folder / "evaluation").rglob("*.json"):
        content = json.loads(path.read_text())
        del content["fingerprint"], content["checksum"]
        path.write_text(json.dumps({"stamp": "d84e09b364d9e8408d06dc9a5b3f80e5", **content}))


def old_curves(results: dict[str, Any]) -> None:
    """No curves of draws, and no gap between the sparsification curve and its oracle."""
    for domains in results["curves"].values():
        for families in domains.values():
            for sizes in (family["M"] for family in families.values()):
                for curves in sizes.values():
                    curves.pop("error", None)
                    for curve in curves.values():
                        del curve["draws"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("scenes")


@pytest.fixture(scope="module")
def made(cache: Path, tmp_path_factory) -> dict[str, tuple[Recipe, Path]]:
    """Finished folders as version 0.1 has left them, by the kind of problem."""
    few = ("ensemble.num_members=2", "members=[1]", "data.domains.wild.num_images=2", 'methods=["ensemble"]')
    recipes: dict[str, Recipe] = {
        "toy": small("toy-regression", 'methods=["ensemble"]'),
        "images": small_dense(cache, *few),
    }
    place, made = tmp_path_factory.mktemp("old"), {}
    for kind, recipe in recipes.items():
        folder = place / kind
        run_in(folder, recipe)
        results = json.loads((folder / "results.json").read_text())
        del results["checksum"]
        old_curves(results)
        (folder / "results.json").write_text(json.dumps(results))
        (old_toy if kind == "toy" else old_images)(folder)
        made[kind] = recipe, folder
    return made


@pytest.fixture(params=["toy", "images"])
def old(request, made, tmp_path: Path) -> tuple[Recipe, Path]:
    recipe, folder = made[request.param]
    shutil.copytree(folder, tmp_path / "run")
    (tmp_path / "recipe.json").write_text(recipe.model_dump_json())
    return recipe, tmp_path / "run"


def run(command_line: Any, folder: Path, *settings: str) -> tuple[int, str]:
    given = [part for setting in settings for part in ("--set", setting)]
    return command_line("run", folder.parent / "recipe.json", "--out", folder, "--jobs", 1, "--device", "cpu", *given)


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_finished_one_is_shown(old, command_line) -> None:
    _, folder = old
    before = (folder / "results.json").read_bytes()
    status, said = run(command_line, folder)
    assert status == 0, said
    assert "finished already" in said
    assert (folder / "report.html").stat().st_size > 10_000
    assert (folder / "results.json").read_bytes() == before


def test_a_page_is_made_of_a_finished_one(old, command_line) -> None:
    _, folder = old
    assert command_line("report", folder)[0] == 0
    assert (folder / "report.html").stat().st_size > 10_000


def test_results_without_curves_of_draws_keep_their_checksum(old, tmp_path: Path) -> None:
    results = json.loads((old[1] / "results.json").read_text())
    results["checksum"] = fingerprint(results)
    (tmp_path / "results.json").write_text(json.dumps(results))
    assert load_results(tmp_path / "results.json").intact


@pytest.mark.parametrize("settings", [(), ("draws=1",), ("members=[1,2]",)], ids=["unfinished", "draws", "M"])
def test_one_that_would_have_to_go_on_is_refused(settings: tuple[str, ...], old, command_line) -> None:
    _, folder = old
    if not settings:
        (folder / "results.json").unlink()
    before = files_of(folder)
    status, said = run(command_line, folder, *settings)
    complaint = said.strip().splitlines()[-1]
    assert status == 2
    assert complaint.startswith(f"epibench: {folder / 'members'}")
    assert EARLIER in complaint
    assert "give another --out" in complaint
    assert files_of(folder) == before


def test_an_unfinished_training_of_it_is_refused(made, tmp_path: Path, command_line) -> None:
    recipe, folder = made["images"]
    (tmp_path / "recipe.json").write_text(recipe.model_dump_json())
    (tmp_path / "run" / "members" / "ensemble").mkdir(parents=True)
    shutil.copy(folder / "recipe.json", tmp_path / "run")
    weights = load_file(folder / "members" / "ensemble" / "0000.safetensors")
    notes = json.dumps({"stamp": "98d2103b6beaaa0a3b8646e6f02a29bc", "step": 4, "seconds": 1, "log": []})
    state = tmp_path / "run" / "members" / "ensemble" / "0000.unfinished.safetensors"
    save_file({"parameters": next(iter(weights.values()))}, state, {"notes": notes})
    status, said = run(command_line, tmp_path / "run")
    assert status == 2
    assert f"{state}: {EARLIER}" in said
