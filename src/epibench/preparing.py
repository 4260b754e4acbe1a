"""The public functions that come before a run: recipes, references, checks of data, scenes."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from epibench import arguments as arg
from epibench.console import reporter_of
from epibench.devices import resolve_device
from epibench.errors import ArgumentError, InputError
from epibench.files import make_folder, replacing
from epibench.progress import Advance, Reporter, counted, progress_of, show

if TYPE_CHECKING:
    from epibench.data.sets.toy import ToyName
    from epibench.recipes import Recipe
    from epibench.reference.predictions import Reference
    from epibench.street import StreetDataset

MAX_SHEET = 100


@arg.checked
def recipes(
    recipe: Annotated[arg.RecipeOrRun, arg.Argument("the name of a recipe")] | None = None,
    settings: arg.Settings = (),
    *,
    progress: arg.Progress = False,
) -> list[Recipe]:
    """List recipes, or print one in full.

    All recipes with purpose and cost, or one as JSON to be edited and run: `epibench recipes RECIPE > mine.json`.

    Args:
        recipe: Print this recipe, or the recipe of a run, as JSON.
        settings: A setting of the recipe, e.g. seed=3 or sgld.num_epochs=9600. In Python also a dict.
        progress: A reporter receives the recipes.

    Returns:
        All recipes, or the one.

    Raises:
        InputError: the recipe or a setting is unknown.
    """
    from epibench.recipes import RECIPES, Recipe, apply_settings, find_recipe

    if recipe is None and settings:
        raise ArgumentError("settings: change one recipe. Fix: give its name, too.")
    found = list(RECIPES.values())
    if recipe is not None:
        found = [apply_settings(recipe if isinstance(recipe, Recipe) else find_recipe(recipe), arg.as_texts(settings))]
    show(reporter_of(progress), found, recipe is not None)
    return found


@arg.checked
def reference(
    name: arg.Text,
    out: arg.File | None = None,
    *,
    data: arg.File | None = None,
    data_seed: arg.Natural = 0,
    seed: arg.SamplerSeed = 0,
    prior_scale: arg.Number = 1.0,
    batches: arg.Whole | None = None,
    chains: arg.Whole | None = None,
    samples: arg.Whole | None = None,
    device: arg.Device = "auto",
    quick: arg.Flag = False,
    progress: arg.Progress = False,
) -> Reference:
    """Sample the posterior of a toy problem with NUTS.

    The file holds diagnostics: how well the chains converged. An interrupted sampling is resumed when it is started
    again.

    Args:
        name: toy-regression or toy-classification.
        out: The file to write. Default: NAME.npz.
        data: Training data (.npz). Default: generated.
        data_seed: Seed of generated training data.
        seed: Seed of the sampler.
        prior_scale: σ of the prior N(0, σ²) on every weight.
        batches: Batches of chains, each with starts of its own, at least 2. Default: 10 for toy-regression, 4 for
            toy-classification.
        chains: Chains of each batch. Default: 256 for toy-regression, 512 for toy-classification.
        samples: Draws of each chain. Default: 50 for toy-regression, 150 for toy-classification.
        device: cpu, cuda, or auto: a GPU if there is one.
        quick: Smaller defaults: a test of about a minute on two cores, which does not converge.
        progress: True shows bars and messages; a reporter receives them.

    Returns:
        The reference, with its diagnostics.

    Raises:
        InputError: an argument or a file is wrong, or a package is missing.
    """
    from epibench.reference.settings import DEFAULTS, QUICK

    if name not in DEFAULTS:
        raise InputError(f"'{name}' has no reference; there are {', '.join(DEFAULTS)}")
    target = Path(out or f"{name}.npz")
    if target.suffix != ".npz" or target.is_dir():
        raise ArgumentError(f"out {target}: give the name of a file that ends in .npz")
    if device not in ("auto", "cpu", "cuda"):
        raise ArgumentError(f"device '{device}' is unknown: give auto, cpu or cuda")
    usual = (QUICK if quick else DEFAULTS)[name]
    sampler = replace(
        usual,
        seed=seed,
        prior_scale=prior_scale,
        batches=usual.batches if batches is None else batches,
        chains=usual.chains if chains is None else chains,
        nuts=usual.nuts if samples is None else replace(usual.nuts, samples=samples),
    )
    from epibench.data.sets.toy import make_toy
    from epibench.reference.make import check_installed, jax_device, make_reference, work_folder

    check_installed()
    make_folder(target.parent)
    problem = make_toy(cast("ToyName", name), data_seed, None if data is None else Path(data))
    options = {"out": out, "data": data, "data-seed": data_seed, "seed": seed, "prior-scale": prior_scale}
    options |= {"batches": batches, "chains": chains, "samples": samples, "device": device}
    words = [word for option, value in options.items() if value is not None for word in (f"--{option}", str(value))]
    command = shlex.join(["epibench", "reference", name, *words, *(["--quick"] if quick else [])])
    reporter, bars = reporter_of(progress), dict[int, Advance]()
    if work_folder(target).exists():
        reporter.say(f"going on with the batches in {work_folder(target)}")
    total = sampler.nuts.rounds * sampler.nuts.warmup + sampler.nuts.samples
    with ExitStack() as stack:

        def advance(batch: int, words: str) -> None:
            """How many steps cooling takes shows only as it goes: the bar of a batch counts the rest."""
            if batch not in bars:
                bars[batch] = stack.enter_context(progress_of(reporter, f"batch {batch}", total))
            bars[batch](1 if words in ("warm-up", "samples") else 0, words)

        made = make_reference(problem, sampler, target, command, jax_device(device), advance)
    show(reporter, made)
    reporter.say(f"reference: {target}")
    return made


@arg.checked
def check(
    name: Annotated[arg.RecipeOrRun, arg.Argument("the name of a data set or a recipe, e.g. 'kitti'")],
    *,
    root: arg.Folder | None = None,
    raw_root: arg.Folder | None = None,
    images: arg.Folder | None = None,
    labels: arg.Folder | None = None,
    classes: arg.Text | None = None,
    image_suffix: arg.Text | None = None,
    label_suffix: arg.Text | None = None,
    every: arg.Flag = False,
    settings: arg.Settings = (),
    out: arg.FolderOfRun | None = None,
    progress: arg.Progress = False,
) -> bool:
    """Check a data set, or all that a recipe needs.

    The check of a data set lists its content, and where to get what is missing.

    Args:
        name: The data set, e.g. kitti, cityscapes, or folder for your own; or a recipe (see `epibench recipes`), a
            recipe file (.json) or the folder of a run. An unknown name lists all data sets.
        root: The folder of the unpacked data set (see docs/data.md).
        raw_root: kitti: the folder of the images of KITTI raw. Default: ROOT or ROOT/raw.
        images: folder: the folder of the images.
        labels: folder: the folder of the label images.
        classes: folder: a class table (.csv), or the name of a built-in one.
        image_suffix: folder: the end of the names of images before .png.
        label_suffix: folder: the end of the names of labels before .png, e.g. _L of 0001_L.png.
        every: Open all images with their labels. Default: only some.
        settings: A setting of a recipe, e.g. data.root=FOLDER. In Python also a dict.
        out: Of a recipe: the folder of the run, or its URL. Default: runs/RECIPE. In Python a local folder.
        progress: A reporter receives the findings.

    Returns:
        Whether the recipe can be run; of a data set always True.

    Raises:
        InputError: an argument is wrong, or nothing of a data set can be used.
    """
    from epibench.data.sets import DATA_SETS
    from epibench.recipes import RECIPE_NAME, RECIPES, Recipe

    options = {"root": root, "raw_root": raw_root, "images": images, "labels": labels, "classes": classes}
    options |= {"image_suffix": image_suffix, "label_suffix": label_suffix}
    given = {option: str(value) for option, value in options.items() if value is not None}
    is_file = isinstance(name, str) and (name.endswith(".json") or (Path(name) / RECIPE_NAME).is_file())
    if isinstance(name, Recipe) or (name not in DATA_SETS and (name in RECIPES or is_file)):
        for option, value in given.items():
            more = " data.root=FOLDER" if option == "root" else ", as for epibench run"
            text = f"{option} {value}: {name} is a recipe. Fix: give"
            raise ArgumentError(f"{text} settings{more}.", f"{text} --set{more}.")
        return _check_recipe(name, settings, out, every, reporter_of(progress))
    for option, other in (("settings", settings), ("out", out)):
        if other:
            raise ArgumentError(f"{option}: belongs to a recipe, and {name} is none; leave it out")
    return _check_data(name, given, every, reporter_of(progress))


def _check_data(name: str, given: Mapping[str, str], every: bool, reporter: Reporter) -> bool:
    from epibench.data.sets import DATA_SETS
    from epibench.data.source import check_options, check_split

    known = {each: source for each, source in DATA_SETS.items() if source.checked}
    if name not in known:
        raise InputError(
            f"data set '{name}' is unknown; there are {', '.join(known)}; nor is it a recipe (see epibench recipes)"
        )
    source = known[name]
    check_options(name, source, given)
    reports = []
    for split in source.splits(**given):
        reports.append(
            check_split(split, every, lambda frames, part: counted(reporter, frames, f"opening {part}", len(frames)))
        )
        show(reporter, name, reports[-1])
    if source.where is not None and any(report.problems for report in reports):
        show(reporter, f"Where to get it: {source.where}")
    if not any(report.content for report in reports):
        folder = given.get("root", given.get("images", name))
        raise InputError(f"{folder}: nothing of {name} can be used; see above for what is missing")
    return True


def _check_recipe(name: Any, settings: Any, out: arg.AnyPath | None, every: bool, reporter: Reporter) -> bool:
    from epibench.recipes import DenseRecipe, Recipe, apply_settings, default_folder, find_recipe

    recipe = apply_settings(name if isinstance(name, Recipe) else find_recipe(name), settings)
    import torch

    from epibench.runs.checks import ask_all
    from epibench.runs.domains import ImageData
    from epibench.runs.folder import RunFolder
    from epibench.runs.machine import Machine, Run
    from epibench.runs.run import experiment_of

    folder = RunFolder(default_folder(name, recipe) if out is None else Path(out))
    run = Run(recipe, folder, Machine.of(torch.device(resolve_device("auto")), None), reporter)
    checks = experiment_of(run).all_checks(
        every, lambda frames, part: counted(reporter, frames, f"opening {part}", len(frames))
    )
    problems = []
    for finding in ask_all(checks):
        show(reporter, f"{finding.state:8} {finding.about}: {finding.text}", finding.state)
        problems += [finding.about] if finding.state == "problem" else []
    sources = ImageData(recipe).sources if isinstance(recipe, DenseRecipe) else {}
    for where in dict.fromkeys(source.where for key, source in sources.items() if source.where and key in problems):
        show(reporter, f"Where to get it: {where}")
    number = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    state = f"cannot be run yet: {number}." if problems else "can be run: nothing is missing."
    show(reporter, f"{recipe.name} {state}")
    return not problems


@arg.checked
def preview(
    name: arg.Text,
    out: arg.File,
    *,
    domain: arg.Text = "clean",
    severity: arg.Number | None = None,
    size: arg.Size = "256x512",
    seed: arg.Natural = 0,
    count: arg.Positive = 6,
    progress: arg.Progress = False,
) -> Path:
    """Draw a sheet of scenes.

    Columns: image, classes, depth, sparse depth, target.

    Args:
        name: The data set: street.
        out: The picture (.png).
        domain: clean, wild, or factors of the shift, e.g. haze or night+noise (see docs/street.md).
        severity: From 0 (clean) to 5. Default: 5; clean has 0.
        size: Height and width, e.g. 256x512.
        seed: Seed of the scenes.
        count: Number of scenes.
        progress: True shows a bar; a reporter receives it.

    Returns:
        The picture.

    Raises:
        InputError: an argument is wrong, or the picture cannot be written.
    """
    from epibench.street.export import make_sheet, writing_to

    if count > MAX_SHEET:
        raise ArgumentError(
            f"count {count}: a sheet has at most {MAX_SHEET} scenes; `epibench data export` writes more"
        )
    dataset, path, reporter = _scenes(name, domain, severity, size, seed, count), Path(out), reporter_of(progress)
    frames = (dataset.frame(index) for index in range(count))
    with writing_to(f"out {path}"):
        if path.suffix.lower() != ".png" or path.is_dir():
            raise ArgumentError(f"out {path}: give the name of a .png file")
        with replacing(path) as stream:  # opened first: a sheet that cannot be kept is not drawn
            make_sheet(counted(reporter, frames, "drawing", count)).save(stream, "PNG")
    reporter.say(f"{path}: {_number(count)} of {name} ({domain})")
    return path


@arg.checked
def export_scenes(
    name: arg.Text,
    layout: arg.Text,
    out: arg.Folder,
    *,
    domain: arg.Text = "clean",
    severity: arg.Number | None = None,
    count: arg.Positive = 100,
    size: arg.Size = "256x512",
    seed: arg.Natural = 0,
    progress: arg.Progress = False,
) -> Path:
    """Write scenes as the folder of another data set.

    The folder has the official layout of a data set for classes or for depth completion.

    Args:
        name: The data set: street.
        layout: cityscapes, kitti, synscapes or virtual_kitti.
        out: A new or empty folder, or the folder of an interrupted export.
        domain: clean, wild, or factors of the shift, e.g. haze or night+noise (see docs/street.md).
        severity: From 0 (clean) to 5. Default: 5; clean has 0.
        count: Number of scenes.
        size: Height and width, e.g. 256x512.
        seed: Seed of the scenes.
        progress: True shows a bar; a reporter receives it.

    Returns:
        The folder.

    Raises:
        InputError: an argument is wrong, or the folder cannot be written to.
    """
    from epibench.street.export import export

    reporter = reporter_of(progress)
    written = export(_scenes(name, domain, severity, size, seed, count), layout, Path(out))
    for _ in counted(reporter, written, f"writing {layout}", count):
        pass
    reporter.say(f"{out}: {_number(count)} in the layout of {layout}")
    return Path(out)


def _number(count: int) -> str:
    return f"{count} scene{'' if count == 1 else 's'}"


def _scenes(name: str, domain: str, severity: float | None, size: str, seed: int, count: int) -> StreetDataset:
    from epibench.street import StreetDataset, make_domain
    from epibench.street.export import parse_size

    if name != "street":
        raise InputError(f"data set '{name}' is not made here; there are street")
    return StreetDataset("depth", make_domain(domain, severity), length=count, seed=seed, size=parse_size(size))
