"""SIGTERM, which schedulers send: a command saves its state, ends with 143, and continues to the same numbers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fault_injection import save_often, script_environment
from safetensors import safe_open
from silent_reporter import run_in
from small_dense_recipe import small_dense
from small_recipes import small

import epibench

Recipe = Any
LOG_EVERY = 4

# The command itself. At a given step or image it notes that in a folder, and waits for SIGTERM.
SCRIPT = f"""
import os
from pathlib import Path
import fault_injection as injected
from epibench.cli import main

injected.save_often(log_every={LOG_EVERY})
where, _, number = os.environ["EPIBENCH_TEST_STOP"].partition(" ")


def wait(reached):
    if reached > int(number) if where == "toy" else reached == int(number):
        injected.wait_for_sigterm(Path("reached"), forever=where == "stuck")


if where in ("train", "stuck"):
    injected.before_each_step(wait)
if where == "evaluate":
    injected.before_each_evaluation(wait)
if where == "toy":
    injected.before_each_block(wait)
if workers := int(os.environ["EPIBENCH_TEST_WORKERS"]):
    injected.load_in_processes(workers)
if __name__ == "__main__":
    main()
"""
SAME = ("summary", "draws", "curves", "pictures", "methods", "training", "domains", "failed", "recipe")
MESSAGE = "epibench: stopped by SIGTERM; where it stands is saved, the same command goes on from there"


class Command:
    """A command in a folder of its own, which waits somewhere until it is stopped."""

    def __init__(self, place: Path, recipe: Recipe):
        self.place, self.folder, self.recipe = place, place / "run", recipe
        (place / "recipe.json").write_text(recipe.model_dump_json())
        (place / "script.py").write_text(SCRIPT)
        self.process: subprocess.Popen[str] | None = None

    def start(self, *command: str, stop: str = "nowhere", workers: int = 0) -> None:
        (self.place / "reached").mkdir(exist_ok=True)
        own = {"EPIBENCH_TEST_STOP": stop, "EPIBENCH_TEST_WORKERS": str(workers)}
        self.process = subprocess.Popen(
            [sys.executable, "script.py", *command],
            cwd=self.place,
            env=script_environment(**own),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, jobs: int, **how: Any) -> None:
        self.start("run", "recipe.json", "--out", "run", "--device", "cpu", "--jobs", str(jobs), **how)

    def reached(self, number: int = 1) -> None:
        """Wait until a number of processes have come to their stop."""
        wait_until(lambda: len(list((self.place / "reached").iterdir())) == number, self.process)

    def end(self) -> tuple[int, str]:
        """Return status and messages once it has ended."""
        assert self.process is not None
        said = self.process.communicate(timeout=180)[1]
        return self.process.returncode, said

    def resumed(self) -> dict[str, Any]:
        """Continue in this process, and return the results."""
        return results_of(self.folder, self.recipe)


def results_of(folder: Path, recipe: Recipe) -> dict[str, Any]:
    """Return results of a run in this process, which saves and logs as often as the command."""
    with pytest.MonkeyPatch.context() as patch:
        save_often(patch.setattr, LOG_EVERY)
        written = run_in(folder, recipe)
    return {name: written.get(name) for name in SAME}


def wait_until(happened: Callable[[], bool], process: subprocess.Popen[str] | None, seconds: float = 180) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert process is not None
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


def group_of(process: subprocess.Popen[str] | None) -> int:
    assert process is not None
    return process.pid


def notes_of(path: Path) -> dict[str, Any]:
    with safe_open(path, framework="pt") as file:
        notes: dict[str, Any] = json.loads(file.metadata()["notes"])
        return notes


@pytest.fixture
def command(tmp_path: Path):
    """Make commands, and end them after the test."""
    made: list[Command] = []

    def make(recipe: Recipe) -> Command:
        made.append(Command(tmp_path, recipe))
        return made[-1]

    yield make
    for each in made:
        if each.process is not None and each.process.poll() is None:
            os.killpg(each.process.pid, signal.SIGKILL)
            each.process.communicate()


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Recipe:
    """Two networks, twenty steps each; five clean scenes in batches of one."""
    few = ('methods=["ensemble"]', "ensemble.num_members=2", "training.epoch_steps=10", "draws=2")
    cache = tmp_path_factory.mktemp("scenes")
    return small_dense(cache, *few, "evaluation.batch_size=1", "data.domains.wild.num_images=1")


@pytest.fixture(scope="module")
def alone(recipe: Recipe, tmp_path_factory) -> dict[str, Any]:
    """The results of a run that is not stopped."""
    return results_of(tmp_path_factory.mktemp("alone") / "run", recipe)


def test_training_saves_at_the_next_step_and_continues_to_the_same_numbers(command, recipe: Recipe, alone) -> None:
    stopped = command(recipe)
    stopped.run(1, stop="train 6")
    stopped.reached()
    state = stopped.folder / "members/ensemble/0000.unfinished.safetensors"
    assert notes_of(state)["step"] == 4  # the last periodic one
    os.kill(group_of(stopped.process), signal.SIGTERM)
    status, said = stopped.end()
    assert (status, said.splitlines()[-1]) == (143, MESSAGE)
    assert "Traceback" not in said
    assert notes_of(state)["step"] == 7
    assert not list(stopped.folder.rglob("*.lock"))
    assert stopped.resumed() == alone


def test_processes_that_train_and_load_data_save_too(command, recipe: Recipe, alone) -> None:
    stopped = command(recipe)
    stopped.run(2, stop="train 6", workers=1)
    stopped.reached(2)
    os.killpg(group_of(stopped.process), signal.SIGTERM)  # all processes, as Slurm does
    status, said = stopped.end()
    assert (status, said.splitlines()[-1]) == (143, MESSAGE), said
    assert "Traceback" not in said
    states = sorted((stopped.folder / "members/ensemble").glob("*.unfinished.safetensors"))
    assert [notes_of(state)["step"] for state in states] == [7, 7]
    assert stopped.resumed() == alone


def test_evaluation_saves_after_the_portion_and_continues_to_the_same_numbers(command, recipe: Recipe, alone) -> None:
    stopped = command(recipe)
    with pytest.MonkeyPatch.context() as patch:
        save_often(patch.setattr, LOG_EVERY)
        epibench.train(recipe, stopped.folder, device="cpu", jobs=1)
    stopped.start("evaluate", "run", "--device", "cpu", stop="evaluate 2", workers=2)
    stopped.reached()
    (state,) = (stopped.folder / "evaluation/ensemble").glob("clean-*.unfinished.safetensors")
    assert notes_of(state)["images"] < 3  # the last periodic one
    os.killpg(group_of(stopped.process), signal.SIGTERM)  # loader processes get it, too
    status, said = stopped.end()
    assert (status, said.splitlines()[-1]) == (143, MESSAGE), said
    assert "Traceback" not in said
    assert notes_of(state)["images"] == 3
    assert stopped.resumed() == alone


def test_a_toy_problem_saves_too(command, tmp_path_factory) -> None:
    toy = small("toy-regression", 'methods=["sgld"]')
    stopped = command(toy)
    stopped.run(1, stop="toy 2")
    stopped.reached()
    os.kill(group_of(stopped.process), signal.SIGTERM)
    assert stopped.end()[0] == 143
    assert notes_of(stopped.folder / "members/sgld/0000-0001.unfinished.safetensors")["step"] > 2
    assert stopped.resumed() == results_of(tmp_path_factory.mktemp("toy") / "run", toy)


def test_a_second_one_ends_at_once(command, recipe: Recipe) -> None:
    stuck = command(recipe)
    stuck.run(2, stop="stuck 6")
    stuck.reached(2)
    process = group_of(stuck.process)
    os.kill(process, signal.SIGTERM)
    os.kill(process, signal.SIGTERM)  # at the same moment, like timeout(1): this is no second request
    time.sleep(1.5)
    assert stuck.process.poll() is None
    os.kill(process, signal.SIGTERM)
    assert stuck.end()[0] == 143
    children = [int(path.name) for path in (stuck.place / "reached").iterdir()]
    end = time.monotonic() + 5
    while any(Path(f"/proc/{child}").exists() for child in children):  # they notice its end
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_command_without_a_state_ends_like_ctrl_c(tmp_path: Path) -> None:
    fifo = tmp_path / "waits.npz"
    os.mkfifo(fifo)
    command = [sys.executable, "-m", "epibench", "score", str(fifo)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    wait_until(lambda: "epibench" in sys.modules and caught(process.pid), process)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=30)[1].splitlines()[-1] == MESSAGE
    assert process.returncode == 143


def caught(process: int) -> bool:
    """Return whether a process has a handler for SIGTERM."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    mask = next(line.split()[1] for line in lines if line.startswith("SigCgt"))
    return bool(int(mask, 16) >> (signal.SIGTERM - 1) & 1)
