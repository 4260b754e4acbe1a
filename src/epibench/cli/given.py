"""`epibench evaluate --model … --on …`: models that were trained elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import torch

from epibench.cli.options import make_folder, parse_sizes, resolve_device
from epibench.cli.run import publish
from epibench.console import ConsoleReporter
from epibench.data.source import Task
from epibench.errors import InputError
from epibench.recipes.settings import parse_setting
from epibench.runs.folder import RunFolder
from epibench.runs.given import GivenEvaluation, GivenSettings, check_folder, evaluation_options
from epibench.runs.given_inputs import parse_given_domains, parse_models, with_convention
from epibench.runs.machine import Machine


def evaluate_models(
    models: Sequence[str],
    on: Sequence[str],
    task: Any,
    members: str | None,
    asked: Mapping[str, Any],
    settings: Sequence[str],
    out: Path,
    device: str,
) -> None:
    """Open and check everything, evaluate, write results and a page, show the tables."""
    if task is not None and task not in get_args(Task):
        raise InputError(f"--task '{task}' is unknown; give {' or '.join(get_args(Task))}")
    sizes = parse_sizes(members)
    options = evaluation_options(evaluation_settings(settings))
    check_folder(out)
    machine, reporter = Machine.of(torch.device(resolve_device(device)), None), ConsoleReporter()
    domains, task = parse_given_domains(on, task, models)
    given = parse_models(models, task, machine)
    make_folder(out)
    options = with_convention(options, given)
    chosen = GivenSettings(sizes, depth=task == "depth", name=out.name, evaluation=options, **asked)
    folder = RunFolder(out)
    results = GivenEvaluation(given, domains, chosen, folder, machine, reporter).run()
    publish(folder, results, reporter)


def evaluation_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Settings of an evaluation, as `precision=bf16` or `evaluation.precision=bf16`."""
    return {key.removeprefix("evaluation."): value for key, value in map(parse_setting, texts)}
