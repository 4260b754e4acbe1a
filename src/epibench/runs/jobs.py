"""A pool of processes for independent jobs, which send messages about their progress."""

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
Send = Callable[[Any], None]
POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Message:
    """What a job sends, with its number: progress, or its end, with an error for the user if there was one."""

    number: int
    content: Any = None
    ended: bool = False
    error: str | None = None


class JobFailedError(ChildProcessError):
    """A job has failed in a way that the user cannot fix, or its process has died."""


def run_jobs(
    jobs: Sequence[Job],
    work: Callable[[Job, Send], None],
    num_processes: int,
    receive: Callable[[int, Any], None] = lambda number, content: None,
) -> dict[int, str]:
    """Do all jobs; returns what went wrong, by the number of the job. `receive` gets their numbers and messages.

    Jobs are plain data and `work` is a function of a module, so that they can be sent to another process. A job that
    raises an InputError does not stop the others. With one process, everything runs in this one.
    """
    if num_processes <= 1 or len(jobs) <= 1:
        return _run_here(jobs, work, receive)
    return _Team(jobs, work, min(num_processes, len(jobs))).run(receive)


def _run_here(
    jobs: Sequence[Job], work: Callable[[Job, Send], None], receive: Callable[[int, Any], None]
) -> dict[int, str]:
    errors = {}
    for number, job in enumerate(jobs):
        try:
            work(job, lambda content, number=number: receive(number, content))  # type: ignore[misc]
        except InputError as error:
            errors[number] = str(error)
    return errors


class _Team(Generic[Job]):
    """Processes that take jobs from one queue."""

    def __init__(self, jobs: Sequence[Job], work: Callable[[Job, Send], None], size: int):
        context = multiprocessing.get_context("spawn")
        self.waiting: Any = context.Queue()
        self.messages: Any = context.Queue()
        for pair in enumerate(jobs):
            self.waiting.put(pair)
        for _ in range(size):
            self.waiting.put(None)
        self.left = len(jobs)
        self.checked = time.monotonic()
        arguments = (self.waiting, self.messages, work, os.getpid())
        self.processes: list[BaseProcess] = [context.Process(target=_serve, args=arguments) for _ in range(size)]

    def run(self, receive: Callable[[int, Any], None]) -> dict[int, str]:
        """Wait until all jobs have ended; the processes are stopped whatever happens."""
        errors: dict[int, str] = {}
        try:
            with interrupts_ignored():  # new processes inherit this until they ignore it themselves
                for process in self.processes:
                    process.start()
            while self.left:
                message = self._next()
                if not message.ended:
                    receive(message.number, message.content)
                    continue
                self.left -= 1
                if message.error is not None:
                    errors[message.number] = message.error
        finally:
            for process in self.processes:
                if self.left and process.pid is not None:
                    process.terminate()
                if process.pid is not None:
                    process.join()
        return errors

    def _next(self) -> Message:
        while True:
            if time.monotonic() > self.checked + POLL_SECONDS:  # also while others send many messages
                self._check_alive()
                self.checked = time.monotonic()
            try:
                message: Message | str = self.messages.get(timeout=POLL_SECONDS)
            except queue.Empty:
                continue
            if isinstance(message, str):
                raise JobFailedError(message)
            return message

    def _check_alive(self) -> None:
        for process in self.processes:
            if process.exitcode not in (None, 0):
                raise JobFailedError(
                    f"a process that trained a network has died (status {process.exitcode}; was memory short?); "
                    f"the same command goes on from what is saved"
                )


@contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Ctrl-C does nothing meanwhile; only the main thread can set that."""
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


def _serve(waiting: Any, messages: Any, work: Callable[[Any, Send], None], parent: int) -> None:
    """Do jobs until there is none left; end at once if the process that started this one is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one handles it, and stops this one
    end_with(parent)
    while True:
        pair = waiting.get()
        if pair is None:
            return
        number, job = pair

        def send(content: Any, number: int = number) -> None:
            messages.put(Message(number, content))

        try:
            work(job, send)
            messages.put(Message(number, ended=True))
        except InputError as error:
            messages.put(Message(number, ended=True, error=str(error)))
        except BaseException as error:
            traceback.print_exc(file=sys.stderr)
            messages.put(f"{type(error).__name__}: {error}")
            return
