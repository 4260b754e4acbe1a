"""The folder of a run: claimed by one recipe, everything in it whole."""

import json
from pathlib import Path

import pytest
import torch
from small_recipes import small

from epibench.errors import InputError
from epibench.execution import RunFolder
from epibench.training.stacked import State


def test_a_new_folder_gets_the_recipe(tmp_path: Path) -> None:
    RunFolder(tmp_path / "a" / "run").claim(small())
    assert json.loads((tmp_path / "a" / "run" / "recipe.json").read_text()) == small().model_dump(mode="json")


def test_the_same_recipe_may_come_again(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.claim(small())
    folder.claim(small())


def test_another_recipe_is_refused_with_the_first_difference(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.claim(small())
    with pytest.raises(InputError, match=r"sgld.num_chains \(2 there, 3 now\)"):
        folder.claim(small("toy-regression", "sgld.num_chains=3"))


def test_a_folder_with_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(InputError, match="not empty"):
        RunFolder(tmp_path).claim(small())
    with pytest.raises(InputError, match="is a file"):
        RunFolder(tmp_path / "thesis.tex").claim(small())


def test_a_broken_recipe_in_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "recipe.json").write_text("{")
    with pytest.raises(InputError, match=r"recipe.json.*another --out"):
        RunFolder(tmp_path).claim(small())


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    state = State(7, torch.randn(2, 3), {"momentum": torch.randn(2, 3)}, torch.randn(2, 4, 3))
    folder.save_state("sghmc", state, {"seconds": 1.5})
    found, notes = folder.load_state("sghmc", torch.device("cpu")) or (None, {})
    assert found is not None
    assert found.epoch == 7
    assert notes["seconds"] == 1.5
    assert torch.equal(found.parameters, state.parameters)
    assert torch.equal(found.kept, state.kept)
    assert torch.equal(found.rule["momentum"], state.rule["momentum"])


def test_finished_members_end_the_unfinished_state(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.save_state("sgld", State(1, torch.zeros(1, 2), {}, torch.zeros(1, 1, 2)), {"seconds": 0.1})
    folder.save_members("sgld", torch.ones(1, 1, 2), {"seconds": 0.2})
    assert folder.load_state("sgld", torch.device("cpu")) is None
    assert not list((tmp_path / "members").glob(".*")), "something half-written was left behind"


def test_a_broken_file_of_members_names_itself_and_the_remedy(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.save_members("sgld", torch.ones(1, 1, 2), {"seconds": 0.2})
    folder.members("sgld").write_bytes(folder.members("sgld").read_bytes()[:20])
    with pytest.raises(InputError, match=r"sgld.safetensors.*remove it"):
        folder.load_members("sgld")
