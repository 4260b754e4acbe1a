"""What a run will need of disk and memory, and whether that is there, before hours are spent.

Only what is missing counts: networks that are trained, and stores that are written, need nothing more. Weights, states
and metrics are computed from the things themselves; a training step and a pass are tried on tensors without content
(`dry_run`), and what a process or a library takes besides is a round number. So a part is `certain` or an estimate.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

import torch

from epibench.errors import InputError
from epibench.evaluation.suite import make_suite
from epibench.free_memory import free_memory
from epibench.likelihoods import LIKELIHOODS
from epibench.members.on_images import portion_pixels
from epibench.members.pool import CHUNK, CHUNKS_AT_ONCE, KERNEL_MEMORY, Pool, parts_of
from epibench.methods.contract import MemberTable, Method
from epibench.networks.shaping import shape_like
from epibench.recipes import DenseRecipe, Recipe
from epibench.runs.checks import Check, RunStep
from epibench.runs.domains import ImageData
from epibench.runs.dry_run import pass_memory, step_memory
from epibench.runs.image_evaluation import suite_settings
from epibench.runs.image_training import augment_of, network_as_trained, precision_of
from epibench.runs.machine import Run
from epibench.runs.method_results import draws_of
from epibench.runs.train_job import TrainJob, jobs_of, waves

Value = TypeVar("Value")
GIGABYTE = 1e9
PROCESS_BYTES = 500_000_000  # of a process that has imported everything, before it does anything
CONTEXT_BYTES = 500_000_000  # of a process on a GPU, for CUDA itself
JOB_BYTES = 10**9  # of a job elsewhere: its process, libraries and data, beside the weights
JOB_COPIES = 6  # of the weights: gradients, what an optimiser remembers, what is saved
STORED_BYTES = 4  # of a number in a prediction store
LIBRARIES = 1.3  # of a step's tensors, with what libraries take besides: benchmarks/memory.py
SCORED_BYTES = 8  # of a number while draws are scored, in float64
SCORED_COPIES = 4  # of it at once: probabilities, their logarithms, products


@dataclass(frozen=True)
class Need:
    """Bytes of one thing. certain: it was computed; otherwise it is an estimate."""

    what: str
    size: int
    certain: bool = True


@dataclass(frozen=True)
class Resource:
    """One thing that a run uses up: what it needs of it and why, what is free, and what to do where that is short."""

    name: str
    needs: tuple[Need, ...]
    free: int
    remedy: str
    strict: bool = False  # also an estimate that exceeds what is free is refused

    @property
    def total(self) -> int:
        """All that is needed."""
        return sum(need.size for need in self.needs)

    @property
    def line(self) -> str:
        """`about 1.2 GB of disk (33.0 GB free)`."""
        return f"about {in_gigabytes(self.total)} of {self.name} ({in_gigabytes(self.free)} free)"

    @property
    def text(self) -> str:
        """The same with all parts."""
        words = [f"{need.what} {in_gigabytes(need.size)}" for need in self.needs if need.size]
        parts = ", ".join(words) or "nothing more"
        return f"about {in_gigabytes(self.total)} are needed ({parts}; an estimate), {in_gigabytes(self.free)} are free"

    def check(self) -> str:
        """Refuse what cannot be: the certain part alone, of the disk also the estimate, is more than is free."""
        wanted = sum(need.size for need in self.needs if need.certain or self.strict)
        if wanted > self.free:
            raise InputError(f"{self.name}: {self.text}: {in_gigabytes(wanted - self.free)} are short; {self.remedy}")
        return self.text

    def check_estimate(self) -> str:
        """Complain where the estimate is more than is free."""
        if self.total > self.free:
            short = in_gigabytes(self.total - self.free)
            raise InputError(f"{self.name} may not suffice: {self.text}, {short} less; {self.remedy}")
        return "suffices by this estimate"


def check_needs(run: Run, data: ImageData, steps: Sequence[RunStep]) -> None:
    """Say in one line what a run needs; refuse it where that cannot be, warn where it may not be."""
    resources = Needs(run, data, steps).resources
    run.reporter.say(f"needs {' and '.join(resource.line for resource in resources)}; an estimate")
    for resource in resources:
        resource.check()
    for resource in resources:
        try:
            resource.check_estimate()
        except InputError as error:
            run.reporter.say(str(error))


def needs_checks(run: Run, data: ImageData, steps: Sequence[RunStep]) -> list[Check]:
    """The same as checks, with every part."""
    needs, on_gpu = Needs(run, data, steps), run.machine.device.type == "cuda"

    def ask(number: int, question: Callable[[Resource], str]) -> str:
        return question(needs.memories[number])

    checks = [Check("disk", lambda: needs.disk.check())]
    for number, name in enumerate(("memory", "GPU memory") if on_gpu else ("memory",)):
        checks.append(Check(name, partial(ask, number, Resource.check)))
        checks.append(Check(f"{name}, as estimated", partial(ask, number, Resource.check_estimate), required=False))
    return checks


class Needs:
    """What the steps of a run on images need, as far as they are not done."""

    def __init__(self, run: Run, data: ImageData, steps: Sequence[RunStep]):
        recipe = run.recipe
        assert isinstance(recipe, DenseRecipe)
        self.run, self.recipe, self.data, self.steps = run, recipe, data, steps
        self.on_gpu = run.machine.device.type == "cuda"
        self._metric_states = dict[tuple[str, str], int]()
        self._networks = dict[str, torch.nn.Module]()

    @property
    def resources(self) -> list[Resource]:
        """Disk, memory, and that of the GPU if one is used; the memory of machines elsewhere is not known here."""
        return [self.disk] if self.run.machine.executor.remote else [self.disk, *self.memories]

    @cached_property
    def disk(self) -> Resource:
        """Room for what will be written."""
        free, remedy = free_disk(self.run.folder.path), "give another --out, or make room"
        return Resource("disk", tuple(self.written()), free, remedy, strict=True)

    @cached_property
    def memories(self) -> list[Resource]:
        """Memory of the host, and of the GPU if one is used."""
        fewer = "take fewer --jobs, a smaller batch_size or training.crop, or fewer draws"
        host, device = self.memory()
        memories = [Resource("memory", host, free_memory(), fewer)]
        if self.on_gpu:
            memories.append(Resource("GPU memory", device, free_gpu_memory(self.run.machine.device), fewer))
        return memories

    # Sizes of things

    def weights(self, name: str) -> int:
        """Bytes of the weights and buffers of one network of a method."""
        return sum(each.nbytes for each in self._network(name).state_dict().values())

    def _network(self, name: str) -> torch.nn.Module:
        """A network of a method as it is trained, without memory of its own."""
        if name not in self._networks:
            self._networks[name] = network_as_trained(self.recipe, name, self.data.num_classes).to("meta")
        return self._networks[name]

    def _make(self, name: str, trained: bool = False) -> torch.nn.Module:
        """A network of a method as it predicts, or is trained, of its sizes."""
        make = self.recipe.builder(self.data.num_classes, method=name)
        network = self.recipe.method(name).build(make) if trained else make()
        return shape_like(network, self._network(name).state_dict())

    def state(self, name: str) -> int:
        """Bytes of where the training of a network stands: parameters, what its rule remembers, buffers."""
        parameters = sum(each.nbytes for each in self._network(name).parameters())
        remembered = self.recipe.method(name).rule.start(torch.empty(2, device="meta"))  # as many of each parameter
        return self.weights(name) + len(remembered) * parameters

    @cached_property
    def trained(self) -> dict[str, Sequence[int] | None]:
        """The networks that are trained, by method, None for all of one: also those that others start from."""
        levels = waves(self.recipe, dict.fromkeys(self.recipe.methods), together=True)
        return {name: networks for level in levels for name, networks in level.items()}

    def jobs(self, name: str) -> list[TrainJob]:
        """The trainings of a method, as far as its networks are wanted."""
        wanted = self.trained[name]
        return [job for job in jobs_of(self.run, name) if wanted is None or {*job.networks} & {*wanted}]

    def missing(self, name: str) -> int:
        """Weights of a method that are not written yet."""
        jobs = [job for job in self.jobs(name) if job.files.failure() is None]
        return sum(not job.files.weights(number).exists() for job in jobs for number in range(len(job.files.keep)))

    def fitted(self, name: str, networks: int) -> int:
        """Bytes of what a method fits to so many networks."""
        return int(networks * self.recipe.method(name).fitted_size * self.weights(name))

    def unfitted(self, name: str) -> int:
        """Networks of a method that nothing was fitted to yet."""
        jobs = [job for job in self.jobs(name) if job.files.failure() is None]
        return sum(not job.files.posterior(network).exists() for job in jobs for network in job.networks)

    def untrained(self, name: str) -> int:
        """Networks of a method that are still to be trained."""
        return sum(not has_ended(job) for job in self.jobs(name))

    def at_once(self, name: str) -> int:
        """Networks of a method that are trained at the same time."""
        return min(self.untrained(name), self.run.machine.jobs)

    def pool(self, name: str) -> Pool:
        """The members of a method, without their networks."""
        method, pool = self.recipe.method(name), Pool()
        pool.table = method.members(range(method.num_trained))
        return pool

    def metric_states(self, name: str, domain: str) -> int:
        """Bytes of the metrics of every draw of a method on a domain."""
        if (name, domain) in self._metric_states:
            return self._metric_states[name, domain]
        recipe, data, pool = self.recipe, self.data.domain(domain), self.pool(name)
        settings = suite_settings(recipe.likelihood, recipe.evaluation, data, recipe.task == "depth")
        parts = parts_of(pool, draws_of(recipe, name, pool))
        with torch.device("meta"):
            suites = [make_suite(part.weights.to("meta"), settings) for part in parts]
        self._metric_states[name, domain] = sum(each.nbytes for suite in suites for each in suite.state().values())
        return self._metric_states[name, domain]

    # Disk

    def written(self) -> Iterator[Need]:
        """What will be written, less what is there."""
        trained, states = self.trained, [0]
        if "train" in self.steps:
            yield Need("weights", sum(self.missing(name) * self.weights(name) for name in trained))
            yield Need("what is fitted", sum(self.fitted(name, self.unfitted(name)) for name in trained))
            states += [self.at_once(name) * self.state(name) for name in trained]
        if "evaluate" in self.steps:
            if self.recipe.evaluation.store:
                yield Need("predictions", sum(self.predictions(name, domain) for name, domain in self.evaluated()))
            states += [2 * self.metric_states(name, domain) for name, domain in self.evaluated()]  # two of each
        yield Need("unfinished states", 2 * max(states))  # a new one is written before the last one goes

    @cached_property
    def domains(self) -> list[str]:
        """Those that are there; others are refused elsewhere."""
        return [name for name in self.recipe.data.domains if tried(partial(self.data.domain, name), None)]

    def evaluated(self) -> Iterator[tuple[str, str]]:
        """Methods and domains."""
        return ((name, domain) for name in self.recipe.methods for domain in self.domains)

    def predictions(self, name: str, domain: str) -> int:
        """Bytes of every number that members predict, less those that are stored."""
        samples = self.data.domain(domain).samples
        numbers = self.pool(name).num_members * len(samples) * samples[0].target.numel()
        path = self.run.folder.path / "predictions" / name / f"{domain}.zarr"
        stored = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        return max(0, numbers * (self.data.num_classes or 2) * STORED_BYTES - stored)

    # Memory

    def memory(self) -> tuple[tuple[Need, ...], tuple[Need, ...]]:
        """Of the host and of the GPU, at the step that needs most of each; without a GPU all is the host's."""
        hosts: list[tuple[Need, ...]] = [(Need("this process", PROCESS_BYTES, certain=False),)]
        devices: list[tuple[Need, ...]] = [()]
        for name in self.trained if "train" in self.steps else ():
            if self.untrained(name):
                self._add(hosts, devices, self.training(name), self.at_once(name), self.state(name))
                fitted = 2 * self.fitted(name, self.at_once(name))  # it is copied to be saved
                hosts.append((hosts[-1][0], Need(f"what is fitted to networks of {name}", fitted)))
        for name in self.recipe.methods if "evaluate" in self.steps and self.domains else ():
            domain = max(self.domains, key=partial(self.metric_states, name))
            self._add(hosts, devices, self.evaluation(name, domain), 1, self.metric_states(name, domain))
        return max(hosts, key=total), max(devices, key=total)

    def _add(
        self,
        hosts: list[tuple[Need, ...]],
        devices: list[tuple[Need, ...]],
        needs: Sequence[Need],
        processes: int,
        state: int,
    ) -> None:
        """Add what processes at work need. state: is copied to be saved; on a GPU that and the file are on the host."""
        word = "this process" if processes == 1 else f"{processes} processes"
        host = Need(word, processes * PROCESS_BYTES, certain=False)
        if not self.on_gpu:
            hosts.append((host, *needs))
            return
        hosts.append((host, Need("states while they are saved", 2 * processes * state)))
        devices.append((Need("CUDA", processes * CONTEXT_BYTES, certain=False), *needs))

    def training(self, name: str) -> list[Need]:
        """Networks that are trained at once on one device, with a step of each."""
        recipe, method = self.recipe, self.recipe.method(name)
        at_once, images = self.at_once(name), method.batch_size
        if self.on_gpu:
            at_once = -(-at_once // torch.cuda.device_count())
        parameters = sum(each.nbytes for each in self._network(name).parameters())
        mixed = str(precision_of(recipe, self.run.machine.device)) == "bf16-mixed"
        sample = augment_of(recipe)(self.data.train[0], 0)
        loss = LIKELIHOODS[recipe.likelihood].image_loss
        build = partial(self._make, name, trained=True)
        step = tried(partial(step_memory, build, loss, sample, images, mixed), 0)
        about = f"{at_once} × " if at_once > 1 else ""
        return [
            Need(f"{about}weights, gradients and optimiser of {name}", at_once * (self.state(name) + parameters)),
            Need(
                f"{about}a step of {images} images",
                at_once * max(int(LIBRARIES * step), self.state(name)),
                certain=False,
            ),
        ]

    def evaluation(self, name: str, domain: str) -> list[Need]:
        """Metrics of every draw, one network, and what a portion of images takes."""
        recipe, device, pool = self.recipe, self.run.machine.device, self.pool(name)
        states, batch = self.metric_states(name, domain), recipe.evaluation.batch_size
        sample, outputs = self.data.domain(domain).samples[0], self.data.num_classes or 2
        build = partial(self._make, name)
        weights = sum(each.nbytes for each in build().state_dict().values())
        peak, shape = tried(partial(pass_memory, build, sample, batch), (0, (batch, outputs, *sample.target.shape)))
        part = len(pool.table.members) if pool.group is None else largest_group(pool.table)
        enough = portion_pixels(device, part, self.data.num_classes)
        images = batch * max(1, -(-enough // (batch * sample.target.numel())))
        threads = torch.get_num_threads() if device.type == "cpu" else 1
        scored = CHUNK[device.type] * CHUNKS_AT_ONCE[device.type] * SCORED_BYTES * SCORED_COPIES
        if self.on_gpu:
            scored = max(scored, int(KERNEL_MEMORY * self.run.machine.memory))
        method, trunk = recipe.method(name), type(recipe.method(name)).shared_stages is not Method.shared_stages
        shared = method.dropout or method.member_views or trunk  # then a network is there once for all its members
        networks = len({(m.network, m.snapshot, 0 if shared else m.number) for m in pool.table.members})
        largest = self.weights(name) if trunk else weights  # as it was trained: with all heads
        loaded = min(networks * largest, int(self.run.machine.memory_for_weights))
        maps = part * images * torch.Size(shape[1:]).numel() * 4
        return [
            Need(f"metrics of all draws of {name}, of a stretch of images and of those before", 2 * states),
            Need("one network", weights),
            Need("further networks that stay loaded", max(0, loaded - weights), False),
            Need("passes", int(LIBRARIES * threads * peak), False),
            Need(f"outputs of {part} members for {images} images", maps, False),
            Need("draws that are scored at once", scored, False),
            Need("metrics while they are saved", 0 if self.on_gpu else states, False),
        ]


def memory_of_job(recipe: Recipe) -> int:
    """Bytes that a process takes, about, that trains a network or evaluates images."""
    if not isinstance(recipe, DenseRecipe):
        return JOB_BYTES
    classes = 2 if recipe.likelihood == "categorical" else None
    networks = (recipe.method(name).build(recipe.builder(classes, method=name)) for name in recipe.methods)
    return JOB_BYTES + JOB_COPIES * max(sum(each.nbytes for each in network.parameters()) for network in networks)


def has_ended(job: TrainJob) -> bool:
    """Whether a training has ended; what is wrong with its files is for others to say."""
    try:
        return job.ended
    except InputError:
        return False


def largest_group(table: MemberTable) -> int:
    """Members of the largest group."""
    group = list(table.group or ())
    return max(group.count(each) for each in set(group))


def total(needs: Sequence[Need]) -> int:
    """Bytes of all of them."""
    return sum(need.size for need in needs)


def tried(work: Callable[[], Value], otherwise: Value) -> Value:
    """What work gives, or otherwise: a network of the user's may not work without real numbers."""
    try:
        return work()
    except Exception:
        return otherwise


def free_disk(path: Path) -> int:
    """Bytes that are free where a folder is, or will be."""
    existing = next(each for each in (path.absolute(), *path.absolute().parents) if each.exists())
    return shutil.disk_usage(existing).free


def free_gpu_memory(device: torch.device) -> int:
    """Bytes that are free on the GPU; of several that are shared, on the fullest."""
    numbers = range(torch.cuda.device_count()) if device.index is None else [device.index]
    return min(torch.cuda.mem_get_info(number)[0] for number in numbers)


def in_gigabytes(number: float) -> str:
    """`12.3 GB`."""
    return f"{number / GIGABYTE:,.1f} GB" if number >= GIGABYTE / 10 else f"{number / 1e6:,.0f} MB"
