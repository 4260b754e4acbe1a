"""What all steps of a dense run share: the recipe, its folder, the machine, whom to tell, and the data."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from epibench.runs.dense_data import DenseData
from epibench.progress import Reporter
from epibench.runs.run_folder import RunFolder
from epibench.recipes.dense import DenseRecipe


@dataclass(frozen=True)
class Machine:
    """Where a run happens. jobs: networks that are trained at once; workers: processes that load data for each."""

    device: torch.device
    jobs: int
    workers: int

    @classmethod
    def of(cls, device: torch.device, jobs: int | None) -> Machine:
        """By default one network per core on a CPU, and one on a GPU, whose data is loaded by the cores."""
        cores = len(os.sched_getaffinity(0))
        if device.type == "cpu":
            return cls(device, jobs or cores, 0)
        return cls(device, jobs or 1, max(1, min(8, (cores - 1) // (jobs or 1))))

    @property
    def memory(self) -> int:
        """Bytes that the device has."""
        if self.device.type == "cuda":
            return int(torch.cuda.get_device_properties(self.device).total_memory)
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def device_of(self, place: int) -> str:
        """The device of a job: jobs take turns on the GPUs."""
        named = str(self.device)
        return named if named != "cuda" else f"cuda:{place % torch.cuda.device_count()}"


@dataclass(frozen=True)
class DenseRun:
    """A recipe that is carried out."""

    recipe: DenseRecipe
    folder: RunFolder
    machine: Machine
    reporter: Reporter
    data: DenseData
