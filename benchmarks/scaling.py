"""How a run scales with Ray: what a task costs besides its work, and how well workers are used.

Tasks go through the same executor as networks and stretches of images, each in a process of its own. Simulated ones
wait for a known time, so that more workers can be tried than there are cores; real ones multiply matrices with one
thread. Beside seconds on the clock are those of the processor, which do not depend on what else the machine does.
Efficiency is what all tasks should take, divided by workers × the time that passed: starting processes, importing
torch and ending are all counted.

    python benchmarks/scaling.py overhead
    python benchmarks/scaling.py simulated --workers 1 4 16 64 --seconds 60
    python benchmarks/scaling.py real --workers 1 2
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from epibench.runs.executors import JobResources
from epibench.runs.processes import Send
from epibench.runs.ray_executor import STARTED_WITH, RayExecutor, open_ray, silence

IMPORTS = {
    "none": (),
    "torch": ("torch",),
    "training": ("epibench.runs.trainers",),  # what the training of a large network imports
    "evaluation": ("epibench.runs.evaluate_job",),
}


@dataclass(frozen=True)
class Task:
    """seconds: of waiting, or of work that takes about so long; imports: what is imported first."""

    seconds: float
    imports: str
    real: bool = False


def carry_out(task: Task, send: Send) -> None:
    """Import, then wait or work; sends when it began, and processor seconds before, of imports and of work."""
    begun, started = time.time(), time.process_time()
    for name in IMPORTS[task.imports]:
        importlib.import_module(name)
    imported = time.process_time()
    if task.real:
        multiply(imported + task.seconds)
    else:
        time.sleep(task.seconds)
    send((begun, started, imported - started))


def multiply(end: float) -> None:
    """Matrix products with one thread, until the process has had so many seconds of the processor."""
    import torch

    torch.set_num_threads(1)
    matrix = torch.eye(512)
    while time.process_time() < end:
        matrix = matrix @ matrix


@contextmanager
def cluster(workers: int) -> Iterator[RayExecutor]:
    """A cluster of this machine that claims so many cores."""
    import ray

    folder = Path(tempfile.gettempdir())
    silence(ray)
    quiet: dict[str, Any] = {"include_dashboard": False, "logging_level": logging.ERROR, "log_to_driver": False}
    ray.init("local", num_cpus=workers, **quiet)
    try:
        with open_ray(folder, lambda text: None) as executor:
            yield executor
    finally:
        ray.shutdown()


def measure(workers: int, tasks: Sequence[Task]) -> dict[str, Any]:
    """Seconds of all tasks together, and of their parts on average."""
    times: dict[int, tuple[float, float, float]] = {}
    with cluster(workers) as executor:
        executor.run([Task(0, "none")], carry_out, JobResources(), lambda number, content: None)  # the cluster is awake
        begun, before = time.time(), time.process_time()
        errors = executor.run(tasks, carry_out, JobResources(), times.__setitem__)
        wall, driver = time.time() - begun, (time.process_time() - before) / len(tasks)
    assert not errors, errors
    starts, processes, imports = zip(*times.values(), strict=True)
    mean = {"process": sum(processes) / len(tasks), "imports": sum(imports) / len(tasks)}
    return {"wall": wall, "last_start": max(starts) - begun, "driver": driver, **mean}


def overhead(options: argparse.Namespace) -> None:
    """What a task costs that does nothing, one after another."""
    print("| tasks that import | seconds per task | processor: start of a process | imports |\n|---|---|---|---|")
    for imports in IMPORTS:
        tasks = [Task(0.0, imports)] * options.tasks
        found = measure(1, tasks)
        each = f"{found['wall'] / len(tasks):.2f} | {found['process']:.2f} | {found['imports']:.2f}"
        print(f"| {imports} | {each} |", flush=True)


def efficiency(options: argparse.Namespace) -> None:
    """How well workers are used by tasks of one length."""
    print(
        "| workers | tasks | seconds | efficiency | the last began after | processor: a start with imports | driver |"
    )
    print("|---|---|---|---|---|---|---|")
    for workers in options.workers:
        tasks = [Task(options.seconds, options.imports, options.what == "real")] * (options.rounds * workers)
        found = measure(workers, tasks)
        share = len(tasks) * options.seconds / (workers * found["wall"])
        start, driver = found["process"] + found["imports"], 1000 * found["driver"]
        spent = f"{found['last_start']:.1f} s | {start:.1f} s | {driver:.0f} ms a task"
        print(f"| {workers} | {len(tasks)} | {found['wall']:.1f} | {100 * share:.1f} % | {spent} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["overhead", "simulated", "real"])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=10.0, help="of each task")
    parser.add_argument("--rounds", type=int, default=2, help="tasks for each worker")
    parser.add_argument("--tasks", type=int, default=8, help="tasks of `overhead`")
    parser.add_argument("--imports", choices=list(IMPORTS), default="training")
    options = parser.parse_args()
    for name, value in STARTED_WITH.items():
        os.environ.setdefault(name, value)
    overhead(options) if options.what == "overhead" else efficiency(options)


if __name__ == "__main__":
    main()
