"""The folder of a run: claimed by one recipe, everything in it whole."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from epibench.runs.run_folder import Stamp
from safetensors.torch import save_file
from small_recipes import small

from epibench.data.batch import Points
from epibench.data.sets.toy import make_toy
from epibench.errors import InputError
from epibench.methods import METHODS, Problem
from epibench.networks.mlp import StackedMLP
from epibench.runs import RunFolder
from epibench.training.stacked import State


def test_a_new_folder_gets_the_recipe(tmp_path: Path) -> None:
    RunFolder(tmp_path / "a" / "run").claim(small())
    assert json.loads((tmp_path / "a" / "run" / "recipe.json").read_text()) == small().model_dump(mode="json")


def test_the_same_recipe_may_come_again(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.claim(small())
    before = (folder.path / "recipe.json").read_bytes()
    folder.claim(small())
    assert (folder.path / "recipe.json").read_bytes() == before


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


STAMP = Stamp("abc", (2, 4, 3))


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    state = State(7, torch.randn(2, 3), {"momentum": torch.randn(2, 3)}, torch.randn(2, 4, 3))
    folder.save_state("sghmc", STAMP, state, 1.5)
    found, seconds = folder.load_state("sghmc", STAMP, torch.device("cpu")) or (None, 0.0)
    assert found is not None
    assert (found.epoch, seconds) == (7, 1.5)
    assert torch.equal(found.parameters, state.parameters)
    assert torch.equal(found.kept, state.kept)
    assert torch.equal(found.rule["momentum"], state.rule["momentum"])


def test_finished_members_end_the_unfinished_state(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.save_state("sgld", STAMP, State(1, torch.zeros(2, 3), {}, torch.zeros(2, 4, 3)), 0.1)
    folder.save_members("sgld", STAMP, torch.ones(2, 4, 3), 0.2)
    assert folder.load_state("sgld", STAMP, torch.device("cpu")) is None
    assert not list((tmp_path / "members").glob(".*")), "something half-written was left behind"


@pytest.fixture
def members(tmp_path: Path) -> Path:
    RunFolder(tmp_path).save_members("sgld", STAMP, torch.ones(2, 4, 3), 0.2)
    return RunFolder(tmp_path).members("sgld")


def refused(tmp_path: Path, stamp: Stamp = STAMP) -> str:
    with pytest.raises(InputError, match=r"sgld.safetensors.*remove it") as error:
        RunFolder(tmp_path).load_members("sgld", stamp)
    return str(error.value)


def test_a_cut_off_file_names_itself_and_the_remedy(members: Path, tmp_path: Path) -> None:
    members.write_bytes(members.read_bytes()[:20])
    assert "not readable" in refused(tmp_path)


def test_members_of_other_settings_or_data_are_refused(members: Path, tmp_path: Path) -> None:
    assert "other settings or other data" in refused(tmp_path, Stamp("other", STAMP.shape))


@pytest.mark.parametrize("wrong", [torch.ones(3, 4, 3), torch.ones(2, 4), torch.ones(2, 4, 3).double()])
def test_members_of_another_shape_or_type_are_refused(wrong: torch.Tensor, members: Path, tmp_path: Path) -> None:
    save_file({"parameters": wrong}, members, {"notes": json.dumps({"stamp": STAMP.key, "seconds": 1})})
    assert "float32 in the shape (2, 4, 3)" in refused(tmp_path)


@pytest.mark.parametrize(
    ("notes", "word"),
    [
        ("[]", "other settings"),
        ("{", "not readable"),
        ('{"stamp": "abc", "seconds": NaN}', "its 'seconds' is nan"),
        ('{"stamp": "abc"}', "its 'seconds' is None"),
    ],
)
def test_notes_that_make_no_sense_are_refused(notes: str, word: str, members: Path, tmp_path: Path) -> None:
    save_file({"parameters": torch.ones(2, 4, 3)}, members, {"notes": notes})
    assert word in refused(tmp_path)


def test_the_stamp_knows_options_data_seed_and_prior() -> None:
    toy = make_toy("toy-regression")
    problem = Problem("gaussian", toy.train, StackedMLP(1, 1, 2))
    method = METHODS["ensemble"](num_members=2)
    other_data = replace(problem, data=Points(toy.train.inputs, toy.train.target + 1))
    stamps = [
        Stamp.of(method, problem, 0),
        Stamp.of(method, problem, 1),
        Stamp.of(METHODS["ensemble"](num_members=2, learning_rate=0.1), problem, 0),
        Stamp.of(method, other_data, 0),
        Stamp.of(method, replace(problem, prior_scale=2.0), 0),
        Stamp.of(METHODS["map"](num_restarts=2), problem, 0),
    ]
    assert len({stamp.key for stamp in stamps}) == len(stamps)
    assert Stamp.of(method, problem, 0) == stamps[0]
