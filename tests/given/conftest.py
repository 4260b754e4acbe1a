from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from outside_networks import OutsideNetwork, train, write_folder

from epibench.cli import main


@pytest.fixture(scope="session")
def networks() -> list[OutsideNetwork]:
    return [train(seed) for seed in range(5)]


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("outside")
    return {name: write_folder(root / name, 6, shift) for name, shift in (("plain", 0.0), ("noisy", 1.0))}


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run `epibench …` in this process; what it complains about."""

    def call(*arguments: Any, status: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["epibench", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        assert (stop.value.code or 0) == status, captured.err
        return captured.err

    return call
