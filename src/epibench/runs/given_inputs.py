"""Given models and data: texts of a command line, files, or Python objects."""

from __future__ import annotations

import glob
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast, get_args

import torch
from torch import nn

from epibench.arguments import unfit
from epibench.data.batch import Samples
from epibench.data.cityscapes_classes import CITYSCAPES_TRAIN_IDS
from epibench.data.classes import ClassTable
from epibench.data.given import IGNORE_INDEX, GivenSamples, open_given
from epibench.data.named import NamedDomain, parse_domains, split_settings
from epibench.data.sets import DATA_SETS
from epibench.data.sets.folder import find_classes
from epibench.data.source import FOLDERS, Folders, Source, Task, default_cache
from epibench.errors import ArgumentError, InputError
from epibench.files import fingerprint
from epibench.interpolation import aligned_corners
from epibench.members.formats import ModelFormat
from epibench.members.given import GivenModel
from epibench.members.model_files import WEIGHTS, file_digest, hf_model, onnx_model, read_format, weights_model
from epibench.methods.contract import Method
from epibench.networks.dropout import insert_dropout
from epibench.networks.shaping import shape_like
from epibench.progress import Silent
from epibench.published.checkpoints import read_checkpoint
from epibench.recipes import RECIPE_NAME, DenseRecipe, read_recipe
from epibench.recipes.dense import PAPER, DepthNetwork, EvaluationOptions, SegmentationNetwork
from epibench.runs.folder import RunFolder
from epibench.runs.given import DEFAULT_NAME, GivenDomain
from epibench.runs.machine import Machine, Run
from epibench.runs.train import collect_trained

NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]*)=(?![=])(.+)", re.DOTALL)
EXAMPLES = "hf:DIR, onnx:FILE, run:FOLDER, paper:FILE, or a file of weights with network=package.module:name"
MODEL = f"an nn.Module, a function, or a text as {EXAMPLES}"

PUBLISHED_RATE = 0.5  # of dropout
DATA = "a data set with a length and samples by number, a DataLoader, two arrays, or a text, e.g. 'camvid:DIR'"


def named_models(models: Any) -> dict[str, list[Any]]:
    """Models by the names of their methods; of texts, `NAME=SPEC` says it."""
    if isinstance(models, Mapping):
        return {
            str(name): list(given) if isinstance(given, list | tuple) else [given] for name, given in models.items()
        }
    named: dict[str, list[Any]] = {}
    for each in models if isinstance(models, list | tuple) else [models]:
        name, model = _name_and_spec(each) if isinstance(each, str) else (DEFAULT_NAME, each)
        named.setdefault(name, []).append(model)
    return named


def check_inputs(models: Any, data: Any, model_format: Any, task: str | None) -> None:
    """Refuse what can be no model and no data; whether data have samples shows when they are opened."""
    if models is None or not (named := named_models(models)):
        raise ArgumentError(
            f"models: there are none. Fix: give the folder of a run, or at least one model, {MODEL}.",
            f"models: there are none. Fix: give the folder of a run, or at least one --model: {EXAMPLES}.",
        )
    for name, several in named.items():
        if not several:
            raise ArgumentError(f"models: '{name}' has none. Fix: give at least one.")
        for each in several:
            if isinstance(each, str | Path) and os.path.isfile(os.path.join(each, RECIPE_NAME)):
                raise ArgumentError(
                    f"models: {each} is the folder of a run, and no model. Fix: evaluate the run by epibench evaluate "
                    f"{each}, or run={str(each)!r}; its networks are models as 'run:{each}'."
                )
            if not (isinstance(each, str) or callable(each)):
                raise unfit("models", each, MODEL)
            if model_format is not None and isinstance(each, str):
                raise ArgumentError(
                    "model_format: is for modules and functions; of a text, settings stand behind commas"
                )
    if not isinstance(model_format, ModelFormat | Mapping | None):
        raise unfit("model_format", model_format, "a dict, e.g. {'values': 'probs'}")
    if task is not None and task not in get_args(Task):
        raise ArgumentError(f"task '{task}' is unknown; give {' or '.join(get_args(Task))}")
    if data is None:
        typed = "data: no data is given. Fix: give NAME=KIND:PATH, e.g. val=camvid:DIR."
        raise ArgumentError(f"data: cannot be None. Fix: give {DATA}.", typed)
    for name, each in data.items() if isinstance(data, Mapping) else [("data", data)]:
        if not isinstance(name, str):
            raise unfit("data", name, "names that are texts, e.g. {'val': …}")
        if not isinstance(each, Sized | Iterable):
            raise unfit("data", each, DATA)


def open_all(
    named: Mapping[str, Sequence[Any]], model_format: Any, task: Any, machine: Machine, classes: ClassTable | None
) -> dict[str, list[GivenModel]]:
    """The models by the names of their methods; classes: of models that do not name theirs."""
    return {
        name: [
            model if model.classes is not None else with_classes(model, classes)
            for number, each in enumerate(several)
            for model in (
                open_models(each, task, machine)
                if isinstance(each, str)
                else [python_model(each, number, model_format)]
            )
        ]
        for name, several in named.items()
    }


def device_of(named: Mapping[str, Sequence[Any]]) -> str | None:
    """The device of the first module."""
    modules = (each for several in named.values() for each in several if isinstance(each, nn.Module))
    first = next((parameter for each in modules for parameter in each.parameters()), None)
    return None if first is None else str(first.device)


def keep_modes(named: Mapping[str, Sequence[GivenModel]]) -> Callable[[], None]:
    """Restores the modes of the user's modules, which evaluation changes for a while."""
    modules = [model.module for models in named.values() for model in models if model.module is not None]
    modes = [(each, each.training) for module in modules for each in module.modules()]

    def restore() -> None:
        for module, mode in modes:
            module.training = mode

    return restore


def _name_and_spec(text: str) -> tuple[str, str]:
    first = text.split(",", 1)[0]
    named = NAMED.fullmatch(text) if "=" in first and not Path(first).exists() else None
    return (named[1], named[2]) if named else (DEFAULT_NAME, text)


def open_models(text: str, task: Task | None, machine: Machine) -> list[GivenModel]:
    """The models of one text; a pattern as `weights/*.pt` stands for several."""
    place = f"models {text}"
    first, settings = split_settings(text, place)
    kind, colon, path = first.partition(":")
    if kind == "hf" and colon:
        table = _classes(settings)
        return [with_classes(hf_model(path, task or "segmentation", settings), table)]
    if kind == "run" and colon:
        return run_models(Path(path), settings, machine)
    if kind == "paper" and colon:
        if settings:
            raise ArgumentError(f"{place}: published networks have no settings; leave {', '.join(settings)} out")
        return [published_model(each, task) for each in _files(path, place)]
    table = _classes(settings)
    if kind == "onnx" and colon:
        return [with_classes(onnx_model(each, settings), table) for each in _files(path, place)]
    if Path(first).suffix in WEIGHTS:
        maker, options = settings.pop("network", None), settings.pop("options", {})
        if not isinstance(maker, str) or not isinstance(options, dict):
            raise ArgumentError(f"{place}: weights need the network that they are of; give network=package.module:name")
        read_as = read_format(settings, place)
        return [with_classes(weights_model(each, maker, options, read_as), table) for each in _files(first, place)]
    raise ArgumentError(f"{place}: not understood; give {EXAMPLES}")


def _files(pattern: str, place: str) -> list[Path]:
    """Return the file, or all files of a pattern."""
    path = Path(pattern).expanduser()
    if path.exists() or not glob.has_magic(pattern):
        return [path]
    found = sorted(glob.glob(str(path)))
    if not found:
        raise ArgumentError(f"{place}: no file fits '{pattern}'")
    return [Path(each) for each in found]


def _classes(settings: dict[str, Any]) -> ClassTable | None:
    given = settings.pop("classes", None)
    return None if given is None else find_classes(given)


def with_classes(model: GivenModel, table: ClassTable | None) -> GivenModel:
    """Return the model with these classes; None: unchanged."""
    if table is None:
        return model
    identity = None if model.fingerprint is None else fingerprint(model.fingerprint, table.digest)
    return replace(model, classes=table, fingerprint=identity)


def run_models(path: Path, settings: Mapping[str, Any], machine: Machine) -> list[GivenModel]:
    """Return the trained networks of a run's method: `method` of the settings, or the first method."""
    from epibench.runs.domains import ImageData

    folder = RunFolder(path)
    recipe = read_recipe(path)
    if not isinstance(recipe, DenseRecipe):
        raise InputError(f"run:{path}: is of a toy problem, whose networks see points and no images")
    given = dict(settings)
    name = str(given.pop("method", recipe.methods[0]))
    if name not in recipe.methods:
        raise InputError(f"run:{path}: has no method '{name}'; there are {', '.join(recipe.methods)}")
    method = recipe.method(name)
    if method.dropout or method.member_views:
        what = "passes with dropout" if method.dropout else "views of images"
        raise InputError(f"run:{path}: {name} has {what}; take epibench evaluate {path} --on …")
    run = Run(recipe, folder, machine, Silent())
    trained = collect_trained(run, name)
    classes = ImageData(recipe).classes
    build = recipe.builder(None if classes is None else classes.num_classes, method=name)
    own = {"inputs": "mapping", "align_corners": aligned_corners(build())}
    own |= {} if recipe.likelihood == "categorical" else {"spread": "log_variance"}
    read_as = read_format({**own, **given}, f"run:{path}")
    members = method.members(trained.networks).members
    # Kept weights are members as they are, unless the method computes its members; then any option may matter.
    made = [] if type(method).weights is Method.weights else [method.model_dump(mode="json", exclude={"diverged"})]

    def load(number: int) -> nn.Module:
        weights = dict(trained.weights(members[number]))
        network = shape_like(build(), weights)
        network.load_state_dict(weights)
        return network

    return [
        GivenModel(
            f"run:{path}: {name} {number}",
            partial(load, number),
            read_as,
            fingerprint(
                "run",
                trained.jobs[member.network].files.fingerprint,
                member.snapshot,
                *([member.number] if member.number else []),
                *made,
                given,
            ),
            classes,
            {"run": str(path), "method": name, "network": member.network},
        )
        for number, member in enumerate(members)
    ]


def published_model(path: Path, task: Task | None) -> GivenModel:
    """Return a checkpoint of the authors in their network. Its dropout acts only in MC-dropout passes."""
    spec, task = f"{PAPER}{path}", task or read_checkpoint(path)[0]
    if not path.is_file():
        raise InputError(f"{spec}: there is no such file")
    classes, kind = (None, DepthNetwork) if task == "depth" else (CITYSCAPES_TRAIN_IDS, SegmentationNetwork)
    options = kind.model_validate({**kind.published, "weights": spec})

    def load() -> nn.Module:
        network = options.build(None if classes is None else classes.num_classes, pretrained=True)
        if classes is not None:
            network.set_submodule("pyramid.dropout", nn.Identity())  # it acts only in training
        insert_dropout(network, cast(Sequence[str], network.dropout_places), PUBLISHED_RATE, always=False)
        return network

    spread = {} if classes else {"spread": "log_variance"}
    read_as = ModelFormat(inputs="mapping", align_corners=True, **spread)
    identity = fingerprint("paper", file_digest(path), options.model_dump(mode="json", exclude={"weights"}))
    return GivenModel(spec, load, read_as, identity, classes, {"paper": str(path)}, "gustafsson2020")


def published_task(models: Sequence[str]) -> Task | None:
    """Return the task of the first checkpoint of the authors among the models; None without one."""
    for text in models:
        _, spec = _name_and_spec(text)
        if spec.startswith(PAPER):
            path, _ = split_settings(spec.removeprefix(PAPER), text)
            return read_checkpoint(_files(path, text)[0])[0]
    return None


def with_convention(options: EvaluationOptions, models: Mapping[str, Sequence[GivenModel]]) -> EvaluationOptions:
    """Return the options with the models' usual convention, unless the user has set one or the models differ."""
    usual = {model.convention for several in models.values() for model in several}
    chosen = "convention" in options.model_fields_set or len(usual) > 1
    return options if chosen else options.model_copy(update={"convention": usual.pop()})


def python_model(model: Any, number: int, read_as: ModelFormat | Mapping[str, Any] | None) -> GivenModel:
    """Return the model of a module or another callable."""
    own = getattr(model, "model_format", None)
    name = f"{type(model).__name__} {number}" if isinstance(model, nn.Module) else f"model {number}"
    said = read_as if read_as is not None else own if own is not None else {}
    checked = said if isinstance(said, ModelFormat) else read_format(said, name)
    module = model if isinstance(model, nn.Module) else None
    identity = None if module is None else module_fingerprint(module, checked)
    facts = {"type": type(model).__name__}
    return GivenModel(name, lambda: model, checked, identity, facts=facts, in_python=True, module=module)


def module_fingerprint(module: nn.Module, read_as: ModelFormat) -> str:
    """Return a fingerprint of a module's weights, its structure and plain attributes, and its format."""
    digest = hashlib.sha256()
    for key, value in module.state_dict().items():
        digest.update(key.encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    plain = [
        [name, key, repr(value)]
        for name, each in module.named_modules()
        for key, value in sorted(vars(each).items())
        if isinstance(value, int | float | str | tuple) and key != "training"
    ]
    return fingerprint(
        digest.hexdigest(), str(module), type(module).__qualname__, plain, read_as.model_dump(mode="json")
    )


def _task(named: Sequence[NamedDomain], models: Sequence[str]) -> Task:
    """What the data sets are for, or published models where the data may be for either."""
    for domain in named:
        task: Task | None = getattr(DATA_SETS[domain.source["kind"]], "task", None)
        if task is not None:
            return task
    if (task := published_task(models)) is not None:
        return task
    start = f"data {named[0].name}: may have depth or classes. Fix: give"
    raise ArgumentError(f"{start} the task, segmentation or depth.", f"{start} --task segmentation or --task depth.")


def open_domain(domain: NamedDomain, task: Task, role: Any) -> GivenDomain:
    """A data set that recipes know."""
    settings, key = dict(domain.source), f"data {domain.name}"
    given = {name: settings[name] for name in FOLDERS if isinstance(settings.get(name), str)}
    settings |= {name: str(Path(folder).expanduser().absolute()) for name, folder in given.items()}
    source: Source = DATA_SETS[settings["kind"]].model_validate(settings)
    usual = getattr(source, "root", None)
    if isinstance(usual, str) and "root" not in given and not Path(usual).is_dir():
        raise ArgumentError(f"{key}: where is the data? Give its folder, as {source.kind}:DIR")
    samples = source.open(task, Folders(None, default_cache()), key)
    identity = [source.model_dump(mode="json", exclude={"title"}), source.version, len(samples), state_of(source)]
    return GivenDomain(samples, domain.name, role, identity, source.shift, getattr(source, "mapping", None))


def state_of(source: Source) -> str | None:
    """A digest of names, sizes and times of all files of a data set."""
    root = getattr(source, "root", None)
    if not isinstance(root, str) or not Path(root).is_dir():
        return None
    digest = hashlib.sha256()
    for folder, folders, files in os.walk(root):
        folders.sort()
        for name in sorted(files):
            stat = os.stat(os.path.join(folder, name))
            digest.update(f"{folder}/{name} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def named_data(data: Any, task: Task | None, models: Sequence[str]) -> tuple[dict[str, Any], Task | None]:
    """Data sets by name, with texts parsed, and the task if they determine it."""
    is_texts = isinstance(data, list | tuple) and all(isinstance(each, str) for each in data)
    texts: Sequence[str] = data if is_texts else []  # with names of their own
    given: Mapping[str, Any] = data if isinstance(data, Mapping) else {} if texts else {"data": data}
    if not given and not texts:
        raise ArgumentError("data: give at least one data set")
    named = parse_domains([*texts, *(f"{name}={each}" for name, each in given.items() if isinstance(each, str))])
    task = task or (_task(named, models) if named else published_task(models))
    return {**given, **{domain.name: domain for domain in named}}, task


def python_domains(
    data: Mapping[str, Any],
    in_domain: str | None,
    task: Task | None,
    ignore_index: int | None,
    table: ClassTable | None,
) -> dict[str, GivenDomain]:
    """Open objects of the user and data sets of recipes. task: needed by data sets of recipes."""
    first = in_domain if in_domain is not None else next(iter(data))
    if first not in data:
        raise ArgumentError(f"in_domain: there is no '{first}' among the data ({', '.join(data)})")
    domains = {}
    for name, each in data.items():
        role: Any = "in-domain" if name == first else "shifted"
        if isinstance(each, NamedDomain):
            role = each.role if each.role is not None and in_domain is None else role
            if ignore_index is not None:
                raise ArgumentError(
                    f"ignore_index: '{name}' has a class table, which says what is not counted; leave it out"
                )
            assert task is not None  # they say it
            domains[name] = open_domain(each, task, role)
            continue
        is_ours = isinstance(getattr(each, "classes", None), ClassTable) and hasattr(each, "frame_id")
        ignored = IGNORE_INDEX if ignore_index is None else ignore_index
        samples: Samples = each if is_ours else open_given(each, name, ignored)
        if isinstance(samples, GivenSamples):
            samples.classes = table
        domains[name] = GivenDomain(samples, name, role)
    return domains
