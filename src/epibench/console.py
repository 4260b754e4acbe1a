"""The console of all commands: results on stdout, messages and progress on stderr.

Lines are never broken. A terminal wraps them itself, and tables drop columns that do not fit. Without a terminal the
width is unlimited, so that every path and number can be copied and searched for.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

from epibench.progress import Advance, Reporter, Silent

if TYPE_CHECKING:
    from rich.progress import Progress

NO_WIDTH = 10_000  # columns: wider than any table
LINE_SECONDS = 20.0  # between lines of progress where there is no terminal for a bar


def output(stderr: bool = False) -> Console:
    """The console for results: stdout."""
    stream = sys.stderr if stderr else sys.stdout
    is_terminal = stream is not None and stream.isatty()  # FORCE_COLOR sets colours, but no width
    width = None if is_terminal else NO_WIDTH
    return Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)


def messages() -> Console:
    """The console for messages and progress: stderr."""
    return output(stderr=True)


def show(text: str, style: str | None = None) -> None:
    """Print one line of results."""
    output().print(printable(text), style=style, soft_wrap=True)


def say(text: str) -> None:
    """Print one line for the user, apart from the results."""
    messages().print(printable(text), soft_wrap=True)


def printable(text: str) -> str:
    """Replace control characters, which file names may contain, by the replacement character."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


class ConsoleReporter:
    """Shows steps as bars that disappear at the end; without a terminal, as a line every 20 seconds.

    Several steps may be open at once. A line with the duration follows each finished step.
    """

    def __init__(self, console: Console | None = None):
        self.console = messages() if console is None else console
        can_draw = self.console.file.isatty() and not self.console.is_dumb_terminal  # the cursor is movable
        self._bars = _bars(self.console) if can_draw else None

    def say(self, text: str) -> None:
        """Print one line."""
        self.console.print(printable(text), soft_wrap=True)

    @contextmanager
    def step(self, name: str, total: int, done: int = 0) -> Iterator[Advance]:
        """Show a step as a bar, and its duration at the end."""
        begun = time.perf_counter()
        with self.progress(name, total, done) as advance:
            yield advance
        self.say(f"{name}: {time.perf_counter() - begun:.1f} s")

    @contextmanager
    def progress(self, name: str, total: int, done: int = 0) -> Iterator[Advance]:
        """Show a step as a bar or as occasional lines, without a line at the end."""
        if self._bars is None:
            yield self._lines(name, total, done)
            return
        bars, task = self._bars, self._bars.add_task(printable(name), total=total, completed=done, note="")
        bars.start()

        def advance(units: int, note: str = "", /) -> None:
            bars.update(task, advance=units, note=printable(note))

        try:
            yield advance
        finally:
            bars.remove_task(task)
            if not bars.tasks:
                bars.stop()

    def _lines(self, name: str, total: int, done: int) -> Advance:
        last_line, finished = time.perf_counter(), done

        def advance(units: int, note: str = "", /) -> None:
            nonlocal last_line, finished
            finished += units
            if time.perf_counter() - last_line > LINE_SECONDS and finished < total:
                self.say(f"{name}: {100 * finished / total:.0f} %{', ' if note else ''}{note}")
                last_line = time.perf_counter()

        return advance


def _bars(console: Console) -> Progress:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    return Progress(*columns, console=console, transient=True)


def reporter_of(progress: bool | Reporter) -> Reporter:
    """The reporter of `progress`: a silent one, the console, or the given one."""
    if progress is False:
        return Silent()
    return ConsoleReporter() if progress is True else progress
