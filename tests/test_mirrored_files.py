"""Mirrors of a folder at a URL: what is fetched, pushed, kept and pushed later."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save

from epibench import files, mirror
from epibench.errors import InputError

pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'epibench[cloud]'")


@pytest.fixture(autouse=True)
def alone(monkeypatch) -> Iterator[None]:
    """Close mirrors after a test, and wait briefly for storage."""
    monkeypatch.setattr(mirror, "WAITS", (0.01,))
    yield
    mirror.forget_mirror()


@pytest.fixture
def opened(tmp_path: Path):
    """Open mirrors of one folder, which stands for storage, for several machines."""
    url = f"file://{tmp_path}/storage"

    def make(machine: str) -> Path:
        return mirror.open_mirror(url, tmp_path / machine)

    return make


def write_state(path: Path, step: int, *tensors: torch.Tensor) -> None:
    """Write a state of a training as its file."""
    named = {str(number): tensor for number, tensor in enumerate(tensors)}
    files.write_bytes(path, save(named, {"notes": json.dumps({"step": step})}))


def test_folders_and_urls_may_have_spaces(tmp_path: Path) -> None:
    folder = mirror.open_mirror(f"file://{tmp_path}/my storage/a run", tmp_path / "my cache")
    files.write_bytes(folder / "results.json", b"results")
    assert (tmp_path / "my storage/a run/results.json").read_bytes() == b"results"


def test_only_the_head_of_a_remote_state_is_read(opened, tmp_path: Path, monkeypatch) -> None:
    name, read = "members/map/0000.unfinished.safetensors", list[int]()
    write_state(opened("one") / name, 7, torch.zeros(10**5))
    there, size = mirror.current(), (tmp_path / "storage" / name).stat().st_size
    assert there is not None
    cat = type(there.storage).cat_file

    def note(storage: Any, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        content = cat(storage, path, start, end, **options)
        read.append(len(content))
        return content

    monkeypatch.setattr(type(there.storage), "cat_file", note)
    there.pull()
    assert 0 < sum(read) < size / 100
    assert there.progress(name, size) == 7
    (tmp_path / "storage" / name).write_bytes(b"short")
    assert there.progress(name, 5) == -1


def test_a_task_elsewhere_fetches_the_files_it_reads(opened, tmp_path: Path, monkeypatch) -> None:
    here, names = opened("one"), ("members/ensemble/0000.safetensors", "members/ensemble/0001.unfinished.safetensors")
    for name in ("recipe.json", "evaluation/ensemble/clean.stretches/000000.safetensors", *names):
        files.write_bytes(here / name, b"content")
    other = tmp_path / "other"  # made by the task: its node has no such folder
    url = os.environ[mirror.VARIABLE].rpartition("\n")[2]
    monkeypatch.setenv(mirror.VARIABLE, f"{other}\n{url}")
    mirror.fetch_current(lambda name: mirror.is_read(name, ("members/ensemble/0001",)))
    assert (other / "recipe.json").read_bytes() == b"content"
    assert (other / names[1]).exists()
    assert not (other / names[0]).exists()
    assert not list(other.rglob("*.stretches"))
    mirror.fetch_current()
    assert (other / names[0]).exists()
    files.write_bytes(other / "evaluation/ensemble/clean.stretches/000001.safetensors", b"more")
    monkeypatch.setenv(mirror.VARIABLE, f"{here}\n{url}")
    mirror.fetch_current()
    assert (here / "evaluation/ensemble/clean.stretches/000001.safetensors").read_bytes() == b"more"


@pytest.fixture
def unreachable(monkeypatch):
    """A context in which storage refuses every file."""

    def fails(storage: Any, name: str, *more: Any, **options: Any) -> None:
        raise OSError(110, "Connection timed out")

    @contextmanager
    def away() -> Iterator[None]:
        with monkeypatch.context() as patch:
            patch.setattr(type(mirror._file_system("file")), "pipe_file", fails)
            yield

    return away


def write_unpushed(path: Path, content: bytes) -> None:
    with pytest.warns(UserWarning, match="tried again later"):
        files.write_bytes(path, content)


def test_a_file_that_waits_to_be_pushed_is_not_overwritten(opened, unreachable, tmp_path: Path) -> None:
    folder = opened("one")
    files.write_bytes(folder / "results.json", b"old")
    with unreachable():
        write_unpushed(folder / "results.json", b"new")
        mirror.fetch_current()
        assert (folder / "results.json").read_bytes() == b"new"
        with pytest.warns(UserWarning, match="all is kept in"):  # the next command begins
            opened("one")
        assert (folder / "results.json").read_bytes() == b"new"
    opened("one")
    assert (tmp_path / "storage/results.json").read_bytes() == b"new"
    files.write_bytes(opened("two") / "results.json", b"newer")
    assert (opened("one") / "results.json").read_bytes() == b"newer"  # it was pushed: no longer kept


def test_a_newer_file_of_another_machine_stays(opened, tmp_path: Path) -> None:
    one = opened("one")
    files.write_bytes(one / "results.json", b"old")
    files.write_bytes(opened("two") / "results.json", b"newer")
    os.environ[mirror.VARIABLE] = f"{one}\nfile://{tmp_path}/storage"
    mirror.close_mirror()
    assert (tmp_path / "storage/results.json").read_bytes() == b"newer"


def test_files_of_finished_work_are_not_pushed_again(opened, unreachable, tmp_path: Path) -> None:
    state, stretch = "members/map/0000.unfinished.safetensors", "evaluation/map/wild-0f.stretches/000000.safetensors"
    unpushed = "members/map/0001.unfinished.safetensors", "evaluation/map/clean-0f.stretches/000000.safetensors"
    one = opened("one")
    for name in (state, stretch):
        files.write_bytes(one / name, b"begun")
    with unreachable():
        for name in unpushed:
            write_unpushed(one / name, b"begun")
    two = opened("two")
    for name in (state, stretch):
        files.remove(two / name)
    finished = ["evaluation/map/clean-0f.json", "members/map/0001.safetensors"]
    for name in finished:
        files.write_bytes(two / name, b"finished")
    os.environ[mirror.VARIABLE] = f"{one}\nfile://{tmp_path}/storage"
    mirror.close_mirror()
    there = [path for path in (tmp_path / "storage").rglob("*") if path.is_file()]
    assert sorted(path.relative_to(tmp_path / "storage").as_posix() for path in there) == finished
    assert mirror.Mirror(one, "").unpushed() == []


def test_of_two_states_the_further_one_is_pushed(opened, unreachable, tmp_path: Path) -> None:
    name = "members/map/0000.unfinished.safetensors"
    for step, other, kept in ((10, 20, 20), (40, 30, 40)):
        with unreachable(), pytest.warns(UserWarning, match="tried again later"):
            write_state(opened("one") / name, step)
        write_state(opened("two") / name, other)
        assert mirror.progress_here(opened("one") / name) == kept
        assert mirror.progress_here(tmp_path / "storage" / name) == kept


def test_locks_and_stores_stay_here(opened, tmp_path: Path) -> None:
    folder = opened("one")
    for name in ("members/map/0000.lock", "predictions/map/a.json", "recipe.json"):
        files.write_bytes(folder / name, b"{}")
    files.write_bytes(tmp_path / "elsewhere.json", b"{}")
    there = sorted(path.name for path in (tmp_path / "storage").rglob("*") if path.is_file())
    assert there == ["recipe.json"]


def test_checking_for_write_access_leaves_no_file(opened, tmp_path: Path) -> None:
    opened("one")
    mirror.check_writable()
    assert not [path for path in (tmp_path / "storage").rglob("*") if path.is_file()]


def test_without_fsspec_the_package_is_named(tmp_path: Path, monkeypatch) -> None:
    mirror._file_system.cache_clear()
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(InputError, match=r"^s3://: needs fsspec; pip install 'epibench\[cloud\]'"):
        mirror.open_mirror("s3://bucket/run", tmp_path)
