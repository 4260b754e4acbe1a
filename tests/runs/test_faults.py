"""Faults of the machine and of the data: a disk that fills, an image that is broken, a clock that jumps."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from silent_reporter import Silent
from small_dense_recipe import small_dense
from small_segmentation_recipe import small_segmentation
from test_damage import run, stop_in_evaluation

import epibench
from label_files import random_values, save, save_image
from street_runs import epibench_command, numbers

# A disk of its own, which is full now and then; the check of free space before a run is left aside.
FULL_DISK = """
import json, os, shutil, subprocess, sys
from pathlib import Path

place = Path(sys.argv[1])
disk, free = place / "disk", int(sys.argv[2])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", disk], check=True)
told = []


def epibench(*command, leave=None):
    filler = disk / "filler"
    if leave is not None:
        room = os.statvfs(disk)
        filler.write_bytes(bytes(max(0, room.f_bavail * room.f_frsize - leave)))
    done = subprocess.run([sys.executable, place / "script.py", *command], cwd=place, capture_output=True, text=True)
    filler.unlink(missing_ok=True)
    files = sorted(str(path.relative_to(disk)) for path in disk.rglob("*") if path.is_file())
    told.append({"status": done.returncode, "said": done.stderr, "files": files})


train = ("train", "recipe.json", "--out", "disk/run", "--device", "cpu")
epibench(*train, "--jobs", "2", leave=free)
epibench(*train, "--jobs", "1")
epibench("evaluate", "disk/run", "--device", "cpu", leave=8192)
epibench("evaluate", "disk/run", "--device", "cpu")
shutil.copyfile(disk / "run/results.json", place / "results.json")
(place / "told.json").write_text(json.dumps(told))
"""
SCRIPT = """
from epibench.cli import main
import shutil
from types import SimpleNamespace

shutil.disk_usage = lambda path: SimpleNamespace(free=10**12)
if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("scenes")


def can_mount(place: Path) -> bool:
    """Whether this user may have a file system of its own, as in a container without rights it may not."""
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "-Urm", "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_a_disk_that_fills_loses_nothing_and_the_same_command_goes_on(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    if not can_mount(tmp_path / "disk"):
        pytest.skip("a small disk cannot be mounted here (unshare -Urm mount -t tmpfs)")
    recipe = small_dense(cache, 'methods=["ensemble"]', "ensemble.num_members=2", "data.domains.wild.num_images=1")
    whole = run(recipe, tmp_path / "whole")
    weights = (tmp_path / "whole/members/ensemble/0000.safetensors").stat().st_size
    (tmp_path / "recipe.json").write_text(recipe.model_dump_json())
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "full_disk.py").write_text(FULL_DISK)
    command = ["unshare", "-Urm", sys.executable, tmp_path / "full_disk.py", tmp_path, str(weights * 3 // 2)]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=300)
    training, trained, evaluating, evaluated = json.loads((tmp_path / "told.json").read_text())
    for stopped, folder in ((training, "members/ensemble/"), (evaluating, "evaluation/")):
        complaint = stopped["said"].splitlines()[-1]
        assert stopped["status"] == 1, stopped["said"]
        assert complaint.startswith(f"epibench: {tmp_path}/disk/run/{folder}"), complaint
        assert complaint.endswith("No space left on device; make room there, and the same command goes on")
        assert "Traceback" not in stopped["said"]
        assert not [name for name in stopped["files"] if name.endswith(".unfinished")]
    kept = [name for name in training["files"] if name.endswith(".safetensors")]
    assert len(kept) == 1  # there was room for one network
    assert kept[0] in trained["files"]
    assert "ensemble: 1 of 2 networks trained already" in trained["said"]
    assert (trained["status"], evaluated["status"]) == (0, 0)
    assert numbers(epibench.load_results(tmp_path / "results.json")) == numbers(whole)


# Broken images


@pytest.fixture
def own_images(tmp_path: Path) -> dict[str, Any]:
    """Six images of one's own, with labels, as a source."""
    for number in range(6):
        save_image(tmp_path / f"own/images/{number:02d}.png", (32, 64))
        save(tmp_path / f"own/labels/{number:02d}.png", random_values([0, 1], (32, 64)))
    return {"kind": "folder", "root": str(tmp_path / "own"), "classes": ["road", "sky"]}


def cut_in_half(path: Path) -> bytes:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    return content


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("part", ["data.train", "data.domains.own"])
def test_a_broken_image_is_named_and_once_it_is_whole_the_same_command_goes_on(
    part: str, workers: int, own_images: dict[str, Any], cache: Path, tmp_path: Path, monkeypatch
) -> None:
    from epibench.runs.machine import Machine

    few = ('methods=["ensemble"]', "ensemble.num_members=1", "members=[1]", "evaluation.batch_size=1")
    recipe = small_segmentation(cache, *few, f"{part}={json.dumps(own_images)}", "training.crop=[16, 32]")
    whole = run(recipe, tmp_path / "whole")
    (tmp_path / "recipe.json").write_text(recipe.model_dump_json())
    monkeypatch.setattr(Machine, "of", lambda device, jobs, *more: Machine(device, 1, workers))
    image = tmp_path / "own/images/03.png"
    content = cut_in_half(image)
    command = ("run", tmp_path / "recipe.json", "--out", tmp_path / "run", "--device", "cpu")
    status, said = epibench_command(*command)
    complaint = said.splitlines()[-1]
    assert status == 2
    assert f"{image}: is broken or truncated" in complaint
    assert complaint.endswith("unpack or download it again")
    assert "Traceback" not in said
    if part != "data.train":  # the other domains stay
        results = epibench.load_results(tmp_path / "run")
        assert {score.domain for score in results.scores} == {"clean", "wild"}
        assert [str(image) in text for text in results.failed.values()] == [True]
    image.write_bytes(content)
    status, said = epibench_command(*command)
    assert status == 0, said
    assert numbers(epibench.load_results(tmp_path / "run")) == numbers(whole)


# A clock that jumps


@pytest.mark.parametrize("years", [-20, 20])
def test_a_clock_that_jumps_changes_nothing(years: int, cache: Path, tmp_path: Path, eager, monkeypatch) -> None:
    recipe = small_dense(cache, 'methods=["ensemble"]', "evaluation.batch_size=1")
    whole = run(recipe, tmp_path / "trained")
    for part in ("results.json", "evaluation"):
        path = tmp_path / "trained" / part
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    stop_in_evaluation(tmp_path / "run", recipe, tmp_path / "trained")
    begun, jump = time.time(), years * 365 * 24 * 3600
    for path in (tmp_path / "run").rglob("*"):
        os.utime(path, (begun - jump, begun - jump))  # as if they came from the other end
    monkeypatch.setattr(time, "time", lambda: begun + jump)
    reporter = Silent()
    results = run(recipe, tmp_path / "run", progress=reporter)
    assert numbers(results) == numbers(whole)
    assert reporter.trained == []
    assert reporter.done["evaluate ensemble on clean"] == 1  # it went on from what was saved


def test_no_decision_of_a_run_hangs_on_the_clock() -> None:
    """Only how long another machine's unfinished file is kept does; seconds are counted by clocks that never jump."""
    sources = Path(epibench.__file__).parent.rglob("*.py")
    users = {path.name for path in sources if "time.time()" in path.read_text(encoding="utf-8")}
    assert users == {"files.py"}
