"""The images of a domain in stretches, whose boundaries depend on the data alone.

Metric states add up, but sums of floating-point numbers depend on their order. So each stretch is added up by itself,
and then to those before it, in their order: who evaluates which of them, and when, does not change a bit. A stretch
that was evaluated by itself leaves its states in a file until all are merged.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
from torch import Tensor

from epibench.data.batch import Samples
from epibench.data.given import LoadedBatches
from epibench.evaluation.loop import EvaluationTotals
from epibench.files import remove
from epibench.runs.checkpoints import TensorFile, load_tensors, save_tensors

# A stretch is short enough that hundreds of machines have something to do, and long enough that adding states up, of a
# few megabytes for each draw, costs little beside evaluating its images.
STRETCH_PIXELS = 2**22
STRETCH_IMAGES = 8
SPARSE = 4  # a tensor of which less than one in so many numbers is not 0 is kept as these numbers and their places
SMALL = 1024  # numbers that are kept as they are


@dataclass(frozen=True)
class Stretches:
    """The stretches of a domain's images, and the files of those that were evaluated by themselves.

    folder: of their files; key: the fingerprint of what decides the numbers; length: images of each but the last.
    """

    folder: Path
    key: str
    num_images: int
    length: int

    def __len__(self) -> int:
        return math.ceil(self.num_images / self.length)

    def images(self, number: int) -> range:
        """The images of a stretch."""
        return range(number * self.length, min((number + 1) * self.length, self.num_images))

    def path(self, number: int) -> Path:
        """The file of a stretch."""
        return self.folder / f"{number:06d}.safetensors"

    def missing(self) -> list[int]:
        """The stretches that have no file."""
        return [number for number in range(len(self)) if not self.path(number).exists()]

    def save(self, number: int, state: Mapping[str, Tensor], done: EvaluationTotals) -> None:
        """Keep the states of a stretch, unless somebody else was faster. done: of this stretch alone."""
        if not self.path(number).exists():
            save_tensors(self.path(number), packed(state), {"fingerprint": self.key, **asdict(done)})

    def load(self, number: int) -> tuple[dict[str, Tensor], EvaluationTotals] | None:
        """The states of a stretch, if they are there; what is damaged is an error that names the file."""
        saved = load_tensors(self.path(number), self.key)
        if saved is None:
            return None
        done = totals_of(saved)
        if done.images != len(self.images(number)):
            raise saved.complaint(f"its 'images' is {done.images}, not {len(self.images(number))}")
        return unpacked(saved.tensors), done

    def remove(self) -> None:
        """The files are not needed any more."""
        for number in range(len(self)):
            remove(self.path(number))
        shutil.rmtree(self.folder, ignore_errors=True)


def totals_of(saved: TensorFile) -> EvaluationTotals:
    """How far an evaluation was, as the notes of a file say."""
    images, pixels, *seconds = (saved.number(each.name) for each in fields(EvaluationTotals))
    return EvaluationTotals(int(images), int(pixels), *seconds)


def stretch_length(samples: Samples, batch_size: int) -> int:
    """How many images are added up by themselves: whole batches of so many pixels, counted by the first image."""
    if isinstance(samples, LoadedBatches):  # which have sizes of their own
        return max(1, len(samples))
    images = max(STRETCH_IMAGES, STRETCH_PIXELS // samples[0].target.numel())
    return -(-images // batch_size) * batch_size


def packed(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """States for a file: most bins of a histogram are empty, and only the others are kept."""
    tensors: dict[str, Tensor] = {}
    for name, values in state.items():
        flat = values.flatten()
        if flat.numel() > SMALL and int(flat.count_nonzero()) * SPARSE < flat.numel():
            index = flat.nonzero().squeeze(1)
            tensors |= {f"{name}:index": index.to(torch.int32 if flat.numel() < 2**31 else torch.int64)}
            tensors |= {f"{name}:values": flat[index], f"{name}:shape": torch.tensor(values.shape)}
        else:
            tensors[name] = values
    return tensors


def unpacked(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The states that were packed."""
    state = {name: values for name, values in tensors.items() if ":" not in name}
    for key, shape in tensors.items():
        name, _, what = key.partition(":")
        if what == "shape":
            values, index = tensors[f"{name}:values"], tensors[f"{name}:index"].long()
            state[name] = torch.zeros(shape.tolist(), dtype=values.dtype)
            state[name].view(-1)[index] = values
    return state
