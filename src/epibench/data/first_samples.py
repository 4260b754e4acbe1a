"""The first samples of a data set, which keep their names and classes."""

from __future__ import annotations

from typing import Any

from torch.utils.data import Dataset

from epibench.data.batch import Batch
from epibench.data.images import check_index
from epibench.data.loading import Samples


def first_samples(samples: Samples, number: int | None) -> Samples:
    """The first so many samples, or all."""
    return samples if number is None or number >= len(samples) else FirstSamples(samples, number)


class FirstSamples(Dataset[Batch]):
    """The first samples; everything else is as in the whole data set."""

    def __init__(self, samples: Samples, number: int):
        self.samples, self.number = samples, min(number, len(samples))

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: int) -> Batch:
        return self.samples[check_index(index, self.number, "the first part")]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "samples":  # while it is unpickled, there are no samples yet
            raise AttributeError(name)
        return getattr(self.samples, name)
