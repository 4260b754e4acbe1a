"""A pool of processes for independent jobs that report their progress."""

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
from functools import partial
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from epibench import stopping
from epibench.errors import InputError
from epibench.files import in_words

Job = TypeVar("Job")
Send = Callable[[Any], None]
POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Message:
    """A message of a job: its progress, or its end.

    Args:
        number: Number of the job.
        content: Progress.
        ended: Whether the job has ended.
        error: The user's error that ended the job; None without one.
    """

    number: int
    content: Any = None
    ended: bool = False
    error: str | None = None


class JobFailedError(ChildProcessError):
    """A job has raised something other than an InputError, or its process has died."""


def run_jobs(
    jobs: Sequence[Job],
    work: Callable[[Job, Send], None],
    num_processes: int,
    receive: Callable[[int, Any], None] = lambda number, content: None,
) -> dict[int, str]:
    """Run all jobs. A job that raises an InputError does not stop the other jobs.

    Args:
        jobs: Jobs as plain data, which can be sent to another process.
        work: Function of a module that runs a job.
        num_processes: Number of processes; 1 runs all jobs in this process.
        receive: Receives the number of a job and its message.

    Returns:
        Errors by the number of the job.

    Raises:
        JobFailedError: A job has raised another error, or its process has died.
    """
    if num_processes > 1 and len(jobs) > 1:
        return _run_in_processes(jobs, work, min(num_processes, len(jobs)), receive)
    errors = {}
    for number, job in enumerate(jobs):
        try:
            work(job, partial(receive, number))
        except InputError as error:
            errors[number] = str(error)
    return errors


def _run_in_processes(
    jobs: Sequence[Job], work: Callable[[Job, Send], None], size: int, receive: Callable[[int, Any], None]
) -> dict[int, str]:
    """Start processes that take jobs from one queue. All processes are stopped at the end, also after an error."""
    context, left, errors = multiprocessing.get_context("spawn"), len(jobs), dict[int, str]()
    waiting: Any = context.Queue()
    messages: Any = context.Queue()
    for pair in (*enumerate(jobs), *[None] * size):
        waiting.put(pair)
    arguments = (waiting, messages, work, os.getpid())
    processes: list[BaseProcess] = [context.Process(target=_serve, args=arguments) for _ in range(size)]
    try:
        with interrupts_ignored():  # new processes inherit this until they ignore it themselves
            for process in processes:
                process.start()
        incoming = _messages_of(processes, messages)
        while left:
            message = next(incoming)
            if not message.ended:
                receive(message.number, message.content)
                continue
            left -= 1
            if message.error is not None:
                errors[message.number] = message.error
    except stopping.Stopped:
        started, end = [each for each in processes if each.pid is not None], time.monotonic() + stopping.GRACE_SECONDS
        for process in started:
            process.terminate()  # all processes save at the same time
        for process in started:
            process.join(max(0.0, end - time.monotonic()))
        raise
    finally:
        for process in processes:
            if process.pid is not None:
                if left:
                    process.kill()
                process.join()
    return errors


def _messages_of(processes: Sequence[BaseProcess], messages: Any) -> Iterator[Message]:
    checked = time.monotonic()
    while True:
        if time.monotonic() > checked + POLL_SECONDS:  # also while other processes send many messages
            for process in processes:
                if process.exitcode in (stopping.STATUS, -signal.SIGTERM):
                    raise stopping.Stopped
                if process.exitcode not in (None, 0):
                    cause = (
                        "was memory short?" if process.exitcode < 0 else "in a script, call epibench below if __name__"
                    )
                    raise JobFailedError(
                        f"a process that trained a network has died (status {process.exitcode}; {cause}); "
                        f"the same command goes on from what is saved"
                    )
            checked = time.monotonic()
        try:
            message: Message | str = messages.get(timeout=POLL_SECONDS)
        except queue.Empty:
            continue
        if isinstance(message, str):
            raise JobFailedError(message)
        yield message


@contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Ignore Ctrl-C within the context. Only the main thread can set that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def end_with(parent: int) -> None:
    """End this process as soon as its parent process is gone."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(POLL_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _serve(waiting: Any, messages: Any, work: Callable[[Any, Send], None], parent: int) -> None:
    """Run jobs of the queue until it is empty, or the parent process is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles it, and stops this process
    end_with(parent)
    try:
        stopping.obey_as_worker()
        _serve_jobs(waiting, messages, work)
    except stopping.Stopped:
        messages.cancel_join_thread()  # the parent has stopped reading
        sys.exit(stopping.STATUS)


def _serve_jobs(waiting: Any, messages: Any, work: Callable[[Any, Send], None]) -> None:
    while (pair := waiting.get()) is not None:
        number, job = pair
        try:
            work(job, lambda content, number=number: messages.put(Message(number, content)))  # type: ignore[misc]
            messages.put(Message(number, ended=True))
        except InputError as error:
            messages.put(Message(number, ended=True, error=str(error)))
        except stopping.Stopped:
            raise
        except OSError as error:
            messages.put(in_words(error))
            return
        except BaseException as error:
            traceback.print_exc(file=sys.stderr)
            messages.put(f"{type(error).__name__}: {error}")
            return
