"""An evaluation in jobs, each of some stretches of a domain: any process on any machine does any of them, in any order.

Jobs leave the states of their stretches in the run folder; who finishes the evaluation merges them in index order.
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

JOBS_PER_PLACE = 2  # where one job can run at a time: faster machines do more of them


@dataclass(frozen=True)
class EvaluateJob:
    """Stretches of one domain that all members of a method predict: plain data. num_images: of all of them.

    cost: what one image costs is measured, too.
    """

    recipe: DenseRecipe
    folder: Path
    method: str
    domain: str
    stretches: tuple[int, ...]
    num_images: int
    device: str
    workers: int = 0
    share: float = 1.0  # of the machine's memory
    cost: bool = False

    def __str__(self) -> str:
        return f"{self.name}, stretches {self.stretches[0]} to {self.stretches[-1]}"

    @property
    def reads(self) -> tuple[str, ...]:
        """How the names of files of networks and stretches begin that it needs, below the run folder."""
        return (f"{MEMBERS}{self.method}/", f"evaluation/{self.method}/{self.domain}-")

    @property
    def name(self) -> str:
        """In words."""
        return f"{self.method} on {self.domain}"


def evaluate_job(job: EvaluateJob, send: Send) -> None:
    """Carry a job out, and send how many of its images are done."""
    done = 0

    def advance(images: int) -> None:
        nonlocal done
        done += images
        send(done)

    machine = Machine(torch.device(job.device), 1, job.workers, share=job.share)
    EvaluationJobs(Run(job.recipe, RunFolder(job.folder), machine, Silent())).evaluate(job, advance)


@dataclass(frozen=True)
class Stretch:
    """One stretch of a method on a domain. work: passes of members on images."""

    task: DomainTask
    number: int
    work: int


@dataclass(frozen=True)
class EvaluationJobs:
    """The evaluation of a run whose networks are trained, cut into jobs.

    failed: why methods have no members to evaluate, by their names.
    """

    run: Run
    failed: dict[str, str] = field(default_factory=dict)

    @cached_property
    def experiment(self) -> ImageExperiment:
        """The data and the methods."""
        return ImageExperiment(self.run)

    @cached_property
    def tasks(self) -> dict[tuple[str, str], DomainTask]:
        """Every method on every domain, whether it is evaluated already or not."""
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
        """The jobs of one of `count` shards, numbered from 1; they do not depend on what is evaluated already."""
        every = [stretch for task in self.tasks.values() for stretch in stretches_of(task)]
        return list(self._jobs(in_parts(every, count)[number - 1]))

    def jobs(self, count: int) -> list[EvaluateJob]:
        """All that is left to evaluate, in about so many jobs of about the same work."""
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
        """Evaluate what is left of a job; `advance` is told of images."""
        task = self.tasks.get((job.method, job.domain))
        if task is None:
            raise InputError(self.failed[job.method])
        if task.results() is None:
            task.evaluate_stretches(job.stretches, advance)
        if job.cost:
            self.experiment.evaluation.image_cost(task.drawn)

    def missing(self) -> list[str]:
        """What is evaluated neither as a whole nor in stretches, in words."""
        words = []
        for task in self.tasks.values():
            if task.results() is None and (numbers := task.stretches.missing()):
                words.append(f"{task.name} ({len(numbers)} of {len(task.stretches)} stretches of images)")
        return words


def stretches_of(task: DomainTask, numbers: Sequence[int] | None = None) -> list[Stretch]:
    """Some stretches of a task, or all."""
    members, chosen = task.drawn.pool.num_members, range(len(task.stretches)) if numbers is None else numbers
    return [Stretch(task, number, members * len(task.stretches.images(number))) for number in chosen]


def in_parts(stretches: Sequence[Stretch], count: int) -> list[list[Stretch]]:
    """Neighbouring stretches together, in so many parts of about the same work; a part may be empty."""
    parts: list[list[Stretch]] = [[] for _ in range(count)]
    for each, part in zip(stretches, equal_parts([each.work for each in stretches], count), strict=True):
        parts[part].append(each)
    return parts


def evaluate_remotely(run: Run, failed: dict[str, str]) -> None:
    """Let the machines of an executor evaluate all that is left, in stretches; why any failed is noted.

    Who then goes on with the evaluation only merges. How many stretches a job has depends on how many jobs run at once,
    the numbers do not. A store of predictions is written by one process: with one, nothing is done elsewhere.
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
            advance[jobs[number].name](max(0, images - done[number]))  # a job that was lost begins anew
            done[number] = max(done[number], images)

        errors = executor.run(jobs, evaluate_job, resources, receive)
    for number, text in errors.items():
        if jobs[number].name not in failed:
            failed[jobs[number].name] = text
            run.reporter.say(f"{jobs[number].name} failed: {text}")
