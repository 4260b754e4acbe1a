"""Views of trained networks, for methods that fit to them or compute members from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import torch
from torch.func import functional_call

from epibench import randomness
from epibench.data.loading import InOrder, Stream, batches
from epibench.methods.contract import Method, TrainedNetwork
from epibench.networks.last_layer import LastLayers, last_layers_of
from epibench.networks.shaping import shape_like
from epibench.parallel import silenced_torch_threads
from epibench.recipes import DenseRecipe, ToyRecipe
from epibench.runs.checkpoints import Checkpoints, load_tensors
from epibench.runs.class_weights import class_weights
from epibench.runs.image_training import augment_of, num_classes_of, open_training_data
from epibench.runs.toy_training import toy_network, toy_problem
from epibench.runs.train_job import TrainJob
from epibench.training.state import Weights
from epibench.training.statistics import batch_norm_statistics


def view_of(job: TrainJob) -> Callable[[int], TrainedNetwork]:
    """Return a function from a network's number to the method's view of it."""
    recipe = job.recipe
    make: Callable[..., TrainedNetwork] = stacked_view(job, recipe) if isinstance(recipe, ToyRecipe) else LargeView(job)

    @lru_cache(maxsize=1)  # members of one network are requested in a row
    def view(number: int) -> TrainedNetwork:
        fitted = load_tensors(job.files.posterior(number), job.posterior_key) if job.is_fitted(number) else None
        key = partial(randomness.key, recipe.seed, recipe.method(job.method).name, number)
        return make(number, posterior={} if fitted is None else fitted.tensors, key=key)

    return view


def finite_networks(job: TrainJob) -> list[int]:
    """Return the networks of a job with finite weights. A large network is kept only with finite weights."""
    if len(job.networks) == 1 and isinstance(job.recipe, DenseRecipe):
        return list(job.networks)
    finite = torch.ones(len(job.networks), dtype=torch.bool)
    for snapshot in range(len(job.files.keep)):
        for tensor in job.files.load_weights(snapshot).values():
            finite &= torch.isfinite(tensor).flatten(1).all(1)
    return [number for number, fine in zip(job.networks, finite.tolist(), strict=True) if fine]


def stacked_view(job: TrainJob, recipe: ToyRecipe) -> Callable[..., TrainedNetwork]:
    """Return a function that makes the view of one network of a stack. Each file is read once."""
    toy, read = toy_problem(recipe), lru_cache(maxsize=None)(job.files.load_weights)
    network = toy_network(recipe, toy)

    def points() -> Iterator[tuple[Any, torch.Tensor, torch.Tensor]]:
        yield toy.train.inputs, toy.train.target, torch.ones(len(toy.train.target), dtype=torch.bool)

    def raw(weights: Weights, inputs: Any) -> torch.Tensor:
        return network.outputs(weights["parameters"][None], inputs.T[None])[0]

    def make(number: int, **fitted: Any) -> TrainedNetwork:
        row = job.networks.index(number)

        def kept(snapshot: int) -> Weights:
            return {name: each[row] for name, each in read(snapshot).items()}

        return TrainedNetwork(
            number=number,
            kept=kept,
            batches=points,
            raw=raw,
            last_layers=lambda weights: network.last_layers(weights["parameters"]),
            likelihood=toy.kind,
            **fitted,
        )

    return make


@lru_cache(maxsize=1)
def last_loaded(files: Checkpoints, snapshot: int) -> Weights:
    """Return kept weights. Repeated requests for the same file read it once."""
    return files.load_weights(snapshot)


@dataclass(frozen=True)
class LargeView:
    """Makes the views of a large network. Data and modules are made on first use."""

    job: TrainJob

    @property
    def recipe(self) -> DenseRecipe:
        """The recipe of the job."""
        assert isinstance(self.job.recipe, DenseRecipe)
        return self.job.recipe

    @property
    def method(self) -> Method:
        """The method of the job."""
        return self.recipe.method(self.job.method)

    def __call__(self, number: int, key: Callable[..., int], **fitted: Any) -> TrainedNetwork:
        """Return the view of a network."""
        # If members are computed from kept weights, members of one network in a row read the same file.
        makes = type(self.method).weights is not Method.weights
        return TrainedNetwork(
            number=number,
            kept=partial(last_loaded if makes else Checkpoints.load_weights, self.job.files),
            key=key,
            batches=self.images,
            raw=self.raw,
            statistics=partial(self.statistics, key=key),
            last_layers=self.last_layers,
            likelihood=self.recipe.likelihood,
            class_weights=partial(class_weights, self.recipe, self.job.members),
            **fitted,
        )

    def images(self) -> Iterator[tuple[Any, torch.Tensor, torch.Tensor]]:
        """Yield all training images without augmentation, with target and valid mask."""
        samples = open_training_data(self.recipe)
        numbers, size = range(len(samples)), self.method.batch_size
        for batch in batches(InOrder(samples), numbers, size, self.job.workers, uneven=True):
            yield batch.inputs, batch.target, batch.valid

    def build(self) -> torch.nn.Module:
        """Return a network in the form of its predictions."""
        classes = num_classes_of(self.recipe, open_training_data(self.recipe))
        return self.recipe.builder(classes, method=self.job.method)()

    @cached_property
    def network(self) -> torch.nn.Module:
        """A module for calls with other weights."""
        return self.build().eval()

    def raw(self, weights: Weights, inputs: Any) -> torch.Tensor:
        """Return raw outputs with any weights."""
        outputs: torch.Tensor = functional_call(shape_like(self.network, weights), dict(weights), (inputs,))
        return outputs

    def loaded(self, weights: Weights) -> torch.nn.Module:
        """Return a network with these weights, on the device of the job."""
        module = shape_like(self.build(), weights).to(self.job.device)
        module.load_state_dict(dict(weights))
        return module

    def statistics(self, weights: Weights, num_batches: int, key: Callable[..., int]) -> Weights:
        """Return batch norm statistics of any weights, over batches of augmented training images."""
        size, order, change = self.method.batch_size, key("statistics", "order"), key("statistics", "change")
        stream = Stream(open_training_data(self.recipe), augment_of(self.recipe), order, change)
        seen = batches(stream, range(num_batches * size), size, self.job.workers)
        with silenced_torch_threads():  # as in training
            device = torch.device(self.job.device)
            found = batch_norm_statistics(self.loaded(weights), (batch.to(device).inputs for batch in seen))
        return {name: each.cpu() for name, each in found.items()}

    def last_layers(self, weights: Weights) -> LastLayers:
        """Return the last layers and their inputs, found with the first training image."""
        device = torch.device(self.job.device)
        (first,) = batches(InOrder(open_training_data(self.recipe)), range(1), 1, 0)
        found = last_layers_of(self.loaded(weights).eval(), first.to(device).inputs)
        return replace(found, see=lambda inputs: found.see({name: each.to(device) for name, each in inputs.items()}))
