"""Training on images as a recipe sets it: data, networks, precision and augmentation."""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache, partial

import torch

from epibench.data.augment import Augment, Colours
from epibench.data.batch import Samples
from epibench.data.decoded import SHARE, DecodedMemory
from epibench.data.shared_memory import can_share_memory
from epibench.devices import resolve_precision
from epibench.files import fingerprint
from epibench.free_memory import free_memory
from epibench.likelihoods import LIKELIHOODS
from epibench.networks.shaping import shape_like
from epibench.recipes import DenseRecipe
from epibench.runs.domains import classes_of
from epibench.training.network import NetworkTraining


def open_training_data(recipe: DenseRecipe) -> Samples:
    """Open the training data."""
    return recipe.data.train.open(recipe.task, recipe.data.folders, "data.train")


def augment_of(recipe: DenseRecipe) -> Augment:
    """Return the augmentation of a recipe."""
    options = recipe.training.model_dump(include={field.name for field in fields(Augment)} - {"colours"})
    return Augment(**options, colours=Colours(**recipe.training.colours.model_dump()))


def num_classes_of(recipe: DenseRecipe, samples: Samples) -> int | None:
    """Return the number of predicted classes; None without classes."""
    return classes_of(samples).num_classes if recipe.likelihood == "categorical" else None


def network_as_trained(recipe: DenseRecipe, name: str, num_classes: int | None) -> torch.nn.Module:
    """Return a method's network in the form and sizes of its training, with arbitrary weights."""
    method = recipe.method(name)
    network = method.build(recipe.builder(num_classes, method=name))
    if method.source is None:
        return network
    weights = network_as_trained(recipe, method.source, num_classes).state_dict()
    return shape_like(network, method.begin(weights, network))


def large_training(
    recipe: DenseRecipe, name: str, samples: Samples, device: torch.device, weights: tuple[float, ...] | None = None
) -> NetworkTraining:
    """Return the training of a method's networks on images."""
    method, options = recipe.method(name), recipe.training
    decay = 1 / (len(samples) * options.prior_scale**2) if method.samples else options.weight_decay
    return NetworkTraining(
        **vars(method.training),
        **options.model_dump(include={"epoch_steps", "clip", "compile", "loss_parts"}),
        build=partial(method.build, recipe.builder(num_classes_of(recipe, samples), pretrained=True, method=name)),
        loss=LIKELIHOODS[recipe.likelihood].image_loss,
        samples=samples,
        augment=augment_of(recipe),
        weight_decay=decay if method.prior else 0.0,
        decay_all=method.samples or options.decay_all,
        class_weights=weights,
        whole_batches=options.augment == "device" or (options.augment == "auto" and device.type == "cuda"),
        precision=resolve_precision(recipe.training.precision, device.type),
        channels_last=device.type == "cuda",  # on a CPU it gains little, and oneDNN has crashed with it
    )


def decoded_memory(recipe: DenseRecipe, device: torch.device) -> DecodedMemory | None:
    """Return memory for decoded training data if the device is a GPU. Trainings of a process share it."""
    given = recipe.training.cache
    if device.type != "cuda" or given == 0 or not can_share_memory():
        return None
    gibibytes = None if given == "auto" else given
    data = recipe.data.train.model_dump_json() + str(recipe.data.folders)
    return _memory_of(gibibytes, fingerprint(recipe.task, recipe.data.train.version, data))


@lru_cache(1)
def _memory_of(gibibytes: float | None, key: str) -> DecodedMemory:
    return DecodedMemory(free_memory() // SHARE if gibibytes is None else int(gibibytes * 2**30))
