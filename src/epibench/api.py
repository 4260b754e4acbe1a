"""The public functions that train, evaluate and score. A command is generated from each: see cli/adapter.py.

They print nothing unless `progress` is set. A function imports its needs when it runs.
"""

from __future__ import annotations

import gc
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from epibench import arguments as arg
from epibench import mirror
from epibench.console import reporter_of
from epibench.conventions import check_convention
from epibench.devices import resolve_device
from epibench.errors import ArgumentError, InputError
from epibench.files import make_folder
from epibench.progress import Reporter, show

if TYPE_CHECKING:
    from epibench.evaluation.scoring import ScoredStore, Scorer
    from epibench.plans import Plan
    from epibench.recipes import Recipe
    from epibench.results import Results
    from epibench.runs.folder import RunFolder
    from epibench.runs.machine import Run

EVALUATED = "evaluated"  # the folder for results of models, where a command is given none


@arg.checked
def run(
    recipe: arg.RecipeOrRun,
    out: arg.FolderOfRun | None = None,
    settings: arg.Settings = (),
    *,
    device: arg.Device = "auto",
    executor: arg.Executor = "local",
    jobs: arg.Positive | None = None,
    progress: arg.Progress = False,
) -> Results:
    """Train, evaluate and report the methods of a recipe.

    An interrupted run is resumed when it is started again; finished work is kept.

    Args:
        recipe: A recipe (see `epibench recipes`), a recipe file (.json), or the folder of a run.
        out: The folder of the run, or a URL, e.g. s3://BUCKET/RUN. Default: runs/RECIPE, or the folder of the run. In
            Python a local folder.
        settings: A setting of the recipe, e.g. seed=3 or sgld.num_epochs=9600; `epibench recipes RECIPE` shows all.
            In Python also a dict.
        device: cpu, cuda, or auto: a GPU if there is one.
        executor: local, or ray: the nodes of a Ray cluster.
        jobs: Networks on images that are trained at the same time; with Ray, on each GPU. Default: one per core, or one
            on a GPU.
        progress: True shows bars and messages; a reporter receives them.

    Returns:
        Results: the newest evaluation first. `failed` names methods that failed, and why.

    Raises:
        InputError: an argument, a file or a setting is wrong, or all methods failed.
    """
    with opened_run(recipe, out, settings, progress, device, jobs, executor) as opened:
        from epibench.runs.evaluations import finished

        results = finished(opened)
        if results is None:
            from epibench.runs.run import train_and_evaluate

            results = train_and_evaluate(opened)
    return publish(opened.folder, results, opened.reporter)


@arg.checked
def train(
    recipe: arg.RecipeOrRun,
    out: arg.FolderOfRun | None = None,
    settings: arg.Settings = (),
    *,
    only: Annotated[
        arg.Texts, arg.Argument("a list of networks, e.g. ['ensemble:3-5']", "METHOD[:NUMBERS]", repeated=True)
    ]
    | None = None,
    shard: arg.Shard | None = None,
    device: arg.Device = "auto",
    executor: arg.Executor = "local",
    jobs: arg.Positive | None = None,
    progress: arg.Progress = False,
) -> Path:
    """Train the networks of a recipe that are missing.

    Args:
        recipe: A recipe (see `epibench recipes`), a recipe file (.json), or the folder of a run.
        out: The folder of the run, or a URL, e.g. s3://BUCKET/RUN. Default: runs/RECIPE, or the folder of the run. In
            Python a local folder.
        settings: A setting of the recipe, e.g. seed=3 or sgld.num_epochs=9600; `epibench recipes RECIPE` shows all.
            In Python also a dict.
        only: Train only the networks of this method, or some of them, e.g. ensemble:3-5 or ensemble:0,4.
        shard: Train only the K-th of N parts of the networks, where N processes on any machines share them.
        device: cpu, cuda, or auto: a GPU if there is one.
        executor: local, or ray: the nodes of a Ray cluster.
        jobs: Networks on images that are trained at the same time; with Ray, on each GPU. Default: one per core, or one
            on a GPU.
        progress: True shows bars and messages; a reporter receives them.

    Returns:
        The folder of the run.

    Raises:
        InputError: an argument, a file or a setting is wrong, or a training failed.
    """
    from epibench.recipes.only import networks_asked_for, networks_of_shard, parse_shard

    if shard is not None and only:
        raise ArgumentError(f"shard {shard}: only={only[0]} chooses networks, too. Fix: give one of them.")
    part = None if shard is None else parse_shard(shard)
    with opened_run(recipe, out, settings, progress, device, jobs, executor) as opened:
        asked = networks_asked_for(only, opened.recipe) if only else None
        if part is not None:
            asked = networks_of_shard(opened.recipe, *part)
        from epibench.runs.run import train as train_missing
        from epibench.runs.train import num_missing

        failed = train_missing(opened, asked)
        missing = 0 if failed else sum(num_missing(opened, name) for name in opened.recipe.methods)
    path, then = opened.folder.path, "once they are there, " if missing else ""
    left = f"; {missing} more {'is' if missing == 1 else 'are'} to be trained" if missing else ""
    opened.reporter.say(f"networks: {opened.folder.members}{left}; {then}epibench evaluate {path} evaluates them")
    if failed:
        raise InputError("; ".join(failed.values()))
    return path


@arg.checked
def evaluate(
    models: arg.Models = None,
    data: arg.Data = None,
    *,
    run: arg.FinishedRun | None = None,
    model_format: Any = None,
    in_domain: arg.Text | None = None,
    task: Annotated[arg.Text, arg.Argument("'segmentation' or 'depth'")] | None = None,
    classes: arg.Classes | None = None,
    ignore_index: arg.Label | None = None,
    unit: arg.Text | None = None,
    depth: arg.Flag = False,
    members: arg.Sizes | None = None,
    draws: arg.Positive = 16,
    seed: arg.Natural = 0,
    mc_dropout: arg.Natural = 0,
    rate: arg.Number | None = None,
    views: arg.Views = (),
    out: arg.Folder | None = None,
    shard: arg.Shard | None = None,
    settings: arg.Settings = (),
    device: arg.Device = "auto",
    executor: arg.Executor = "local",
    progress: arg.Progress = False,
    **evaluation: Any,
) -> Results:
    """Evaluate trained models, or the trained networks of a run.

    Nothing is trained, and finished work is kept. A run has settings in place of the options for models.

    Args:
        run: The folder of a run, or its URL, instead of models. In Python a local folder.
        models: A model: hf:DIR_OR_NAME (Hugging Face), onnx:FILE, run:FOLDER, paper:FILE (a published checkpoint), or
            FILE.pt,network=package.module:name; settings follow after commas, e.g. mean=[0.5],std=[0.2]. Several are
            members of one ensemble; NAME=SPEC names a method. In Python also modules, functions and dicts of lists.
        data: A domain with its settings after commas, e.g. val=camvid:DIR,split=val; or a .json or .toml file. For a
            run: domains beside its own. In Python also data sets and loaders, or a dict of them.
        model_format: How models are fed and read (`ModelFormat`), e.g. `{"values": "probs"}`.
        in_domain: For models: the domain that they were trained for; the others count as shifted. Default: the first.
        task: For models: segmentation or depth, where the data may be for either, e.g. street.
        classes: Names of the classes, or a class table.
        ignore_index: The target that means "no label".
        unit: The unit of numbers, e.g. m.
        depth: Numbers are metres.
        members: For models: numbers of members M, e.g. 1,2,4,8. Default: powers of two, and all members.
        draws: For models: maximum number of draws per M.
        seed: For models: seed of draws and dropout.
        mc_dropout: For models: evaluate N passes of each with its dropout acting, too.
        rate: For models: the dropout rate of these passes. Default: as in the model.
        views: For models: evaluate views of each image, too: flip, scale or flip,scale; or views by name, e.g.
            'flip,scale 0.5'.
        out: For models: the folder for results. In Python nothing is written by default, and data given as objects are
            evaluated again in each call.
        shard: For a run: evaluate only the K-th of N parts, where N processes on any machines share them;
            `epibench merge` joins them.
        settings: A setting, e.g. evaluation.precision=bf16 or evaluation.convention=gustafsson2020; for a run also
            those of its recipe, e.g. draws=8. In Python also a dict.
        device: cpu, cuda, or auto: a GPU if there is one. In Python auto is the device of the first module.
        executor: For a run: local, or ray: the nodes of a Ray cluster.
        progress: True shows bars and messages; a reporter receives them.
        evaluation: Settings as keywords, e.g. `precision="bf16"`.

    Returns:
        Results: the newest evaluation first. None for a shard.

    Raises:
        InputError: an argument or a file is wrong, or all methods failed.
    """
    if run is not None:
        own = {"model_format": model_format, "in_domain": in_domain, "task": task, "unit": unit}
        own |= {"classes": classes, "ignore_index": ignore_index, "depth": depth or None, "members": members}
        own |= {"draws": None if draws == 16 else draws, "seed": seed or None, "mc_dropout": mc_dropout or None}
        own |= {"rate": rate, "views": views or None, "out": None if str(out) == EVALUATED else out}
        if models is not None:
            raise ArgumentError(
                "run and models: cannot be given together. Fix: give one, or models='run:FOLDER'.",
                "RUN and --model: cannot be given together. Fix: give one, or --model run:FOLDER.",
            )
        for name, value in own.items():
            if value is not None:
                start = f"{name}: is for models. Fix: leave it out; a run has settings, e.g."
                raise ArgumentError(
                    f"{start} settings={{'draws': 8}}. Or evaluate its networks as models: 'run:{run}'.",
                    f"{start} --set draws=8. Or evaluate its networks as models: --model run:{run}.",
                )
        more = arg.as_texts({f"evaluation.{name}": value for name, value in evaluation.items()})
        return _evaluate_run(Path(run), data, [*settings, *more], device, executor, shard, progress)
    if executor != "local":
        raise ArgumentError(
            f"executor {executor}: the networks of a run can be evaluated so; models are evaluated here"
        )
    if shard is not None:
        raise ArgumentError(f"shard {shard}: the networks of a run are evaluated in shards; models are not")
    import torch

    from epibench.data.sets.folder import find_classes
    from epibench.recipes.settings import parse_setting
    from epibench.runs import given_inputs
    from epibench.runs.folder import RunFolder
    from epibench.runs.given import GivenEvaluation, GivenSettings, check_folder, evaluation_options
    from epibench.runs.machine import Machine

    given_inputs.check_inputs(models, data, model_format, task)
    chosen = {key.removeprefix("evaluation."): value for key, value in map(parse_setting, settings)}
    options = evaluation_options({**chosen, **evaluation})
    with ExitStack() as stack:
        folder = Path(out) if out is not None else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        check_folder(folder)
        named = given_inputs.named_models(models)
        texts = [each for several in named.values() for each in several if isinstance(each, str)]
        domains, task = given_inputs.named_data(data, cast(Any, task or ("depth" if depth else None)), texts)
        place = given_inputs.device_of(named) if device == "auto" else None
        machine = Machine.of(torch.device(place or resolve_device(device)), None)
        table = None if classes is None else find_classes(classes)
        # Data come first: a wrong folder is named before models are downloaded.
        opened = given_inputs.python_domains(domains, in_domain, task, ignore_index, table)
        given = given_inputs.open_all(named, model_format, task, machine, table)
        stack.callback(given_inputs.keep_modes(given))
        make_folder(folder)
        asked = GivenSettings(
            members=None if members is None else tuple(members),
            draws=draws,
            seed=seed,
            mc_dropout=mc_dropout,
            rate=rate,
            views=tuple(views),
            unit=unit,
            depth=depth or task == "depth",
            name=None if out is None else folder.name,
            evaluation=given_inputs.with_convention(options, given),
        )
        reporter = reporter_of(progress)
        results = GivenEvaluation(given, opened, asked, RunFolder(folder), machine, reporter).run()
        return results if out is None else publish(RunFolder(folder), results, reporter)


def _evaluate_run(
    folder: Path, data: Any, settings: Sequence[str], device: str, executor: str, shard: str | None, progress: Any
) -> Results:
    """Evaluate the networks of a run folder with other settings or on further domains."""
    from epibench.recipes.only import parse_shard

    part = None if shard is None else parse_shard(shard)
    if part is not None and executor != "local":
        raise ArgumentError(
            f"executor {executor}: cuts an evaluation into parts by itself. Fix: leave shard {shard} out."
        )
    with opened_run(folder, None, settings, progress, device, None, executor, data) as opened:
        from epibench.runs.evaluations import finished

        results = finished(opened, evaluate_only=True)
        if results is None:
            from epibench.runs import run

            if part is not None:
                run.evaluate_shard(opened, *part)
                opened.reporter.say(f"shard {shard} is evaluated; epibench merge {folder} writes the results of all")
                return cast("Results", None)
            results = run.evaluate(opened)
    return publish(opened.folder, results, opened.reporter)


@arg.checked
def merge(
    run: arg.FinishedRun,
    data: arg.Data = None,
    settings: arg.Settings = (),
    *,
    device: arg.Device = "auto",
    progress: arg.Progress = False,
) -> Results:
    """Merge the shards of an evaluation into results and a page.

    Args:
        run: The folder of a run, or its URL. In Python a local folder.
        data: A domain, as it was given to the shards.
        settings: A setting, as it was given to the shards. In Python also a dict.
        device: cpu, cuda, or auto: a GPU if there is one.
        progress: True shows bars and messages; a reporter receives them.

    Returns:
        Results: the newest evaluation first.

    Raises:
        InputError: shards are missing, or an argument or a file is wrong.
    """
    with opened_run(Path(run), None, settings, progress, device, data=data or ()) as opened:
        from epibench.runs.evaluations import finished

        results = finished(opened, evaluate_only=True)
        if results is None:
            from epibench.runs.run import merge as merge_shards

            results = merge_shards(opened)
    return publish(opened.folder, results, opened.reporter)


@contextmanager
def opened_run(
    recipe: Any,
    out: arg.AnyPath | None,
    settings: Any,
    progress: Any,
    device: str,
    jobs: int | None = None,
    executor: str = "local",
    data: Any = None,
) -> Iterator[Run]:
    """The run of a recipe, or the run in a folder (a `Path`) with further domains."""
    from epibench.recipes import Recipe, apply_settings, default_folder, find_recipe

    reporter = reporter_of(progress)
    if isinstance(recipe, Path):
        chosen, folder = _run_recipe(recipe, data or (), settings, reporter), recipe
    else:
        chosen = apply_settings(recipe if isinstance(recipe, Recipe) else find_recipe(recipe), settings)
        folder = default_folder(recipe, chosen) if out is None else Path(out)
    reporter.say(f"{chosen.name} in {folder}")
    mirror.check_writable()
    from epibench.runs.machine import open_run

    with open_run(chosen, folder, reporter, device, jobs, executor) as opened:
        yield opened


def _run_recipe(folder: Path, data: Any, settings: Any, reporter: Reporter) -> Recipe:
    """The recipe of the run in a folder, with other settings or further domains."""
    from epibench.recipes import apply_settings, read_recipe
    from epibench.recipes.further import with_domains
    from epibench.recipes.settings import differences

    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder; give that of a run, as runs/street-depth")
    recipe = read_recipe(folder)
    asked = with_domains(apply_settings(recipe, settings), data)
    old, new = (each.model_dump(mode="json").get("evaluation", {}) for each in (recipe, asked))
    for key, before, now in differences(old, new, "evaluation."):
        reporter.say(f"{key} is {dumps(now)} in this evaluation, and {dumps(before)} in the recipe")
    return asked


def publish(folder: RunFolder, results: Results, reporter: Reporter) -> Results:
    """Write the page of a run, show the tables of its newest evaluation, and name the files."""
    from epibench.report import write_run_page
    from epibench.report.runs import older_runs, read_runs

    page = write_run_page([results], folder.report_file)
    show(reporter, [results])
    older = [run.evaluation for run in older_runs(read_runs([results]))]
    reporter.say(f"results: {folder.results_file}")
    reporter.say(f"report:  {page}" + (f", with earlier evaluations: {'; '.join(older)}" if older else ""))
    if not results.methods:
        raise InputError("; ".join(results.failed.values()))
    return results


@arg.checked
def score(
    *predictions: arg.Stores,
    members: arg.Sizes | None = None,
    draws: arg.Positive = 16,
    plan: arg.Texts = ("random",),
    seed: arg.Natural = 0,
    convention: arg.Text = "pooled",
    uncertainty: arg.Text | None = None,
    ignore_index: arg.Label | None = None,
    skip_invalid: arg.Flag = False,
    in_domain: arg.Text | None = None,
    depth: arg.Flag = False,
    device: arg.Device = "auto",
    json: arg.File | None = None,
    report: arg.Folder | None = None,
    progress: arg.Progress = False,
) -> Results:
    """Score stored predictions of any framework.

    Each metric is computed for several numbers of members M.

    Args:
        predictions: Stores (.zarr, .npz, or a folder of .npz), one per method. In Python also dicts of arrays under
            the names of a store, e.g. `mean`, `variance` and `target`.
        members: Numbers of members M, e.g. 1,2,4,8. Default: powers of two, and all members.
        draws: Maximum number of draws per M.
        plan: How draws choose members: random, disjoint, prefix or spread (see docs/scoring.md). Given once, or once
            per store. Default: random.
        seed: Seed of the draws.
        convention: pooled or gustafsson2020.
        uncertainty: The uncertainty that sorts pixels or samples. Gaussian predictions: total, aleatoric or epistemic;
            classes: entropy, mutual_information or confidence; rankings: given, spread, or the name of a map. Default:
            the first; of rankings every map.
        ignore_index: Target that means "no label". Default: 255, unless it is a class.
        skip_invalid: Skip pixels or samples with NaN or infinite values, and count them.
        in_domain: The domain that methods were trained for; the others count as shifted. Default: not known.
        depth: Predictions are depths in metres: add AbsRel, δ < 1.25, SILog, iRMSE …
        device: cpu, cuda, or auto: a GPU if there is one.
        json: Write all results to this file.
        report: Write a page with all curves, score.html, into this folder.
        progress: True shows bars and messages; a reporter receives them.

    Returns:
        Results with a score for each prediction.

    Raises:
        InputError: an argument or a store is wrong. Scores before it are written.
    """
    files = [each for each in predictions if not isinstance(each, Mapping)]
    if not predictions:
        raise InputError("nothing to score: give stores, or dicts of arrays")
    for file in files:
        if not mirror.is_url(str(file)) and not os.path.exists(file):  # Path.exists raises where a name is too long
            raise InputError(f"{file}: no such file or folder; give a zarr folder or an .npz")
    for target in (Path(path).resolve() for path in (json, report) if path is not None):
        for file in map(Path, files):
            if target == file.resolve() or file.resolve() in target.parents:
                raise InputError(f"{target}: would be written into the predictions {file}; give another path")
    if json is not None and Path(json).is_dir():
        raise ArgumentError(f"json {json}: is a folder. Fix: give the name of a file in it.")
    if report is not None and Path(report).exists() and not Path(report).is_dir():
        raise ArgumentError(f"report {report}: is a file. Fix: give a folder.")
    for path in (json and Path(json).parent, report):
        if path is not None:
            make_folder(path)
    if len(plan) not in (1, len(predictions)):
        raise ArgumentError(
            f"plan: there are {len(plan)} for {len(predictions)} stores. Fix: give one, or one per store."
        )
    from epibench.evaluation.scoring import ScoreSettings, check_in_domain, score_results, scorers_of
    from epibench.store import open_store
    from epibench.store.memory import store_in_memory

    settings = ScoreSettings(
        sizes=None if members is None else tuple(members),
        max_draws=draws,
        seed=seed,
        convention=check_convention(convention),
        uncertainty=uncertainty,
        ignore_index=ignore_index,
        skip_invalid=skip_invalid,
        depth=depth,
        device=resolve_device(device),
    )
    # Every store is opened and checked before any is scored: a typing error costs seconds.
    scorers, plans = [], list(plan) if len(plan) > 1 else [*plan] * len(predictions)
    for number, (given, each) in enumerate(zip(predictions, plans, strict=True)):
        name = f"predictions {number}" if isinstance(given, Mapping) else os.fspath(given)
        store = store_in_memory(given, name) if isinstance(given, Mapping) else open_store(given)
        scorers += scorers_of(store, replace(settings, plan=cast("Plan", each)), name)
    if ignore_index is not None and all(scorer.store.num_classes is None for scorer in scorers):
        raise ArgumentError("ignore_index is for classes; mask the targets of other predictions with 'valid'")
    if in_domain is not None:
        check_in_domain(in_domain, [scorer.store for scorer in scorers])
    reporter, scored = reporter_of(progress), list["ScoredStore"]()
    try:
        for scorer in scorers:
            scored.append(_scored(scorer, reporter))
            gc.collect()  # metrics refer to themselves: their memory comes back only so
    finally:  # finished scores are kept where a later store turns out to be broken
        if scored:
            results = score_results(scored, settings, in_domain)
            if json is not None:
                results.save(json)
            if report is not None:
                from epibench.report import write_run_page

                page = write_run_page([results], Path(report) / "score.html")
            show(reporter, results)
            if json is not None:
                reporter.say(f"results: {json}")
            if report is not None:
                reporter.say(f"report:  {page}")
    return results


def _scored(scorer: Scorer, reporter: Reporter) -> ScoredStore:
    """The scores of a store, with its speed."""
    begun, done = time.perf_counter(), 0
    with reporter.step(f"score {scorer.store.path}", scorer.store.num_pixels) as advance:

        def count(pixels: int) -> None:
            nonlocal done
            done += pixels
            advance(pixels, f"{done / 1e6 / (time.perf_counter() - begun):.2f} M{scorer.store.counted[:-1]}/s")

        return scorer.run(count)
