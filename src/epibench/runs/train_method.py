"""Train the networks of a method as independent jobs, several at once; those that are trained are not trained again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from epibench.errors import InputError
from epibench.runs.checkpoints import Checkpoints, log_of
from epibench.runs.dense_run import DenseRun
from epibench.runs.jobs import run_jobs
from epibench.runs.train_job import TrainJob, checkpoints_of, train_job
from epibench.training.dense import LogRow


@dataclass(frozen=True)
class Trained:
    """The networks of a method that can be used, and why others diverged. seconds: of all trainings together."""

    files: list[Checkpoints]
    diverged: list[str]
    seconds: float
    logs: list[dict[str, Any]]


def train_method(run: DenseRun, name: str) -> Trained:
    """Train all networks of a method that are not trained yet, several at once."""
    method = run.recipe.method(name)
    files = [checkpoints_of(run.recipe, name, network, run.folder.path) for network in range(method.num_trained)]
    todo = [each for each in files if not each.diverged.exists() and each.finished() is None]
    if len(todo) < len(files):
        run.reporter.say(f"{name}: {len(files) - len(todo)} of {len(files)} networks trained already")
    if todo:
        train_all(run, name, todo)
    used = [each for each in files if not each.diverged.exists()]
    lost = [each.diverged for each in files if each.diverged.exists()]
    diverged = [path.read_text(encoding="utf-8", errors="replace").strip() for path in lost]
    seconds, logs = 0.0, []
    for each in used:
        saved = each.finished()
        if saved is None:
            raise InputError(f"{name}: network {each.network} was not trained; run the same command again")
        rows = log_of(saved)
        seconds += saved.number("seconds")
        logs.append({"network": each.network, "steps": [r.step for r in rows], "loss": [r.loss for r in rows]})
    return Trained(used, diverged, seconds, logs)


def train_all(run: DenseRun, name: str, files: list[Checkpoints]) -> None:
    """Train these networks; one that diverges leaves a file that says so, other errors end it all."""
    recipe, machine = run.recipe, run.machine
    jobs = [
        TrainJob(recipe, name, each.network, run.folder.path, machine.device_of(place), machine.workers)
        for place, each in enumerate(files)
    ]
    steps = recipe.method(name).keep[-1] * recipe.training.epoch_steps
    stand = {place: each.step() for place, each in enumerate(files)}
    with run.reporter.step(f"train {name}", steps * len(jobs), sum(stand.values())) as advance:

        def hear(place: int, row: LogRow) -> None:
            advance(row.step - stand[place], f"loss {row.loss:.3g}, rate {row.rate:.2g}")
            stand[place] = row.step

        together = 1 if recipe.training.devices > 1 else machine.jobs
        errors = run_jobs(jobs, train_job, together, hear)
    for place, text in errors.items():
        if not files[place].diverged.exists():
            raise InputError(text)
        run.reporter.say(text)
