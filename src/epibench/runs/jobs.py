"""Run independent jobs in processes of their own, as many at once as asked for, and hear of their progress."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from epibench.errors import InputError

Job = TypeVar("Job")
Tell = Callable[[Any], None]
POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Told:
    """A message of a job, by its number: progress, or its end with an error for the user, or none."""

    number: int
    content: Any = None
    ended: bool = False
    error: str | None = None


class JobFailedError(ChildProcessError):
    """A job has failed in a way that the user cannot mend, or its process has died."""


def run_jobs(
    jobs: Sequence[Job],
    work: Callable[[Job, Tell], None],
    num_processes: int,
    hear: Callable[[int, Any], None] = lambda number, content: None,
) -> dict[int, str]:
    """Do all jobs; returns what went wrong, by the number of the job. `hear` gets what jobs tell.

    Jobs are plain data and `work` a function of a module, so that they can be sent to another process. One that raises
    an InputError leaves the others alone. With one process everything happens here.
    """
    if num_processes <= 1 or len(jobs) <= 1:
        return _run_here(jobs, work, hear)
    return _Team(jobs, work, min(num_processes, len(jobs))).run(hear)


def _run_here(
    jobs: Sequence[Job], work: Callable[[Job, Tell], None], hear: Callable[[int, Any], None]
) -> dict[int, str]:
    errors = {}
    for number, job in enumerate(jobs):
        try:
            work(job, lambda content, number=number: hear(number, content))  # type: ignore[misc]
        except InputError as error:
            errors[number] = str(error)
    return errors


class _Team(Generic[Job]):
    """Processes that take jobs from one queue."""

    def __init__(self, jobs: Sequence[Job], work: Callable[[Job, Tell], None], size: int):
        context = multiprocessing.get_context("spawn")
        self.waiting: Any = context.Queue()
        self.told: Any = context.Queue()
        for pair in enumerate(jobs):
            self.waiting.put(pair)
        for _ in range(size):
            self.waiting.put(None)
        self.left = len(jobs)
        self.checked = time.monotonic()
        arguments = (self.waiting, self.told, work, os.getpid())
        self.processes: list[BaseProcess] = [context.Process(target=_serve, args=arguments) for _ in range(size)]

    def run(self, hear: Callable[[int, Any], None]) -> dict[int, str]:
        """Until all jobs have ended; processes are stopped whatever happens."""
        errors: dict[int, str] = {}
        try:
            with interrupts_ignored():  # which processes inherit until they can see to it themselves
                for process in self.processes:
                    process.start()
            while self.left:
                told = self._next()
                if not told.ended:
                    hear(told.number, told.content)
                    continue
                self.left -= 1
                if told.error is not None:
                    errors[told.number] = told.error
        finally:
            for process in self.processes:
                if self.left and process.pid is not None:
                    process.terminate()
                if process.pid is not None:
                    process.join()
        return errors

    def _next(self) -> Told:
        while True:
            if time.monotonic() > self.checked + POLL_SECONDS:  # also while others have much to tell
                self._check_alive()
                self.checked = time.monotonic()
            try:
                told: Told | str = self.told.get(timeout=POLL_SECONDS)
            except queue.Empty:
                continue
            if isinstance(told, str):
                raise JobFailedError(told)
            return told

    def _check_alive(self) -> None:
        for process in self.processes:
            if process.exitcode not in (None, 0):
                raise JobFailedError(
                    f"a process that trained a network has died (status {process.exitcode}; was memory short?); "
                    f"the same command goes on from what is saved"
                )


@contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Ctrl-C does nothing meanwhile; only the main thread can ask for that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def end_with(parent: int) -> None:
    """End this process as soon as the one that started it is gone."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(POLL_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _serve(waiting: Any, told: Any, work: Callable[[Any, Tell], None], parent: int) -> None:
    """Take jobs until there is none left; end at once if the process that asked for them is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one that asked hears of it, and stops this one

    end_with(parent)
    while True:
        pair = waiting.get()
        if pair is None:
            return
        number, job = pair

        def tell(content: Any, number: int = number) -> None:
            told.put(Told(number, content))

        try:
            work(job, tell)
            told.put(Told(number, ended=True))
        except InputError as error:
            told.put(Told(number, ended=True, error=str(error)))
        except BaseException as error:
            traceback.print_exc(file=sys.stderr)
            told.put(f"{type(error).__name__}: {error}")
            return
