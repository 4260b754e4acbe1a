"""The steps of a run: train all methods, evaluate them, write the results. Finished work is kept."""

from __future__ import annotations

import json
import platform
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import torch

from epibench import __version__
from epibench.data.source import Follow
from epibench.errors import InputError
from epibench.recipes import DenseRecipe, changes
from epibench.results import Results
from epibench.runs.checks import STEPS, Check, RunStep
from epibench.runs.evaluate_job import EvaluationJobs, evaluate_remotely
from epibench.runs.evaluations import keep_results, methods_left_out
from epibench.runs.image_experiment import ImageExperiment
from epibench.runs.machine import Machine, Run
from epibench.runs.method_results import MethodResults
from epibench.runs.toy import ToyExperiment
from epibench.runs.train import Trained, collect_trained, num_missing, train_networks

Done = TypeVar("Done")


class Experiment(Protocol):
    """A kind of problem: its data, and the evaluation of methods on it.

    `in_stretches`: whether several processes can evaluate a method, in stretches of images.
    """

    in_stretches: ClassVar[bool]

    @property
    def run(self) -> Run:
        """The run."""

    def checks(self) -> list[Check]:
        """Return the checks that every run needs."""

    def all_checks(self, every: bool, follow: Follow) -> list[Check]:
        """Return the checks of `epibench data check`.

        Args:
            every: Whether to open all frames, not some.
            follow: Shows the progress over frames.
        """

    def check_room(self, steps: Sequence[RunStep]) -> None:
        """Raise an InputError if the disk is too small for the files of these steps."""

    def prepare(self, steps: Sequence[RunStep]) -> None:
        """Prepare the data of these steps."""

    def evaluate(self, name: str, trained: Trained, failed: dict[str, str]) -> MethodResults:
        """Evaluate every draw of a method, and add failures to `failed`."""

    def results(self, evaluated: Mapping[str, Any]) -> dict[str, Any]:
        """Return the part of results that only this kind of problem has."""


def train_and_evaluate(run: Run) -> Results:
    """Train all methods and evaluate them."""
    failed, experiment = dict[str, str](), begin(run, STEPS)
    begun = time.perf_counter()
    train_networks(run, dict.fromkeys(run.recipe.methods), failed)
    trained = collect_all(run, failed)
    return evaluate_trained(experiment, trained, failed, begun)


def train(run: Run, only: Mapping[str, Sequence[int] | None] | None = None) -> dict[str, str]:
    """Train missing networks, without an evaluation.

    Args:
        run: The run.
        only: Numbers of networks by method; None for a method: all its networks. By default all methods.

    Returns:
        Reasons of failures by method.
    """
    failed = dict[str, str]()
    begin(run, ("train",))
    train_networks(run, dict.fromkeys(run.recipe.methods) if only is None else only, failed)
    if only is None:
        collect_all(run, failed)
    return failed


def evaluate(run: Run) -> Results:
    """Evaluate all trained methods, except finished evaluations.

    Raises:
        InputError: Networks are missing, or were trained with other settings.
    """
    check_trained(run)
    failed, experiment = dict[str, str](), begin(run, ("evaluate",))
    begun = time.perf_counter()
    trained = collect_all(run, failed)
    return evaluate_trained(experiment, trained, failed, begun)


def evaluate_shard(run: Run, number: int, count: int) -> None:
    """Evaluate one of `count` shards, numbered from 1, and write its states to be merged later."""
    if isinstance(run.recipe, DenseRecipe) and run.recipe.evaluation.store:
        raise InputError(
            "evaluation.store: one process writes a store; leave out --shard, or give --set evaluation.store=false"
        )
    check_trained(run)
    experiment = begin(run, ("evaluate",))
    if not experiment.in_stretches:
        run.reporter.say("a toy problem is evaluated at once, when shards are merged: there is nothing to do")
        return
    evaluation = EvaluationJobs(run)
    jobs = evaluation.shard(number, count)
    failed = dict(evaluation.failed)
    for job in jobs:
        try:
            with run.reporter.step(f"evaluate {job.name}", job.num_images) as advance:
                evaluation.evaluate(job, advance)
        except InputError as error:
            failed[job.name] = str(error)
            run.reporter.say(f"{job.name} failed: {error}")
    if failed:
        raise InputError("; ".join(failed.values()))


def merge(run: Run) -> Results:
    """Merge all shards into results; raise an InputError if stretches are missing."""
    check_trained(run)
    if isinstance(run.recipe, DenseRecipe) and (missing := EvaluationJobs(run).missing()):
        some = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        raise InputError(
            f"{run.folder.path}: not evaluated are {some}; epibench evaluate {run.folder.path} with the "
            f"same --set and the --shard that is missing evaluates them, or without --shard all that is left"
        )
    return evaluate(run)


def begin(run: Run, steps: Sequence[RunStep]) -> Experiment:
    """Run the checks of these steps, write the recipe, and prepare the data."""
    experiment = experiment_of(run)
    for name in run.recipe.methods:
        for note in run.recipe.left_out(name):
            run.reporter.say(f"{name}: {note}")
    for check in experiment.checks():
        if check.step is None or check.step in steps:
            check.ask()
    run.folder.check_free(run.recipe)
    if run.folder.is_damaged():
        run.reporter.say(f"{run.folder.recipe_file}: damaged; it is written again, and weights tell what they are of")
    experiment.check_room(steps)
    run.folder.claim(run.recipe, evaluate_only="train" not in steps)
    experiment.prepare(steps)
    return experiment


def check_trained(run: Run) -> None:
    """Raise an InputError if networks are missing, or were trained with other settings."""
    path = run.folder.path
    if (difference := run.folder.other_training(run.recipe)) is not None:
        raise InputError(
            f"{path}: its networks were trained with another {difference}, and evaluate trains none; leave that "
            f"setting out, or train with it in another folder (epibench run {run.folder.recipe_file} --out FOLDER)"
        )
    counts = {name: num_missing(run, name) for name in run.recipe.methods}
    if total := sum(counts.values()):
        words = [
            f"{name} {number} of {run.recipe.method(name).num_trained}" for name, number in counts.items() if number
        ]
        raise InputError(
            f"{path}: {total} network{'s are' if total > 1 else ' is'} not trained (missing: {', '.join(words)}); "
            f"epibench train {path} with the same --set trains them, epibench run {path} evaluates them, too"
        )


def of_each(run: Run, methods: Iterable[str], work: Callable[[str], Done], failed: dict[str, str]) -> dict[str, Done]:
    """Return the result of `work` for each method. Failures are added to `failed` and do not stop other methods."""
    done = {}
    for name in methods:
        try:
            done[name] = work(name)
        except InputError as error:
            failed[name] = str(error)
            run.reporter.say(f"{name} failed: {error}")
    return done


def collect_all(run: Run, failed: dict[str, str]) -> dict[str, Trained]:
    """Return the trained networks of every method that has not failed."""
    names = [name for name in run.recipe.methods if name not in failed]
    return of_each(run, names, partial(collect_trained, run), failed)


def evaluate_trained(
    experiment: Experiment, trained: Mapping[str, Trained], failed: dict[str, str], begun: float
) -> Results:
    """Evaluate the trained methods, and write the results. `begun` is the start of the clock."""
    run = experiment.run
    if run.machine.executor.remote and experiment.in_stretches:
        evaluate_remotely(run, failed)
    evaluated: dict[str, Any] = of_each(
        run, trained, lambda name: experiment.evaluate(name, trained[name], failed), failed
    )
    own = {"recipe": run.recipe.model_dump(mode="json"), "changes": changes(run.recipe)}
    results = make_results(run.machine, evaluated, failed, begun, **own, **experiment.results(evaluated))
    if left_out := methods_left_out(run.folder.path, results):
        everything = json.dumps([*run.recipe.methods, *left_out])
        run.reporter.say(
            f"not among methods, and no longer in results.json and on the page: {', '.join(left_out)}; their networks "
            f"are kept, and --set 'methods={everything}' has them again"
        )
    return keep_results(run.folder.path, results)


def make_results(
    machine: Machine, evaluated: Mapping[str, MethodResults], failed: dict[str, str], begun: float, **own: Any
) -> Results:
    """Return results with versions, device and time. `own` is the part of the kind of problem."""
    device = machine.here
    return Results(
        epibench=__version__,
        torch=torch.__version__,
        python=platform.python_version(),
        commit=commit(),
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else machine.device.type,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        methods={name: each.facts for name, each in evaluated.items()},
        scores=[score for each in evaluated.values() for score in each.scores],
        **own,
        failed=failed,
        seconds=time.perf_counter() - begun,
    )


def experiment_of(run: Run) -> Experiment:
    """Return the experiment of a run, by the type of its recipe."""
    return ImageExperiment(run) if isinstance(run.recipe, DenseRecipe) else ToyExperiment(run)


def commit() -> str | None:
    """Return the commit of epibench's checkout, with `+changes` if files differ; None without a checkout."""
    root = Path(__file__).resolve().parents[3]

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, check=True, text=True, timeout=10).stdout.strip()

    try:
        if not (root / ".git").exists():
            return None
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return None
