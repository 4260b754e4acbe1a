"""Train networks as independent jobs in parallel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from epibench.errors import InputError
from epibench.methods.contract import Member, Method, TrainedNetwork
from epibench.progress import Advance, Reporter
from epibench.recipes import DenseRecipe
from epibench.results import TrainingLog
from epibench.runs.folder import share_work
from epibench.runs.machine import Run, memory_of_job
from epibench.runs.train_job import TrainJob, jobs_of, sharing_memory, source_failures, waves
from epibench.runs.trained_views import finite_networks, view_of
from epibench.runs.trainers import train_job
from epibench.training.state import Weights


@dataclass(frozen=True)
class Trained:
    """The usable networks of a method, and why its other networks diverged.

    Args:
        method: The method.
        jobs: Training jobs of usable networks, by the number of the network.
        diverged: Failures of the other networks.
        seconds: Seconds of all trainings, including fits afterwards.
        logs: Training logs.
        without_source: Number of failed trainings that start from a failed network.
    """

    method: Method
    jobs: Mapping[int, TrainJob]
    diverged: Sequence[str]
    seconds: float
    logs: list[TrainingLog]
    without_source: int = 0
    _views: dict[tuple[int, ...], Callable[[int], TrainedNetwork]] = field(default_factory=dict)

    @property
    def networks(self) -> list[int]:
        """The numbers of usable networks."""
        return sorted(self.jobs)

    @property
    def fingerprints(self) -> list[str]:
        """The fingerprints of the networks' weights."""
        return [self.jobs[number].files.fingerprint for number in self.networks]

    def weights(self, member: Member) -> Weights:
        """Return the weights of a member."""
        job = self.jobs[member.network]
        if job.networks not in self._views:
            self._views.clear()  # members of one network are requested in a row, and its fits may be large
            self._views[job.networks] = view_of(job)
        return self.method.weights(member, self._views[job.networks](member.network))


def train_networks(run: Run, asked: Mapping[str, Sequence[int] | None], failed: dict[str, str]) -> None:
    """Train the missing networks of some methods, and of the methods that they start from.

    Large networks of all methods are trained together, unless one starts from another. On this machine stacked networks
    are trained one method after another, because one stack uses all cores.

    Args:
        run: The run.
        asked: Numbers of networks by method; None: all networks of the method.
        failed: Receives the reasons of failures by method.
    """
    together = isinstance(run.recipe, DenseRecipe) or run.machine.executor.remote
    said = set[str]()
    for wave in waves(run.recipe, asked, together):
        training = _Training(run, failed, said)
        jobs = [job for name, networks in wave.items() for job in training.jobs_of(name, networks)]
        jobs = [replace(job, device=run.machine.device_of(number)) for number, job in enumerate(jobs)]
        share_work(
            jobs,
            done=training.is_done,
            lock=lambda job: job.files.path("lock"),
            work=training.train,
            reporter=run.reporter,
        )


def num_missing(run: Run, name: str, networks: Sequence[int] | None = None) -> int:
    """Return how many of a method's networks are not fully trained and fitted. `networks`: by default all."""
    wanted = range(run.recipe.method(name).num_trained) if networks is None else networks
    return sum(network in wanted for job in jobs_of(run, name) if not job.ended for network in job.networks)


@dataclass(frozen=True)
class _Training:
    """Trainings of one or several methods. A failed method does not stop the others.

    `said` holds reported failures, so that networks that start from a failed one do not repeat its failure.
    """

    run: Run
    failed: dict[str, str]
    said: set[str]

    def fail(self, name: str, error: InputError | str) -> None:
        """Note and report why a method cannot be trained."""
        if name not in self.failed:
            self.failed[name] = str(error)
            self.run.reporter.say(f"{name} failed: {error}")

    def jobs_of(self, name: str, networks: Sequence[int] | None) -> list[TrainJob]:
        """Return the trainings of these networks, and report how many networks are trained already."""
        try:
            jobs = [job for job in jobs_of(self.run, name) if networks is None or {*job.networks} & {*networks}]
            number = self.run.recipe.method(name).num_trained if networks is None else len(networks)
            missing = num_missing(self.run, name, networks)
        except InputError as error:
            self.fail(name, error)
            return []
        if finished := number - missing:
            self.run.reporter.say(f"{name}: {finished} of {number} networks trained already")
        return jobs

    def is_done(self, job: TrainJob) -> bool:
        """Return whether a training has ended or its method has failed."""
        try:
            return job.method in self.failed or job.ended
        except InputError as error:
            self.fail(job.method, error)
            return True

    def train(self, jobs: Sequence[TrainJob]) -> None:
        """Train these networks, except networks that another process trains. A divergence does not stop the others."""
        run = self.run
        with ExitStack() as stack:
            progress = TrainingProgress(run.reporter, stack, jobs)
            at_once = None if isinstance(run.recipe, DenseRecipe) else 1  # stacked networks take all cores
            memory = memory_of_job(run.recipe) if run.machine.executor.remote else 0
            resources = run.machine.job_resources(at_once, memory)
            sent = jobs if run.machine.executor.remote else sharing_memory(jobs)
            errors = run.machine.executor.run(sent, train_job, resources, progress.receive)
        for number, text in errors.items():
            if (failure := jobs[number].files.failure()) is None:
                self.fail(jobs[number].method, text)
                continue
            causes = source_failures(jobs[number])
            if not causes or not self.said.issuperset(causes):
                run.reporter.say(text)
            self.said.update((failure, *causes))


class TrainingProgress:
    """Shows the progress of each method from its first training to its last."""

    def __init__(self, reporter: Reporter, stack: ExitStack, jobs: Sequence[TrainJob]):
        self.reporter, self.stack, self.jobs = reporter, stack, jobs
        self.ends = [job.recipe.training_steps(job.method) for job in jobs]
        trained = [job.files.finished() is not None for job in jobs]  # a fit may still be missing
        self.done = [self.ends[number] if trained[number] else job.files.step() for number, job in enumerate(jobs)]
        self.steps: dict[str, tuple[ExitStack, Advance]] = {}
        self.ended: set[int] = set()

    def receive(self, number: int, message: tuple[int, str] | None) -> None:
        """Receive a job's message: its step with a note, or None at its end."""
        name = self.jobs[number].method
        own = [other for other, job in enumerate(self.jobs) if job.method == name]
        if name not in self.steps:
            total, begun = (sum(values[each] for each in own) for values in (self.ends, self.done))
            step = self.stack.enter_context(ExitStack())
            self.steps[name] = step, step.enter_context(self.reporter.step(f"train {name}", total, begun))
        step, advance = self.steps[name]
        reached, note = message or (self.ends[number], "")
        advance(max(0, reached - self.done[number]), note)  # a lost job resumes at an earlier step
        self.done[number] = max(reached, self.done[number])
        if message is None:
            self.ended.add(number)
            if self.ended.issuperset(own):
                step.close()


def collect_trained(run: Run, name: str) -> Trained:
    """Return a method's trained networks; raise an InputError if one is not trained or fitted."""
    method = run.recipe.method(name)
    networks, diverged, without_source = dict[int, TrainJob](), list[str](), 0
    seconds, logs = 0.0, list[TrainingLog]()
    for job in jobs_of(run, name):
        if (failure := job.files.failure()) is not None:
            diverged.append(failure)
            without_source += bool(source_failures(job))
            continue
        if (notes := job.files.finished()) is None:
            raise InputError(f"{name}: network {job.networks[0]} was not trained; run the same command again")
        if unfitted := job.unfitted:
            raise InputError(f"{name}: nothing was fitted to network {unfitted[0]} yet; run the same command again")
        seconds += notes.number("seconds") + job.fitting_seconds
        if rows := notes.log():
            steps, losses = [row.step for row in rows], [row.loss for row in rows]
            logs.append(TrainingLog(network=job.networks[0], steps=steps, loss=losses))
        finite = finite_networks(job)
        for number in job.networks[: method.num_trained - job.networks[0]]:  # a stack may hold more networks
            if number in finite:
                networks[number] = job
            else:
                diverged.append(f"network {number} diverged")
    return Trained(method, networks, diverged, seconds, logs, without_source)
