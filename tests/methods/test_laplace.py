"""Last-layer Laplace as a method: on trained linear models with a known posterior, and in whole runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file
from small_dense_recipe import small_dense
from small_recipes import small
from small_segmentation_recipe import small_segmentation
from torch import Tensor
from toy_fit import make_problem, view_of
from toy_fit import train as train_stacked

import epibench
from epibench.errors import InputError
from epibench.likelihoods import categorical, gaussian
from epibench.methods import Member, TrainedNetwork
from epibench.methods.laplace import Laplace
from epibench.networks.mlp import StackedMLP
from epibench.recipes import Recipe
from epibench.results import Results
from trained_runs import TrainedRun, train

PRECISION = 4.0


class TestLinearModel:
    """A linear model that was trained by epochs of all points, with noise whose variance it knows by then."""

    def fitted(self) -> tuple[TrainedNetwork, Tensor, Tensor]:
        problem = make_problem("regression")
        problem = replace(problem, network=StackedMLP(1, 1, heads=2, hidden=()), prior_scale=PRECISION**-0.5)
        method = Laplace(
            num_networks=1, num_epochs=4000, batch_size=40, learning_rate=0.02, decay="poly", precision=PRECISION
        )
        view = view_of(method, problem, train_stacked(method, problem), 0)
        return view, problem.data.inputs.double(), problem.data.target.double()

    def test_has_its_exact_posterior(self) -> None:
        """Given the variances: of weight and bias of the mean, the mean to 1e-4 and the covariance to 1e-4."""
        view, inputs, target = self.fitted()
        trained = view.kept(0)["parameters"].double()
        design = torch.cat((inputs, torch.ones_like(inputs)), 1)
        variance = (design @ trained[2:]).exp()
        precision = design.T @ (design / variance[:, None]) + PRECISION * torch.eye(2)
        covariance = torch.linalg.inv(precision)
        mean = covariance @ design.T @ (target / variance)
        torch.testing.assert_close(trained[:2], mean, rtol=0, atol=1e-4)
        values, right = view.posterior["0.values"][0], view.posterior["0.right"].double()
        found = right @ torch.diag(1 / (values + view.posterior["0.precision"])) @ right.T
        torch.testing.assert_close(found, covariance, rtol=1e-4, atol=1e-4 * float(covariance.abs().max()))

    def test_samples_lie_around_it(self) -> None:
        view, _, _ = self.fitted()
        method, number = Laplace(num_networks=1, num_epochs=4000), 2000
        drawn = [method.weights(Member(0, 0, sample), view)["parameters"] for sample in range(number)]
        deviations = torch.stack(drawn).double() - view.kept(0)["parameters"].double()
        for layer, part in enumerate((slice(0, 2), slice(2, 4))):
            values, right = view.posterior[f"{layer}.values"][0], view.posterior[f"{layer}.right"].double()
            white = deviations[:, part] @ right * (values + PRECISION).sqrt()
            assert float(white.mean(0).abs().max()) < 4.5 / number**0.5
            assert float((white.T.cov() - torch.eye(2)).abs().max()) < 4.5 * (2 / number) ** 0.5


def test_members_of_networks_can_be_mixed() -> None:
    apart, mixed = (Laplace(num_networks=2, num_samples=3, mixed=mixed).members((0, 1)) for mixed in (False, True))
    assert apart.members == mixed.members
    assert (apart.plan, apart.group) == ("prefix", (0, 0, 0, 1, 1, 1))
    assert (mixed.plan, mixed.group) == ("random", None)
    assert Laplace(num_networks=2, num_samples=3, mixed=True).largest_draw == 6


@pytest.mark.parametrize(
    "options",
    [
        *({"precision": each} for each in ("prior", 0, -1.0, float("nan"), float("inf"))),
        *({"observations": each} for each in (0, -1, float("inf"))),
        *({"num_pixels": each} for each in (0, 1.5)),
        {"curvature": "diagonal"},
        {"num_epochs": -1},
    ],
)
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(options))):
        Laplace(**options)


# Whole runs

OPTIONS = ["laplace.num_networks=2", "laplace.num_samples=3", "members=[1, 2, 3]", 'methods=["laplace"]']


def toy_recipe(folder: Path, *settings: str, problem: str = "toy-regression") -> Recipe:
    return small(problem, *OPTIONS, "pictures.members=[2,3]", *settings)


def classes_recipe(folder: Path, *settings: str) -> Recipe:
    return toy_recipe(folder, *settings, problem="toy-classification")


def depth_recipe(folder: Path, *settings: str) -> Recipe:
    return small_dense(folder / "cache", *OPTIONS, "laplace.batch_size=2", *settings)


def segmentation_recipe(folder: Path, *settings: str) -> Recipe:
    return small_segmentation(folder / "cache", *OPTIONS, "laplace.batch_size=2", *settings)


RECIPES: dict[str, Callable[..., Recipe]] = {
    "regression": toy_recipe,
    "classification": classes_recipe,
    "depth": depth_recipe,
    "segmentation": segmentation_recipe,
}


@dataclass(frozen=True)
class Done:
    """A run of a recipe."""

    kind: str
    folder: Path
    results: Results

    def again(self, *settings: str) -> Results:
        return carried_out(RECIPES[self.kind](self.folder, *settings), self.folder)

    @property
    def run(self) -> TrainedRun:
        return TrainedRun(RECIPES[self.kind](self.folder), self.folder / "run")

    def fitted(self, **options: Any) -> tuple[Laplace, TrainedNetwork]:
        """Network 1 with other options, fitted anew."""
        method, view = self.run.recipe.laplace.model_copy(update=options), self.run.network("laplace", 1)
        return method, replace(view, posterior=method.posterior(view))

    @property
    def members(self) -> Path:
        return self.folder / "run" / "members" / "laplace"

    def times(self) -> dict[str, int]:
        """When weights were written, of the ensemble and of ours."""
        files = [path for path in self.members.parent.rglob("*.safetensors") if "posterior" not in path.name]
        return {str(path): path.stat().st_mtime_ns for path in files}


def carried_out(recipe: Recipe, folder: Path) -> Results:
    results = epibench.run(recipe, folder / "run", device="cpu", jobs=1)
    assert results.failed == {}
    return results


@pytest.fixture(scope="module", params=RECIPES)
def done(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp(request.param)
    return Done(request.param, folder, carried_out(RECIPES[request.param](folder), folder))


def nll(results: Results) -> list[Any]:
    return [draw.metrics["nll"] for score in results.scores if score.method == "laplace" for draw in score.draws]


def same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_run_fits_and_evaluates_it(done: Done) -> None:
    facts = done.results.methods["laplace"]
    assert (facts.label, facts.plan) == ("Last-layer Laplace", "prefix")
    pool = done.results.scores[0].pool
    assert (facts.num_networks, pool.num_members, pool.num_groups) == (2, 6, 2)
    values = nll(done.results)
    assert len(values) >= 6
    assert all(isinstance(value, float) for value in values)
    assert len(set(values)) == len(values)


def test_a_lost_fit_is_made_again_and_is_the_same(done: Done) -> None:
    written, (_, fit) = done.times(), sorted(done.members.glob("*.posterior.safetensors"))
    before = load_file(fit)
    for lost in (fit, done.members.parents[1] / "results.json"):
        lost.unlink()
    assert nll(done.again()) == nll(done.results)
    assert same(load_file(fit), before)
    assert done.times() == written


def test_another_fit_needs_no_training(done: Done) -> None:
    written = done.times()
    assert nll(done.again("laplace.observations=1000")) != nll(done.results)
    assert done.times() == written


@pytest.mark.parametrize("options", [{"precision": "validation"}, {"precision": 3.0}, {"observations": 7.0}], ids=str)
def test_options_change_what_is_fitted(done: Done, options: dict[str, Any]) -> None:
    assert not same(done.fitted(**options)[1].posterior, done.fitted()[1].posterior)


def test_two_factors_are_smaller_where_there_are_several_outputs(done: Done) -> None:
    (_, whole), (_, factors) = done.fitted(curvature="full"), done.fitted(curvature="kronecker")
    sizes = [sum(each.numel() for each in view.posterior.values()) for view in (whole, factors)]
    if done.kind in ("classification", "segmentation"):
        assert sizes[1] < sizes[0]
    else:
        assert same(whole.posterior, factors.posterior)


def test_samples_differ_from_the_network_in_its_last_layers_alone(done: Done) -> None:
    method, view = done.fitted()
    trained, sample = view.kept(0), method.weights(Member(1, 0, 2), view)
    assert sample.keys() == trained.keys()
    changed = {name for name in sample if not torch.equal(sample[name], trained[name])}
    names = {
        "depth": {f"{head}.{part}" for head in ("mean", "log_variance") for part in ("weight", "bias")},
        "segmentation": {"logits.weight", "logits.bias"},
    }
    assert changed == names.get(done.kind, {"parameters"})
    number = int(sum((sample[name] != trained[name]).sum() for name in changed))
    assert number == {"regression": 22, "classification": 22, "depth": 66, "segmentation": 19 * 9}[done.kind]


@pytest.mark.parametrize("done", ["depth", "segmentation"], indirect=True)
def test_samples_share_all_but_the_last_stage(done: Done) -> None:
    """Which is computed once, and each predicts as a network of its own."""
    run = train(done.run.recipe, done.run.folder)  # another test has fitted otherwise
    pool = run.pool("laplace")
    assert pool.trunk == len(pool.skeleton.stages()) - 1
    inputs = {"image": torch.full((1, 3, 32, 64), 90, dtype=torch.uint8), "sparse_depth": torch.rand(1, 1, 32, 64)}
    found = pool.outputs(inputs, slice(0, pool.num_members), range(1)).values
    for row, member in enumerate(pool.table.members):
        module = pool.build().eval()
        module.load_state_dict(run.member("laplace", member))
        with torch.no_grad():
            raw = module(inputs)
        alone = (gaussian if done.kind == "depth" else categorical).image_outputs(raw)
        for name, values in alone.items():
            torch.testing.assert_close(found[name][row].view_as(values), values, rtol=1e-4, atol=1e-4)


def test_a_very_narrow_posterior_is_the_trained_network(done: Done) -> None:
    method, view = done.fitted(precision=1e12)
    sample = method.weights(Member(1, 0, 2), view)
    for name, trained in view.kept(0).items():
        torch.testing.assert_close(sample[name], trained, rtol=0, atol=1e-5)


def test_it_needs_as_many_networks_as_there_are(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"laplace.of: laplace starts from 99 networks of ensemble, which has"):
        toy_recipe(tmp_path, "laplace.num_networks=99")


@pytest.mark.parametrize("done", ["segmentation"], indirect=True)
def test_how_much_a_class_counts_in_training_counts_in_the_curvature(done: Done) -> None:
    method, view = done.fitted()
    alike, other = (
        method.posterior(replace(view, class_weights=lambda first=first: (first, *[2.0] * 18))) for first in (2.0, 9.0)
    )
    torch.testing.assert_close(alike["0.values"], view.posterior["0.values"])
    assert not torch.allclose(other["0.values"], view.posterior["0.values"], rtol=0.01)


def test_it_hears_of_the_weights_of_classes(tmp_path: Path) -> None:
    weights = tuple(float(number) for number in range(1, 20))
    recipe = segmentation_recipe(tmp_path, f"training.class_weights={list(weights)}")
    assert TrainedRun(recipe, tmp_path).network("laplace", 0).class_weights() == weights
