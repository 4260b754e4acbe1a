"""One training on one device, or on two that share every batch, as a program that a test can kill.

    python two_devices.py FOLDER DEVICES [WHAT HAPPENS]

State is saved at every other step. What happens at step 5: `kill` ends all processes of the program, as a power cut
does; `die` ends the second process alone; `fail` lets it come upon a broken image.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from small_dense_recipe import small_dense
from torch import Tensor

from epibench.data.batch import Batch, Samples
from epibench.data.sets.street import StreetSource
from epibench.data.source import Folders, Task
from epibench.errors import InputError
from epibench.networks.depth_completion import DepthCompletion
from epibench.recipes.dense import DenseRecipe
from epibench.runs.train_job import TrainJob
from epibench.runs.trainers import train_job
from epibench.training import network
from epibench.training.state import Pacer

LENGTH, SIZE, BATCH = 7, 16, 4  # rounds end within batches
LAST_STEP = 6


class MadeUp:
    """Made-up depth images with as many valid pixels each: the mean of two halves of a batch is that of the batch."""

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Batch:
        generator = torch.Generator().manual_seed(index)
        image = torch.randint(0, 256, (3, SIZE, SIZE), dtype=torch.uint8, generator=generator)
        depth = 1 + 9 * torch.rand(SIZE, SIZE, generator=generator)
        sparse = torch.where(torch.rand(depth.shape, generator=generator) < 0.2, depth, 0.0)[None]
        valid = (torch.arange(SIZE * SIZE) % 3 > 0).view(SIZE, SIZE)
        return Batch({"image": image, "sparse_depth": sparse}, depth, valid)


class MadeUpSource(StreetSource):
    """Where these images come from."""

    def open(self, task: Task, folders: Folders, key: str) -> Samples:
        return MadeUp()


class Halved(DepthCompletion):
    """A network that sees the halves of a batch one after the other, as two devices do, in one process.

    Each half is normalised by itself; the running statistics are those of the first.
    """

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        first, second = ({name: each.chunk(2)[part] for name, each in inputs.items()} for part in (0, 1))
        outputs = super().forward(first)
        kept = {name: each.clone() for name, each in self.named_buffers()}
        outputs = torch.cat((outputs, super().forward(second)))
        for name, each in self.named_buffers():
            each.data = kept[name]  # in place, autograd would miss what it saw
        return outputs


class HalvedRecipe(DenseRecipe):
    """Its networks see two halves."""

    def builder(self, num_classes: int | None, pretrained: bool = False, method: str | None = None) -> partial[Any]:
        return partial(Halved, 8, (1, 1, 1, 1), init_std=None)


def make_job(folder: Path, devices: int, kind: type[DenseRecipe] = DenseRecipe) -> TrainJob:
    """The training of one network; momentum, because Adam makes much of the rounding of a small gradient."""
    recipe = small_dense(
        folder / "cache",
        *("training.crop=[16,16]", f"training.devices={devices}", "training.log=none"),
        *(f"ensemble.batch_size={BATCH}", "ensemble.optimiser=momentum", "ensemble.learning_rate=0.0001"),
    )
    data = recipe.data.model_copy(update={"train": MadeUpSource()})
    recipe = kind.model_validate(recipe.model_dump()).model_copy(update={"data": data})
    return TrainJob(recipe, "ensemble", (0,), folder / "members", "cpu")


def let_happen(what: str, step: int, rank: int) -> None:
    """What a test asks for, at its step."""
    if step != 5:
        return
    if what == "kill":
        os.killpg(0, signal.SIGKILL)
    if what == "die" and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "fail" and rank == 1:
        raise InputError("train/0003.png: is broken or truncated; unpack or download it again")


# Processes of one training begin with this module, too.
if __name__ in ("__main__", "__mp_main__"):
    network.LOG_EVERY = 2
    Pacer.due = lambda pacer: True  # type: ignore[method-assign]
    take_step = network._Run.take_step

    def step_or_not(run: network._Run, batch: Batch) -> None:
        let_happen(sys.argv[3] if len(sys.argv) > 3 else "", run.step, run.fabric.global_rank)
        take_step(run, batch)

    network._Run.take_step = step_or_not  # type: ignore[method-assign]

if __name__ == "__main__":
    job = make_job(Path(sys.argv[1]), int(sys.argv[2]))
    print("from step", job.files.step())
    try:
        train_job(job, lambda message: None)
    except (InputError, ChildProcessError) as error:
        print(f"{type(error).__name__}: {error}")
