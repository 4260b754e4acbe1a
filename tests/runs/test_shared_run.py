"""Two processes on one run folder share its work: everything is done once, and if one dies the other takes over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fault_injection import save_often
from silent_reporter import read_results, run_in
from small_dense_recipe import small_dense
from small_recipes import small

from epibench.recipes import Recipe

# What is begun is noted in a file, a line each; training and evaluation begin once their gates are there.
SCRIPT = """
import os, sys, time

from epibench.cli import main
from epibench.runs import image_evaluation, trainers
from epibench.training import network, stacked
from epibench.training.state import Pacer

note, gates = os.environ["EPIBENCH_TEST_NOTES"], os.environ["EPIBENCH_TEST_GATES"]
Pacer.due = lambda pacer: True
network.LOG_EVERY = 2


def noted(function, describe):
    def call(*arguments):
        with open(note, "a") as file:
            file.write(f"{os.getpid()} {describe(*arguments)}\\n")
        return function(*arguments)

    return call


def gated(function, name):
    def call(*arguments, **named):
        while not os.path.exists(os.path.join(gates, name)):
            time.sleep(0.02)
        return function(*arguments, **named)

    return call


for name in ("train_large", "train_stacked"):
    train = getattr(trainers, name)
    setattr(trainers, name, noted(train, lambda job, files, send: f"train {job.method} {job.networks[0]}"))
image_evaluation.DomainTask.finish = noted(
    image_evaluation.DomainTask.finish, lambda task: f"evaluate {task.drawn.name} {task.domain}"
)
image_evaluation.ImageEvaluation.measure_cost = noted(
    image_evaluation.ImageEvaluation.measure_cost, lambda self, drawn, sample: f"measure {drawn.name}"
)
network._Run.take_step = gated(network._Run.take_step, "train")
stacked.Block.run = gated(stacked.Block.run, "train")
image_evaluation.DomainTask.evaluate = gated(image_evaluation.DomainTask.evaluate, "evaluate")
if __name__ == "__main__":
    main()
"""
SAME = ("summary", "draws", "curves", "pictures", "methods", "training", "domains", "failed", "recipe")


class Started:
    """Processes that run the same recipe in one folder."""

    def __init__(self, place: Path, recipe: Recipe):
        self.place, self.folder, self.notes = place, place / "run", place / "notes.txt"
        self.gates = place / "gates"
        self.gates.mkdir()
        (place / "recipe.json").write_text(recipe.model_dump_json())
        (place / "script.py").write_text(SCRIPT)
        self.environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "EPIBENCH_TEST_NOTES": str(self.notes),
            "EPIBENCH_TEST_GATES": str(self.gates),
        }
        self.processes: list[subprocess.Popen[str]] = []

    def start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "script.py", "run", "recipe.json", "--out", "run", "--jobs", "1", "--device", "cpu"]
        with (self.place / f"said-{len(self.processes)}.txt").open("w") as output:
            pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": output}
            process = subprocess.Popen(command, cwd=self.place, env=self.environment, text=True, **pipes)
        self.processes.append(process)
        return process

    def open(self, *gates: str) -> None:
        for gate in gates:
            (self.gates / gate).touch()

    def said(self, number: int) -> str:
        return (self.place / f"said-{number}.txt").read_text()

    def done(self) -> Counter[str]:
        """What was begun, whoever did it."""
        return Counter(line.partition(" ")[2] for line in self.lines())

    def workers(self) -> set[int]:
        return {int(line.partition(" ")[0]) for line in self.lines()}

    def lines(self) -> list[str]:
        return self.notes.read_text().splitlines() if self.notes.exists() else []

    def results(self) -> dict[str, Any]:
        return read_results(self.folder)

    def wait(self, processes: Sequence[subprocess.Popen[str]]) -> None:
        for process in processes:
            process.wait(180)

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture
def start(tmp_path: Path):
    """Starts processes on one folder; none is left at the end."""
    everything: list[Started] = []

    def make(recipe: Recipe) -> Started:
        everything.append(Started(tmp_path, recipe))
        return everything[-1]

    yield make
    for started in everything:
        started.stop()


def wait_until(happened: Callable[[], bool], started: Started, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, f"{started.said(0)} {started.lines()}"
        assert all(process.poll() in (None, 0, -signal.SIGKILL) for process in started.processes)
        time.sleep(0.02)


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("scenes")


@pytest.fixture(scope="module")
def image_recipe(cache: Path) -> Recipe:
    few = ("data.domains.clean.num_images=2", "data.domains.wild.num_images=2", "ensemble.num_members=4")
    return small_dense(cache, *few, "mc_dropout.num_networks=1")


@pytest.fixture(scope="module")
def alone(image_recipe: Recipe, tmp_path_factory) -> dict[str, Any]:
    """What one process finds."""
    with pytest.MonkeyPatch.context() as patch:
        save_often(patch.setattr)
        return run_in(tmp_path_factory.mktemp("alone") / "run", image_recipe)


EVERYTHING = {
    **{f"train ensemble {number}": 1 for number in range(4)},
    "train mc_dropout 0": 1,
    **{f"evaluate {method} {domain}": 1 for method in ("ensemble", "mc_dropout") for domain in ("clean", "wild")},
    "measure ensemble": 1,
    "measure mc_dropout": 1,
}


def test_two_processes_do_everything_once_and_find_the_same(image_recipe: Recipe, alone, start) -> None:
    started = start(image_recipe)
    both = [started.start(), started.start()]
    wait_until(lambda: len(started.workers()) == 2, started)
    started.open("train", "evaluate")
    seen = []
    while any(process.poll() is None for process in both):  # whoever writes it, it is whole
        if (started.folder / "results.json").exists():
            seen.append(started.results())
        time.sleep(0.02)
    assert [process.returncode for process in both] == [0, 0], started.said(0) + started.said(1)
    assert started.done() == EVERYTHING
    assert len(started.workers()) == 2
    for results in (*seen, started.results()):
        assert {name: results[name] for name in SAME} == {name: alone[name] for name in SAME}
    said = started.said(0) + started.said(1)
    assert "waiting for process" in said or "sharing the work with process" in said
    assert [path for path in started.folder.rglob("*") if path.suffix == ".lock" or path.name.startswith(".")] == []
    for number in range(2):  # waiting is said once, not each time that a lock is looked at
        assert max(Counter(started.said(number).splitlines()).values()) == 1


@pytest.mark.parametrize("moment", ["train ensemble 1", "evaluate ensemble clean"])
def test_if_one_is_killed_the_other_takes_over(moment: str, image_recipe: Recipe, alone, start) -> None:
    started = start(image_recipe)
    both = [started.start(), started.start()]
    if moment.startswith("evaluate"):
        wait_until(lambda: len(started.workers()) == 2, started)
        started.open("train")
    wait_until(lambda: moment in started.done(), started)
    killed = next(int(line.split()[0]) for line in started.lines() if line.endswith(moment))
    victim = next(process for process in both if process.pid == killed)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    started.open("train", "evaluate")
    (other,) = (process for process in both if process is not victim)
    other.wait(180)
    assert other.returncode == 0
    results = started.results()
    assert {name: results[name] for name in SAME} == {name: alone[name] for name in SAME}
    again = started.done() - Counter(EVERYTHING)
    assert sum(again.values()) <= 1  # what the other was doing


def test_two_processes_train_the_networks_of_a_toy_problem_once(start, tmp_path_factory) -> None:
    recipe = small("toy-regression", 'methods=["ensemble", "map", "sgld"]')
    started = start(recipe)
    both = [started.start(), started.start()]
    wait_until(lambda: "waiting for process" in started.said(0) + started.said(1), started)
    started.open("train")
    started.wait(both)
    assert [process.returncode for process in both] == [0, 0], started.said(0) + started.said(1)
    assert started.done() == {f"train {method} 0": 1 for method in ("ensemble", "map", "sgld")}
    whole, results = run_in(tmp_path_factory.mktemp("toy") / "run", recipe), started.results()
    assert all(results[name] == whole[name] for name in SAME)


def test_if_one_is_killed_in_a_toy_problem_the_other_takes_over(start, tmp_path_factory) -> None:
    recipe = small("toy-regression", 'methods=["sgld"]')
    started = start(recipe)
    first = started.start()
    wait_until(lambda: "train sgld 0" in started.done(), started)
    second = started.start()
    wait_until(lambda: "waiting for process" in started.said(1), started)
    assert f"waiting for process {first.pid} on " in started.said(1)
    first.send_signal(signal.SIGKILL)
    first.wait()
    started.open("train")
    second.wait(180)
    assert second.returncode == 0
    whole, results = run_in(tmp_path_factory.mktemp("toy") / "run", recipe), started.results()
    assert all(results[name] == whole[name] for name in SAME)
