"""Train the networks of a method as independent jobs, several at once, none twice; what every evaluation shares."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from epibench.errors import InputError
from epibench.members.draws import Draws, make_draws
from epibench.members.pool import Pool
from epibench.methods.contract import Member, Method, TrainedNetwork
from epibench.progress import Reporter
from epibench.recipes import DenseRecipe, Recipe
from epibench.results import Cost, CurveFamilies, Draw, MethodFacts, Summary, TrainingLog
from epibench.runs.folder import RunFolder, share_work
from epibench.runs.jobs import run_jobs
from epibench.runs.trainers import TrainJob, finite_networks, sharing_memory, train_job, view_of
from epibench.training.state import Weights

STACK = re.compile(r"(\d+)(?:-(\d+))?(?:\.\d+)?(\.unfinished)?\.safetensors")  # first and last of stacked networks


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
    """The trained networks of a method that can be used, and why others diverged; seconds of all trainings together."""

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


def jobs_of(run: Run, name: str) -> list[TrainJob]:
    """The trainings of a method: stacked networks are trained together, large ones each by itself."""
    recipe, machine, number = run.recipe, run.machine, run.recipe.method(name).num_trained
    large = isinstance(recipe, DenseRecipe)
    parts = [(network,) for network in range(number)] if large else stacks(run.folder.members / name, number)
    return [
        TrainJob(recipe, name, part, run.folder.members, machine.device_of(number), machine.workers)
        for number, part in enumerate(parts)
    ]


def stacks(folder: Path, number: int) -> list[tuple[int, ...]]:
    """The networks that are trained together: those that share files already, and all that are missing behind them."""
    ends: dict[int, int] = {}
    for match in filter(None, (STACK.fullmatch(path.name) for path in folder.glob("*.safetensors"))):
        first, last = int(match[1]), int(match[2] or match[1])
        if last < number or not match[3]:  # more than are wanted are not trained to the end
            ends[first] = max(ends.get(first, 0), last + 1)
    parts = list[tuple[int, ...]]()
    first = 0
    while first < number:
        end = ends.get(first) or min([number, *(other for other in ends if other > first)])
        parts.append(tuple(range(first, end)))
        first = end
    return parts


def train_method(run: Run, name: str) -> Trained:
    """Train all networks of a method that are not trained yet."""
    jobs = jobs_of(run, name)
    number = run.recipe.method(name).num_trained
    if finished := number - num_missing(run, name):
        run.reporter.say(f"{name}: {finished} of {number} networks trained already")
    share_work(
        jobs,
        done=lambda job: job.ended,
        lock=lambda job: job.files.path("lock"),
        work=lambda todo: train_all(run, name, todo),
        reporter=run.reporter,
    )
    return collect_trained(run, name)


def num_missing(run: Run, name: str) -> int:
    """How many networks of a method are not trained to the end, or not fitted to."""
    wanted = range(run.recipe.method(name).num_trained)
    return sum(network in wanted for job in jobs_of(run, name) if not job.ended for network in job.networks)


def train_all(run: Run, name: str, jobs: Sequence[TrainJob]) -> None:
    """Train these networks, less those that another process trains. One that diverges does not stop the others."""
    steps = run.recipe.training_steps(name)
    # What is trained may still have to be fitted.
    steps_done = {n: job.files.step() if job.files.finished() is None else steps for n, job in enumerate(jobs)}
    with run.reporter.step(f"train {name}", steps * len(jobs), sum(steps_done.values())) as advance:

        def receive(number: int, message: Any) -> None:
            step, note = message
            advance(step - steps_done[number], note)
            steps_done[number] = step

        errors = run_jobs(sharing_memory(jobs), train_job, run.recipe.trained_at_once or run.machine.jobs, receive)
    for number, text in errors.items():
        if jobs[number].files.failure() is None:
            raise InputError(text)
        run.reporter.say(text)


def collect_trained(run: Run, name: str) -> Trained:
    """What came out of the trainings of a method."""
    method = run.recipe.method(name)
    networks, diverged = dict[int, TrainJob](), list[str]()
    seconds, logs = 0.0, list[TrainingLog]()
    for job in jobs_of(run, name):
        if (failure := job.files.failure()) is not None:
            diverged.append(failure)
            continue
        if (notes := job.files.finished()) is None:
            raise InputError(f"{name}: network {job.networks[0]} was not trained; run the same command again")
        seconds += notes.number("seconds")
        if rows := notes.log():
            steps, losses = [row.step for row in rows], [row.loss for row in rows]
            logs.append(TrainingLog(network=job.networks[0], steps=steps, loss=losses))
        finite = finite_networks(job)
        for number in job.networks[: method.num_trained - job.networks[0]]:  # others may be stacked with them
            if number in finite:
                networks[number] = job
            else:
                diverged.append(f"network {number} diverged")
    return Trained(method, networks, diverged, seconds, logs)


@dataclass(frozen=True)
class Evaluated:
    """What came out for one method; summary, curves and draws (their metrics) by domain."""

    facts: MethodFacts
    summary: dict[str, Summary]
    curves: dict[str, CurveFamilies]
    draws: dict[str, list[Draw]]
    cost: Cost


def draws_of(recipe: Recipe, name: str, pool: Pool) -> Draws:
    """The draws from the pool of a method that a recipe asks for."""
    method = recipe.method(name)
    return make_draws(
        pool.num_members,
        (1,) if method.single else recipe.members,
        plan=pool.plan,
        max_draws=lambda size: method.max_draws(size, recipe.draws),
        seed=recipe.seed,
        group=pool.group,
    )


def method_facts(recipe: Recipe, name: str, num_networks: int, pool: Pool, notes: Sequence[str] = ()) -> MethodFacts:
    """What a reader should know of a method before its numbers."""
    return MethodFacts(
        label=recipe.label(name),
        method=recipe.method(name).name,
        num_networks=num_networks,
        num_members=pool.num_members,
        num_groups=None if pool.group is None else len(set(pool.group)),
        plan=pool.plan,
        notes=list(notes),
    )
