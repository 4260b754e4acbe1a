"""Tasks of tests that fail in every way, wait at gates and note their node; Ray sends this module by value."""

from __future__ import annotations

import os
import time
from pathlib import Path

from epibench.errors import InputError


def node() -> str:
    import ray

    return ray.get_runtime_context().get_node_id()


def note(folder: Path, text: str) -> int:
    """Add a line to the notes, and return how often its text occurs."""
    with (folder / "notes.txt").open("a") as file:
        file.write(f"{text} {node()} {os.getpid()}\n")
    return sum(line.split()[0] == text for line in (folder / "notes.txt").read_text().splitlines())


def work(job: str, send) -> None:
    """Do the job that the word names; notes are in the current folder."""
    times = note(Path.cwd(), job)
    for number in range(3):
        send((job, number))
    if job == "bad":
        raise InputError("bad: give another one")
    if job == "broken":
        raise ZeroDivisionError("of all things")
    if job == "dead" or (job == "dead-at-first" and times == 1):
        os._exit(3)
    while job == "endless" or (job == "waiting" and not Path("gate").exists()):
        time.sleep(0.05)


def wait_at_gate(name: str, gates: Path, job: str) -> None:
    """Note that a job has begun, and wait for its gate."""
    note(gates, f"{name}:{job.replace(' ', '-')}")
    while not (gates / name).exists():
        time.sleep(0.05)


def train_at_gate(job, send) -> None:
    from epibench.runs.trainers import train_job

    wait_at_gate("train", job.members.parent.parent, str(job))
    train_job(job, send)


def evaluate_at_gate(job, send) -> None:
    from epibench.runs.evaluate_job import evaluate_job

    wait_at_gate("evaluate", job.folder.parent, str(job))
    evaluate_job(job, send)


def train_all_but_one(job, send) -> None:
    from epibench.runs.trainers import train_job

    if job.networks == (1,):
        os._exit(3)
    train_job(job, send)
