"""Draw the street scenes that a run needs and that are not kept yet, with all cores."""

from __future__ import annotations

import os
from dataclasses import dataclass

from torch.utils.data import DataLoader, Dataset

from epibench.data.loading import Failure
from epibench.street import StreetDataset
from epibench.errors import InputError
from epibench.progress import Reporter


@dataclass(frozen=True)
class _Drawn(Dataset["int | Failure"]):
    """Drawing a scene keeps it; only its number comes back."""

    scenes: StreetDataset

    def __getitem__(self, index: int) -> int | Failure:
        try:
            self.scenes.frame(index)
        except InputError as error:
            return Failure(str(error))
        return index


def draw_missing(name: str, scenes: StreetDataset, reporter: Reporter) -> None:
    """Draw what is missing; nothing if all is there."""
    missing = scenes.missing()
    if not missing:
        return
    with reporter.step(f"draw scenes of {name}", len(missing)) as advance:
        workers = min(len(os.sched_getaffinity(0)), len(missing))
        for drawn in DataLoader(_Drawn(scenes), batch_size=None, sampler=missing, num_workers=workers):
            if isinstance(drawn, Failure):
                raise InputError(drawn.text)
            advance(1)
