"""What a recipe needs, as checks: a run stops at the first that fails, `epibench data check RECIPE` asks them all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from epibench.data.batch import Samples, notes_on
from epibench.data.images import Frames
from epibench.data.source import Follow, readable
from epibench.errors import InputError
from epibench.evaluation.cost import num_parameters
from epibench.imported import error_in_words
from epibench.methods import Method
from epibench.networks.dropout import insert_dropout
from epibench.networks.last_layer import last_layers_of
from epibench.plans import evenly_spaced
from epibench.recipes import DenseRecipe, Recipe
from epibench.runs.domains import ImageData
from epibench.runs.folder import RunFolder
from epibench.runs.image_training import augment_of, network_as_trained
from epibench.runs.training_log import check_log
from epibench.street import StreetDataset

FEW_FRAMES = 5  # of each data set, when all that a recipe needs is checked
RunStep = Literal["train", "evaluate"]
STEPS: tuple[RunStep, ...] = ("train", "evaluate")


@dataclass(frozen=True)
class Check:
    """One thing that a recipe needs.

    about: the setting or the thing; ask: says what is there, or raises an InputError with what is wrong and what to do.
    required: whether a run is impossible without it; otherwise what is raised is worth knowing. step: which of the two
    needs it; None: both.
    """

    about: str
    ask: Callable[[], str]
    required: bool = True
    step: RunStep | None = None


@dataclass(frozen=True)
class Finding:
    """What came of a check. waits: it cannot be answered while something else is wrong, which is told already."""

    about: str
    state: Literal["ok", "note", "problem", "waits"]
    text: str


def ask_all(checks: Iterable[Check]) -> Iterator[Finding]:
    """Every check, whatever comes of the others."""
    told: dict[str, str] = {}
    for check in checks:
        try:
            yield Finding(check.about, "ok", check.ask())
        except InputError as error:
            text = str(error)
            if text not in told:
                told[text] = check.about
                yield Finding(check.about, "problem" if check.required else "note", text)
            elif check.required:
                yield Finding(check.about, "waits", f"cannot be checked without what {told[text]} lacks")


def image_checks(data: ImageData, num_frames: int | None = 1, follow: Follow | None = None) -> list[Check]:
    """What a run on images needs. num_frames: so many of each data set are opened, None for all."""
    recipe, to_train = data.recipe, partial(Check, step="train")
    weights = to_train("training.class_weights", partial(check_class_weights, data))
    return [
        *(
            Check(key, partial(check_frames, data, key, num_frames, follow), step=needed_to(key))
            for key in data.sources
        ),
        to_train("training.crop", partial(check_crop, data)),
        to_train("network", partial(check_network, data)),
        *(
            to_train(f"variants.{name}.network", partial(check_variant, data, name))
            for name in recipe.methods
            if recipe.network_of(name) != recipe.network
        ),
        to_train("training.log", partial(check_logging, recipe)),
        *([] if recipe.task == "depth" else [weights]),
        *(
            to_train(name, partial(check_form, data, name))
            for name in recipe.methods
            if recipe.method(name).source is not None or type(recipe.method(name)).build is not Method.build
        ),
        *(to_train(recipe.setting(name, "batch_size"), partial(check_batch, recipe, name)) for name in recipe.methods),
    ]


def needed_to(key: str) -> RunStep:
    """The step that opens a data set, by the setting that names it."""
    return "train" if key == ImageData.TRAIN else "evaluate"


def further_checks(recipe: Recipe, folder: RunFolder, data: ImageData | None) -> list[Check]:
    """What to know before hours are spent: a folder for the run, frames that others have, a GPU."""
    device = Check("device", partial(check_device, recipe), required=False)
    out = Check("--out", partial(check_out, recipe, folder))
    if data is None:
        return [out, device]
    published = [key for key, source in data.sources.items() if source.num_published is not None]
    frames = [Check(f"{key} as published", partial(check_published, data, key), required=False) for key in published]
    train = data.sources[ImageData.TRAIN]
    alike = [key for key, source in data.sources.items() if key != ImageData.TRAIN and source.kind == train.kind]
    apart = [
        Check(f"{key} apart", partial(check_apart, data, key), required=False)
        for key in alike
        if "root" in type(train).model_fields  # scenes that are drawn have seeds instead of files
    ]
    return [out, *frames, *apart, device]


def check_out(recipe: Recipe, folder: RunFolder) -> str:
    """The folder is free, or holds a run that can go on."""
    folder.check_free(recipe)
    return f"{folder.path} holds a run that can go on" if folder.recipe_file.exists() else f"{folder.path} is free"


def check_apart(data: ImageData, key: str) -> str:
    """No image of a domain is trained on, as far as files tell."""
    trained, tested = (images_of(data.samples(each)) for each in (ImageData.TRAIN, key))
    if shared := len(trained & tested):
        raise InputError(
            f"{shared:,} of its {len(tested):,} images are trained on, too; give another selection or split"
        )
    return "none of its images is trained on"


def images_of(samples: Samples) -> set[str]:
    """The files of the images of a data set; empty where they are drawn or made."""
    frames = samples.frames if isinstance(samples, Frames) else ()
    return {frame.image for frame in frames}


def check_frames(data: ImageData, key: str, num_frames: int | None, follow: Follow | None = None) -> str:
    """A data set is there, its classes have a place among those that are predicted, and some frames can be opened."""
    samples, source = data.samples(key), data.sources[key]
    about = None if key == ImageData.TRAIN else data.domain(key.removeprefix(ImageData.DOMAIN)).about
    number = len(samples) if num_frames is None else min(num_frames, len(samples))
    chosen = [(samples, index) for index in (evenly_spaced(len(samples), number) if number > 1 else [0])]
    problems: list[str] = []
    opened = readable(chosen if follow is None else follow(chosen, key), problems)
    sizes = sorted({tuple(batch.target.shape) for _, batch in opened})
    if problems:
        more = f" (and {len(problems) - 1} more of {number} that were opened)" if len(problems) > 1 else ""
        raise InputError(f"{problems[0]}{more}")
    facts = [f"{source.label}: {len(samples):,} frames", f"{number:,} opened ({some_sizes(sizes)})"]
    if isinstance(samples, StreetDataset) and (missing := samples.missing()):
        facts.append(f"{len(missing):,} are drawn when the run begins")
    return "; ".join([", ".join(facts), *notes_on(samples), *([] if about is None else [about])])


def some_sizes(sizes: Sequence[tuple[int, ...]]) -> str:
    """`352×1216`, or the smallest and the largest."""
    words = ["×".join(map(str, size)) for size in sizes]
    return words[0] if len(words) == 1 else f"{words[0]} to {words[-1]}"


def check_crop(data: ImageData) -> str:
    """The crop fits into a training image also at the smallest scale."""
    recipe, crop = data.recipe, data.recipe.training.crop
    smallest = recipe.training.scale[0]
    replace(augment_of(recipe), scale=(smallest, smallest))(data.train[0], 0)
    return "whole images" if crop is None else f"{crop[0]}×{crop[1]} fits"


def check_network(data: ImageData, method: str | None = None) -> str:
    """A network can be made, with its pretrained weights and dropout; one of the user's predicts something.

    method: one that may have another network than the recipe; None: the recipe's.
    """
    recipe = data.recipe
    options = recipe.network if method is None else recipe.network_of(method)
    network = options.build(data.num_classes, pretrained=True).eval()
    if options.kind == "own":
        check_own_network(options.name, network, data)
    if any(recipe.method(name).dropout for name in recipe.methods):
        try:
            insert_dropout(network, getattr(network, "dropout_places", ()), 0.5)
        except InputError as error:
            raise InputError(f"network.dropout_places: {error}") from None
    weights = getattr(options, "weights", None) or getattr(options, "backbone_weights", None)
    fit = f", weights of {weights} fit" if weights else ""
    return f"{options.kind}, {num_parameters(network):,} parameters{fit}"


def check_variant(data: ImageData, name: str) -> str:
    """The network of a variant can be made as that of the recipe can."""
    try:
        return check_network(data, name)
    except InputError as error:
        text = str(error).removeprefix("network.")
        raise InputError(f"variants.{name}.network{'.' if text != str(error) else ': '}{text}") from None


def check_form(data: ImageData, name: str) -> str:
    """The networks of a method can be made in the form in which they are trained, of those that they start from.

    What is fitted to last layers needs some that can be found, which networks of the user's may not have.
    """
    recipe, method = data.recipe, data.recipe.method(name)
    try:
        network = network_as_trained(recipe, name, data.num_classes)
        if method.of_last_layers and recipe.network.kind == "own":
            last_layers_of(recipe.builder(data.num_classes, method=name)().eval(), inputs_of_sample(data))
    except InputError as error:
        raise InputError(recipe.said_of(name, error)) from None
    start = "" if method.source is None else f"starts from {method.source}, "
    return f"{start}{num_parameters(network):,} parameters"


def inputs_of_sample(data: ImageData) -> dict[str, Tensor]:
    """A batch of one training sample, as a network sees it."""
    sample = augment_of(data.recipe)(data.train[0], 0)
    return {name: values[None] for name, values in sample.inputs.items()}


def check_own_network(name: str, network: nn.Module, data: ImageData) -> None:
    """A network of the user's has parameters, and predicts a map for a training sample."""
    if next(network.parameters(), None) is None:
        raise InputError(f"network.name: {name} has no parameters to be trained")
    if any(isinstance(each, UninitializedParameter) for each in network.parameters()):
        raise InputError(f"network.name: {name} has lazy modules; give them their sizes")
    wanted = 2 if data.num_classes is None else data.num_classes  # mean and log variance, or a logit for each class
    try:
        with torch.inference_mode():
            raw = network(inputs_of_sample(data))
    except Exception as error:
        raise InputError(f"network.name: {name} fails on a sample: {error_in_words(error)}") from None
    shape = tuple(raw.shape) if isinstance(raw, Tensor) else type(raw).__name__
    if not isinstance(raw, Tensor) or raw.dim() != 4 or raw.shape[:2] != (1, wanted):
        raise InputError(f"network.name: {name} gives {shape} for one image; wanted is (1, {wanted}, rows, columns)")


def check_logging(recipe: DenseRecipe) -> str:
    """What the log needs is installed."""
    check_log(recipe.training.log)
    return recipe.training.log


def check_class_weights(data: ImageData) -> str:
    """There is a weight for every class."""
    weights = data.recipe.training.class_weights
    if not isinstance(weights, tuple):
        return "by how rare a class is" if weights == "rare" else "none"
    if len(weights) != data.num_classes:
        raise InputError(
            f"training.class_weights: {len(weights)} numbers for {data.num_classes} classes; give one for each"
        )
    return f"one for each of {len(weights)} classes"


def check_batch(recipe: DenseRecipe, name: str) -> str:
    """Batches of a method can be shared among devices, and are large enough for the network."""
    devices, smallest = recipe.training.devices, recipe.network.smallest_batch
    key, size = recipe.setting(name, "batch_size"), recipe.method(name).batch_size
    if size % devices:
        raise InputError(f"{key}: take a multiple of {devices}, among which a batch is shared")
    if size // devices < smallest:
        needed = f"batches of {smallest} or more images, on each device, for its batch norm"
        raise InputError(f"{key}: {recipe.network.kind} needs {needed}")
    return f"{size} images"


def check_published(data: ImageData, key: str) -> str:
    """All frames that others report on are there."""
    published, number = data.sources[key].num_published, len(data.samples(key))
    if published is not None and number < published:
        raise InputError(f"{number:,} of {published:,} frames are there: all numbers will be of these alone")
    return f"all of {number:,} frames"


def check_device(recipe: Recipe) -> str:
    """There is a GPU, where the recipe is made for one."""
    if torch.cuda.is_available():
        return f"{torch.cuda.device_count()} × {torch.cuda.get_device_name()}"
    cores = len(os.sched_getaffinity(0))
    if "GPU" in recipe.machine:
        minutes = recipe.minutes or 0
        took = f" (about {minutes:g} min there)" if minutes <= 120 else f" (about {minutes / 60:.0f} h there)"
        raise InputError(
            f"no GPU is seen by torch {torch.__version__}, only {cores} cores; the recipe is made for "
            f"{recipe.machine}{took if minutes else ''} and takes many times as long without"
        )
    return f"{cores} cores, and the recipe asks for no more than {recipe.machine}"
