"""How a run shows on the terminal what it does: one bar per step; without a terminal, a line now and then."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from epibench.progress import Advance

LINE_SECONDS = 20.0


class ConsoleReporter:
    """Steps with bars that vanish when they are done, and lines that stay."""

    def __init__(self, console: Console):
        self.console = console

    def say(self, text: str) -> None:
        """One line."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    @contextmanager
    def step(self, name: str, total: int, done: int = 0) -> Iterator[Advance]:
        """A step with its bar, and a line when it is done."""
        begun = time.perf_counter()
        with self._bar(name, total, done) if self.console.is_terminal else self._lines(name, total, done) as advance:
            yield advance
        self.say(f"{name}: {time.perf_counter() - begun:.1f} s")

    @contextmanager
    def _bar(self, name: str, total: int, done: int) -> Iterator[Advance]:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        with Progress(*columns, console=self.console, transient=True) as progress:
            task = progress.add_task(escape(name), total=total, completed=done, note="")

            def advance(units: int, note: str = "") -> None:
                progress.update(task, advance=units, note=escape(note))

            yield advance

    @contextmanager
    def _lines(self, name: str, total: int, done: int) -> Iterator[Advance]:
        told, finished = time.perf_counter(), done

        def advance(units: int, note: str = "") -> None:
            nonlocal told, finished
            finished += units
            if time.perf_counter() - told > LINE_SECONDS and finished < total:
                self.say(f"{name}: {100 * finished / total:.0f} %{', ' if note else ''}{note}")
                told = time.perf_counter()

        yield advance
