"""Evaluate a method on a toy problem: every draw against the reference on a grid, and against the truth on points."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from epibench.conventions import CONVENTIONS, check_uncertainty
from epibench.data.batch import Points
from epibench.data.sets.toy import GRID_SIDE, ToyProblem, in_region, sample, true_class, true_mean, true_std
from epibench.errors import InputError
from epibench.evaluation.loop import Evaluation
from epibench.evaluation.suite import SuiteSettings
from epibench.evaluation.summary import per_draw, summarise, summarise_curves, to_plain
from epibench.members.draws import Draws
from epibench.members.stacked import StackedOnPoints, StackedPool, predict
from epibench.methods.contract import Member
from epibench.methods.map import Direct
from epibench.metrics.divergence import PREDICTED_LOG_VARIANCE_LIMIT, divergences
from epibench.recipes.toy import SHIPPED, ToyRecipe
from epibench.reference.predictions import Reference, check_fits, load_reference, shipped_reference
from epibench.results import Columns, Cost, CurveFamilies, Draw, ReferenceFacts, Summary, ToyPictures
from epibench.runs.evaluated import Evaluated, draws_of, method_facts
from epibench.runs.train import Run, Trained
from epibench.runs.trainers import stacked_training, toy_network, toy_problem
from epibench.training.stacked import OBJECTIVES, Keys, trained

EVERY = 4  # of the 1,000 grid points of regression; a line needs no more
DIGITS = 4


@dataclass(frozen=True)
class ToyEvaluated(Evaluated):
    """What came out for one method, with what each draw predicts on the grid."""

    draws: Draws
    grid: dict[str, Tensor]
    kl: dict[str, Any]
    kl_draws: dict[str, Any]


@dataclass(frozen=True)
class ToyExperiment:
    """A toy problem, its reference, and how methods are evaluated on it."""

    run: Run

    @property
    def recipe(self) -> ToyRecipe:
        """The recipe that is carried out."""
        assert isinstance(self.run.recipe, ToyRecipe)
        return self.run.recipe

    @cached_property
    def toy(self) -> ToyProblem:
        """The problem with its training data."""
        return toy_problem(self.recipe)

    @cached_property
    def reference(self) -> Reference | None:
        """The reference that the recipe names, checked against its problem."""
        recipe = self.recipe
        if recipe.reference.path is None:
            return None
        path = shipped_reference(recipe.problem) if recipe.reference.path == SHIPPED else Path(recipe.reference.path)
        reference = load_reference(path)
        check_fits(reference, self.toy, recipe.prior_scale, recipe.hidden)
        return reference

    def check(self) -> None:
        """Open everything, so that what is wrong shows before anything is trained."""
        _ = self.toy, self.reference

    def prepare(self) -> None:
        """There is nothing to prepare."""

    def evaluate(self, name: str, networks: Trained, failed: dict[str, str]) -> ToyEvaluated:
        """Every draw of a method: KLs, and metrics on fresh points inside and outside of the training region."""
        lost = len(networks.diverged)
        number = len(networks.networks) + lost
        try:
            evaluated = self._evaluate(name, networks)
        except ValueError as error:
            about = f"{lost} of {number} networks diverged; " if lost else ""
            raise InputError(f"{name}: {about}{error}; lower {self.recipe.setting(name, 'learning_rate')}") from None
        if lost:
            note = f"{lost} of {number} diverged and are left out."
            evaluated.facts.notes.append(note)
            self.run.reporter.say(f"{name}: {note}")
        return evaluated

    def _evaluate(self, name: str, networks: Trained) -> ToyEvaluated:
        recipe, toy, begun = self.recipe, self.toy, time.perf_counter()
        pool = self.pool(networks)
        draws = draws_of(recipe, name, pool)
        tests = fresh_points(recipe, toy)
        summary: dict[str, Summary] = {}
        curves: dict[str, CurveFamilies] = {}
        entries: dict[str, list[Draw]] = {}
        with self.run.reporter.step(f"evaluate {name}", (1 + len(tests)) * len(draws.sets)) as advance:
            # The grid is small: what all draws predict on it is kept, for the divergences and the pictures.
            grid = with_variance(
                predict(pool, draws, toy.kind, toy.grid, math.exp(PREDICTED_LOG_VARIANCE_LIMIT), advance)
            )
            predicted = time.perf_counter() - begun
            for domain, points in tests.items():
                evaluation = Evaluation(StackedOnPoints(pool, points), draws, suite_settings(toy.kind))
                evaluation.run(after_draws=advance)
                values, families = evaluation.results()
                summary[domain] = summarise(draws.sets, values)
                curves[domain] = summarise_curves(draws.sets, families)
                entries[domain] = per_draw(draws.sets, values)
        kl = self.divergences(grid)
        return ToyEvaluated(
            facts=method_facts(recipe, name, len(networks.networks), pool),
            summary=summary,
            curves=curves,
            entries=entries,
            cost=Cost(
                parameters=toy_network(recipe, toy).num_parameters,
                train_seconds=networks.seconds,
                predict_seconds=predicted,
            ),
            draws=draws,
            grid=grid,
            kl=over_leaves(
                kl, lambda values: {m: of_m["kl"] for m, of_m in summarise(draws.sets, {"kl": values}).items()}
            ),
            kl_draws=over_leaves(kl, lambda values: {m: to_plain(values[draws.of_size(m)]) for m in draws.sizes}),
        )

    def pool(self, networks: Trained) -> StackedPool:
        """The members of trained networks; passes of one network share its parameters."""
        method, device = networks.method, self.run.machine.device
        table = method.members(networks.networks)
        owners = [Member(m.network, m.snapshot) if method.dropout else m for m in table.members]
        distinct = {owner: row for row, owner in enumerate(dict.fromkeys(owners))}
        parameters = torch.stack([networks.weights(owner)["parameters"] for owner in distinct]).to(device)
        return StackedPool(
            network=toy_network(self.recipe, self.toy),
            objective=OBJECTIVES[self.toy.kind],
            table=table,
            parameters=parameters,
            rows=tuple(distinct[owner] for owner in owners),
            seed=self.recipe.seed,
            method=method.name,
            rate=method.dropout,
        )

    def divergences(self, grid: Mapping[str, Tensor]) -> dict[str, Any]:
        """KLs to the reference by convention, direction and region; none without a reference."""
        if self.reference is None:
            return {}
        predictive = self.reference.predictive()
        return {each: divergences(predictive, grid, self.toy.inside, each) for each in CONVENTIONS}

    def results(self, evaluated: Mapping[str, ToyEvaluated]) -> dict[str, Any]:
        """What a run writes that only toy problems have."""
        return {
            "problem": self.toy.name,
            "kind": self.toy.kind,
            "kl": {name: each.kl for name, each in evaluated.items()},
            "kl_draws": {name: each.kl_draws for name, each in evaluated.items()},
            "reference": self.reference_facts(),
            "pictures": self.pictures(evaluated),
        }

    def reference_facts(self) -> ReferenceFacts | None:
        """What the results say of the reference."""
        if self.reference is None:
            return None
        return ReferenceFacts(
            path=self.recipe.reference.path,
            about=self.reference.about,
            floor=self.reference.floor(),
            notes=list(self.reference.notes),
        )

    def pictures(self, evaluated: Mapping[str, ToyEvaluated]) -> ToyPictures:
        """Grid, truth, data, reference, direct regression and, for each method and M, some draws."""
        toy, reference = self.toy, self.reference
        regression = toy.kind == "gaussian"
        axis = rounded(toy.grid[: GRID_SIDE[toy.name], 0])
        return ToyPictures(
            grid={"x": rounded(toy.grid[::EVERY, 0])} if regression else {"x1": axis, "x2": axis},
            truth=regression_truth(toy) if regression else {"class": true_class(toy.grid).tolist()},
            data=training_points(toy),
            reference=None if reference is None else prediction(reference.predictive()),
            direct={"mean": rounded(self.direct_regression()[::EVERY])} if regression else None,
            methods={name: self.examples(each) for name, each in evaluated.items()},
        )

    def examples(self, evaluated: ToyEvaluated) -> dict[int, list[Columns]]:
        """The first draws of each M that is drawn; of a method without several M, its own."""
        draws, options = evaluated.draws, self.recipe.pictures
        sizes = [size for size in options.members if size in draws.sizes] or list(draws.sizes[:1])
        return {
            size: [
                prediction({name: values[number] for name, values in evaluated.grid.items()})
                for number in draws.of_size(size)[: options.examples]
            ]
            for size in sizes
        }

    def direct_regression(self) -> Tensor:
        """What a network without uncertainty predicts on the grid, (point,), to be drawn beside the methods."""
        training = stacked_training(self.recipe, self.toy, method := Direct())
        keys = Keys.of(self.recipe.seed, method.name, range(1), self.run.machine.device)
        parameters = trained(training, keys)[:, -1]
        inputs = self.toy.grid.to(parameters.device)
        return training.objective.predict(training.network.outputs(parameters, inputs.T.expand(1, -1, -1)))["mean"][0]


def suite_settings(kind: str) -> SuiteSettings:
    """All metrics of a kind under our convention; few points, so that sparsification can be exact."""
    return SuiteSettings(kind, "pooled", check_uncertainty(kind, None), exact=True, num_classes=2)


def fresh_points(recipe: ToyRecipe, toy: ToyProblem) -> dict[str, Points]:
    """Fresh points with true targets, inside and outside of the training region."""
    if not recipe.test_points:
        return {}
    # Seeds of training data are small numbers: this one is far from them.
    seed = recipe.data.seed + 2**32
    inside = sample(toy.name, "train", recipe.test_points, seed)
    wide = sample(toy.name, "grid", 16 * recipe.test_points, seed)
    outside = torch.nonzero(~in_region(toy.name, wide.inputs)).flatten()[: recipe.test_points]
    return {"inside": inside, "outside": Points(wide.inputs[outside], wide.target[outside])}


def with_variance(predicted: dict[str, Tensor]) -> dict[str, Tensor]:
    """The prediction with its total variance, if it is Gaussian."""
    if "mean" not in predicted:
        return predicted
    return {**predicted, "variance": predicted["aleatoric"] + predicted["epistemic"]}


def over_leaves(tree: Any, function: Callable[[Tensor], Any]) -> Any:
    """The tree with the function applied to each of its tensors."""
    if isinstance(tree, Tensor):
        return function(tree)
    return {key: over_leaves(value, function) for key, value in tree.items()}


def prediction(predicted: Mapping[str, Tensor]) -> Columns:
    """What is drawn of a prediction."""
    if "probs" in predicted:
        return {"probs": rounded(predicted["probs"][:, 0])}
    shown = {"mean": predicted["mean"], "std": predicted["variance"].sqrt()}
    if "aleatoric" in predicted:
        shown["aleatoric_std"] = predicted["aleatoric"].sqrt()
    return {name: rounded(values[::EVERY]) for name, values in shown.items()}


def regression_truth(toy: ToyProblem) -> Columns:
    """True mean and standard deviation on the grid."""
    x = toy.grid[::EVERY, 0].double().numpy()
    return {"mean": rounded(torch.from_numpy(true_mean(x))), "std": rounded(torch.from_numpy(true_std(x)))}


def training_points(toy: ToyProblem) -> Columns:
    """The training data."""
    inputs, target = toy.train.inputs, toy.train.target
    if toy.kind == "gaussian":
        return {"x": rounded(inputs[:, 0]), "y": rounded(target)}
    return {"x1": rounded(inputs[:, 0]), "x2": rounded(inputs[:, 1]), "class": target.tolist()}


def rounded(values: Tensor) -> list[int | float | None]:
    """Numbers for a picture."""
    return [float(value) for value in np.round(values.double().cpu().numpy(), DIGITS)]
