"""What tests of runs share: the command line in this process, and training that saves as often as it can."""

import sys
from collections.abc import Iterator

import pytest

from epibench.cli import main
from epibench.members import on_images
from epibench.training import network as training
from epibench.training.state import Pacer


@pytest.fixture(scope="module")
def eager() -> Iterator[None]:
    """Save as often as possible, in portions of one batch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "LOG_EVERY", 2)
        patch.setattr(Pacer, "due", lambda pacer: True)
        patch.setattr(on_images, "PORTION_PIXELS", {"cpu": 1})
        yield


@pytest.fixture
def command_line(monkeypatch, capsys):
    """Run `epibench …` in this process: its status, and what it says on stderr."""

    def call(*arguments: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["epibench", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        return stop.value.code or 0, capsys.readouterr().err

    return call
