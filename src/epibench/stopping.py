"""SIGTERM, which schedulers send some time before they kill: work saves where it stands and ends with status 143.

A command obeys it from its beginning to its end (`obeyed`). Where nothing can be saved, `Stopped` is raised at once, as
Ctrl-C raises KeyboardInterrupt. Work that goes in steps (`in_steps`) is not torn apart: after each step it asks
`asked()`, saves, and calls `check()`. Processes that work for this one are told, too, and do the same.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from types import FrameType

STATUS = 128 + signal.SIGTERM
GRACE_SECONDS = 20  # for the step that is being taken, and to save; schedulers kill after 30 or more
SAME_SECONDS = 1.0  # timeout(1) sends its signal to the process and to its group: that is one wish, not two


class Stopped(BaseException):  # no error, as KeyboardInterrupt is none
    """SIGTERM has come, and what is to be saved is saved."""


@dataclass
class _Request:
    """Whether this process was asked to stop, and when; process: who obeys, as forked ones inherit the handler."""

    process: int = 0
    at: float | None = None
    worker: bool = False
    steps: int = 0  # depth of what goes in steps


_request = _Request()


def asked() -> bool:
    """Whether work is to stop after this step."""
    return _request.at is not None


def check() -> None:
    """Stop here, if that was asked for."""
    if asked():
        raise Stopped


@contextmanager
def in_steps() -> Iterator[None]:
    """Work that asks after every step whether to stop; it is not interrupted within one, unless that takes too long."""
    check()
    _request.steps += 1
    try:
        yield
    finally:
        _request.steps -= 1
    check()


@contextmanager
def obeyed() -> Iterator[None]:
    """SIGTERM stops what is done meanwhile, a second one at once. Only the main thread can set that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM)}
    _obey(_Request(os.getpid()))
    try:
        yield
    finally:
        signal.alarm(0)
        _obey(_Request())
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def obey_as_worker() -> None:
    """The same for a process that works for another, which may send the signal again; from now on."""
    _obey(_Request(os.getpid(), worker=True))


def leave_to_parent(worker: int = 0) -> None:
    """For a process that only loads data: the one that it loads for decides when it ends."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _obey(request: _Request) -> None:
    global _request
    _request = request
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGALRM, _stop_late)


def _stop(number: int, frame: FrameType | None) -> None:
    request = _request
    if request.process != os.getpid():
        return
    if request.at is not None:
        if not request.worker and time.monotonic() - request.at > SAME_SECONDS:
            os._exit(STATUS)
        return
    request.at = time.monotonic()
    for child in workers():
        child.terminate()
    if not request.steps:
        raise Stopped
    signal.alarm(GRACE_SECONDS)


def _stop_late(number: int, frame: FrameType | None) -> None:
    """The step takes too long: what was saved last must do."""
    if _request.process == os.getpid():
        for child in workers():
            child.kill()
        raise Stopped


def workers() -> list[BaseProcess]:
    """The processes that work for this one; those that load data end with it."""
    return [child for child in multiprocessing.active_children() if not child.daemon]
