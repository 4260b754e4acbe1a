"""The images of a domain in stretches, whose boundaries depend on data and batch size.

Sums of floating-point numbers depend on their order. Therefore each stretch has its own sums, which are added to the
total in index order. Results are bit-equal whichever process evaluates a stretch, and whenever. A stretch that was
evaluated alone leaves its states in a file until all stretches are merged.
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

# A stretch is short enough to occupy hundreds of machines. It is long enough that adding its states, of a few
# megabytes for each draw, costs little beside the evaluation of its images.
STRETCH_PIXELS = 2**22
STRETCH_IMAGES = 8
SPARSE = 4  # tensors with fewer than 1/SPARSE non-zeros are stored as indices and values
SMALL = 1024  # tensors of at most SMALL numbers are stored as they are


@dataclass(frozen=True)
class Stretches:
    """The stretches of a domain's images, and their files.

    Args:
        folder: Folder of the files.
        key: Fingerprint of everything that decides the scores.
        num_images: Number of images of the domain.
        length: Number of images of each stretch except the last.
    """

    folder: Path
    key: str
    num_images: int
    length: int

    def __len__(self) -> int:
        return math.ceil(self.num_images / self.length)

    def images(self, number: int) -> range:
        """Return the images of a stretch."""
        return range(number * self.length, min((number + 1) * self.length, self.num_images))

    def path(self, number: int) -> Path:
        """Return the file of a stretch."""
        return self.folder / f"{number:06d}.safetensors"

    def missing(self) -> list[int]:
        """Return the stretches that have no file."""
        return [number for number in range(len(self)) if not self.path(number).exists()]

    def save(self, number: int, state: Mapping[str, Tensor], done: EvaluationTotals) -> None:
        """Write the states of a stretch unless its file exists. `done` are the totals of this stretch alone."""
        if not self.path(number).exists():
            save_tensors(self.path(number), packed(state), {"fingerprint": self.key, **asdict(done)})

    def load(self, number: int) -> tuple[dict[str, Tensor], EvaluationTotals] | None:
        """Return the states and totals of a stretch, or None without a file.

        Raises:
            InputError: The file is damaged.
        """
        saved = load_tensors(self.path(number), self.key)
        if saved is None:
            return None
        done = totals_of(saved)
        if done.images != len(self.images(number)):
            raise saved.complaint(f"its 'images' is {done.images}, not {len(self.images(number))}")
        return unpacked(saved.tensors), done

    def remove(self) -> None:
        """Remove all files."""
        for number in range(len(self)):
            remove(self.path(number))
        shutil.rmtree(self.folder, ignore_errors=True)


def totals_of(saved: TensorFile) -> EvaluationTotals:
    """Return the totals of an evaluation from the notes of its file."""
    images, pixels, *seconds = (saved.number(each.name) for each in fields(EvaluationTotals))
    return EvaluationTotals(int(images), int(pixels), *seconds)


def stretch_length(samples: Samples, batch_size: int) -> int:
    """Return the images of a stretch: whole batches with about `STRETCH_PIXELS`, by the size of the first image."""
    if isinstance(samples, LoadedBatches):  # whose batches have their own sizes
        return max(1, len(samples))
    images = max(STRETCH_IMAGES, STRETCH_PIXELS // samples[0].target.numel())
    return -(-images // batch_size) * batch_size


def packed(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return states for a file, with sparse tensors as indices and values.

    Most bins of a histogram are empty.
    """
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
    """Return packed states as they were."""
    state = {name: values for name, values in tensors.items() if ":" not in name}
    for key, shape in tensors.items():
        name, _, what = key.partition(":")
        if what == "shape":
            values, index = tensors[f"{name}:values"], tensors[f"{name}:index"].long()
            state[name] = torch.zeros(shape.tolist(), dtype=values.dtype)
            state[name].view(-1)[index] = values
    return state
