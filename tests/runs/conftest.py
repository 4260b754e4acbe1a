"""Fixtures of tests of runs: the command line in this process, and training that saves as often as possible."""

import sys
from collections.abc import Callable, Iterator

import pytest
from fault_injection import save_often

from epibench.cli import main


@pytest.fixture(scope="module")
def eager() -> Iterator[None]:
    """Save as often as possible, in portions of one batch."""
    with pytest.MonkeyPatch.context() as patch:
        save_often(patch.setattr)
        yield


@pytest.fixture
def command_line(monkeypatch, capsys) -> Callable[..., tuple[int, str]]:
    """Run `epibench …` in this process; return its status and its stderr."""

    def call(*arguments: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["epibench", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        return stop.value.code or 0, capsys.readouterr().err

    return call
