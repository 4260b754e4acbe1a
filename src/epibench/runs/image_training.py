"""What a recipe says about training on images: data, networks, precision, how samples are changed."""

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
    """What networks are trained on."""
    return recipe.data.train.open(recipe.task, recipe.data.folders, "data.train")


def augment_of(recipe: DenseRecipe) -> Augment:
    """How a recipe changes training samples."""
    options = recipe.training.model_dump(include={field.name for field in fields(Augment)} - {"colours"})
    return Augment(**options, colours=Colours(**recipe.training.colours.model_dump()))


def num_classes_of(recipe: DenseRecipe, samples: Samples) -> int | None:
    """How many classes networks predict."""
    return classes_of(samples).num_classes if recipe.likelihood == "categorical" else None


def network_as_trained(recipe: DenseRecipe, name: str, num_classes: int | None) -> torch.nn.Module:
    """A network of a method in the form and of the sizes that it is trained in; its weights mean nothing."""
    method = recipe.method(name)
    network = method.build(recipe.builder(num_classes, method=name))
    if method.source is None:
        return network
    weights = network_as_trained(recipe, method.source, num_classes).state_dict()
    return shape_like(network, method.begin(weights, network))


def large_training(
    recipe: DenseRecipe, name: str, samples: Samples, device: torch.device, weights: tuple[float, ...] | None = None
) -> NetworkTraining:
    """How a method of a recipe trains its networks on images."""
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
        channels_last=device.type == "cuda",  # on a CPU it gains little, and oneDNN has been seen to crash with it
    )


def decoded_memory(recipe: DenseRecipe, device: torch.device) -> DecodedMemory | None:
    """Memory for decoded training data beside a GPU: the same for all trainings of this process on the same data."""
    given = recipe.training.cache
    if device.type != "cuda" or given == 0 or not can_share_memory():
        return None
    gibibytes = None if given == "auto" else given
    data = recipe.data.train.model_dump_json() + str(recipe.data.folders)
    return _memory_of(gibibytes, fingerprint(recipe.task, recipe.data.train.version, data))


@lru_cache(1)
def _memory_of(gibibytes: float | None, key: str) -> DecodedMemory:
    return DecodedMemory(free_memory() // SHARE if gibibytes is None else int(gibibytes * 2**30))
