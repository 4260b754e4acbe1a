"""Who carries out the independent jobs of a run: processes of this machine, or the nodes of a Ray cluster.

Jobs are plain data that a process elsewhere can take, and `work` is a function of a module. What a job finds goes into
the run folder; all that it sends back is where it stands.
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
    """What one job takes. at_once: how many may run on this machine; gpus: 0.5 shares one; memory: bytes."""

    at_once: int = 1
    cpus: int = 1
    gpus: float = 0.0
    memory: int = 0


class Executor(Protocol):
    """Carries out jobs. remote: on machines of its own, so that what this one has does not limit them."""

    remote: bool

    @property
    def cores(self) -> int:
        """The cores of this machine, or of any that jobs run on, for each of its GPUs if they need one."""

    def resolve_device(self, name: str, option: str) -> str:
        """The kind of device that jobs run on: `auto` takes a GPU if there is one."""

    def room(self, resources: JobResources) -> int:
        """How many such jobs can run at a time."""

    def run(
        self, jobs: Sequence[Job], work: Callable[[Job, Send], None], resources: JobResources, receive: Receive
    ) -> dict[int, str]:
        """Do all jobs; returns what went wrong, by the number of the job. `receive` gets their numbers and messages.

        A job that raises an InputError does not stop the others. A message says where a job stands: of several that
        follow each other fast, only the last may arrive. `str(job)` is what messages call it.
        """


class LocalExecutor:
    """Processes of this machine; a single one at once is this process."""

    remote = False

    @property
    def cores(self) -> int:
        """The cores of this machine."""
        return len(os.sched_getaffinity(0))

    def resolve_device(self, name: str, option: str) -> str:
        """The device of this machine."""
        return devices.resolve_device(name, option)

    def room(self, resources: JobResources) -> int:
        """As many as were asked for."""
        return resources.at_once

    def run(
        self, jobs: Sequence[Job], work: Callable[[Job, Send], None], resources: JobResources, receive: Receive
    ) -> dict[int, str]:
        """Do all jobs, as many at once as they may be."""
        return run_jobs(jobs, work, resources.at_once, receive)


@contextmanager
def open_executor(name: str, folder: Path, say: Callable[[str], None]) -> Iterator[Executor]:
    """The executor of a name, for a run in a folder; one that was started for it is stopped in the end."""
    if devices.check_executor(name) == "local":
        yield LocalExecutor()
        return
    from epibench.runs.ray_executor import open_ray

    with open_ray(folder, say) as executor:
        yield executor
