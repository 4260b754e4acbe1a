"""A method that is fitted after training, in one file of a user: against a known answer, and in whole runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import pytest
import torch
from gaussian_samples import assert_gaussian
from safetensors.torch import load_file
from silent_reporter import Silent
from small_dense_recipe import small_dense
from small_recipes import small
from swag import SWAG
from torch import Tensor

from epibench import randomness
from epibench.likelihoods import LIKELIHOODS
from epibench.methods import AFTER_TRAINING, Member, TrainedNetwork
from epibench.recipes import Recipe, apply_settings
from epibench.results import RunResults
from epibench.runs.folder import RunFolder
from epibench.runs.run import carry_out
from epibench.runs.train import Machine
from epibench.runs.trainers import TrainJob, train_job, view_of
from epibench.training.stacked import OBJECTIVES
from epibench.training.state import Weights

SNAPSHOTS, SAMPLES = 5, 4_000
NAMES = {"head.weight": (2, 2), "head.bias": (3,)}


def snapshots() -> list[dict[str, Tensor]]:
    """Weights that vary together, and buffers as batch norm has them."""
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(SNAPSHOTS, 7)) @ rng.normal(size=(7, 7)) + rng.normal(size=7)
    return [
        {
            "head.weight": torch.from_numpy(row[:4].reshape(2, 2)).float(),
            "head.bias": torch.from_numpy(row[4:]).float(),
            "norm.running_var": torch.tensor([0.1 * number]),
            "norm.num_batches_tracked": torch.tensor(100 + number),
        }
        for number, row in enumerate(flat)
    ]


def fitted(method: SWAG, kept: list[dict[str, Tensor]]) -> TrainedNetwork:
    def raw(weights: object, inputs: object) -> Tensor:
        raise AssertionError("SWAG needs no outputs")

    view = partial(
        TrainedNetwork, 0, kept.__getitem__, key=partial(randomness.key, 0, "swag", 0), batches=tuple, raw=raw
    )
    return view(posterior=method.posterior(view(posterior={})))


class TestKnownGaussian:
    method = SWAG(num_snapshots=SNAPSHOTS, num_samples=SAMPLES)

    def samples(self, method: SWAG, kept: list[dict[str, Tensor]]) -> Tensor:
        """All samples of the weights, (sample, weight)."""
        trained = fitted(method, kept)
        drawn = [method.weights(member, trained) for member in method.members([0]).members]
        return torch.stack([torch.cat([each[name].flatten() for name in NAMES]) for each in drawn])

    def flat(self) -> np.ndarray:
        return (
            torch.stack([torch.cat([each[name].flatten() for name in NAMES]) for each in snapshots()]).double().numpy()
        )

    def test_samples_have_its_mean_and_covariance(self) -> None:
        """Half of the variance on the diagonal, and half of the snapshots' own covariance, across all weights."""
        flat = self.flat()
        covariance = np.diag(flat.var(0)) / 2 + np.cov(flat.T) / 2
        assert np.abs(covariance - np.diag(np.diag(covariance))).max() > 1
        assert_gaussian(self.samples(self.method, snapshots()), flat.mean(0), covariance)

    def test_the_scale_is_that_of_the_deviations(self) -> None:
        flat, method = self.flat(), self.method.model_copy(update={"scale": 0.5})
        covariance = np.diag(flat.var(0)) / 8 + np.cov(flat.T) / 8
        assert_gaussian(self.samples(method, snapshots()), flat.mean(0), covariance)

    def test_without_deviations_it_is_the_average_of_the_snapshots(self) -> None:
        method = self.method.model_copy(update={"scale": 0.0, "num_samples": 3})
        expected = torch.from_numpy(self.flat().mean(0)).float()
        torch.testing.assert_close(self.samples(method, snapshots()), expected.expand(3, -1))

    def test_buffers_are_those_of_the_last_snapshot(self) -> None:
        found = self.method.weights(Member(0, SNAPSHOTS - 1, 7), fitted(self.method, snapshots()))
        assert found.keys() == snapshots()[-1].keys()
        assert found["norm.num_batches_tracked"] == torch.tensor(104)
        assert found["norm.num_batches_tracked"].dtype == torch.int64
        assert torch.equal(found["norm.running_var"], torch.tensor([0.4]))

    def test_a_sample_is_a_function_of_its_number_alone(self) -> None:
        trained = fitted(self.method, snapshots())
        once, again, other = (self.method.weights(Member(0, 4, number), trained) for number in (3, 3, 4))
        assert all(torch.equal(once[name], again[name]) for name in once)
        assert not torch.equal(once["head.bias"], other["head.bias"])


# Whole runs, with the method named as package.module:name

OPTIONS = {"num_networks": 2, "num_samples": 4, "num_snapshots": 3, "num_epochs": 4}


def with_swag(recipe: Recipe, **options: float) -> Recipe:
    variants = {"swag": {"method": "swag:SWAG", "options": {**OPTIONS, **options}}}
    return apply_settings(recipe, ['methods=["swag"]', f"variants={json.dumps(variants)}"])


def toy_recipe(folder: Path, **options: float) -> Recipe:
    return with_swag(small("toy-regression"), **options)


def dense_recipe(folder: Path, **options: float) -> Recipe:
    return with_swag(small_dense(folder / "cache"), batch_size=2, **options)


RECIPES = {"toy": toy_recipe, "images": dense_recipe}


@pytest.fixture(params=RECIPES)
def make_recipe(request: pytest.FixtureRequest) -> Callable[..., Recipe]:
    return RECIPES[request.param]


def carried_out(recipe: Recipe, folder: Path, reporter: Silent | None = None) -> RunResults:
    machine = Machine(torch.device("cpu"), jobs=1, workers=0)
    results = carry_out(recipe, RunFolder(folder / "run"), machine, reporter or Silent())
    assert results.failed == {}
    return results


def nll(results: RunResults) -> list[object]:
    """The NLL of every draw on every domain."""
    return [draw.metrics["nll"] for draws in results.draws["swag"].values() for draw in draws]


def times_of_weights(folder: Path) -> dict[str, int]:
    """When kept weights were written."""
    weights = (folder / "run" / "members" / "swag").glob("*.00000?.safetensors")
    written = {each.name: each.stat().st_mtime_ns for each in weights}
    assert written
    return written


def test_a_run_trains_fits_and_evaluates_it(make_recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    results = carried_out(make_recipe(tmp_path), tmp_path)
    facts = results.methods["swag"]
    assert (facts.label, facts.plan) == ("SWAG", "prefix")
    assert (facts.num_networks, facts.num_members, facts.num_groups) == (2, 8, 2)
    values = nll(results)
    assert values
    assert None not in values
    assert len(set(values)) == len(values)  # every draw predicts otherwise


def test_it_is_known_by_its_name_alone(tmp_path: Path) -> None:
    recipe = apply_settings(small("toy-regression"), ['methods=["swag:SWAG"]'])
    assert recipe.methods == ("SWAG",)
    assert recipe.method("SWAG") == SWAG()


def test_other_samples_of_trained_networks_need_no_training(make_recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    """`scale` changes no trained network: nothing is trained again, and nothing that was evaluated is taken for it."""
    once, written = carried_out(make_recipe(tmp_path), tmp_path), times_of_weights(tmp_path)
    narrow = carried_out(make_recipe(tmp_path, scale=0.1), tmp_path)
    assert all(one != other for one, other in zip(nll(once), nll(narrow), strict=True))
    assert nll(carried_out(make_recipe(tmp_path), tmp_path)) == nll(once)
    assert times_of_weights(tmp_path) == written


class WidenedSWAG(SWAG):
    """What it fits depends on an option that decides nothing in training."""

    widened: Annotated[float, AFTER_TRAINING] = 1.0

    def posterior(self, trained: TrainedNetwork) -> Weights:
        assert all(torch.isfinite(each).all() for each in trained.kept(0).values())
        fitted = super().posterior(trained)
        return {name: self.widened * each if name.startswith("std.") else each for name, each in fitted.items()}


def test_what_is_fitted_with_another_option_is_fitted_anew(make_recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    def make(widened: float) -> Recipe:
        recipe = make_recipe(tmp_path)
        variant = {
            "method": "test_swag:WidenedSWAG",
            "options": {**recipe.variants["swag"].options, "widened": widened},
        }
        return apply_settings(recipe, [f"variants={json.dumps({'swag': variant})}"])

    once, written = carried_out(make(1.0), tmp_path), times_of_weights(tmp_path)
    wide = carried_out(make(3.0), tmp_path)
    assert all(one != other for one, other in zip(nll(once), nll(wide), strict=True))
    assert nll(carried_out(make(1.0), tmp_path)) == nll(once)
    assert times_of_weights(tmp_path) == written


def test_nothing_is_fitted_to_a_network_that_has_diverged(tmp_path: Path) -> None:
    variant = {"method": "test_swag:WidenedSWAG", "options": {**OPTIONS, "diverged": "drop"}}
    recipe = apply_settings(toy_recipe(tmp_path), [f"variants={json.dumps({'swag': variant})}"])
    carried_out(recipe, tmp_path)
    job = TrainJob(recipe, "swag", (0, 1), tmp_path / "run" / "members", "cpu")
    for snapshot, epoch in enumerate(job.files.keep):
        weights = job.files.load_weights(snapshot)
        weights["parameters"][1] = torch.nan
        job.files.save_weights(epoch, weights, (), 0.0)
    for network in job.networks:
        job.files.posterior(network).unlink()
    results = carried_out(recipe, tmp_path)
    assert results.methods["swag"].num_networks == 1
    assert load_file(job.files.posterior(1)) == {}
    assert len(load_file(job.files.posterior(0))) == 3


def test_what_was_fitted_is_fitted_again_where_it_is_lost(make_recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    once = carried_out(make_recipe(tmp_path), tmp_path)
    fits = sorted((tmp_path / "run" / "members" / "swag").glob("*.posterior.safetensors"))
    assert len(fits) == 2
    before, written = load_file(fits[1]), times_of_weights(tmp_path)
    fits[1].unlink()
    assert nll(carried_out(make_recipe(tmp_path), tmp_path)) == nll(once)
    again = load_file(fits[1])
    assert again.keys() == before.keys()
    assert all(torch.equal(again[name], before[name]) for name in before)
    assert times_of_weights(tmp_path) == written


# What a method can ask of a trained network besides its weights


@pytest.fixture
def trained(make_recipe: Callable[..., Recipe], tmp_path: Path) -> tuple[Recipe, TrainedNetwork]:
    recipe = make_recipe(tmp_path, num_networks=1)
    job = TrainJob(recipe, "swag", (0,), tmp_path / "members", "cpu")
    train_job(job, lambda message: None)
    return recipe, view_of(job)(0)


def loss_of(recipe: Recipe, raw: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """The mean negative log-likelihood, by the raw outputs of either kind of network."""
    if recipe.problem == "toy-regression":  # (head, output, point)
        mean, log_variance = raw[0, 0], raw[1, 0]
        return (0.5 * ((target - mean) ** 2 / log_variance.exp() + log_variance)).mean()
    return LIKELIHOODS["gaussian"].image_loss(raw, target.masked_fill(~valid, 0))[valid].mean()


def test_gradients_of_the_loss_on_the_training_data_give_a_curvature(
    trained: tuple[Recipe, TrainedNetwork],
) -> None:
    """As a Laplace approximation takes them: here the diagonal of the empirical Fisher matrix."""
    recipe, network = trained
    kept = network.kept(0)
    weights = {
        name: each.clone().requires_grad_() if each.is_floating_point() and "running_" not in name else each
        for name, each in kept.items()
    }
    free = {name: each for name, each in weights.items() if each.requires_grad}
    fisher = {name: torch.zeros_like(each) for name, each in free.items()}
    seen = 0
    for inputs, target, valid in network.batches():
        loss = loss_of(recipe, network.raw(weights, inputs), target, valid)
        for name, gradient in zip(free, torch.autograd.grad(loss, list(free.values())), strict=True):
            fisher[name] += gradient.square()
        seen += len(target)
    assert seen == (1000 if recipe.problem == "toy-regression" else 5)
    assert all(torch.isfinite(each).all() for each in fisher.values())
    assert sum(float(each.sum()) for each in fisher.values()) > 0
    assert all(torch.equal(each, network.kept(0)[name]) for name, each in kept.items())


def test_raw_outputs_are_those_that_members_predict_with(trained: tuple[Recipe, TrainedNetwork]) -> None:
    recipe, network = trained
    inputs, target, _ = next(iter(network.batches()))
    raw = network.raw(network.kept(0), inputs)
    if recipe.problem == "toy-regression":
        outputs = OBJECTIVES["gaussian"].predict(raw[None])
        assert outputs["mean"].shape == (1, len(target))
    else:
        module = recipe.builder(None)().eval()  # type: ignore[attr-defined]
        module.load_state_dict(dict(network.kept(0)))
        torch.testing.assert_close(raw, module(inputs))
        assert raw.shape == (len(target), 2, *target.shape[1:])
