"""`epibench train`: the first step of a run, alone."""

from __future__ import annotations

from typing import Annotated

import typer

from epibench.cli.options import Device, Settings
from epibench.cli.steps import ExecutorName, Jobs, Out, RecipeOrRun, folder_of, local_recipe, opened_run
from epibench.errors import InputError

Only = Annotated[
    list[str] | None,
    typer.Option(
        metavar="METHOD[:NUMBERS]",
        help="Only the networks of this method, or those of these numbers, as ensemble:3-5 or ensemble:0,4. "
        "May be given several times.",
    ),
]
Shard = Annotated[
    str | None,
    typer.Option(metavar="K/N", help="Only the K-th of N parts of the networks, for N processes anywhere."),
]


def train(
    recipe: RecipeOrRun,
    out: Out = None,
    only: Only = None,
    shard: Shard = None,
    settings: Settings = None,
    device: Device = "auto",
    executor: ExecutorName = "local",
    jobs: Jobs = None,
) -> None:
    """Train the networks of a recipe that are missing, and nothing else. What is trained is not trained again."""
    from epibench.recipes import apply_settings, find_recipe
    from epibench.recipes.only import networks_asked_for, networks_of_shard, parse_shard

    recipe = local_recipe(recipe)
    chosen = apply_settings(find_recipe(recipe), settings or [])
    asked = networks_asked_for(only, chosen, "--only") if only else None
    if shard is not None:
        if only:
            raise InputError(f"--shard {shard} and --only {only[0]} choose networks both; give one of them")
        asked = networks_of_shard(chosen, *parse_shard(shard))
    with opened_run(chosen, folder_of(recipe, chosen, out), device, jobs, executor) as opened:
        from epibench.runs import run
        from epibench.runs.train import num_missing

        failed = run.train(opened, asked)
        missing = 0 if failed else sum(num_missing(opened, name) for name in chosen.methods)
    path, then = opened.folder.path, "once they are there, " if missing else ""
    left = f"; {missing} more {'is' if missing == 1 else 'are'} to be trained" if missing else ""
    opened.reporter.say(f"networks: {opened.folder.members}{left}; {then}epibench evaluate {path} evaluates them")
    if failed:
        raise InputError("; ".join(failed.values()))
