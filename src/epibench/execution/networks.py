"""Train the networks of a method as independent jobs, several at once; those that are trained are not trained again."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch

from epibench.execution.checkpoints import Checkpoints, log_of
from epibench.execution.jobs import run_jobs
from epibench.execution.reporter import Reporter
from epibench.execution.run_folder import RunFolder
from epibench.execution.train_job import TrainJob, TrainProgress, checkpoints_of, train_job
from epibench.recipes.dense import DenseRecipe


@dataclass(frozen=True)
class Machine:
    """Where a run happens; none of it changes a number. jobs: networks that are trained at once."""

    device: torch.device
    jobs: int
    workers: int

    @classmethod
    def of(cls, device: torch.device, jobs: int | None) -> Machine:
        """By default one network per core on a CPU, and one on a GPU, whose data is loaded by the cores."""
        cores = len(os.sched_getaffinity(0))
        if device.type == "cpu":
            return cls(device, jobs or cores, 0)
        return cls(device, jobs or 1, max(1, min(8, (cores - 1) // (jobs or 1))))


@dataclass(frozen=True)
class Trained:
    """The networks of a method: those that can be used, and why others cannot."""

    files: list[Checkpoints]
    errors: dict[int, str]
    seconds: float
    logs: list[dict[str, Any]]


def train_method(name: str, recipe: DenseRecipe, folder: RunFolder, machine: Machine, reporter: Reporter) -> Trained:
    """Train all networks of a method that are not trained yet, several at once."""
    method = recipe.method(name)
    files = [checkpoints_of(recipe, name, network, folder.path) for network in range(method.num_trained)]
    errors = {each.network: each.diverged.read_text("utf-8").strip() for each in files if each.diverged.exists()}
    todo = [each for each in files if each.network not in errors and each.finished() is None]
    jobs = [
        TrainJob(recipe, name, each.network, folder.path, job_device(machine, place), machine.workers)
        for place, each in enumerate(todo)
    ]
    if len(todo) < len(files):
        reporter.say(f"{name}: {len(files) - len(todo)} of {len(files)} networks trained already")
    if jobs:
        errors |= train_all(name, recipe, todo, jobs, machine, reporter)
    used = [each for each in files if each.network not in errors]
    seconds, logs = 0.0, []
    for each in used:
        saved = each.finished()
        assert saved is not None
        seconds += saved.number("seconds")
        rows = log_of(saved)
        logs.append({"network": each.network, "steps": [r.step for r in rows], "loss": [r.loss for r in rows]})
    return Trained(used, errors, seconds, logs)


def train_all(
    name: str, recipe: DenseRecipe, files: list[Checkpoints], jobs: list[TrainJob], machine: Machine, reporter: Reporter
) -> dict[int, str]:
    """Run the jobs; returns what went wrong, by network."""
    steps = recipe.method(name).num_epochs * recipe.training.epoch_steps
    stand = {place: saved_step(each) for place, each in enumerate(files)}
    with reporter.step(f"train {name}", steps * len(jobs), sum(stand.values())) as advance:

        def hear(place: int, told: TrainProgress) -> None:
            advance(told.step - stand[place], f"loss {told.row.loss:.3g}, rate {told.row.rate:.2g}")
            stand[place] = told.step

        together = 1 if recipe.training.devices > 1 else machine.jobs
        errors = run_jobs(jobs, train_job, together, hear)
    for text in errors.values():
        reporter.say(text)
    return {jobs[place].network: text for place, text in errors.items()}


def saved_step(files: Checkpoints) -> int:
    """The step that an unfinished training goes on from."""
    found = files.load_state()
    return 0 if found is None else found[0].step


def job_device(machine: Machine, place: int) -> str:
    """Jobs take turns on the GPUs."""
    named = str(machine.device)
    return named if named != "cuda" else f"cuda:{place % torch.cuda.device_count()}"
