"""Train the networks of a method: as independent jobs, several at once; those that are trained are not trained again."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from epibench.errors import InputError
from epibench.methods.contract import Member, Method, TrainedNetwork
from epibench.progress import Reporter
from epibench.recipes import DenseRecipe, Recipe
from epibench.results import TrainingLog
from epibench.runs.folder import RunFolder, share_work
from epibench.runs.jobs import run_jobs
from epibench.runs.trainers import HeldElsewhere, TrainJob, train_job, view_of
from epibench.training.state import Weights


@dataclass(frozen=True)
class Machine:
    """Where a run happens. jobs: networks that are trained at once; workers: processes that load data for each."""

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

    @property
    def memory(self) -> int:
        """Bytes that the device has."""
        if self.device.type == "cuda":
            return int(torch.cuda.get_device_properties(self.device).total_memory)
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def device_of(self, number: int) -> str:
        """The device of a job: jobs take turns on the GPUs."""
        named = str(self.device)
        return named if named != "cuda" else f"cuda:{number % torch.cuda.device_count()}"


@dataclass(frozen=True)
class Run:
    """A recipe that is carried out: in a folder, on a machine, followed by a reporter."""

    recipe: Recipe
    folder: RunFolder
    machine: Machine
    reporter: Reporter


@dataclass(frozen=True)
class Trained:
    """The trained networks of a method that can be used, and why others diverged. seconds: of all trainings together."""

    method: Method
    jobs: Mapping[int, TrainJob]  # by the number of the network
    diverged: Sequence[str]
    seconds: float
    logs: list[TrainingLog]
    _views: dict[tuple[int, ...], Callable[[int], TrainedNetwork]] = field(default_factory=dict)

    @property
    def networks(self) -> list[int]:
        """The numbers of those that can be used."""
        return sorted(self.jobs)

    @property
    def fingerprints(self) -> list[str]:
        """What their weights depend on."""
        return [self.jobs[number].files.fingerprint for number in self.networks]

    def weights(self, member: Member) -> Weights:
        """The weights of a member."""
        job = self.jobs[member.network]
        if job.networks not in self._views:
            self._views[job.networks] = view_of(job)
        return self.method.weights(member, self._views[job.networks](member.network))


def train_method(run: Run, name: str) -> Trained:
    """Train all networks of a method that are not trained yet."""
    jobs = jobs_of(run, name)
    finished = [job for job in jobs if job.over]
    if finished:
        run.reporter.say(f"{name}: {_number(finished)} of {_number(jobs)} networks trained already")
    share_work(
        jobs,
        done=lambda job: job.over,
        lock=lambda job: job.files.claim,
        work=lambda todo: train_all(run, name, todo),
        reporter=run.reporter,
    )
    return usable(run, name, jobs)


def _number(jobs: Sequence[TrainJob]) -> int:
    return sum(len(job.networks) for job in jobs)


def jobs_of(run: Run, name: str) -> list[TrainJob]:
    """The trainings of a method: stacked networks together, large ones each by itself."""
    recipe, machine, number = run.recipe, run.machine, run.recipe.method(name).num_trained
    networks: list[tuple[int, ...]] = [tuple(range(number))]
    if isinstance(recipe, DenseRecipe):
        networks = [(network,) for network in range(number)]
    return [
        TrainJob(recipe, name, each, run.folder.members, machine.device_of(place), machine.workers)
        for place, each in enumerate(networks)
    ]


def train_all(run: Run, name: str, jobs: Sequence[TrainJob]) -> list[TrainJob]:
    """Train these networks; returns the jobs that another process has. A network that diverges leaves the others."""
    steps = run.recipe.training_steps(name)
    stand = {number: job.files.step() for number, job in enumerate(jobs)}
    held: list[TrainJob] = []
    with run.reporter.step(f"train {name}", steps * len(jobs), sum(stand.values())) as advance:

        def receive(number: int, message: Any) -> None:
            if isinstance(message, HeldElsewhere):
                held.append(jobs[number])
                return
            step, note = message
            advance(step - stand[number], note)
            stand[number] = step

        errors = run_jobs(jobs, train_job, run.recipe.trained_at_once or run.machine.jobs, receive)
    for number, text in errors.items():
        if not jobs[number].files.diverged.exists():
            raise InputError(text)
        run.reporter.say(text)
    return held


def usable(run: Run, name: str, jobs: Sequence[TrainJob]) -> Trained:
    """What came out of the trainings of a method."""
    networks: dict[int, TrainJob] = {}
    diverged: list[str] = []
    seconds, logs = 0.0, list[TrainingLog]()
    for job in jobs:
        files = job.files
        if files.diverged.exists():
            diverged.append(files.diverged.read_text(encoding="utf-8", errors="replace").strip())
            continue
        notes = files.finished()
        if notes is None:
            raise InputError(f"{name}: network {job.networks[0]} was not trained; run the same command again")
        seconds += notes.number("seconds")
        if rows := notes.log():
            steps, losses = [row.step for row in rows], [row.loss for row in rows]
            logs.append(TrainingLog(network=job.networks[0], steps=steps, loss=losses))
        finite = finite_networks(job)
        networks |= dict.fromkeys(finite, job)
        diverged += [f"network {number} diverged" for number in job.networks if number not in finite]
    return Trained(run.recipe.method(name), networks, diverged, seconds, logs)


def finite_networks(job: TrainJob) -> list[int]:
    """The networks of a job whose weights are finite; a large one that is kept always has such."""
    if len(job.networks) == 1 and isinstance(job.recipe, DenseRecipe):
        return list(job.networks)
    finite = torch.ones(len(job.networks), dtype=torch.bool)
    for snapshot in range(len(job.files.keep)):
        for tensor in job.files.load_weights(snapshot).values():
            finite &= torch.isfinite(tensor).flatten(1).all(1)
    return [number for number, fine in zip(job.networks, finite.tolist(), strict=True) if fine]
