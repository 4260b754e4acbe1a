"""The steps of a run: train every method, evaluate it, write the results. What is finished is not done again."""

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
    """What differs between kinds of problems: their data, and how a method is evaluated on it.

    in_stretches: whether several processes can evaluate a method, in stretches of images.
    """

    in_stretches: ClassVar[bool]

    @property
    def run(self) -> Run:
        """What is carried out."""

    def checks(self) -> list[Check]:
        """What every run needs."""

    def all_checks(self, every: bool, follow: Follow) -> list[Check]:
        """All that is worth knowing before a run. every: open all frames, not some; follow: shows how far one is."""

    def check_room(self, steps: Sequence[RunStep]) -> None:
        """Refuse these steps where disk and memory cannot suffice."""

    def prepare(self, steps: Sequence[RunStep]) -> None:
        """Make what these steps start from."""

    def evaluate(self, name: str, trained: Trained, failed: dict[str, str]) -> MethodResults:
        """Every draw of a method; parts that fail are noted in `failed`."""

    def results(self, evaluated: Mapping[str, Any]) -> dict[str, Any]:
        """What a run writes that only this kind of problem has."""


def train_and_evaluate(run: Run) -> Results:
    """The whole run."""
    failed, experiment = dict[str, str](), begin(run, STEPS)
    begun = time.perf_counter()
    train_networks(run, dict.fromkeys(run.recipe.methods), failed)
    trained = collect_all(run, failed)
    return evaluate_trained(experiment, trained, failed, begun)


def train(run: Run, only: Mapping[str, Sequence[int] | None] | None = None) -> dict[str, str]:
    """Train the networks that are missing, and nothing else; returns why methods failed, by their names.

    only: these networks of these methods; None for all of a method.
    """
    failed = dict[str, str]()
    begin(run, ("train",))
    train_networks(run, dict.fromkeys(run.recipe.methods) if only is None else only, failed)
    if only is None:
        collect_all(run, failed)
    return failed


def evaluate(run: Run) -> Results:
    """Evaluate what is trained, as far as it is not evaluated yet; if networks are missing, it says so and stops."""
    check_trained(run)
    failed, experiment = dict[str, str](), begin(run, ("evaluate",))
    begun = time.perf_counter()
    trained = collect_all(run, failed)
    return evaluate_trained(experiment, trained, failed, begun)


def evaluate_shard(run: Run, number: int, count: int) -> None:
    """Evaluate one of `count` shards, numbered from 1; their states stay in the folder until they are merged."""
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
    """The results of a run all of whose shards were evaluated; if some are missing, it says so and stops."""
    check_trained(run)
    if isinstance(run.recipe, DenseRecipe) and (missing := EvaluationJobs(run).missing()):
        some = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        raise InputError(
            f"{run.folder.path}: not evaluated are {some}; epibench evaluate {run.folder.path} with the "
            f"same --set and the --shard that is missing evaluates them, or without --shard all that is left"
        )
    return evaluate(run)


def begin(run: Run, steps: Sequence[RunStep]) -> Experiment:
    """Check what these steps need, take the folder, and prepare the data."""
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
    """Refuse settings that the networks of a folder were not trained with, and say which networks are missing."""
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
    """What work gives for each method; where it fails, that is noted, and what other methods have done is not lost."""
    done = {}
    for name in methods:
        try:
            done[name] = work(name)
        except InputError as error:
            failed[name] = str(error)
            run.reporter.say(f"{name} failed: {error}")
    return done


def collect_all(run: Run, failed: dict[str, str]) -> dict[str, Trained]:
    """What came out of the trainings of every method that has not failed."""
    names = [name for name in run.recipe.methods if name not in failed]
    return of_each(run, names, partial(collect_trained, run), failed)


def evaluate_trained(
    experiment: Experiment, trained: Mapping[str, Trained], failed: dict[str, str], begun: float
) -> Results:
    """Evaluate every method whose networks are trained, and keep the results. begun: when the clock was started."""
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
    """Results of evaluated methods, with place and time. own: the part that its kind of problem adds."""
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
    """The experiment of a run, by its recipe."""
    return ImageExperiment(run) if isinstance(run.recipe, DenseRecipe) else ToyExperiment(run)


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
