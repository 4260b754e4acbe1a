"""Train the networks of a method as independent jobs, several at once, none twice; what every evaluation shares."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from epibench.errors import InputError
from epibench.members.draws import Draws, make_draws
from epibench.members.pool import Pool
from epibench.methods.contract import Member, Method, TrainedNetwork
from epibench.progress import Advance, Reporter
from epibench.recipes import DenseRecipe, Recipe
from epibench.results import Cost, CurveFamilies, Draw, MethodFacts, Summary, TrainingLog
from epibench.runs.executors import Executor, JobNeeds, LocalExecutor, open_executor
from epibench.runs.folder import RunFolder, share_work
from epibench.runs.train_job import TrainJob, sharing_memory, source_failures, stacks
from epibench.runs.trained_views import finite_networks, view_of
from epibench.runs.trainers import train_job
from epibench.training.state import Weights

PROCESS_MEMORY = 10**9  # bytes of a process: its libraries and data, beside the weights
COPIES = 6  # of the weights: gradients, what an optimiser remembers, what is saved


@dataclass(frozen=True)
class Machine:
    """Where a run happens. jobs: networks that are trained at once; workers: processes that load data for each.

    device: of this process, and of jobs; where an executor has GPUs elsewhere, this process may have none. share: of
    the machine's memory that this process may take.
    """

    device: torch.device
    jobs: int
    workers: int
    executor: Executor = field(default_factory=LocalExecutor)
    share: float = 1.0

    @classmethod
    def of(cls, device: torch.device, jobs: int | None, executor: Executor | None = None) -> Machine:
        """By default one network per core on a CPU, and one on a GPU, whose data is loaded by the cores."""
        executor = executor or LocalExecutor()
        cores = executor.cores
        if device.type == "cpu":
            return cls(device, jobs or cores, 0, executor)
        return cls(device, jobs or 1, max(1, min(8, (cores - 1) // (jobs or 1))), executor)

    @property
    def here(self) -> torch.device:
        """The device of this process; a GPU by its number, as each thread has a current one of its own."""
        if self.device.type == "cpu" or not torch.cuda.is_available():
            return torch.device("cpu")
        return torch.device("cuda", self.device.index or 0)

    def occupied(self) -> torch.device:
        """The same, and from now on the current one of this thread: training may have left another."""
        if self.here.type == "cuda":
            torch.cuda.set_device(self.here)
        return self.here

    @property
    def memory(self) -> int:
        """Bytes of the device's memory that this process may take."""
        if self.here.type == "cuda":
            return int(self.share * torch.cuda.get_device_properties(self.here).total_memory)
        return int(self.share * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))

    def device_of(self, number: int) -> str:
        """The device of a job: jobs take turns on the GPUs; elsewhere one sees only those that it is given."""
        named = str(self.device)
        if named != "cuda":
            return named
        return "cuda:0" if self.executor.elsewhere else f"cuda:{number % torch.cuda.device_count()}"

    def needs(self, at_once: int | None = None, devices: int = 1, memory: int = 0) -> JobNeeds:
        """What a job on so many devices needs; at_once: how many run at once here, if not as many as can."""
        at_once = at_once or self.jobs
        if self.device.type == "cpu":
            return JobNeeds(at_once, cpus=devices, memory=memory)
        gpus = devices if devices > 1 else 1 / self.jobs
        return JobNeeds(at_once, devices * (1 + self.workers), gpus, memory)


@dataclass(frozen=True)
class Run:
    """A recipe that is carried out: in a folder, on a machine, followed by a reporter."""

    recipe: Recipe
    folder: RunFolder
    machine: Machine
    reporter: Reporter


@contextmanager
def open_run(
    recipe: Recipe,
    folder: Path,
    reporter: Reporter,
    device: str,
    jobs: int | None = None,
    executor: str = "local",
    option: str = "device",
) -> Iterator[Run]:
    """The run of a recipe in a folder, on a device, by an executor; nothing is done yet. option: names the device."""
    with open_executor(executor, folder, reporter.say) as chosen:
        machine = Machine.of(torch.device(chosen.resolve_device(device, option)), jobs, chosen)
        yield Run(recipe, RunFolder(folder), machine, reporter)


@dataclass(frozen=True)
class Trained:
    """The trained networks of a method that can be used, and why others diverged.

    seconds: of all trainings together, with what is fitted afterwards.
    """

    method: Method
    jobs: Mapping[int, TrainJob]  # by the number of the network
    diverged: Sequence[str]
    seconds: float
    logs: list[TrainingLog]
    without_source: int = 0  # of those that diverged: as many as start from one that has failed
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
            self._views.clear()  # members of a network follow each other, and what is fitted to one may be large
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


def train_networks(run: Run, asked: Mapping[str, Sequence[int] | None], failed: dict[str, str]) -> None:
    """Train what is missing of these networks, by method, None for all of one; why methods failed goes into `failed`.

    Large networks of all methods together, so that nobody waits for the last one of a method, but for those that start
    from others' networks; stacked ones take a whole machine, and are trained one method after another on this one.
    """
    together = isinstance(run.recipe, DenseRecipe) or run.machine.executor.elsewhere
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


def waves(
    recipe: Recipe, asked: Mapping[str, Sequence[int] | None], together: bool
) -> list[dict[str, Sequence[int] | None]]:
    """The networks that are asked for, and those that they start from, in the order in which methods are trained.

    together: methods that do not need each other are trained at the same time.
    """
    wanted = dict(asked)
    for name, networks in asked.items():
        for source in recipe.sources(name):
            needed = range(recipe.method(name).num_trained) if networks is None else networks
            others = wanted.get(source, ())
            wanted[source] = None if others is None else sorted({*others, *needed})
    depths = {name: len(recipe.sources(name)) for name in wanted}
    levels = [{n: wanted[n] for n in wanted if depths[n] == depth} for depth in sorted(set(depths.values()))]
    return levels if together else [{name: networks} for level in levels for name, networks in level.items()]


def memory_of_job(recipe: Recipe) -> int:
    """Bytes that a process takes, about, that trains a network or evaluates images."""
    if not isinstance(recipe, DenseRecipe):
        return PROCESS_MEMORY
    classes = 2 if recipe.likelihood == "categorical" else None
    networks = (recipe.method(name).build(recipe.builder(classes, method=name)) for name in recipe.methods)
    return PROCESS_MEMORY + COPIES * max(sum(each.nbytes for each in network.parameters()) for network in networks)


def num_missing(run: Run, name: str, networks: Sequence[int] | None = None) -> int:
    """How many of these networks of a method, by default of all, are not trained to the end, or not fitted to."""
    wanted = range(run.recipe.method(name).num_trained) if networks is None else networks
    return sum(network in wanted for job in jobs_of(run, name) if not job.ended for network in job.networks)


@dataclass(frozen=True)
class _Training:
    """Trainings of one method or several; where one fails, that is noted, and those of other methods go on.

    said: why networks have failed, so that of those that start from them it is not said again.
    """

    run: Run
    failed: dict[str, str]
    said: set[str]

    def fail(self, name: str, error: InputError | str) -> None:
        """Note that a method cannot be trained, and why."""
        if name not in self.failed:
            self.failed[name] = str(error)
            self.run.reporter.say(f"{name} failed: {error}")

    def jobs_of(self, name: str, networks: Sequence[int] | None) -> list[TrainJob]:
        """The trainings of these networks of a method; says what is trained already."""
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
        """Whether there is nothing more to do for a training."""
        try:
            return job.method in self.failed or job.ended
        except InputError as error:
            self.fail(job.method, error)
            return True

    def train(self, jobs: Sequence[TrainJob]) -> None:
        """Train these networks, less those that another process trains. One that diverges does not stop the others."""
        run = self.run
        with ExitStack() as stack:
            shown = Shown(run.reporter, stack, jobs)
            devices = run.recipe.training.devices if isinstance(run.recipe, DenseRecipe) else 1
            memory = memory_of_job(run.recipe) if run.machine.executor.elsewhere else 0
            needs = run.machine.needs(run.recipe.trained_at_once, devices, memory)
            sent = jobs if run.machine.executor.elsewhere else sharing_memory(jobs)
            errors = run.machine.executor.run(sent, train_job, needs, shown.receive)
        for number, text in errors.items():
            if (failure := jobs[number].files.failure()) is None:
                self.fail(jobs[number].method, text)
                continue
            causes = source_failures(jobs[number])
            if not causes or not self.said.issuperset(causes):
                run.reporter.say(text)
            self.said.update((failure, *causes))


class Shown:
    """How far the trainings of each method are, shown from when the first of them begins to when the last has ended."""

    def __init__(self, reporter: Reporter, stack: ExitStack, jobs: Sequence[TrainJob]):
        self.reporter, self.stack, self.jobs = reporter, stack, jobs
        self.ends = [job.recipe.training_steps(job.method) for job in jobs]
        trained = [job.files.finished() is not None for job in jobs]  # but may still have to be fitted
        self.done = [self.ends[number] if trained[number] else job.files.step() for number, job in enumerate(jobs)]
        self.steps: dict[str, tuple[ExitStack, Advance]] = {}
        self.ended: set[int] = set()

    def receive(self, number: int, message: tuple[int, str] | None) -> None:
        """A message of a job: the step that it has come to, with a note; None: it has ended."""
        name = self.jobs[number].method
        own = [other for other, job in enumerate(self.jobs) if job.method == name]
        if name not in self.steps:
            total, begun = (sum(values[each] for each in own) for values in (self.ends, self.done))
            step = self.stack.enter_context(ExitStack())
            self.steps[name] = step, step.enter_context(self.reporter.step(f"train {name}", total, begun))
        step, advance = self.steps[name]
        reached, note = message or (self.ends[number], "")
        advance(max(0, reached - self.done[number]), note)  # a job that was lost begins earlier
        self.done[number] = max(reached, self.done[number])
        if message is None:
            self.ended.add(number)
            if self.ended.issuperset(own):
                step.close()


def collect_trained(run: Run, name: str) -> Trained:
    """What came out of the trainings of a method."""
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
        for number in job.networks[: method.num_trained - job.networks[0]]:  # others may be stacked with them
            if number in finite:
                networks[number] = job
            else:
                diverged.append(f"network {number} diverged")
    return Trained(method, networks, diverged, seconds, logs, without_source)


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
        method.draw_sizes(recipe.members),
        plan=pool.plan,
        max_draws=lambda size: method.max_draws(size, recipe.draws),
        seed=recipe.seed,
        group=pool.group,
    )


def method_facts(recipe: Recipe, name: str, num_networks: int, pool: Pool, notes: Sequence[str] = ()) -> MethodFacts:
    """What a reader should know of a method before its numbers."""
    method, asked = recipe.method(name), ", ".join(map(str, recipe.members))
    alone = method.single and 1 not in recipe.members
    own = [f"It has no members that predict together: M is 1, and not {asked}."] if alone else []
    return MethodFacts(
        label=recipe.label(name),
        method=method.name,
        num_networks=num_networks,
        num_members=pool.num_members,
        num_groups=None if pool.group is None else len(set(pool.group)),
        plan=pool.plan,
        notes=[*own, *notes],
    )
