"""What the commands do, as functions: `epibench.run`, `train` and `score`. They print nothing unless asked to."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epibench.arguments import DEVICE, FLAG, FOLDER, PROGRESS, SIZES, WHOLE, argument, unfit
from epibench.console import reporter_of
from epibench.errors import InputError
from epibench.mirror import is_url
from epibench.progress import Reporter

if TYPE_CHECKING:
    from epibench.conventions import Convention
    from epibench.plans import Plan
    from epibench.recipes import Recipe
    from epibench.results import Results
    from epibench.runs.machine import Run

AnyPath = str | os.PathLike[str]
Settings = Mapping[str, Any] | Sequence[str]
RECIPE = "the name of a recipe, as 'toy-regression-quick', a recipe file (.json), the folder of a run, or a recipe"
STORE = "a store, as 'ensemble.zarr', or a dict of arrays, as {'mean': …, 'variance': …, 'target': …}"


def run(
    recipe: AnyPath | Recipe,
    out: AnyPath | None = None,
    settings: Settings = (),
    *,
    device: str = "auto",
    executor: str = "local",
    jobs: int | None = None,
    progress: bool | Reporter = False,
) -> Results:
    """Train, evaluate, report, as `epibench run` does; what is finished in the folder is not done again.

    Methods that failed are in `failed` of the results; if all did, it is an error.

    Args:
        recipe: the name of a recipe, a recipe file (.json), the folder of a run, or a recipe
        out: the folder of the run, which keeps everything; by default `runs/RECIPE`, or the folder that was given
        settings: as `--set`: `{"seed": 3, "sgld.num_epochs": 9600}`, or `["seed=3", …]`
        device: `auto`, `cpu` or `cuda`
        executor: `local`, or `ray` for the nodes of a Ray cluster (docs/scaling.md)
        jobs: large networks trained at once; one per core by default, or one on a GPU
        progress: show bars and messages as the command does, or send them to a reporter of one's own
    """
    with opened_run(recipe, out, settings, device, executor, jobs, progress) as opened:
        from epibench.report import write_run_page
        from epibench.runs.run import train_and_evaluate

        results = train_and_evaluate(opened)
    if not results.methods:
        raise InputError("; ".join(results.failed.values()))
    write_run_page([results], opened.folder.report_file)
    return results


def train(
    recipe: AnyPath | Recipe,
    out: AnyPath | None = None,
    settings: Settings = (),
    *,
    only: Sequence[str] = (),
    device: str = "auto",
    executor: str = "local",
    jobs: int | None = None,
    progress: bool | Reporter = False,
) -> Path:
    """Train the networks of a recipe that are missing in its folder, as `epibench train` does; returns the folder.

    The other arguments are those of `run`.

    Args:
        only: these networks alone, as `["ensemble:3-5", "mc_dropout"]`
    """
    only = argument("only", only, "a list of networks, as ['ensemble:3-5']", str, None, each=str)
    with opened_run(recipe, out, settings, device, executor, jobs, progress) as opened:
        from epibench.recipes.only import networks_asked_for
        from epibench.runs import run as steps

        asked = networks_asked_for([only] if isinstance(only, str) else only, opened.recipe, "only") if only else None
        if failed := steps.train(opened, asked):
            raise InputError("; ".join(failed.values()))
    return opened.folder.path


@contextmanager
def opened_run(
    recipe: AnyPath | Recipe,
    out: AnyPath | None,
    settings: Settings,
    device: str,
    executor: str,
    jobs: int | None,
    progress: bool | Reporter,
) -> Iterator[Run]:
    """The run of a recipe in its folder; nothing is done yet."""
    from epibench.recipes import Recipe, apply_settings, default_folder, find_recipe

    argument("recipe", recipe, RECIPE, str, os.PathLike, Recipe)
    argument("out", out, FOLDER, str, os.PathLike, None)
    texts = as_texts(settings)
    argument("device", device, DEVICE, str)
    argument("executor", executor, "'local' or 'ray'", str)
    jobs = argument("jobs", jobs, WHOLE, int, None)
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs: cannot be {jobs}; give how many networks to train at once, from 1")
    progress = argument("progress", progress, PROGRESS, bool, Reporter)
    if out is not None and is_url(os.fspath(out)):
        raise InputError(
            f"out {out}: give a local folder; runs at a URL are for the command, as epibench run --out URL"
        )
    from epibench.runs.machine import open_run

    given = recipe if isinstance(recipe, Recipe) else os.fspath(recipe)
    chosen = apply_settings(given if isinstance(given, Recipe) else find_recipe(given), texts)
    folder = default_folder(given, chosen) if out is None else Path(out)
    with open_run(chosen, folder, reporter_of(progress), device, jobs, executor) as opened:
        yield opened


def score(
    *predictions: AnyPath | Mapping[str, Any],
    members: Sequence[int] | None = None,
    draws: int = 16,
    plan: Plan = "random",
    seed: int = 0,
    convention: Convention = "pooled",
    uncertainty: str | None = None,
    ignore_index: int | None = None,
    skip_invalid: bool = False,
    depth: bool = False,
    device: str = "auto",
    report: AnyPath | None = None,
    progress: bool | Reporter = False,
) -> Results:
    """Score predictions that any framework has made, as `epibench score` does, for every number of members M.

    Args:
        predictions: stores (.zarr, .npz or a folder of .npz), or dicts of arrays under the names of a store:
            `mean` and `variance` (member, …), or `probs` or `logits` (member, …, class); `target` (…), `method` …
        members: values of M; powers of two and all members by default
        draws: at most so many draws for each M
        plan: how members are drawn: `random`, `disjoint`, `prefix` or `spread`
        seed: of the draws
        convention: `pooled` or `gustafsson2020`
        uncertainty: what pixels are sorted by; the first of docs/metrics.md by default
        ignore_index: the target that means "no label"; by default 255, unless it is a class
        skip_invalid: skip pixels with NaN or infinite values, and count them
        depth: predictions are depths in metres, and have metrics of their own
        device: `auto`, `cpu` or `cuda`
        report: write a page with all curves into this folder
        progress: show bars as the command does, or send them to a reporter of one's own
    """
    from epibench.conventions import check_convention
    from epibench.devices import resolve_device
    from epibench.evaluation.scoring import ScoreSettings, score_results, scorers_of
    from epibench.store import open_store
    from epibench.store.memory import store_in_memory

    if not predictions:
        raise InputError("nothing to score: give stores, or dicts of arrays")
    for number, given in enumerate(predictions):
        argument(f"predictions {number}", given, STORE, str, os.PathLike, Mapping)
    argument("report", report, FOLDER, str, os.PathLike, None)
    progress = argument("progress", progress, PROGRESS, bool, Reporter)
    settings = ScoreSettings(
        sizes=argument("members", members, SIZES, None, each=int),
        max_draws=argument("draws", draws, WHOLE, int),
        plan=argument("plan", plan, "a text, as 'random'", str),
        seed=argument("seed", seed, WHOLE, int),
        convention=check_convention(argument("convention", convention, "a text, as 'pooled'", str)),
        uncertainty=argument("uncertainty", uncertainty, "a text, as 'entropy'", str, None),
        ignore_index=argument("ignore_index", ignore_index, "a whole number, as 255", int, None),
        skip_invalid=argument("skip_invalid", skip_invalid, FLAG, bool),
        depth=argument("depth", depth, FLAG, bool),
        device=resolve_device(argument("device", device, DEVICE, str)),
    )
    scorers = []
    for number, given in enumerate(predictions):
        name = f"predictions {number}" if isinstance(given, Mapping) else os.fspath(given)
        store = store_in_memory(given, name) if isinstance(given, Mapping) else open_store(given)
        scorers += scorers_of(store, settings, name)
    if ignore_index is not None and all(scorer.store.num_classes is None for scorer in scorers):
        raise InputError("ignore_index is for classes; mask the targets of other predictions with 'valid'")
    reporter, scored = reporter_of(progress), []
    for scorer in scorers:
        with reporter.step(f"score {scorer.store.path}", scorer.store.num_pixels) as advance:
            scored.append(scorer.run(advance))
        gc.collect()  # metrics refer to themselves: their memory comes back only so
    results = score_results(scored, settings)
    if report is not None:
        from epibench.report import write_run_page

        write_run_page([results], Path(report) / "score.html")
    return results


def as_texts(settings: Settings) -> list[str]:
    """Settings as the command line has them: `key=value`, the value in JSON."""
    if isinstance(settings, str):
        raise InputError(f"settings: {settings!r} is one text; give a dict, or a list of texts as 'seed=3'")
    if isinstance(settings, Mapping):
        return [f"{key}={_json(key, value)}" for key, value in settings.items()]
    return list(argument("settings", settings, "a dict, as {'seed': 3}, or a list of texts, as ['seed=3']", each=str))


def _json(key: str, value: Any) -> str:
    """The value of a setting; numbers and arrays of NumPy and torch are written as numbers, and paths as texts."""
    try:
        return json.dumps(value, default=lambda each: each.tolist() if hasattr(each, "tolist") else os.fspath(each))
    except (TypeError, ValueError):
        raise unfit(f"settings: {key}", value, "a number, a text, or a list or dict of these") from None
