"""Small runs that were trained: the files of their networks, and what methods make of them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from fault_injection import save_often
from safetensors import safe_open
from safetensors.torch import load_file
from silent_reporter import Silent
from torch import Tensor

import epibench
from epibench.data.loading import Stream, batches
from epibench.methods import Member, TrainedNetwork
from epibench.recipes import DenseRecipe, Recipe
from epibench.runs.checkpoints import save_tensors
from epibench.runs.folder import RunFolder
from epibench.runs.image_experiment import ImageExperiment
from epibench.runs.image_training import augment_of, open_training_data
from epibench.runs.machine import Machine, Run
from epibench.runs.toy import ToyExperiment
from epibench.runs.train import collect_trained
from epibench.runs.train_job import jobs_of
from epibench.runs.trained_views import view_of
from epibench.training import stacked
from epibench.training.statistics import batch_norm_statistics

WEIGHTS = re.compile(r"(\d+)(?:-(\d+))?(?:\.\d+)?\.safetensors")  # first and last network, epoch
Weights = dict[str, Tensor]


@dataclass(frozen=True)
class TrainedRun:
    """A recipe, and the folder of the run that has trained its networks."""

    recipe: Recipe
    folder: Path

    def kept(self, method: str, number: int) -> list[Weights]:
        """The weights of a network after every epoch that is kept, from its files."""
        found = list[Weights]()
        for path in self.files(method):
            first, last = WEIGHTS.fullmatch(path.name).groups()
            if int(first) <= number <= int(last or first):
                weights = load_file(path)
                stacked = not isinstance(self.recipe, DenseRecipe)
                found.append(
                    {name: each[number - int(first)] for name, each in weights.items()} if stacked else weights
                )
        return found

    def files(self, method: str) -> list[Path]:
        """The files of kept weights of a method."""
        files = (self.folder / "members" / method).glob("*.safetensors")
        return sorted(path for path in files if WEIGHTS.fullmatch(path.name))

    def written(self, *methods: str) -> dict[str, int]:
        """The times at which kept weights were written."""
        files = [path for method in methods for path in self.files(method)]
        assert files
        return {str(path): path.stat().st_mtime_ns for path in files}

    def copy_sources(self, method: str, folder: Path) -> None:
        """Begin the folder of another run with the networks that a method starts from."""
        shutil.copytree(self.folder, folder, ignore=lambda *_: {"members"}, dirs_exist_ok=True)
        for name in self.recipe.sources(method):
            shutil.copytree(self.folder / "members" / name, folder / "members" / name)

    @property
    def run(self) -> Run:
        machine = Machine(torch.device("cpu"), jobs=1, workers=0)
        return Run(self.recipe, RunFolder(self.folder), machine, Silent())

    def collected(self, method: str) -> Any:
        """The networks of a method that can be used: numbers, weights of members, seconds; why others cannot."""
        return collect_trained(self.run, method)

    def pool(self, method: str) -> Any:
        """The members of a method."""
        trained = self.collected(method)
        if isinstance(self.recipe, DenseRecipe):
            return ImageExperiment(self.run).drawn(method, trained).pool
        return ToyExperiment(self.run).pool(trained)

    def network(self, method: str, number: int) -> TrainedNetwork:
        """A trained network as its method sees it."""
        return view_of(next(job for job in jobs_of(self.run, method) if number in job.networks))(number)

    def member(self, method: str, member: Member) -> Weights:
        """The weights of a member."""
        return dict(self.recipe.method(method).weights(member, self.network(method, member.network)))

    def refreshed(self, method: str, number: int, weights: Weights, num_batches: int) -> Weights:
        """Weights of an image network with statistics of batch norm over augmented training images."""
        trained, size = self.network(method, number), self.recipe.method(method).batch_size
        order, change = (trained.key("statistics", purpose) for purpose in ("order", "change"))
        stream = Stream(open_training_data(self.recipe), augment_of(self.recipe), order, change)
        module = self.recipe.builder(None)()
        module.load_state_dict(weights)
        seen = (batch.inputs for batch in batches(stream, range(num_batches * size), size))
        return weights | batch_norm_statistics(module, seen)


def train(recipe: Recipe, folder: Path, *only: str, reporter: Silent | None = None) -> TrainedRun:
    """Train the networks of a recipe, or only some, in this process."""
    epibench.train(recipe, folder, only=only, device="cpu", jobs=1, progress=reporter or Silent())
    return TrainedRun(recipe, folder)


def train_killed(recipe: Recipe, folder: Path, *only: str, stop_at: int) -> TrainedRun:
    """Train until a step, stop there as by a kill, and train on from a state. States are saved often."""
    again = Silent()
    with pytest.MonkeyPatch.context() as patch:
        save_often(patch.setattr, log_every=1)
        patch.setattr(stacked, "next_segment", lambda epochs, seconds: 1)
        with pytest.raises(KeyboardInterrupt):
            train(recipe, folder, *only, reporter=Silent(stop_at))
        trained = train(recipe, folder, *only, reporter=again)
    (begun,) = again.done.values()
    assert 0 < begun < stop_at
    return trained


def rewrite(path: Path, tensors: Weights | None = None, **notes: Any) -> None:
    """Change a file of a run so that its checksums fit."""
    with safe_open(path, framework="pt") as file:
        before = json.loads(file.metadata()["notes"])
    save_tensors(path, load_file(path) if tensors is None else tensors, {**before, **notes})


def assert_same_weights(one: Iterable[Weights], other: Iterable[Weights]) -> None:
    """Bit for bit, snapshot by snapshot."""
    for ours, theirs in zip(one, other, strict=True):
        assert ours.keys() == theirs.keys()
        assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []
