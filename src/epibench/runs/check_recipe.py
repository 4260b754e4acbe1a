"""Whether a recipe can be carried out on its data, asked before hours are spent."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.parameter import UninitializedParameter

from epibench.data.batch import Batch
from epibench.errors import InputError
from epibench.runs.dense_data import DenseData
from epibench.runs.train_job import augment_of
from epibench.runs.training_log import check_log
from epibench.imported import error_in_words
from epibench.recipes.dense import DenseRecipe

PREDICTED = 2  # mean and log variance


def check_possible(recipe: DenseRecipe, data: DenseData) -> None:
    """Open a sample of every data set, and see whether networks can be trained on it as the recipe says."""
    for domain in data.domains.values():
        domain.samples[0]
    check_crop_fits(recipe, data.train[0])
    check_network(recipe, data)
    check_log(recipe.training.log)
    weights = recipe.training.class_weights
    if isinstance(weights, tuple) and len(weights) != data.num_classes:
        raise InputError(
            f"training.class_weights: {len(weights)} numbers for {data.num_classes} classes; give one for each"
        )
    devices, smallest = recipe.training.devices, recipe.network.smallest_batch
    for name in recipe.methods:
        key, size = recipe.setting(name, "batch_size"), recipe.method(name).batch_size
        if size % devices:
            raise InputError(f"{key}: take a multiple of {devices}, among which a batch is shared")
        if size // devices < smallest:
            raise InputError(
                f"{key}: {recipe.network.kind} needs batches of {smallest} or more images, on each device, for its "
                f"batch norm"
            )


def check_crop_fits(recipe: DenseRecipe, sample: Batch) -> None:
    """The crop fits into a training sample at its smallest scale."""
    augment, smallest = augment_of(recipe), recipe.training.scale[0]
    replace(augment, scale=(smallest, smallest))(sample, 0)


def check_network(recipe: DenseRecipe, data: DenseData) -> None:
    """Make a network; one that we do not know shall predict something for a training sample."""
    network = recipe.network.build(data.num_classes, pretrained=True).eval()
    if recipe.network.kind != "own":
        return
    if next(network.parameters(), None) is None:
        raise InputError(f"network.name: {recipe.network.name} has no parameters to be trained")
    if any(isinstance(each, UninitializedParameter) for each in network.parameters()):
        raise InputError(f"network.name: {recipe.network.name} has lazy modules; give them their sizes")
    sample = augment_of(recipe)(data.train[0], 0)
    wanted = PREDICTED if data.num_classes is None else data.num_classes
    try:
        with torch.inference_mode():
            raw = network({name: values[None] for name, values in sample.inputs.items()})
    except Exception as error:
        raise InputError(f"network.name: {recipe.network.name} fails on a sample: {error_in_words(error)}") from None
    found = tuple(raw.shape) if isinstance(raw, Tensor) else type(raw).__name__
    if not isinstance(raw, Tensor) or raw.dim() != 4 or raw.shape[:2] != (1, wanted):
        raise InputError(
            f"network.name: {recipe.network.name} gives {found} for one image; wanted is (1, {wanted}, rows, columns)"
        )
