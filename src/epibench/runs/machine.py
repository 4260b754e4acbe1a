"""The machine of a run, and the run itself."""

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

SHARE_FOR_WEIGHTS = 0.3  # of the memory, for the weights of members
JOB_BYTES = 10**9  # of a remote job, for its process, libraries and data
JOB_COPIES = 6  # of the weights: gradients, state of the optimiser, saved state


@dataclass(frozen=True)
class Machine:
    """The resources of a run.

    Args:
        device: Device of this process and of jobs. With a remote executor this process may lack a GPU.
        jobs: Number of networks that are trained at a time.
        workers: Processes that load data, for each job.
        executor: Executor of jobs.
        share: Share of the machine's memory that this process may take.
    """

    device: torch.device
    jobs: int
    workers: int
    executor: Executor = field(default_factory=LocalExecutor)
    share: float = 1.0

    @classmethod
    def of(cls, device: torch.device, jobs: int | None, executor: Executor | None = None) -> Machine:
        """Return a machine with default numbers of jobs and workers.

        A CPU has one job per core. A GPU has one job, with up to 8 processes that load its data.
        """
        executor = executor or LocalExecutor()
        cores = executor.cores
        if device.type == "cpu":
            return cls(device, jobs or cores, 0, executor)
        return cls(device, jobs or 1, max(1, min(8, (cores - 1) // (jobs or 1))), executor)

    @property
    def here(self) -> torch.device:
        """The device of this process. A GPU has its number, because each thread has its own current GPU."""
        if self.device.type == "cpu" or not torch.cuda.is_available():
            return torch.device("cpu")
        return torch.device("cuda", self.device.index or 0)

    def make_current(self) -> torch.device:
        """Return the device of this process, and make it this thread's current GPU: training may have set another."""
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
        """Bytes of the device's memory that the weights of members may take."""
        return SHARE_FOR_WEIGHTS * self.memory

    def device_of(self, number: int) -> str:
        """Return the device of a job.

        Local jobs take turns on the GPUs. A remote job sees only its own GPUs.
        """
        named = str(self.device)
        if named != "cuda":
            return named
        return "cuda:0" if self.executor.remote else f"cuda:{number % torch.cuda.device_count()}"

    def job_resources(self, at_once: int | None = None, memory: int = 0) -> JobResources:
        """Return the resources of a job. `at_once` limits parallel local jobs; None: `jobs`."""
        at_once = at_once or self.jobs
        if self.device.type == "cpu":
            return JobResources(at_once, memory=memory)
        return JobResources(at_once, 1 + self.workers, 1 / self.jobs, memory)


def memory_of_job(recipe: Recipe) -> int:
    """Return the bytes to request for a remote job that trains a network or evaluates images."""
    if not isinstance(recipe, DenseRecipe):
        return JOB_BYTES
    classes = 2 if recipe.likelihood == "categorical" else None
    networks = (recipe.method(name).build(recipe.builder(classes, method=name)) for name in recipe.methods)
    return JOB_BYTES + JOB_COPIES * max(sum(each.nbytes for each in network.parameters()) for network in networks)


@dataclass(frozen=True)
class Run:
    """A recipe with its folder, machine and reporter."""

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
    """Open the run of a recipe: find its device and start its executor.

    Args:
        recipe: Recipe of the run.
        folder: Folder of the run.
        reporter: Receives progress and messages.
        device: Name of the device.
        jobs: Number of parallel jobs; None: the default of the machine.
        executor: Name of the executor.
        option: Name of the device option in messages.
    """
    with open_executor(executor, folder, reporter.say) as chosen:
        machine = Machine.of(torch.device(chosen.resolve_device(device, option)), jobs, chosen)
        yield Run(recipe, RunFolder(folder), machine, reporter)
