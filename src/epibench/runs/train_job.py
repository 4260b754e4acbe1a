"""Training jobs: their files, their order, and the networks that they start from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch

from epibench.data.decoded import DecodedMemory
from epibench.errors import InputError
from epibench.files import fingerprint
from epibench.recipes import DenseRecipe, Recipe
from epibench.runs.checkpoints import Checkpoints, OtherSettingsError, TensorFile, load_tensors
from epibench.runs.image_training import decoded_memory
from epibench.runs.machine import Run
from epibench.runs.toy_training import toy_problem
from epibench.training.state import DivergedError, Weights

STACK = re.compile(r"(\d+)(?:-(\d+))?(?:\.\d+)?(\.unfinished)?\.safetensors")  # first and last network of a stack


@dataclass(frozen=True)
class TrainJob:
    """The training of some networks, as plain data.

    Args:
        recipe: Recipe of the run.
        method: Name of the method or variant.
        networks: Numbers of the networks.
        members: Folder of all trained weights of the run.
        device: `cpu` or `cuda:N`.
        workers: Processes that load data.
        decoded: Memory for decoded samples that processes of this machine share.
    """

    recipe: Recipe
    method: str
    networks: tuple[int, ...]
    members: Path
    device: str
    workers: int = 0
    decoded: DecodedMemory | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """Prefixes of the files of networks that the job resumes or starts from, below the run folder."""
        source, folder = self.recipe.method(self.method).source, self.members.name
        names = (self.method,) if source is None else (self.method, source)
        if not isinstance(self.recipe, DenseRecipe):  # a stack's file name begins with another network's number
            return tuple(f"{folder}/{name}/" for name in names)
        return tuple(f"{folder}/{name}/{network:04d}" for name in names for network in self.networks)

    def __str__(self) -> str:
        numbers = f"{self.networks[0]}-{self.networks[-1]}" if len(self.networks) > 1 else f"{self.networks[0]}"
        return f"{self.method}: network{'s' if len(self.networks) > 1 else ''} {numbers}"

    @cached_property
    def files(self) -> Checkpoints:
        """The files of the training."""
        recipe, method = self.recipe, self.recipe.method(self.method)
        if isinstance(recipe, DenseRecipe):
            version = recipe.data.train.version
        else:
            data = toy_problem(recipe).train
            version = fingerprint(data.inputs.numpy().tobytes(), data.target.numpy().tobytes())
        methods = [recipe.method(name) for name in (self.method, *recipe.sources(self.method))]
        names = [text for each in methods for text in (each.name, each.version)]
        key = fingerprint(recipe.training_settings(self.method), *names, self.networks, version)
        return Checkpoints(self.members / self.method, self.networks, key, method.keep)

    @property
    def ended(self) -> bool:
        """Whether the training has failed, or has finished with all fits of its method."""
        return self.files.failure() is not None or (not self.unfitted and self.files.finished() is not None)

    @property
    def unfitted(self) -> list[int]:
        """The networks whose fit is missing."""
        fits = self.recipe.method(self.method).fits
        return [network for network in self.networks if fits and not self.is_fitted(network)]

    @cached_property
    def posterior_key(self) -> str:
        """The fingerprint of everything that decides the fits, including all options of the method."""
        options = self.recipe.method(self.method).model_dump(mode="json", exclude={"diverged"})
        return fingerprint(self.files.fingerprint, options)

    def is_fitted(self, network: int) -> bool:
        """Return whether the method was fitted to a network with its present options."""
        return self._fit(network) is not None

    def _fit(self, network: int) -> TensorFile | None:
        """Return the notes of a network's fit with the present options; None if it is missing or outdated."""
        try:
            return load_tensors(self.files.posterior(network), self.posterior_key, only_notes=True)
        except OtherSettingsError:
            return None

    @property
    def fitting_seconds(self) -> float:
        """The seconds of all fits after training."""
        fits = [self._fit(network) for network in self.networks] if self.recipe.method(self.method).fits else []
        return sum(fit.number("seconds") for fit in fits if fit is not None)


class SourceFailedError(DivergedError):
    """The training of the network that this one starts from has failed."""


def stacks(folder: Path, number: int) -> list[tuple[int, ...]]:
    """Return which networks form stacks: networks that share files, and each gap of missing networks."""
    ends: dict[int, int] = {}
    for match in filter(None, (STACK.fullmatch(path.name) for path in folder.glob("*.safetensors"))):
        first, last = int(match[1]), int(match[2] or match[1])
        if last < number or not match[3]:  # an unfinished stack with too many networks is not resumed
            ends[first] = max(ends.get(first, 0), last + 1)
    parts = list[tuple[int, ...]]()
    first = 0
    while first < number:
        end = ends.get(first) or min([number, *(other for other in ends if other > first)])
        parts.append(tuple(range(first, end)))
        first = end
    return parts


def jobs_of(run: Run, name: str) -> list[TrainJob]:
    """Return the trainings of a method: one for each large network, or one for each stack."""
    recipe, machine, number = run.recipe, run.machine, run.recipe.method(name).num_trained
    large = isinstance(recipe, DenseRecipe)
    parts = [(network,) for network in range(number)] if large else stacks(run.folder.members / name, number)
    return [
        TrainJob(recipe, name, part, run.folder.members, machine.device_of(number), machine.workers)
        for number, part in enumerate(parts)
    ]


def waves(
    recipe: Recipe, asked: Mapping[str, Sequence[int] | None], together: bool
) -> list[dict[str, Sequence[int] | None]]:
    """Return networks and the networks they start from, in the order of their training.

    Args:
        recipe: Recipe of the run.
        asked: Numbers of networks by method; None: all networks of the method.
        together: Whether independent methods are trained at the same time.

    Returns:
        A list of networks by method. Each entry needs only entries before it.
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


def source_jobs(job: TrainJob) -> list[TrainJob]:
    """Return the trainings of the networks that a job starts from. They may belong to several stacks."""
    source = job.recipe.method(job.method).source
    if source is None:
        return []
    if isinstance(job.recipe, DenseRecipe):
        return [replace(job, method=source)]
    parts = stacks(job.members / source, job.recipe.method(source).num_trained)
    return [replace(job, method=source, networks=part) for part in parts if {*part} & {*job.networks}]


def source_failures(job: TrainJob) -> list[str]:
    """Return the failures of the networks that a job starts from."""
    return [failure for source in source_jobs(job) if (failure := source.files.failure()) is not None]


def started_from(job: TrainJob) -> tuple[Weights, float] | None:
    """Return the last weights of the networks that a job starts from, and the seconds of their training.

    Returns:
        Weights and seconds; None if the job starts from no network.

    Raises:
        SourceFailedError: The training of such a network has failed.
        InputError: Such a network is not trained.
    """
    found, seconds = list[Weights](), 0.0
    for source in source_jobs(job):
        if (failure := source.files.failure()) is not None:
            raise SourceFailedError([0], f"it starts from one that has failed ({failure})")
        if (notes := source.files.finished()) is None:
            raise InputError(f"{job} starts from {source}, which is not trained; train that first")
        weights = source.files.load_weights(len(source.files.keep) - 1)
        rows = [row for row, number in enumerate(source.networks) if number in job.networks]
        together = len(rows) / len(source.networks)
        seconds += together * notes.number("seconds")
        found.append(weights if isinstance(job.recipe, DenseRecipe) else {"parameters": weights["parameters"][rows]})
    if not found:
        return None
    joined = found[0] if len(found) == 1 else {"parameters": torch.cat([each["parameters"] for each in found])}
    return joined, seconds


def sharing_memory(jobs: Sequence[TrainJob]) -> list[TrainJob]:
    """Return jobs that share decoded training samples, so that this machine decodes every sample once."""
    shared = list(jobs)
    for place, job in enumerate(jobs):
        if isinstance(job.recipe, DenseRecipe):
            shared[place] = replace(job, decoded=decoded_memory(job.recipe, torch.device(job.device)))
    return shared
