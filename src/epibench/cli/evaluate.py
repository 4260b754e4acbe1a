"""`epibench evaluate`: networks that are trained, on the domains of their run and on others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from epibench.cli.options import Device, Settings
from epibench.cli.run import publish
from epibench.cli.steps import finished, open_run, with_domains
from epibench.errors import InputError

On = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=KIND:PATH",
        help="One more domain, with its settings behind commas, as val=camvid:DIR,split=val; or a .json or .toml file. "
        "May be given several times.",
    ),
]


def evaluate(
    run: Annotated[Path | None, typer.Argument(metavar="RUN", help="The folder of a run.")] = None,
    on: On = None,
    settings: Settings = None,
    device: Device = "auto",
) -> None:
    """Evaluate the trained networks of a run. Nothing is trained, and nothing evaluated that has been before."""
    if run is None:
        raise InputError("RUN is missing: give the folder of a run, as runs/street-depth")
    evaluate_run(run, on or [], settings or [], device)


def evaluate_run(folder: Path, on: Sequence[str], settings: Sequence[str], device: str) -> None:
    """Evaluate the networks of a run folder with other settings or on further domains; write results and page."""
    from epibench.recipes import apply_settings, read_recipe

    chosen = with_domains(apply_settings(read_recipe(folder), settings), on)
    opened = open_run(chosen, folder, device)
    results = finished(opened)
    if results is None:
        from epibench.runs import run

        results = run.evaluate(opened)
    publish(opened, results)
