"""Checks of a recipe's requirements. A run stops at the first failure; `epibench data check` runs all checks."""

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

FEW_FRAMES = 5  # frames that `epibench data check` opens in each data set
RunStep = Literal["train", "evaluate"]
STEPS: tuple[RunStep, ...] = ("train", "evaluate")


@dataclass(frozen=True)
class Check:
    """One requirement of a recipe.

    Args:
        about: Setting or thing that is checked.
        ask: Returns the finding, or raises an InputError with the problem and its fix.
        required: Whether a failure stops a run; otherwise it is a note.
        step: The step that has this requirement; None: both.
    """

    about: str
    ask: Callable[[], str]
    required: bool = True
    step: RunStep | None = None


@dataclass(frozen=True)
class Finding:
    """The result of a check. `waits`: the check failed with the same text as an earlier check."""

    about: str
    state: Literal["ok", "note", "problem", "waits"]
    text: str


def ask_all(checks: Iterable[Check]) -> Iterator[Finding]:
    """Run every check, also after failures."""
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
    """Return the checks of a run on images. `num_frames` frames of each data set are opened; None: all."""
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
    """Return the step that opens a data set. `key` is the data set's setting."""
    return "train" if key == ImageData.TRAIN else "evaluate"


def further_checks(recipe: Recipe, folder: RunFolder, data: ImageData | None) -> list[Check]:
    """Return optional checks: the run's folder, the published number of frames, overlap with training data, a GPU."""
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
        if "root" in type(train).model_fields  # rendered scenes have seeds instead of files
    ]
    return [out, *frames, *apart, device]


def check_out(recipe: Recipe, folder: RunFolder) -> str:
    """Check that the folder is free, or that its run can continue."""
    folder.check_free(recipe)
    return f"{folder.path} holds a run that can go on" if folder.recipe_file.exists() else f"{folder.path} is free"


def check_apart(data: ImageData, key: str) -> str:
    """Check that no file of a domain's images is also a training image."""
    trained, tested = (images_of(data.samples(each)) for each in (ImageData.TRAIN, key))
    if shared := len(trained & tested):
        raise InputError(
            f"{shared:,} of its {len(tested):,} images are trained on, too; give another selection or split"
        )
    return "none of its images is trained on"


def images_of(samples: Samples) -> set[str]:
    """Return the image files of a data set; empty for rendered scenes."""
    frames = samples.frames if isinstance(samples, Frames) else ()
    return {frame.image for frame in frames}


def check_frames(data: ImageData, key: str, num_frames: int | None, follow: Follow | None = None) -> str:
    """Check a data set: that it exists, its classes map to the predicted ones, and some frames open."""
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
    """Return `352×1216`, or the smallest and the largest size."""
    words = ["×".join(map(str, size)) for size in sizes]
    return words[0] if len(words) == 1 else f"{words[0]} to {words[-1]}"


def check_crop(data: ImageData) -> str:
    """Check that the crop fits into the first training image at the smallest scale."""
    recipe, crop = data.recipe, data.recipe.training.crop
    smallest = recipe.training.scale[0]
    replace(augment_of(recipe), scale=(smallest, smallest))(data.train[0], 0)
    return "whole images" if crop is None else f"{crop[0]}×{crop[1]} fits"


def check_network(data: ImageData, method: str | None = None) -> str:
    """Check that a network can be built, with its pretrained weights and dropout, and run a user's network.

    Args:
        data: Data of the run.
        method: Method whose network is checked; None: the recipe's network.

    Returns:
        The kind of the network and its number of parameters.
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
    """Check the network of a variant as `check_network` does."""
    try:
        return check_network(data, name)
    except InputError as error:
        text = str(error).removeprefix("network.")
        raise InputError(f"variants.{name}.network{'.' if text != str(error) else ': '}{text}") from None


def check_form(data: ImageData, name: str) -> str:
    """Check that a method's networks can be built in their trained form, from the networks they start from.

    Methods that fit a distribution to last layers must find these layers, which a user's network may lack.
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
    """Return a batch of one augmented training sample."""
    sample = augment_of(data.recipe)(data.train[0], 0)
    return {name: values[None] for name, values in sample.inputs.items()}


def check_own_network(name: str, network: nn.Module, data: ImageData) -> None:
    """Check that a user's network has parameters and predicts maps of the right shape."""
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
    """Check that the packages of the log are installed."""
    check_log(recipe.training.log)
    return recipe.training.log


def check_class_weights(data: ImageData) -> str:
    """Check that every class has a weight."""
    weights = data.recipe.training.class_weights
    if not isinstance(weights, tuple):
        return "by how rare a class is" if weights == "rare" else "none"
    if len(weights) != data.num_classes:
        raise InputError(
            f"training.class_weights: {len(weights)} numbers for {data.num_classes} classes; give one for each"
        )
    return f"one for each of {len(weights)} classes"


def check_batch(recipe: DenseRecipe, name: str) -> str:
    """Check that a method's batches are large enough for its network."""
    size, smallest = recipe.method(name).batch_size, recipe.network.smallest_batch
    if size < smallest:
        key, needed = recipe.setting(name, "batch_size"), f"batches of {smallest} or more images for its batch norm"
        raise InputError(f"{key}: {recipe.network.kind} needs {needed}")
    return f"{size} images"


def check_published(data: ImageData, key: str) -> str:
    """Check that the data set has as many frames as published results use."""
    published, number = data.sources[key].num_published, len(data.samples(key))
    if published is not None and number < published:
        raise InputError(f"{number:,} of {published:,} frames are there: all numbers will be of these alone")
    return f"all of {number:,} frames"


def check_device(recipe: Recipe) -> str:
    """Check that torch sees a GPU if the recipe is made for one."""
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
