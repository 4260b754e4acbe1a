"""Jobs of an evaluation: each evaluates some stretches of a domain.

Any process on any machine can run any job, in any order. Jobs write the states of their stretches into the run folder.
The process that finishes the evaluation merges them in index order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import torch

from epibench.errors import InputError
from epibench.mirror import MEMBERS
from epibench.plans import equal_parts
from epibench.progress import Silent
from epibench.recipes.dense import DenseRecipe
from epibench.runs.folder import RunFolder
from epibench.runs.image_evaluation import DomainTask
from epibench.runs.image_experiment import ImageExperiment
from epibench.runs.machine import Machine, Run, memory_of_job
from epibench.runs.processes import Send
from epibench.runs.train import collect_trained

JOBS_PER_PLACE = 2  # jobs for each place where one can run at a time, so that faster machines do more jobs


@dataclass(frozen=True)
class EvaluateJob:
    """Stretches of one domain that a method's members evaluate, as plain data.

    Args:
        recipe: Recipe of the run.
        folder: Folder of the run.
        method: Name of the method.
        domain: Name of the domain.
        stretches: Numbers of the stretches.
        num_images: Number of images in all stretches of the job.
        device: Device of the job.
        workers: Processes that load data.
        share: Share of the machine's memory that the job may take.
        cost: Whether the job also measures the cost of one image.
    """

    recipe: DenseRecipe
    folder: Path
    method: str
    domain: str
    stretches: tuple[int, ...]
    num_images: int
    device: str
    workers: int = 0
    share: float = 1.0
    cost: bool = False

    def __str__(self) -> str:
        return f"{self.name}, stretches {self.stretches[0]} to {self.stretches[-1]}"

    @property
    def reads(self) -> tuple[str, ...]:
        """Prefixes of the files of networks and stretches that the job reads, below the run folder."""
        return (f"{MEMBERS}{self.method}/", f"evaluation/{self.method}/{self.domain}-")

    @property
    def name(self) -> str:
        """The method and the domain, for messages."""
        return f"{self.method} on {self.domain}"


def evaluate_job(job: EvaluateJob, send: Send) -> None:
    """Run a job, and send the number of its evaluated images."""
    done = 0

    def advance(images: int) -> None:
        nonlocal done
        done += images
        send(done)

    machine = Machine(torch.device(job.device), 1, job.workers, share=job.share)
    EvaluationJobs(Run(job.recipe, RunFolder(job.folder), machine, Silent())).evaluate(job, advance)


@dataclass(frozen=True)
class Stretch:
    """One stretch of a method on a domain. `work` is the number of members times the number of images."""

    task: DomainTask
    number: int
    work: int


@dataclass(frozen=True)
class EvaluationJobs:
    """The evaluation of a run with trained networks, split into jobs.

    Args:
        run: The run.
        failed: Reasons why methods cannot be evaluated, by method.
    """

    run: Run
    failed: dict[str, str] = field(default_factory=dict)

    @cached_property
    def experiment(self) -> ImageExperiment:
        """The data and the methods."""
        return ImageExperiment(self.run)

    @cached_property
    def tasks(self) -> dict[tuple[str, str], DomainTask]:
        """Every method on every domain, including finished evaluations, by method and domain."""
        evaluation, tasks = self.experiment.evaluation, dict[tuple[str, str], DomainTask]()
        for name in self.run.recipe.methods:
            try:
                drawn = self.experiment.drawn_if_enough(name, collect_trained(self.run, name), self.failed)
            except InputError as error:
                self.failed[name] = str(error)
                continue
            tasks |= {(name, domain): DomainTask(evaluation, drawn, domain) for domain in evaluation.domains}
        return tasks

    def shard(self, number: int, count: int) -> list[EvaluateJob]:
        """Return the jobs of one of `count` shards, numbered from 1. They do not depend on finished evaluations."""
        every = [stretch for task in self.tasks.values() for stretch in stretches_of(task)]
        return list(self._jobs(in_parts(every, count)[number - 1]))

    def jobs(self, count: int) -> list[EvaluateJob]:
        """Return the missing stretches as about `count` jobs of about equal work."""
        left = [task for task in self.tasks.values() if task.results() is None]
        stretches = [each for task in left for each in stretches_of(task, task.stretches.missing())]
        return [job for some in in_parts(stretches, count) for job in self._jobs(some)]

    def _jobs(self, stretches: Sequence[Stretch]) -> Iterator[EvaluateJob]:
        recipe, machine = self.experiment.recipe, self.run.machine
        first = next(iter(self.experiment.evaluation.domains))
        for task, group in itertools.groupby(stretches, lambda each: each.task):
            numbers = tuple(each.number for each in group)
            yield EvaluateJob(
                recipe,
                self.run.folder.path,
                task.drawn.name,
                task.domain,
                numbers,
                sum(len(task.stretches.images(number)) for number in numbers),
                str(machine.device),
                machine.workers,
                1 / machine.jobs,
                cost=task.domain == first and 0 in numbers,
            )

    def evaluate(self, job: EvaluateJob, advance: Callable[[int], None]) -> None:
        """Evaluate the missing stretches of a job. `advance` receives the number of images."""
        task = self.tasks.get((job.method, job.domain))
        if task is None:
            raise InputError(self.failed[job.method])
        if task.results() is None:
            task.evaluate_stretches(job.stretches, advance)
        if job.cost:
            self.experiment.evaluation.image_cost(task.drawn)

    def missing(self) -> list[str]:
        """Return a text for each method and domain with missing stretches."""
        words = []
        for task in self.tasks.values():
            if task.results() is None and (numbers := task.stretches.missing()):
                words.append(f"{task.name} ({len(numbers)} of {len(task.stretches)} stretches of images)")
        return words


def stretches_of(task: DomainTask, numbers: Sequence[int] | None = None) -> list[Stretch]:
    """Return the numbered stretches of a task; None: all."""
    members, chosen = task.drawn.pool.num_members, range(len(task.stretches)) if numbers is None else numbers
    return [Stretch(task, number, members * len(task.stretches.images(number))) for number in chosen]


def in_parts(stretches: Sequence[Stretch], count: int) -> list[list[Stretch]]:
    """Split stretches into `count` parts of neighbours with about equal work. A part may be empty."""
    parts: list[list[Stretch]] = [[] for _ in range(count)]
    for each, part in zip(stretches, equal_parts([each.work for each in stretches], count), strict=True):
        parts[part].append(each)
    return parts


def evaluate_remotely(run: Run, failed: dict[str, str]) -> None:
    """Let the executor's machines evaluate the missing stretches, and note failures in `failed`.

    This process then only merges the stretches. The number of stretches in a job depends on the number of parallel
    jobs; the computed numbers do not. One process writes a prediction store: with a store, no job is started.
    """
    evaluation, executor = EvaluationJobs(run), run.machine.executor
    if evaluation.experiment.recipe.evaluation.store:
        return
    resources = run.machine.job_resources(memory=memory_of_job(run.recipe))
    jobs = evaluation.jobs(JOBS_PER_PLACE * executor.room(resources))
    done = [0] * len(jobs)
    with ExitStack() as stack:
        advance = {}
        for name in dict.fromkeys(job.name for job in jobs):
            total = sum(job.num_images for job in jobs if job.name == name)
            advance[name] = stack.enter_context(run.reporter.step(f"evaluate {name}", total))

        def receive(number: int, images: int) -> None:
            advance[jobs[number].name](max(0, images - done[number]))  # a lost job starts from its beginning
            done[number] = max(done[number], images)

        errors = executor.run(jobs, evaluate_job, resources, receive)
    for number, text in errors.items():
        if jobs[number].name not in failed:
            failed[jobs[number].name] = text
            run.reporter.say(f"{jobs[number].name} failed: {text}")
