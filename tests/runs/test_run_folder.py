"""The folder of a run: claimed by one recipe, locked by one process, written as the user wants."""

import errno
import fcntl
import os
from pathlib import Path

import numpy as np
import pytest
from silent_reporter import Silent
from small_recipes import SETTINGS as TOY_SETTINGS

import epibench
from epibench.errors import InputError
from epibench.runs.folder import holder, is_locked, locked, share_work
from street_runs import RECIPE, SETTINGS, rewrite

TOY = "toy-classification"
FEW = [*TOY_SETTINGS, 'methods=["map"]', "test_points=5"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a trained toy recipe."""
    return epibench.train(TOY, tmp_path / "run", FEW)


def test_a_folder_that_cannot_be_written_is_refused_though_its_recipe_is_the_same(folder: Path, monkeypatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: path != folder)
    with pytest.raises(InputError, match=r"^--out \S+/run: cannot be written to; give another --out$"):
        epibench.train(TOY, folder, FEW)


def test_a_recipe_of_a_version_that_lacked_a_setting_is_refused(folder: Path) -> None:
    rewrite(folder / "recipe.json", lambda content: content["map"].pop("decay"))
    words = r"recipe\.json: map\.decay is missing, another version wrote it\. Fix: give another --out\.$"
    with pytest.raises(InputError, match=words):
        epibench.train(TOY, folder, FEW)


def test_another_problem_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match=r'problem \("toy-classification" there, "toy-regression" now\)'):
        epibench.train("toy-regression", folder, FEW)


def test_a_folder_with_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(InputError, match="not empty"):
        epibench.train(TOY, tmp_path, FEW)
    with pytest.raises(InputError, match="is a file"):
        epibench.train(TOY, tmp_path / "thesis.tex", FEW)


def test_a_broken_recipe_in_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "recipe.json").write_text("{")
    with pytest.raises(InputError, match=r"recipe.json.*another --out"):
        epibench.train(TOY, tmp_path, FEW)


def test_networks_of_other_data_in_the_same_file_are_refused(tmp_path: Path) -> None:
    path, x = tmp_path / "d.npz", np.linspace(-3, 3, 20)
    settings = [*FEW, f"data.path={path}"]
    np.savez(path, x=x, y=np.zeros(20))
    epibench.train("toy-regression", tmp_path / "run", settings)
    np.savez(path, x=x, y=np.ones(20))
    with pytest.raises(InputError, match=r"safetensors: made with other settings or other data than these; remove it"):
        epibench.train("toy-regression", tmp_path / "run", settings)


# Locks


def test_a_lock_is_one_process_s_and_goes_with_it(tmp_path: Path) -> None:
    path = tmp_path / "members" / "0000.lock"
    with locked(path) as mine:
        assert mine
        assert is_locked(path)
        assert holder(path).startswith(f"process {os.getpid()} on ")
        with locked(path) as again:
            assert not again
        assert is_locked(path)
    assert not path.exists()
    assert not is_locked(path)


def test_a_lock_file_that_was_left_behind_is_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "0000.lock"
    path.write_bytes(b"\xff\xfe")
    assert not is_locked(path)
    with locked(path) as mine:
        assert mine


def test_a_lock_that_cannot_be_taken_is_named(tmp_path: Path, monkeypatch) -> None:
    def broken(file: object, operation: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", broken)
    with (
        pytest.raises(InputError, match=r"0000\.lock: cannot be locked \(Input/output error\)"),
        locked(tmp_path / "0000.lock"),
    ):
        pass


def test_a_file_system_without_locks_is_used_without(tmp_path: Path, monkeypatch) -> None:
    def unsupported(file: object, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    path, done = tmp_path / "0000.lock", list[str]()
    monkeypatch.setattr(fcntl, "flock", unsupported)
    with locked(path) as mine, locked(path) as other:  # both may work: the first complete file wins
        assert mine
        assert other
    assert not path.exists()
    share_work(["item"], done.__contains__, lambda item: path, done.extend, Silent())
    assert done == ["item"]


def test_work_that_another_process_has_is_waited_for(tmp_path: Path, monkeypatch) -> None:
    path, reporter, done, worked = tmp_path / "0000.lock", Silent(), set[str](), list[str]()
    held = locked(path)
    held.__enter__()

    def sleep(seconds: float) -> None:  # meanwhile the other process does it
        done.add("held")
        held.__exit__(None, None, None)

    def work(items: list[str]) -> None:
        worked.extend(items)
        done.update(items)

    monkeypatch.setattr("epibench.runs.folder.time.sleep", sleep)
    places = {"held": path, "free": tmp_path / "0001.lock"}
    share_work(["held", "free"], lambda item: item in done, lambda item: places[item], work, reporter)
    assert worked == ["free"]
    assert [line.partition(" process")[0] for line in reporter.said] == ["sharing the work with", "waiting for"]


# Permissions


def test_files_have_the_permissions_that_the_user_gives_to_new_ones(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        epibench.run(TOY, tmp_path / "toy", [*FEW, 'methods=["sgld"]'])
        stored = {"methods": ["ensemble"], "evaluation.store": True, "training.log": "csv"}
        epibench.run(RECIPE, tmp_path / "images", {**SETTINGS, **stored}, device="cpu", jobs=1)
    finally:
        os.umask(before)
    wrong = {}
    for path in (*tmp_path.glob("*"), *tmp_path.glob("*/**/*")):
        mode = path.stat().st_mode & 0o777
        if mode != (0o750 if path.is_dir() else 0o640):
            wrong[path] = oct(mode)
    assert wrong == {}
    assert (tmp_path / "images" / "predictions").exists()
