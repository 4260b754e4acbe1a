"""The networks of a run as given models: what decides a member decides what is known of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from silent_reporter import Silent
from small_dense_recipe import small_dense

from epibench.errors import InputError
from epibench.recipes import DenseRecipe
from epibench.runs.folder import RunFolder
from epibench.runs.given_inputs import run_models
from epibench.runs.machine import Machine, Run
from epibench.runs.train import train_networks

MACHINE = Machine(torch.device("cpu"), jobs=1, workers=0)


def write(recipe: DenseRecipe, folder: Path) -> RunFolder:
    found = RunFolder(folder)
    found.claim(recipe)
    return found


def fingerprints(folder: Path, method: str) -> list[str | None]:
    return [model.fingerprint for model in run_models(folder, {"method": method}, MACHINE)]


def test_members_that_are_made_of_weights_are_others_with_other_options(tmp_path: Path) -> None:
    settings = 'methods=["ensemble", "swag"]', "ensemble.num_epochs=1"
    found = []
    for scale in (1.0, 0.5, 1.0):
        recipe = small_dense(tmp_path / "cache", *settings, f"swag.scale={scale}")
        run = Run(recipe, write(recipe, tmp_path / "run"), MACHINE, Silent())
        train_networks(run, {"ensemble": None, "swag": None}, failed := {})
        assert failed == {}
        found.append({name: fingerprints(run.folder.path, name) for name in ("ensemble", "swag")})
    first, other, again = found
    assert first == again
    assert len({*first["swag"], *other["swag"]}) == 8  # two samples of two networks
    assert first["ensemble"] == other["ensemble"]


def test_views_are_refused(tmp_path: Path) -> None:
    recipe = small_dense(tmp_path / "cache", 'methods=["tta"]', "tta.num_networks=2")
    write(recipe, tmp_path / "run")
    with pytest.raises(InputError, match=r"tta has views of images; take epibench evaluate"):
        run_models(tmp_path / "run", {}, MACHINE)
