"""Carry a recipe out: train every method, evaluate it, write the results. What is finished is not done again."""

from __future__ import annotations

import platform
import subprocess
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import torch

from epibench import __version__
from epibench.errors import InputError
from epibench.files import write_text
from epibench.progress import Reporter
from epibench.recipes import DenseRecipe, Recipe, changes
from epibench.results import RunResults
from epibench.runs.evaluated import Evaluated
from epibench.runs.folder import RunFolder
from epibench.runs.images import ImageExperiment
from epibench.runs.toy import ToyExperiment
from epibench.runs.train import Machine, Run, Trained, train_method


class Experiment(Protocol):
    """What differs between kinds of problems: their data, and how a method is evaluated on it."""

    def check(self) -> None:
        """Complain of what is wrong before hours are spent."""

    def prepare(self) -> None:
        """What is needed before anything is trained."""

    def evaluate(self, name: str, trained: Trained, failed: dict[str, str]) -> Any:
        """All draws of a method; parts that fail are noted in `failed`."""

    def results(self, evaluated: Mapping[str, Any]) -> dict[str, Any]:
        """What a run writes that only such problems have."""


def carry_out(recipe: Recipe, folder: RunFolder, machine: Machine, reporter: Reporter) -> RunResults:
    """The whole run."""
    run = Run(recipe, folder, machine, reporter)
    experiment: Experiment = ImageExperiment(run) if isinstance(recipe, DenseRecipe) else ToyExperiment(run)
    experiment.check()
    folder.claim(recipe)
    begun = time.perf_counter()
    experiment.prepare()
    failed, trained, evaluated = dict[str, str](), dict[str, Trained](), dict[str, Evaluated]()

    def fail(name: str, error: InputError) -> None:  # what other methods have done is not lost
        failed[name] = str(error)
        reporter.say(f"{name} failed: {error}")

    for name in recipe.methods:
        try:
            trained[name] = train_method(run, name)
        except InputError as error:
            fail(name, error)
    for name in trained:
        try:
            evaluated[name] = experiment.evaluate(name, trained[name], failed)
        except InputError as error:
            fail(name, error)
    results = RunResults(
        **environment(machine.device),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        recipe=recipe.model_dump(mode="json"),
        changes=changes(recipe),
        methods={name: each.facts for name, each in evaluated.items()},
        summary={name: each.summary for name, each in evaluated.items()},
        curves={name: each.curves for name, each in evaluated.items()},
        draws={name: each.entries for name, each in evaluated.items()},
        cost={name: each.cost for name, each in evaluated.items()},
        **experiment.results(evaluated),
        failed=failed,
        seconds=time.perf_counter() - begun,
    )
    write_text(folder.results, results.model_dump_json(indent=1) + "\n")
    return results


def environment(device: torch.device) -> dict[str, Any]:
    """Versions, the commit of the source if it is a checkout, and the device in words."""
    return {
        "epibench": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "commit": commit(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
    }


def commit() -> str | None:
    """The commit of epibench's own checkout, marked where files differ from it; None for an installed package."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    try:
        head = _git(root, "rev-parse", "HEAD")
        changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return head + ("+changes" if changed else "")


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, check=True, text=True, timeout=10).stdout.strip()
