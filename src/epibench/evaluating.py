"""`epibench.evaluate`: models and data of the user's, in one call."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from contextlib import ExitStack
from pathlib import Path
from typing import Any, get_args

import torch
from torch import nn

from epibench.arguments import DEVICE, FLAG, FOLDER, PROGRESS, SIZES, WHOLE, argument
from epibench.console import reporter_of
from epibench.data.classes import ClassTable
from epibench.data.sets.folder import find_classes
from epibench.data.source import Task
from epibench.devices import resolve_device
from epibench.errors import InputError
from epibench.members.formats import ModelFormat
from epibench.members.given import GivenModel
from epibench.progress import Reporter
from epibench.recipes import RECIPE_NAME
from epibench.results import Results
from epibench.runs.folder import RunFolder
from epibench.runs.given import DEFAULT_NAME, GivenEvaluation, GivenSettings, check_folder, evaluation_options
from epibench.runs.given_inputs import (
    EXAMPLES,
    PYTHON,
    named_data,
    open_models,
    python_domains,
    python_model,
    with_classes,
    with_convention,
)
from epibench.runs.machine import Machine

DATA = "a data set with a length and samples by number, a DataLoader, two arrays, or a text as 'camvid:DIR'"


def evaluate(
    models: Any,
    data: Any,
    *,
    model_format: ModelFormat | Mapping[str, Any] | None = None,
    in_domain: str | None = None,
    task: Any = None,
    classes: str | Path | Sequence[str] | None = None,
    ignore_index: int | None = None,
    unit: str | None = None,
    depth: bool = False,
    members: Sequence[int] | None = None,
    draws: int = 16,
    seed: int = 0,
    mc_dropout: int = 0,
    rate: float | None = None,
    views: Sequence[str] = (),
    out: str | Path | None = None,
    device: str | None = None,
    progress: bool | Reporter = False,
    **evaluation: Any,
) -> Results:
    """How far the uncertainty of trained models can be trusted on these data, as a function of the number of members M.

    models: one, several that are members of one ensemble, or such lists by name: modules, functions, or texts as
    `hf:DIR`, `onnx:FILE`, `paper:FILE`. data: a data set or DataLoader that yields dicts, tuples or `Batch`, or several
    by name, of which the first, or `in_domain`, is what models were trained for and the others are shifted; or texts as
    `camvid:DIR,split=val`. model_format: how models are fed and read (`ModelFormat`). classes: names, or a table.
    depth: numbers are metres. mc_dropout: passes of each model with its own dropout; views: of each image, `flip`,
    `scale`, or one by one, as `flip scale 0.5`. out: a folder for results and a page, which then does only what is
    missing (data that are objects cannot be known again, and are evaluated anew). device: by default that of the
    first module. progress: show bars and messages. evaluation: further options, as precision="bf16",
    convention="gustafsson2020", window=(512, 512), pictures=4.
    """
    _check_models(models)
    _check_data(data)
    argument("model_format", model_format, "a dict, as {'values': 'probs'}", ModelFormat, Mapping, None)
    argument("in_domain", in_domain, "the name of a data set, as 'val'", str, None)
    argument("task", task, "'segmentation' or 'depth'", str, None)
    classes = argument(
        "classes", classes, "names, as ['road', 'sky'], or a table, as 'camvid'", str, Path, None, each=str
    )
    argument("unit", unit, "a text, as 'm'", str, None)
    argument("out", out, FOLDER, str, os.PathLike, None)
    argument("device", device, DEVICE, str, torch.device, None)
    ignore_index = argument("ignore_index", ignore_index, "a whole number, as 255", int, None)
    depth = argument("depth", depth, FLAG, bool)
    progress = argument("progress", progress, PROGRESS, bool, Reporter)
    views = argument("views", views, "a list of texts, as ['flip']", str, each=str)
    members = argument("members", members, SIZES, None, each=int)
    draws, seed = argument("draws", draws, WHOLE, int), argument("seed", seed, WHOLE, int)
    mc_dropout = argument("mc_dropout", mc_dropout, WHOLE, int)
    rate = argument("rate", rate, "a number, as 0.1", float, int, None)
    options = evaluation_options(evaluation)
    if task is not None and task not in get_args(Task):
        raise InputError(f"task: '{task}' is unknown; give {' or '.join(get_args(Task))}")
    with ExitStack() as stack:
        folder = Path(out) if out is not None else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        check_folder(folder, "out")
        texts = [each for several in _lists(models).values() for each in several if isinstance(each, str)]
        named, task = named_data(data, task or ("depth" if depth else None), texts)
        machine = Machine.of(
            torch.device(_device_of(models) if device in (None, "auto") else resolve_device(str(device))), None
        )
        table = None if classes is None else find_classes(classes)
        given = _models(models, model_format, task, machine, table)
        before = _modes(given)
        stack.callback(_restore, before)
        domains = python_domains(named, in_domain, task, ignore_index, table)
        folder.mkdir(parents=True, exist_ok=True)
        settings = GivenSettings(
            None if members is None else tuple(members),
            draws,
            seed,
            mc_dropout,
            rate,
            (views,) if isinstance(views, str) else tuple(views),
            unit,
            depth or task == "depth",
            None if out is None else Path(out).name,
            with_convention(options, given),
        )
        folder_of_run, shown = RunFolder(folder), reporter_of(progress)
        results = GivenEvaluation(given, domains, settings, folder_of_run, machine, shown).run()
        if out is not None:
            from epibench.report import write_run_page

            write_run_page([results], folder_of_run.report_file)
        return results


def _check_models(models: Any) -> None:
    """Refuse what is no model, and a run, which is evaluated otherwise."""
    given = [each for several in _lists(models).values() for each in several]
    if not given:
        raise InputError("models: there are none; give at least one")
    for each in given:
        if isinstance(each, str | Path) and os.path.isfile(os.path.join(each, RECIPE_NAME)):
            raise InputError(
                f"models: {each} is the folder of a run, and no model; the run is evaluated anew by epibench evaluate "
                f"{each}, or by epibench.run({str(each)!r}, settings=…); its networks are models as 'run:{each}'"
            )
        argument("models", each, f"an nn.Module, a function, or a text as {EXAMPLES}", str, Callable)


def _check_data(data: Any) -> None:
    """Refuse what can be no data; whether it has samples is seen when it is opened."""
    for name, each in data.items() if isinstance(data, Mapping) else [("data", data)]:
        argument("data", name, "names that are texts, as {'val': …}", str)
        argument("data", each, DATA, Sized, Iterable)


def _models(
    models: Any, model_format: Any, task: Any, machine: Machine, classes: ClassTable | None
) -> dict[str, list[GivenModel]]:
    opened: dict[str, list[GivenModel]] = {}
    for name, several in _lists(models).items():
        if not several:
            raise InputError(f"models: '{name}' has none; give at least one")
        if model_format is not None and any(isinstance(each, str) for each in several):
            raise InputError("model_format: is for modules and functions; of a text, settings stand behind commas")
        opened[name] = [
            model if classes is None or model.classes is not None else with_classes(model, classes)
            for number, each in enumerate(several)
            for model in (
                open_models(each, task, machine, PYTHON)
                if isinstance(each, str)
                else [python_model(each, number, model_format)]
            )
        ]
    return opened


def _lists(models: Any) -> dict[str, list[Any]]:
    """Models by the names of their methods, each a list."""
    named = models if isinstance(models, Mapping) else {DEFAULT_NAME: models}
    return {str(name): list(given) if isinstance(given, list | tuple) else [given] for name, given in named.items()}


def _device_of(models: Any) -> str:
    """Where the first module lies; otherwise a GPU, if there is one."""
    given = list(models.values()) if isinstance(models, Mapping) else [models]
    flat = [
        each for one in given for each in (one if isinstance(one, Sequence) and not isinstance(one, str) else [one])
    ]
    parameters = (next(each.parameters(), None) for each in flat if isinstance(each, nn.Module))
    first = next((each for each in parameters if each is not None), None)
    return str(first.device) if first is not None else "cuda" if torch.cuda.is_available() else "cpu"


def _modes(given: Mapping[str, Sequence[GivenModel]]) -> list[tuple[nn.Module, bool]]:
    """Modules of the user's, and those within, with their modes, which evaluation changes for a while."""
    modules = [model.module for models in given.values() for model in models if model.module is not None]
    return [(each, each.training) for module in modules for each in module.modules()]


def _restore(modes: Sequence[tuple[nn.Module, bool]]) -> None:
    for module, mode in modes:
        module.training = mode
