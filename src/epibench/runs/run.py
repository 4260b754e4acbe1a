"""Carry a recipe out: train every method, evaluate it, write the results. What is finished is not done again."""

from __future__ import annotations

import platform
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from epibench import __version__
from epibench.data.source import Watch
from epibench.errors import InputError
from epibench.files import write_text
from epibench.progress import Reporter
from epibench.recipes import DenseRecipe, Recipe, changes
from epibench.results import RunResults
from epibench.runs.checks import FEW_FRAMES, Check, further_checks, image_checks
from epibench.runs.folder import RunFolder
from epibench.runs.images import ImageExperiment
from epibench.runs.toy import ToyExperiment
from epibench.runs.train import Machine, Run, Trained, train_method


def carry_out(recipe: Recipe, folder: RunFolder, machine: Machine, reporter: Reporter) -> RunResults:
    """The whole run."""
    run = Run(recipe, folder, machine, reporter)
    experiment = experiment_of(run)
    for check in experiment.checks():
        check.ask()
    folder.check_version()
    folder.claim(recipe)
    begun = time.perf_counter()
    experiment.prepare()
    failed, trained, evaluated = dict[str, str](), dict[str, Trained](), dict[str, Any]()

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
        epibench=__version__,
        torch=torch.__version__,
        python=platform.python_version(),
        commit=commit(),
        device=torch.cuda.get_device_name(machine.device) if machine.device.type == "cuda" else "cpu",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        recipe=recipe.model_dump(mode="json"),
        changes=changes(recipe),
        methods={name: each.facts for name, each in evaluated.items()},
        summary={name: each.summary for name, each in evaluated.items()},
        curves={name: each.curves for name, each in evaluated.items()},
        draws={name: each.draws for name, each in evaluated.items()},
        cost={name: each.cost for name, each in evaluated.items()},
        **experiment.results(evaluated),
        failed=failed,
        seconds=time.perf_counter() - begun,
    ).with_checksum()
    write_text(folder.results, results.as_json())
    return results


def experiment_of(run: Run) -> ImageExperiment | ToyExperiment:
    """What differs between kinds of problems: their data, and how a method is evaluated on it."""
    return ImageExperiment(run) if isinstance(run.recipe, DenseRecipe) else ToyExperiment(run)


def all_checks(run: Run, every: bool, watch: Watch) -> list[Check]:
    """All that is worth knowing before a run. every: open all frames, not only some; watch: shows how far one is."""
    experiment = experiment_of(run)
    if isinstance(experiment, ToyExperiment):
        return [*experiment.checks(), *further_checks(run.recipe, run.folder, None)]
    checks = image_checks(experiment.data, None if every else FEW_FRAMES, watch)
    return [*checks, *further_checks(run.recipe, run.folder, experiment.data)]


def commit() -> str | None:
    """The commit of epibench's own checkout, marked where files differ from it; None for an installed package."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, check=True, text=True, timeout=10).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return None
