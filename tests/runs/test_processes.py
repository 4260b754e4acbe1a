"""Networks trained by several processes: a failure is one line, and no process stays behind."""

from __future__ import annotations

import subprocess
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from child_processes import children_of, is_alive, wait_until
from fault_injection import before_each_step, script_environment
from small_dense_recipe import small_dense

import epibench

# The first process that takes a step fails in the way that is given; the other one continues slowly.
SCRIPT = """
import os, signal, time
from epibench.cli import main
from fault_injection import before_each_step, is_first

def fail(step):
    if is_first("first"):
        {fault}
    time.sleep(0.2)

before_each_step(fail)
if __name__ == "__main__":
    main()
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Any:
    return small_dense(tmp_path / "scenes", 'methods=["ensemble"]', "training.epoch_steps=100")


@pytest.mark.parametrize(
    ("fault", "start", "end"),
    [
        (
            "os.kill(os.getpid(), signal.SIGKILL)",
            "a process that trained a network has died (status -9",
            "the same command goes on from what is saved",
        ),
        ("raise ZeroDivisionError('of all things')", "ZeroDivisionError: ", "of all things"),
    ],
    ids=["killed", "broken"],
)
def test_a_process_that_fails_is_one_line_and_ends_the_others(
    fault: str, start: str, end: str, recipe: Any, tmp_path: Path
) -> None:
    (tmp_path / "recipe.json").write_text(recipe.model_dump_json())
    (tmp_path / "script.py").write_text(SCRIPT.format(fault=fault))
    command = [sys.executable, "script.py", "train", "recipe.json", "--out", "run", "--jobs", "2", "--device", "cpu"]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    parent = subprocess.Popen(command, cwd=tmp_path, env=script_environment(), **pipes)
    try:
        wait_until((tmp_path / "first").exists)
        children = children_of(parent.pid)
        said = parent.communicate(timeout=60)[1].splitlines()[-1]
    finally:
        parent.kill()
        parent.wait()
    assert parent.returncode == 1
    assert said.startswith(f"epibench: {start}")
    assert said.endswith(end)
    assert len(children) >= 2
    wait_until(lambda: not any(is_alive(child) for child in children))


def test_an_unforeseen_error_in_this_process_is_not_hidden(recipe: Any, tmp_path: Path, monkeypatch) -> None:
    def fail(step: int) -> None:
        raise ZeroDivisionError("of all things")

    before_each_step(fail, monkeypatch.setattr)
    with pytest.raises(ZeroDivisionError):
        epibench.train(recipe, tmp_path / "run", device="cpu", jobs=1)


def test_one_network_needs_no_other_process(tmp_path: Path, monkeypatch) -> None:
    def refuse(process: BaseProcess) -> None:
        raise AssertionError("a process was started")

    recipe = small_dense(tmp_path / "scenes", 'methods=["ensemble"]')
    epibench.train(recipe, tmp_path / "first", only=["ensemble:0"], device="cpu", jobs=1)  # scenes are drawn
    monkeypatch.setattr(BaseProcess, "start", refuse)
    for _ in range(2):  # the second time no network is left
        epibench.train(recipe, tmp_path / "run", only=["ensemble:0"], device="cpu", jobs=4)
    assert (tmp_path / "run/members/ensemble/0000.safetensors").exists()
