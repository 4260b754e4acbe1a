"""SIGTERM: save the state of the work and end with status 143.

Schedulers send SIGTERM some time before they kill a process. A command handles it within `obeyed`. Outside of steps the
handler raises `Stopped` at once, as Ctrl-C raises KeyboardInterrupt. Work within `in_steps` is not interrupted within a
step: after each step it calls `asked()`, saves, and calls `check()`. The handler sends SIGTERM to child processes, too.
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
GRACE_SECONDS = 20  # to finish the current step and to save; schedulers kill after 30 or more
SAME_SECONDS = 1.0  # timeout(1) signals the process and its group: two signals that count as one


class Stopped(BaseException):  # not an Exception, like KeyboardInterrupt
    """SIGTERM has arrived, and the work is saved."""


@dataclass
class _Request:
    """The time of SIGTERM, and the process that handles it: forked processes inherit the handler."""

    process: int = 0
    at: float | None = None
    worker: bool = False
    steps: int = 0  # depth of nested `in_steps`


_request = _Request()


def asked() -> bool:
    """Return whether SIGTERM has arrived, so that work must stop after this step."""
    return _request.at is not None


def check() -> None:
    """Raise `Stopped` if SIGTERM has arrived."""
    if asked():
        raise Stopped


@contextmanager
def in_steps() -> Iterator[None]:
    """Delay `Stopped` to the end of a step of the work, for at most `GRACE_SECONDS`."""
    check()
    _request.steps += 1
    try:
        yield
    finally:
        _request.steps -= 1
    check()


@contextmanager
def obeyed() -> Iterator[None]:
    """Handle SIGTERM within the context; a second signal ends the process at once.

    Only the main thread can set handlers. In other threads the context has no effect.
    """
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
    """Handle SIGTERM in a child process from now on. Repeated signals of the parent are ignored."""
    _obey(_Request(os.getpid(), worker=True))


def leave_to_parent(worker: int = 0) -> None:
    """Ignore SIGTERM in a process that loads data: its parent ends it."""
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
    """Stop within a step that takes too long: work after the last save is lost."""
    if _request.process == os.getpid():
        for child in workers():
            child.kill()
        raise Stopped


def workers() -> list[BaseProcess]:
    """Return the child processes, except daemons: processes that load data end with this one."""
    return [child for child in multiprocessing.active_children() if not child.daemon]
