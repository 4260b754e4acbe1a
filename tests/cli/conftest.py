"""Call the command line in this process."""

import sys

import pytest

from epibench.cli import main
from streams import Terminal, plain


@pytest.fixture
def run_as_printed(monkeypatch, capsys):
    """Run `epibench …` in this process: as the shell does, without the seconds of starting Python."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["epibench", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    return call


@pytest.fixture
def run(run_as_printed):
    """The same without colours, which FORCE_COLOR may ask for."""

    def call(*arguments):
        status, output, errors = run_as_printed(*arguments)
        return status, plain(output), plain(errors)

    return call


@pytest.fixture
def terminal(monkeypatch):
    """Put a terminal of some width in the place of `stdout` or `stderr`; what is shown there is its text."""

    def put(name, width):
        for variable in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setenv("COLUMNS", str(width))
        stream = Terminal()
        monkeypatch.setattr(sys, name, stream)
        return stream

    return put
