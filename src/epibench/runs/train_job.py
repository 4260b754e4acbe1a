"""Training jobs: what a process needs to know, which files are its own, what it starts from, and which come first."""

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

STACK = re.compile(r"(\d+)(?:-(\d+))?(?:\.\d+)?(\.unfinished)?\.safetensors")  # first and last of stacked networks


@dataclass(frozen=True)
class TrainJob:
    """What a process needs to know to train: plain data. networks: their numbers; device: `cpu` or `cuda:0`.

    decoded: where processes of this machine keep samples that are decoded (`DecodedMemory`).
    """

    recipe: Recipe
    method: str  # or the name of a variant
    networks: tuple[int, ...]
    members: Path
    device: str
    workers: int = 0
    decoded: DecodedMemory | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """How the names of files of networks begin that it goes on from, or starts from, below the run folder."""
        source, folder = self.recipe.method(self.method).source, self.members.name
        names = (self.method,) if source is None else (self.method, source)
        if not isinstance(self.recipe, DenseRecipe):  # files of stacked networks may begin with the number of others
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
        """Whether it has ended, well or not, with all that its method fits afterwards."""
        return self.files.failure() is not None or (not self.unfitted and self.files.finished() is not None)

    @property
    def unfitted(self) -> list[int]:
        """The networks that the method has still to fit something to."""
        fits = self.recipe.method(self.method).fits
        return [network for network in self.networks if fits and not self.is_fitted(network)]

    @cached_property
    def posterior_key(self) -> str:
        """Of everything that decides what is fitted to trained networks: any option may."""
        options = self.recipe.method(self.method).model_dump(mode="json", exclude={"diverged"})
        return fingerprint(self.files.fingerprint, options)

    def is_fitted(self, network: int) -> bool:
        """Whether the method was fitted to a network with the options that it has now."""
        return self._fit(network) is not None

    def _fit(self, network: int) -> TensorFile | None:
        """The notes on what was fitted to a network with the options that the method has now."""
        try:
            return load_tensors(self.files.posterior(network), self.posterior_key, only_notes=True)
        except OtherSettingsError:
            return None

    @property
    def fitting_seconds(self) -> float:
        """What the method took to fit all that it fits after training."""
        fits = [self._fit(network) for network in self.networks] if self.recipe.method(self.method).fits else []
        return sum(fit.number("seconds") for fit in fits if fit is not None)


class SourceFailedError(DivergedError):
    """A network cannot be trained because the one that it starts from has failed."""


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


def jobs_of(run: Run, name: str) -> list[TrainJob]:
    """The trainings of a method: stacked networks are trained together, large ones each by itself."""
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


def source_jobs(job: TrainJob) -> list[TrainJob]:
    """The trainings of the networks that those of a job start from; stacked ones may be in several, or among others."""
    source = job.recipe.method(job.method).source
    if source is None:
        return []
    if isinstance(job.recipe, DenseRecipe):
        return [replace(job, method=source)]
    parts = stacks(job.members / source, job.recipe.method(source).num_trained)
    return [replace(job, method=source, networks=part) for part in parts if {*part} & {*job.networks}]


def source_failures(job: TrainJob) -> list[str]:
    """Why those have failed that the networks of a job start from."""
    return [failure for source in source_jobs(job) if (failure := source.files.failure()) is not None]


def started_from(job: TrainJob) -> tuple[Weights, float] | None:
    """The last weights of the networks that a job starts from, and the seconds of their training; None: from none.

    A network that has diverged makes those that would start from it diverge.
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
    """Jobs whose processes, on this machine, decode every sample of their training data once between them."""
    shared = list(jobs)
    for place, job in enumerate(jobs):
        if isinstance(job.recipe, DenseRecipe):
            shared[place] = replace(job, decoded=decoded_memory(job.recipe, torch.device(job.device)))
    return shared
