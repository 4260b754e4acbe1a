"""SIGTERM, which schedulers send: a command saves where it stands, ends with 143, and goes on to the same numbers."""

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
from safetensors import safe_open
from silent_reporter import run_in
from small_dense_recipe import small_dense
from small_recipes import small

from epibench.members import on_images
from epibench.recipes import Recipe
from epibench.training import network as training

# The command itself; at a given step or image it says so in a file, and goes on once it was asked to stop.
SCRIPT = """
import os, time

from epibench import stopping
from epibench.cli import main
from epibench.members import networks, on_images
from epibench.runs import machine
from epibench.training import network, stacked, state

state.SAVE_SECONDS = 0.0
state.Pacer.wait = 0.0
state.Pacer.__init__.__defaults__ = (0.0, *state.Pacer.__init__.__defaults__[1:])
network.LOG_EVERY = 4
on_images.PORTION_PIXELS = {"cpu": 1}
where, _, number = os.environ.get("EPIBENCH_TEST_STOP", "nowhere").partition(" ")
take_step, outputs, run_block = network._Run.take_step, networks.NetworkPool.outputs, stacked.Block.run


def wait():
    open(os.path.join("reached", str(os.getpid())), "w").close()
    while where == "stuck" or not stopping.asked():
        time.sleep(0.02)


def waiting_step(run, batch):
    if where in ("train", "stuck") and run.step == int(number):
        wait()
    take_step(run, batch)


def waiting_outputs(pool, inputs, members, images, *more):
    if where == "evaluate" and images.start == int(number):
        wait()
    return outputs(pool, inputs, members, images, *more)


def waiting_block(block, last):
    if where == "toy" and last > int(number):
        wait()
    return run_block(block, last=last)


network._Run.take_step, networks.NetworkPool.outputs = waiting_step, waiting_outputs
stacked.Block.run = waiting_block
machine_of = machine.Machine.of.__func__
workers = int(os.environ.get("EPIBENCH_TEST_WORKERS", "0"))
machine.Machine.of = classmethod(lambda cls, device, jobs, *_: cls(device, machine_of(cls, device, jobs).jobs, workers))
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
        own = {"EPIBENCH_TEST_STOP": stop, "EPIBENCH_TEST_WORKERS": str(workers), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "script.py", *command],
            cwd=self.place,
            env={**os.environ, **own},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, jobs: int, **how: Any) -> None:
        self.start("run", "recipe.json", "--out", "run", "--device", "cpu", "--jobs", str(jobs), **how)

    def reached(self, number: int = 1) -> None:
        """Wait until so many processes have come to where they stop."""
        wait_until(lambda: len(list((self.place / "reached").iterdir())) == number, self.process)

    def end(self) -> tuple[int, str]:
        """The status, and what was said, once it has ended."""
        assert self.process is not None
        said = self.process.communicate(timeout=180)[1]
        return self.process.returncode, said

    def resumed(self) -> dict[str, Any]:
        """What comes out when it goes on, in this process."""
        return results_of(self.folder, self.recipe)


def results_of(folder: Path, recipe: Recipe) -> dict[str, Any]:
    """Those of a run, in this process, which saves and takes notes as often as the command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "LOG_EVERY", 4)
        patch.setattr(on_images, "PORTION_PIXELS", {"cpu": 1})
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
    """Makes commands; none is left at the end."""
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
    """What comes out if nobody stops it."""
    return results_of(tmp_path_factory.mktemp("alone") / "run", recipe)


def test_training_saves_at_the_next_step_and_goes_on_to_the_same_numbers(command, recipe: Recipe, alone) -> None:
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
    os.killpg(group_of(stopped.process), signal.SIGTERM)  # all of them, as Slurm does
    status, said = stopped.end()
    assert (status, said.splitlines()[-1]) == (143, MESSAGE), said
    assert "Traceback" not in said
    states = sorted((stopped.folder / "members/ensemble").glob("*.unfinished.safetensors"))
    assert [notes_of(state)["step"] for state in states] == [7, 7]
    assert stopped.resumed() == alone


def test_evaluation_saves_after_the_portion_and_goes_on_to_the_same_numbers(command, recipe: Recipe, alone) -> None:
    stopped = command(recipe)
    stopped.resumed()
    for path in ("results.json", "evaluation"):
        (stopped.folder / path).rename(stopped.place / f"former-{path}")
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
    os.kill(process, signal.SIGTERM)  # at the same moment: as timeout(1) does, and no second wish
    time.sleep(1.5)
    assert stuck.process.poll() is None
    os.kill(process, signal.SIGTERM)
    assert stuck.end()[0] == 143
    children = [int(path.name) for path in (stuck.place / "reached").iterdir()]
    end = time.monotonic() + 5
    while any(Path(f"/proc/{child}").exists() for child in children):  # they see that it is gone
        assert time.monotonic() < end
        time.sleep(0.05)


def test_where_nothing_is_saved_it_ends_like_ctrl_c(tmp_path: Path) -> None:
    fifo = tmp_path / "waits.npz"
    os.mkfifo(fifo)
    command = [sys.executable, "-m", "epibench", "score", str(fifo)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    wait_until(lambda: "epibench" in sys.modules and caught(process.pid), process)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=30)[1].splitlines()[-1] == MESSAGE
    assert process.returncode == 143


def caught(process: int) -> bool:
    """Whether a process has a handler for SIGTERM."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    mask = next(line.split()[1] for line in lines if line.startswith("SigCgt"))
    return bool(int(mask, 16) >> (signal.SIGTERM - 1) & 1)
