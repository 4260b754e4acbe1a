"""Where a run happens, and the run itself: a recipe in a folder, on a machine, followed by a reporter."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from epibench.progress import Reporter
from epibench.recipes import DenseRecipe, Recipe
from epibench.runs.executors import Executor, JobResources, LocalExecutor, open_executor
from epibench.runs.folder import RunFolder

SHARE_FOR_WEIGHTS = 0.3  # of the memory, for those of members
JOB_BYTES = 10**9  # of a job elsewhere: its process, libraries and data, beside the weights
JOB_COPIES = 6  # of the weights: gradients, what an optimiser remembers, what is saved


@dataclass(frozen=True)
class Machine:
    """Where a run happens. jobs: networks that are trained at once; workers: processes that load data for each.

    device: of this process, and of jobs; where an executor has GPUs elsewhere, this process may have none. share: of
    the machine's memory that this process may take.
    """

    device: torch.device
    jobs: int
    workers: int
    executor: Executor = field(default_factory=LocalExecutor)
    share: float = 1.0

    @classmethod
    def of(cls, device: torch.device, jobs: int | None, executor: Executor | None = None) -> Machine:
        """By default one network per core on a CPU, and one on a GPU, whose data is loaded by the cores."""
        executor = executor or LocalExecutor()
        cores = executor.cores
        if device.type == "cpu":
            return cls(device, jobs or cores, 0, executor)
        return cls(device, jobs or 1, max(1, min(8, (cores - 1) // (jobs or 1))), executor)

    @property
    def here(self) -> torch.device:
        """The device of this process; a GPU by its number, as each thread has a current one of its own."""
        if self.device.type == "cpu" or not torch.cuda.is_available():
            return torch.device("cpu")
        return torch.device("cuda", self.device.index or 0)

    def make_current(self) -> torch.device:
        """The same, and from now on the current one of this thread: training may have left another."""
        if self.here.type == "cuda":
            torch.cuda.set_device(self.here)
        return self.here

    @property
    def memory(self) -> int:
        """Bytes of the device's memory that this process may take."""
        if self.here.type == "cuda":
            return int(self.share * torch.cuda.get_device_properties(self.here).total_memory)
        return int(self.share * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))

    @property
    def memory_for_weights(self) -> float:
        """Bytes of it that the weights of members may take."""
        return SHARE_FOR_WEIGHTS * self.memory

    def device_of(self, number: int) -> str:
        """The device of a job: jobs take turns on the GPUs; elsewhere one sees only those that it is given."""
        named = str(self.device)
        if named != "cuda":
            return named
        return "cuda:0" if self.executor.remote else f"cuda:{number % torch.cuda.device_count()}"

    def job_resources(self, at_once: int | None = None, memory: int = 0) -> JobResources:
        """What a job needs; at_once: how many run at once here, if not as many as can."""
        at_once = at_once or self.jobs
        if self.device.type == "cpu":
            return JobResources(at_once, memory=memory)
        return JobResources(at_once, 1 + self.workers, 1 / self.jobs, memory)


def memory_of_job(recipe: Recipe) -> int:
    """Bytes to request for a process elsewhere that trains a network or evaluates images."""
    if not isinstance(recipe, DenseRecipe):
        return JOB_BYTES
    classes = 2 if recipe.likelihood == "categorical" else None
    networks = (recipe.method(name).build(recipe.builder(classes, method=name)) for name in recipe.methods)
    return JOB_BYTES + JOB_COPIES * max(sum(each.nbytes for each in network.parameters()) for network in networks)


@dataclass(frozen=True)
class Run:
    """A recipe that is carried out: in a folder, on a machine, followed by a reporter."""

    recipe: Recipe
    folder: RunFolder
    machine: Machine
    reporter: Reporter


@contextmanager
def open_run(
    recipe: Recipe,
    folder: Path,
    reporter: Reporter,
    device: str,
    jobs: int | None = None,
    executor: str = "local",
    option: str = "device",
) -> Iterator[Run]:
    """The run of a recipe in a folder, on a device, by an executor; nothing is done yet. option: names the device."""
    with open_executor(executor, folder, reporter.say) as chosen:
        machine = Machine.of(torch.device(chosen.resolve_device(device, option)), jobs, chosen)
        yield Run(recipe, RunFolder(folder), machine, reporter)
