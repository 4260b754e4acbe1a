"""SWA, SWAG and multi-SWAG: against known answers, and in whole runs, as methods that are fitted after training."""

from __future__ import annotations

import gc
import json
import math
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import pytest
import torch
from gaussian_samples import Array, assert_gaussian
from safetensors.torch import load_file
from small_dense_recipe import small_dense
from small_recipes import small
from torch import Tensor

import epibench
from epibench import randomness
from epibench.likelihoods import gaussian
from epibench.members.draws import make_draws
from epibench.methods import AFTER_TRAINING, Member, TrainedNetwork
from epibench.methods.swag import SWA, SWAG, MultiSWAG
from epibench.recipes import Recipe
from epibench.results import Results
from epibench.training.rules import Step
from epibench.training.state import Weights
from trained_runs import TrainedRun, assert_same_weights, rewrite, train

SNAPSHOTS, SAMPLES = 5, 4_000
NAMES = ("head.weight", "head.bias", "scale")


def snapshots() -> list[dict[str, Tensor]]:
    """Weights that vary together, and buffers as batch norm has them."""
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(SNAPSHOTS, 8)) @ rng.normal(size=(8, 8)) + rng.normal(size=8)
    return [
        {
            "head.weight": torch.from_numpy(row[:4].reshape(2, 2)).float(),
            "head.bias": torch.from_numpy(row[4:7]).float(),
            "scale": torch.tensor(row[7]).float(),
            "norm.running_var": torch.tensor([0.1 * number]),
            "norm.num_batches_tracked": torch.tensor(100 + number),
        }
        for number, row in enumerate(flat)
    ]


def flat(weights: Weights) -> Tensor:
    """The weights of `snapshots`, less the buffers, in one row."""
    return torch.cat([weights[name].flatten() for name in NAMES])


def rows() -> Array:
    """The snapshots, (snapshot, weight)."""
    return torch.stack([flat(each) for each in snapshots()]).double().numpy()


def fitted(method: SWA, kept: Sequence[Weights]) -> TrainedNetwork:
    """A network with these snapshots, and what the method fits to it."""

    def raw(weights: object, inputs: object) -> Tensor:
        raise AssertionError("SWAG needs no outputs")

    view = partial(
        TrainedNetwork, 0, kept.__getitem__, key=partial(randomness.key, 0, "swag", 0), batches=tuple, raw=raw
    )
    return view(posterior=method.posterior(view(posterior={})))


def samples_of(method: SWAG, kept: Sequence[Weights], flat: Callable[[Weights], Tensor]) -> Tensor:
    """All samples of the weights, (sample, weight)."""
    trained = fitted(method, kept)
    return torch.stack([flat(method.weights(member, trained)) for member in method.members([0]).members])


class TestKnownGaussian:
    method = SWAG(num_snapshots=SNAPSHOTS, num_samples=SAMPLES)

    def test_samples_have_its_mean_and_covariance(self) -> None:
        """Half of the variance on the diagonal, and half of the snapshots' own covariance, across all weights."""
        values = rows()
        covariance = np.diag(values.var(0)) / 2 + np.cov(values.T) / 2
        assert np.abs(covariance - np.diag(np.diag(covariance))).max() > 1
        assert_gaussian(samples_of(self.method, snapshots(), flat), values.mean(0), covariance)

    def test_the_covariance_is_exactly_that(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A sample is linear in its normal numbers: with one of them 1 and all others 0 it is a column of a root."""
        trained, count = fitted(self.method, snapshots()), SNAPSHOTS + 8

        def sample(noise: Tensor) -> Array:
            left: Iterator[Tensor] = iter(noise)

            def given(key: int, shape: Sequence[int]) -> Tensor:
                return torch.stack([next(left) for _ in range(math.prod(shape))]).view(tuple(shape))

            monkeypatch.setattr(randomness, "normal_of", given)
            return flat(self.method.weights(Member(0, SNAPSHOTS - 1), trained)).double().numpy()

        mean = sample(torch.zeros(count))
        root = np.stack([sample(unit) - mean for unit in torch.eye(count)], 1)
        values = rows()
        deviations = values - values.mean(0)
        expected = np.diag((deviations**2).mean(0)) / 2 + deviations.T @ deviations / (SNAPSHOTS - 1) / 2
        np.testing.assert_allclose(mean, values.mean(0), rtol=1e-6)
        np.testing.assert_allclose(root @ root.T, expected, rtol=1e-5, atol=1e-5)

    def test_the_scale_is_that_of_the_deviations(self) -> None:
        values, method = rows(), self.method.model_copy(update={"scale": 0.5})
        covariance = np.diag(values.var(0)) / 8 + np.cov(values.T) / 8
        assert_gaussian(samples_of(method, snapshots(), flat), values.mean(0), covariance)

    def test_without_deviations_it_is_the_average_of_the_snapshots(self) -> None:
        method = self.method.model_copy(update={"scale": 0.0, "num_samples": 3})
        expected = torch.from_numpy(rows().mean(0)).float()
        torch.testing.assert_close(samples_of(method, snapshots(), flat), expected.expand(3, -1))

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

    def test_a_member_is_made_of_what_was_fitted_alone(self) -> None:
        """No file of a snapshot is read for it."""
        kept = snapshots()
        trained = fitted(self.method, kept)
        expected = self.method.weights(Member(0, SNAPSHOTS - 1, 2), trained)
        kept.clear()
        found = self.method.weights(Member(0, SNAPSHOTS - 1, 2), trained)
        assert all(torch.equal(found[name], expected[name]) for name in expected)

    def test_what_is_fitted_is_as_large_as_the_weights_of_so_many_networks_and_two_more(self) -> None:
        """Beside the buffers, which are few."""
        of_network = flat(snapshots()[0]).nbytes
        posterior = fitted(self.method, snapshots()).posterior
        assert sum(each.nbytes for name, each in posterior.items() if "norm" not in name) == 7 * of_network


class TestQuadratic:
    """SGD at a constant rate α on ½ θᵀAθ whose gradients have noise N(0, S): θ ← (I − αA) θ − αε.

    That is an autoregression: its mean is 0, its covariance Σ solves Σ = (I − αA) Σ (I − αA)ᵀ + α² S.
    """

    RATE, EPOCH_STEPS = 0.5, 10
    SNAPSHOTS, SAMPLES = 4_000, 4_000
    CURVATURE = np.array([[1.6, 0.5, 0.0], [0.5, 1.4, 0.3], [0.0, 0.3, 2.0]])
    NOISE = np.array([[1.0, 0.6, -0.4], [0.6, 2.0, 0.5], [-0.4, 0.5, 1.5]])

    def covariance(self) -> Array:
        """That of the weights, from the equation above as a system of nine."""
        step = np.eye(3) - self.RATE * self.CURVATURE
        return np.linalg.solve(np.eye(9) - np.kron(step, step), self.RATE**2 * self.NOISE.flatten()).reshape(3, 3)

    def trained(self, method: SWAG) -> list[Weights]:
        """The weights at the ends of the epochs that the method keeps, moved as it says."""
        rng = np.random.default_rng(0)
        total = method.num_epochs * self.EPOCH_STEPS
        noise = torch.from_numpy(rng.normal(size=(total, 3)) @ np.linalg.cholesky(self.NOISE).T)
        curvature, parameters = torch.from_numpy(self.CURVATURE), torch.full((3,), 5.0, dtype=torch.float64)
        rule, schedule, keep = method.rule, method.schedule, set(method.keep)
        state, kept = rule.start(parameters), list[Weights]()
        for number in range(1, total + 1):
            step = Step(number, schedule(number, total), 1, None, self.EPOCH_STEPS)
            rule.update(parameters, curvature @ parameters + noise[number - 1], state, step)
            if number % self.EPOCH_STEPS == 0 and number // self.EPOCH_STEPS in keep:
                kept.append({"parameters": parameters.float()})
        return kept

    def test_samples_have_the_moments_of_the_stationary_distribution(self) -> None:
        """The variances are Σ's; of what is off the diagonal SWAG has half.

        Everything within 4.5 standard errors, from as many snapshots, which are nearly independent, and from as many
        samples as there are.
        """
        epochs = self.SNAPSHOTS + 20  # to come to where it is stationary
        method = SWAG(
            optimiser="sgd",
            learning_rate=0.8,
            swa_rate=self.RATE,
            num_epochs=epochs,
            collect=self.SNAPSHOTS / epochs,
            num_snapshots=self.SNAPSHOTS,
            num_samples=self.SAMPLES,
        )
        kept = self.trained(method)
        assert len(kept) == self.SNAPSHOTS
        drawn = samples_of(method, kept, lambda weights: weights["parameters"]).double().numpy()
        stationary = self.covariance()
        share = np.where(np.eye(3), 1.0, 0.5)
        expected = share * stationary

        def variance_of_entries(covariance: Array, count: int) -> Array:
            return (np.outer(np.diag(covariance), np.diag(covariance)) + covariance**2) / count

        error = np.sqrt(np.diag(stationary) / self.SNAPSHOTS + np.diag(expected) / self.SAMPLES)
        assert np.abs(drawn.mean(0) / error).max() < 4.5
        error = np.sqrt(
            share**2 * variance_of_entries(stationary, self.SNAPSHOTS) + variance_of_entries(expected, self.SAMPLES)
        )
        found = np.cov(drawn.T)
        assert np.abs((found - expected) / error).max() < 4.5
        # It could tell these apart: the whole of the covariance, and the variances of another rate.
        assert np.abs((found - stationary) / error).max() > 4.5
        assert np.abs((found - 1.2 * expected) / error).max() > 4.5


class TestWeightAverage:
    method = SWA(num_snapshots=SNAPSHOTS)

    def test_is_the_mean_of_the_snapshots(self) -> None:
        found = self.method.weights(Member(0, SNAPSHOTS - 1), fitted(self.method, snapshots()))
        assert found.keys() == snapshots()[-1].keys()
        assert {name: each.dtype for name, each in found.items()} == {n: e.dtype for n, e in snapshots()[-1].items()}
        np.testing.assert_allclose(flat(found).numpy(), rows().mean(0), rtol=1e-6)

    def test_its_statistics_are_computed_anew_for_the_mean(self) -> None:
        asked = list[tuple[Weights, int]]()

        def statistics(weights: Weights, num_batches: int) -> Weights:
            asked.append((weights, num_batches))
            return {"norm.running_var": torch.tensor([7.0])}

        kept = snapshots()
        view = TrainedNetwork(0, kept.__getitem__, {}, randomness.key, tuple, lambda weights, inputs: None, statistics)  # type: ignore[arg-type, return-value]
        found = self.method.posterior(view)
        assert torch.equal(found["norm.running_var"], torch.tensor([7.0]))
        ((weights, num_batches),) = asked
        assert num_batches == self.method.refresh_batches
        assert all(torch.equal(weights[name], found[name]) for name in NAMES)
        last = self.method.model_copy(update={"refresh_batches": 0}).posterior(view)
        assert torch.equal(last["norm.running_var"], torch.tensor([0.4]))


class TestTail:
    """Which epochs are collected, and at what rate."""

    @pytest.mark.parametrize(
        ("options", "keep"),
        [
            ({"num_epochs": 2}, (1, 2)),
            ({"num_epochs": 5}, (3, 4, 5)),
            ({"num_epochs": 10}, (6, 7, 8, 9, 10)),
            ({"num_epochs": 10, "collect": 0.01}, (9, 10)),
            ({"num_epochs": 10, "collect": 0.3}, (8, 9, 10)),
            ({"num_epochs": 4, "collect": 1}, (1, 2, 3, 4)),
            ({"num_epochs": 20, "num_snapshots": 4}, (11, 14, 17, 20)),
        ],
    )
    def test_the_last_epochs_are_collected(self, options: dict[str, float], keep: tuple[int, ...]) -> None:
        assert SWAG(**options).keep == keep

    def test_of_many_epochs_some_are_collected_evenly(self) -> None:
        keep = SWAG().keep
        assert (len(keep), keep[0], keep[-1]) == (20, 76, 150)
        assert set(np.diff(keep)) <= {3, 4}

    @pytest.mark.parametrize(("swa_rate", "tail"), [(None, 0.1), (0.05, 0.05), (0.2, 0.2)])
    def test_the_rate_falls_to_that_of_the_tail_and_stays_there(self, swa_rate: float | None, tail: float) -> None:
        schedule = SWA(num_epochs=4, learning_rate=0.1, decay="poly", swa_rate=swa_rate).schedule
        rates = [schedule(step, 40).rate for step in range(1, 41)]
        expected = [tail + (0.1 - tail) * (1 - step / 20) ** 0.9 for step in range(1, 21)]
        assert rates == pytest.approx([*expected, *[tail] * 20], rel=1e-12)

    def test_without_decay_the_rate_is_constant_before_the_tail(self) -> None:
        schedule = SWA(num_epochs=4, learning_rate=0.1, swa_rate=0.02).schedule
        assert [schedule(step, 40).rate for step in range(1, 41)] == pytest.approx([0.1] * 20 + [0.02] * 20)

    def test_a_network_is_trained_for_as_long_as_one_of_an_ensemble(self) -> None:
        for method in (SWA(), SWAG(), MultiSWAG()):
            assert (method.num_epochs, method.training.keep[-1]) == (150, 150)


def test_draws_of_multi_swag_mix_the_samples_of_all_networks() -> None:
    method = MultiSWAG(num_networks=3, num_samples=4)
    table = method.members(range(3))
    draws = make_draws(len(table.members), [6, 12], plan=table.plan, group=table.group, max_draws=5)
    assert all(len({table.members[each].network for each in members}) > 1 for members in draws.sets)
    assert table.members == SWAG(num_networks=3, num_samples=4).members(range(3)).members


# Whole runs

OPTIONS = {"num_networks": 2, "num_samples": 4, "num_snapshots": 3, "num_epochs": 4, "collect": 0.75}


def settings_of(options: Mapping[str, float]) -> list[str]:
    return ['methods=["swag"]', *(f"swag.{option}={value}" for option, value in {**OPTIONS, **options}.items())]


def toy_recipe(folder: Path, *settings: str, **options: float) -> Recipe:
    return small("toy-regression", *settings_of(options), *settings)


def dense_recipe(folder: Path, *settings: str, **options: float) -> Recipe:
    return small_dense(folder / "cache", *settings_of({"batch_size": 2, **options}), *settings)


RECIPES = {"toy": toy_recipe, "images": dense_recipe}


@pytest.fixture(params=RECIPES)
def make_recipe(request: pytest.FixtureRequest) -> Callable[..., Recipe]:
    return RECIPES[request.param]


def carried_out(recipe: Recipe, folder: Path) -> Results:
    results = epibench.run(recipe, folder / "run", device="cpu", jobs=1)
    assert results.failed == {}
    return results


def nll(results: Results, name: str = "swag") -> list[object]:
    """The NLL of every draw on every domain."""
    return [draw.metrics["nll"] for score in results.scores if score.method == name for draw in score.draws]


def times_of_weights(folder: Path, name: str = "swag") -> dict[str, int]:
    """When kept weights were written."""
    weights = (folder / "run" / "members" / name).glob("*.00000?.safetensors")
    written = {each.name: each.stat().st_mtime_ns for each in weights}
    assert written
    return written


def test_a_run_trains_fits_and_evaluates_it(make_recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    results = carried_out(make_recipe(tmp_path), tmp_path)
    facts = results.methods["swag"]
    assert (facts.label, facts.plan) == ("SWAG", "prefix")
    pool = results.scores[0].pool
    assert (facts.num_networks, pool.num_members, pool.num_groups) == (2, 8, 2)
    values = nll(results)
    assert values
    assert None not in values
    assert len(set(values)) == len(values)  # every draw predicts otherwise


def test_other_samples_of_trained_networks_need_no_training(make_recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    """`scale` changes no trained network: nothing is trained again, and nothing that was evaluated is taken for it."""
    once, written = carried_out(make_recipe(tmp_path), tmp_path), times_of_weights(tmp_path)
    narrow = carried_out(make_recipe(tmp_path, scale=0.1), tmp_path)
    assert all(one != other for one, other in zip(nll(once), nll(narrow), strict=True))
    assert nll(carried_out(make_recipe(tmp_path), tmp_path)) == nll(once)
    assert times_of_weights(tmp_path) == written


class WidenedSWAG(SWAG):
    """A user's: what it fits depends on an option that decides nothing in training."""

    widened: Annotated[float, AFTER_TRAINING] = 1.0

    def posterior(self, trained: TrainedNetwork) -> Weights:
        assert all(torch.isfinite(each).all() for each in trained.kept(0).values())
        fitted = super().posterior(trained)
        return {name: self.widened * each if name.startswith("std.") else each for name, each in fitted.items()}


def widened(make_recipe: Callable[..., Recipe], folder: Path, **options: object) -> Recipe:
    """The same with a user's method, named as package.module:name, in place of ours."""
    swag = {**make_recipe(folder).swag.model_dump(), **options}
    variant = {"method": "test_swag:WidenedSWAG", "options": swag}
    return make_recipe(folder, f"variants={json.dumps({'widened': variant})}", 'methods=["widened"]')


def test_a_method_of_a_user_is_known_by_its_name_alone(tmp_path: Path) -> None:
    recipe = small("toy-regression", 'methods=["test_swag:WidenedSWAG"]')
    assert recipe.methods == ("WidenedSWAG",)
    assert recipe.method("WidenedSWAG") == WidenedSWAG()


def test_what_is_fitted_with_another_option_is_fitted_anew(make_recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    def make(factor: float) -> Recipe:
        return widened(make_recipe, tmp_path, widened=factor)

    once, written = carried_out(make(1.0), tmp_path), times_of_weights(tmp_path, "widened")
    wide = carried_out(make(3.0), tmp_path)
    assert all(one != other for one, other in zip(nll(once, "widened"), nll(wide, "widened"), strict=True))
    assert nll(carried_out(make(1.0), tmp_path), "widened") == nll(once, "widened")
    assert times_of_weights(tmp_path, "widened") == written


def test_nothing_is_fitted_to_a_network_that_has_diverged(tmp_path: Path) -> None:
    recipe = widened(toy_recipe, tmp_path, diverged="drop")
    run = train(recipe, tmp_path / "run")
    for path in run.files("widened"):
        weights = load_file(path)["parameters"]
        weights[1] = torch.nan
        rewrite(path, {"parameters": weights})
    fits = [path.with_name(f"000{number}.posterior.safetensors") for number in range(2)]
    for fit in fits:
        fit.unlink()
    results = carried_out(recipe, tmp_path)
    assert results.methods["widened"].num_networks == 1
    assert [len(load_file(fit)) for fit in fits] == [3, 0]


def test_seconds_of_training_are_those_of_fitting_too(tmp_path: Path) -> None:
    run = train(toy_recipe(tmp_path), tmp_path / "run")
    trained = run.files("swag")[-1]
    rewrite(trained, seconds=7.0)
    for number in range(2):
        rewrite(trained.with_name(f"000{number}.posterior.safetensors"), seconds=100.0)
    assert run.collected("swag").seconds == 207


def test_what_is_fitted_is_in_memory_for_one_network_at_a_time(
    make_recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = train(make_recipe(tmp_path), tmp_path / "run")
    networks, make = list[weakref.ref[TrainedNetwork]](), SWAG.weights

    def weights(self: SWAG, member: Member, trained: TrainedNetwork) -> Weights:
        networks.append(weakref.ref(trained))
        return make(self, member, trained)

    monkeypatch.setattr(SWAG, "weights", weights)
    trained = run.collected("swag")
    for network, number in ((0, 0), (0, 1), (1, 0)):
        trained.weights(Member(network, 2, number))
    gc.collect()
    first, again, second = (each() for each in networks)
    assert first is again is None
    assert second is not None


def test_what_was_fitted_is_fitted_again_where_it_is_lost(make_recipe: Callable[..., Recipe], tmp_path: Path) -> None:
    once = carried_out(make_recipe(tmp_path), tmp_path)
    fits = sorted((tmp_path / "run" / "members" / "swag").glob("*.posterior.safetensors"))
    assert len(fits) == 2
    before, written = load_file(fits[1]), times_of_weights(tmp_path)
    for lost in (fits[1], tmp_path / "run" / "results.json"):
        lost.unlink()
    assert nll(carried_out(make_recipe(tmp_path), tmp_path)) == nll(once)
    again = load_file(fits[1])
    assert again.keys() == before.keys()
    assert all(torch.equal(again[name], before[name]) for name in before)
    assert times_of_weights(tmp_path) == written


class TestStatisticsOfSamples:
    """On images, where networks have batch norm."""

    @pytest.fixture(scope="class")
    def run(self, tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
        folder = tmp_path_factory.mktemp("samples")
        return train(dense_recipe(folder, refresh_batches=3), folder / "run", "swag:1")

    def test_are_those_of_its_own_weights(self, run: TrainedRun) -> None:
        members = run.recipe.swag.members([1]).members
        found = [run.member("swag", member) for member in members]
        assert_same_weights(found, [run.refreshed("swag", 1, weights, 3) for weights in found])
        means = [weights["encoder.0.0.norm1.running_mean"] for weights in found]
        assert len(torch.unique(torch.stack(means), dim=0)) == 4

    def test_are_not_computed_again_for_a_member(self, run: TrainedRun) -> None:
        def statistics(weights: Weights, num_batches: int) -> Weights:
            raise AssertionError("they are there")

        def kept(snapshot: int) -> Weights:
            raise AssertionError("what is fitted suffices")

        trained = run.network("swag", 1)
        bare = replace(trained, statistics=statistics, kept=kept)
        for member in run.recipe.swag.members([1]).members:
            once, again = (run.recipe.swag.weights(member, each) for each in (trained, bare))
            assert all(torch.equal(once[name], again[name]) for name in once)

    def test_are_made_anew_with_another_number_of_batches_without_training(self, run: TrainedRun) -> None:
        before, written = run.member("swag", Member(1, 2)), run.written("swag")
        other = train(dense_recipe(run.folder.parent, refresh_batches=4), run.folder, "swag:1")
        after = other.member("swag", Member(1, 2))
        assert not torch.equal(before["encoder.0.0.norm1.running_mean"], after["encoder.0.0.norm1.running_mean"])
        assert run.written("swag") == written


# What a method can ask of a trained network besides its weights


@pytest.fixture
def trained(make_recipe: Callable[..., Recipe], tmp_path: Path) -> tuple[Recipe, TrainedNetwork]:
    recipe = make_recipe(tmp_path, num_networks=1)
    return recipe, train(recipe, tmp_path / "run").network("swag", 0)


def loss_of(recipe: Recipe, raw: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """The mean negative log-likelihood, by the raw outputs of either kind of network."""
    if recipe.problem == "toy-regression":  # (head, output, point)
        mean, log_variance = raw[0, 0], raw[1, 0]
        return (0.5 * ((target - mean) ** 2 / log_variance.exp() + log_variance)).mean()
    return gaussian.image_loss(raw, target.masked_fill(~valid, 0))[valid].mean()


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
    if recipe.problem == "toy-regression":  # mean and log variance
        assert raw.shape == (2, 1, len(target))
    else:
        module = recipe.builder(None)().eval()
        module.load_state_dict(dict(network.kept(0)))
        torch.testing.assert_close(raw, module(inputs))
        assert raw.shape == (len(target), 2, *target.shape[1:])
