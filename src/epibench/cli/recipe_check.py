"""`epibench data check RECIPE`: whether everything that a recipe needs is there, before hours are spent on it."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from epibench.cli.options import resolve_device
from epibench.cli.steps import folder_of
from epibench.console import ConsoleReporter, show

STYLES = {"ok": "green", "note": "yellow", "problem": "bold red", "waits": "dim"}


def run_recipe_check(name: str, settings: Sequence[str], out: str | None, every: bool) -> None:
    """Say of everything that a recipe needs whether it is there; all problems, one line each, and a verdict."""
    from epibench.recipes import DenseRecipe, apply_settings, find_recipe

    recipe = apply_settings(find_recipe(name), settings)
    import torch

    from epibench.runs.checks import ask_all
    from epibench.runs.domains import ImageData
    from epibench.runs.folder import RunFolder
    from epibench.runs.machine import Machine, Run
    from epibench.runs.run import experiment_of

    reporter = ConsoleReporter()
    folder = RunFolder(folder_of(name, recipe, out))
    run = Run(recipe, folder, Machine.of(torch.device(resolve_device("auto")), None), reporter)
    checks = experiment_of(run).all_checks(
        every, lambda frames, part: reporter.counted(frames, f"opening {part}", len(frames))
    )
    findings = []
    for finding in ask_all(checks):
        findings.append(finding)
        show(f"{finding.state:8} {finding.about}: {finding.text}", STYLES[finding.state])
    problems = [finding.about for finding in findings if finding.state == "problem"]
    sources = ImageData(recipe).sources if isinstance(recipe, DenseRecipe) else {}
    for where in dict.fromkeys(source.where for key, source in sources.items() if source.where and key in problems):
        show(f"Where to get it: {where}")
    if problems:
        number = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        show(f"{recipe.name} cannot be run yet: {number}.")
        raise typer.Exit(1)
    show(f"{recipe.name} can be run: nothing is missing.")
