"""Builders for tests from outside: settings of small runs, the command line, and damage to files."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

import epibench
from epibench.cli import main
from epibench.files import with_checksum

RECIPE = "street-segmentation-quick"
SIZE = [32, 64]


def scenes(domain: str = "clean", num_images: int = 2, seed: int = 1) -> dict[str, Any]:
    """A few small street scenes."""
    return {"kind": "street", "domain": domain, "num_images": num_images, "seed": seed, "size": SIZE}


PASSES = {"method": "mc_dropout", "options": {"num_networks": 1, "num_passes": 2, "num_epochs": 1, "batch_size": 2}}
SETTINGS = {
    "methods": ["ensemble", "laplace", "mine"],
    "variants": {"mine": PASSES},
    "members": [1, 2],
    "draws": 2,
    "network.depth": 18,
    "network.width": 8,
    "network.head_width": 8,
    "network.rates": [1, 2],
    "network.stem": "single",
    "training.epoch_steps": 2,
    "training.crop": [16, 32],
    "training.class_weights": "rare",
    "data.train": scenes(num_images=4, seed=0),
    "data.domains": {"clean": scenes(), "wild": scenes("wild")},
    "evaluation.pictures": 1,
    "evaluation.batch_size": 2,
    "ensemble.num_members": 2,
    "ensemble.num_epochs": 1,
    "ensemble.batch_size": 2,
    "laplace.num_networks": 2,
    "laplace.num_samples": 2,
    "laplace.precision": 1.0,
    "laplace.batch_size": 2,
}


def texts(settings: Mapping[str, Any]) -> list[str]:
    """Settings as `--set` takes them, without a space."""
    return [f"{name}={json.dumps(value, separators=(',', ':'))}" for name, value in settings.items()]


def as_options(settings: Iterable[str]) -> list[str]:
    """Texts as options of a command."""
    return [part for text in settings for part in ("--set", text)]


def epibench_command(*arguments: object) -> tuple[int, str]:
    """Call `epibench …` in this process, and return its status and its messages."""
    said, shown = io.StringIO(), io.TextIOWrapper(io.BytesIO(), "utf-8")
    with pytest.MonkeyPatch.context() as patch, redirect_stderr(said), redirect_stdout(shown):
        patch.setattr(sys, "argv", ["epibench", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
    return int(stop.value.code or 0), said.getvalue()


def numbers(results: epibench.Results) -> dict[str, Any]:
    """The computed numbers of the newest evaluation."""
    return results.model_copy(update={"scores": results.latest()}).computed()


def flip_bit(path: Path) -> None:
    """Damage a file: one bit, nine tenths of the way."""
    content = bytearray(path.read_bytes())
    content[len(content) * 9 // 10] ^= 4
    path.write_bytes(content)


def rewrite(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a JSON file of a run, and give it a checksum that fits."""
    content = json.loads(path.read_text(encoding="utf-8"))
    del content["checksum"]
    change(content)
    path.write_text(with_checksum(json.dumps(content, indent=1)), encoding="utf-8")
