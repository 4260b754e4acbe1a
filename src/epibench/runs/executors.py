"""Executors of the independent jobs of a run: processes of this machine, or nodes of a Ray cluster.

Jobs are picklable plain data, and `work` is a function of a module. A job writes its results into the run folder. It
sends back only its progress.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from epibench import devices
from epibench.runs.processes import Job, Send, run_jobs

Receive = Callable[[int, Any], None]


@dataclass(frozen=True)
class JobResources:
    """Resources of one job.

    Args:
        at_once: Number of jobs that may run on this machine at a time.
        cpus: Cores of the job.
        gpus: GPUs of the job; 0.5 shares one between two jobs.
        memory: Bytes of memory.
    """

    at_once: int = 1
    cpus: int = 1
    gpus: float = 0.0
    memory: int = 0


class Executor(Protocol):
    """Runs jobs. `remote`: on other machines, so that this machine's resources do not limit them."""

    remote: bool

    @property
    def cores(self) -> int:
        """The cores of a machine that runs jobs; on nodes with GPUs, the cores for each GPU."""

    def resolve_device(self, name: str, option: str) -> str:
        """Return the device type of jobs: `auto` is a GPU if one exists."""

    def room(self, resources: JobResources) -> int:
        """Return how many jobs of these resources can run at a time."""

    def run(
        self, jobs: Sequence[Job], work: Callable[[Job, Send], None], resources: JobResources, receive: Receive
    ) -> dict[int, str]:
        """Run all jobs.

        A job that raises an InputError does not stop the other jobs. A message is the progress of a job: of several
        messages in a short time, only the last may arrive.

        Args:
            jobs: Jobs; `str(job)` names a job in messages.
            work: Function that runs a job.
            resources: Resources of each job.
            receive: Receives the number of a job and its message.

        Returns:
            Errors by the number of the job.
        """


class LocalExecutor:
    """Processes of this machine. If only one job may run at a time, jobs run in this process."""

    remote = False

    @property
    def cores(self) -> int:
        """The cores of this machine."""
        return len(os.sched_getaffinity(0))

    def resolve_device(self, name: str, option: str) -> str:
        """Return the device of this machine."""
        return devices.resolve_device(name, option)

    def room(self, resources: JobResources) -> int:
        """Return `resources.at_once`."""
        return resources.at_once

    def run(
        self, jobs: Sequence[Job], work: Callable[[Job, Send], None], resources: JobResources, receive: Receive
    ) -> dict[int, str]:
        """Run all jobs in at most `resources.at_once` processes."""
        return run_jobs(jobs, work, resources.at_once, receive)


@contextmanager
def open_executor(name: str, folder: Path, say: Callable[[str], None]) -> Iterator[Executor]:
    """Open an executor by name for a run in a folder.

    An executor that this call has started is stopped at the end.
    """
    if devices.check_executor(name) == "local":
        yield LocalExecutor()
        return
    from epibench.runs.ray_executor import open_ray

    with open_ray(folder, say) as executor:
        yield executor
