"""`epibench evaluate`: models that are trained, here or elsewhere, on any data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from epibench.cli.options import Device, Settings, at_least
from epibench.cli.run import publish
from epibench.cli.steps import ExecutorName, finished, local_folder, opened_run, with_domains
from epibench.console import say
from epibench.errors import InputError
from epibench.mirror import is_url
from epibench.views import parse_views

if TYPE_CHECKING:
    from epibench.recipes import Recipe

On = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=KIND:PATH",
        help="One more domain, with its settings behind commas, as val=camvid:DIR,split=val; or a .json or .toml file. "
        "May be given several times.",
    ),
]


EVALUATED = "evaluated"
Members = Annotated[
    str | None, typer.Option(metavar="M,…", help="Values of M, as 1,2,4,8. Default: powers of two, and all.")
]


def evaluate(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="The folder of a run, or its URL, instead of models.")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SPEC",
            help="A model: hf:DIR, onnx:FILE, run:FOLDER, paper:FILE (a published checkpoint), or "
            "FILE.pt,network=package.module:name; with what it needs behind commas, as mean=[0.5],std=[0.2]. Several "
            "are members of one ensemble; NAME=SPEC tells methods apart.",
        ),
    ] = None,
    on: On = None,
    task: Annotated[
        str | None, typer.Option(metavar="TASK", help="segmentation or depth, where the data may be either.")
    ] = None,
    mc_dropout: Annotated[
        int, typer.Option(metavar="N", callback=at_least(0), help="Also N passes of each model with its own dropout.")
    ] = 0,
    tta: Annotated[
        str | None,
        typer.Option(
            metavar="VIEWS",
            help="Also several views of each image: flip, scale or flip,scale; or as flip,scale 0.5.",
        ),
    ] = None,
    members: Members = None,
    draws: Annotated[int, typer.Option(metavar="N", callback=at_least(1), help="At most so many draws per M.")] = 16,
    seed: Annotated[int, typer.Option(metavar="N", callback=at_least(0), help="Seed of draws and dropout.")] = 0,
    out: Annotated[str, typer.Option(metavar="FOLDER", help="Where results of models go.")] = EVALUATED,
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="K/N", help="Only the K-th of N parts of a run, for N processes anywhere; epibench merge ends it."
        ),
    ] = None,
    settings: Settings = None,
    device: Device = "auto",
    executor: ExecutorName = "local",
) -> None:
    """Evaluate trained models, or the trained networks of a run. Nothing is trained, and nothing done twice."""
    if run is not None and model:
        raise InputError("give RUN or --model, not both; the members of a run as a model are --model run:FOLDER")
    if run is not None:
        given = {"--task": task, "--mc-dropout": mc_dropout, "--tta": tta, "--members": members}
        given |= {"--draws": draws != 16, "--seed": seed, "--out": out != EVALUATED}
        if idle := [name for name, value in given.items() if value]:
            raise InputError(
                f"{idle[0]} is for --model; a run has settings, as --set draws=8, and its networks are models as "
                f"--model run:{run}"
            )
        evaluate_run(local_folder(run), on or [], settings or [], device, executor, shard)
        return
    if executor != "local":
        raise InputError(f"--executor {executor}: the networks of a run can be evaluated so; models are evaluated here")
    if shard is not None:
        raise InputError(f"--shard {shard}: the networks of a run are evaluated in shards; models are not")
    if not model:
        raise InputError("give the folder of a run, as runs/street-depth, or --model (see epibench evaluate --help)")
    if is_url(out):
        raise InputError(f"--out {out}: results of models go into a local folder; give one")
    from epibench.cli.given import evaluate_models

    asked = {"mc_dropout": mc_dropout, "views": views_of(tta), "draws": draws, "seed": seed}
    evaluate_models(model, on or [], task, members, asked, settings or [], Path(out), device)


def views_of(text: str | None) -> tuple[str, ...]:
    """The views that `--tta` names; refused before any model is opened."""
    names = tuple(text.split(",")) if text else ()
    try:
        parse_views(names)
    except InputError as error:
        raise InputError(f"--tta {text}: {error}") from None
    return names


def evaluate_run(
    folder: Path,
    on: Sequence[str],
    settings: Sequence[str],
    device: str,
    executor: str = "local",
    shard: str | None = None,
) -> None:
    """Evaluate the networks of a run folder with other settings or on further domains; write results and page."""
    from epibench.recipes.only import parse_shard

    part = None if shard is None else parse_shard(shard)
    if part is not None and executor != "local":
        raise InputError(f"--executor {executor} cuts an evaluation into parts by itself; leave --shard {shard} out")
    with opened_run(recipe_of(folder, on, settings), folder, device, executor=executor) as opened:
        results = finished(opened, evaluate_only=True)
        if results is None:
            from epibench.runs import run

            if part is not None:
                run.evaluate_shard(opened, *part)
                opened.reporter.say(f"shard {shard} is evaluated; epibench merge {folder} writes the results of all")
                return
            results = run.evaluate(opened)
    publish(opened.folder, results, opened.reporter)


def merge(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The folder of a run, or its URL.")],
    on: On = None,
    settings: Settings = None,
    device: Device = "auto",
) -> None:
    """Merge the shards of an evaluation into results and a page; --on and --set as they were given to the shards."""
    folder = local_folder(run)
    with opened_run(recipe_of(folder, on or [], settings or []), folder, device) as opened:
        results = finished(opened, evaluate_only=True)
        if results is None:
            from epibench.runs.run import merge

            results = merge(opened)
    publish(opened.folder, results, opened.reporter)


def recipe_of(folder: Path, on: Sequence[str], settings: Sequence[str]) -> Recipe:
    """The recipe of the run in a folder, with other settings or further domains."""
    from epibench.recipes import apply_settings, read_recipe
    from epibench.recipes.settings import differences

    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder; give that of a run, as runs/street-depth")
    recipe = read_recipe(folder)
    asked = with_domains(apply_settings(recipe, settings), on)
    old, new = (each.model_dump(mode="json").get("evaluation", {}) for each in (recipe, asked))
    for key, before, now in differences(old, new, "evaluation."):
        say(f"{key} is {json.dumps(now)} in this evaluation, and {json.dumps(before)} in the recipe")
    return asked
