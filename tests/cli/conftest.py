"""Call the command line in this process."""

import sys

import pytest

from epibench.cli import main


@pytest.fixture
def run(monkeypatch, capsys):
    """Run `epibench …` in this process: as the shell does, without the seconds of starting Python."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["epibench", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    return call
