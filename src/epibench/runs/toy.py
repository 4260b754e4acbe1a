"""Evaluate methods on toy problems, against a reference on a grid and against true targets."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from epibench.conventions import CONVENTIONS, check_uncertainty
from epibench.data.batch import Points
from epibench.data.sets.toy import GRID_SIDE, ToyProblem, in_region, sample, true_class, true_mean, true_std
from epibench.data.source import Follow
from epibench.errors import InputError
from epibench.evaluation.loop import Evaluation
from epibench.evaluation.suite import SuiteSettings
from epibench.members.draws import Draws
from epibench.members.stacked import StackedOnPoints, StackedPool, predict
from epibench.methods.contract import Member
from epibench.methods.map import Direct
from epibench.metrics import Sparsification
from epibench.metrics.divergence import PREDICTED_LOG_VARIANCE_LIMIT, divergences
from epibench.recipes.toy import SHIPPED, ToyRecipe
from epibench.reference.predictions import Reference, check_fits, load_reference, shipped_reference
from epibench.results import Columns, Cost, DomainFacts, ReferenceFacts, Score, ToyPictures
from epibench.runs.checks import Check, RunStep, further_checks
from epibench.runs.machine import Run
from epibench.runs.method_results import MethodResults, draws_of, make_score, method_facts, pool_size
from epibench.runs.toy_training import stacked_training, toy_network, toy_problem
from epibench.runs.train import Trained
from epibench.training.stacked import OBJECTIVES, Keys, trained

EVERY = 4  # every fourth of the 1,000 grid points of regression is drawn
DIGITS = 4
DRAWS_AT_ONCE = 128  # draws whose metrics are in memory at a time
# Regions of the grid, on which KLs are measured, and fresh points inside and outside of the training region.
DOMAINS = {
    "grid": DomainFacts(label="whole grid", role="role unknown"),
    "train": DomainFacts(label="training region", role="in-domain"),
    "inside": DomainFacts(label="Inside the training region", role="in-domain"),
    "outside": DomainFacts(label="Outside the training region", role="shifted"),
}
KL_NAMES = {"reference_to_method": "kl", "method_to_reference": "kl_reverse"}


@dataclass(frozen=True)
class ToyMethodResults(MethodResults):
    """Results of one method. `examples` holds predictions of some draws on the grid, by M."""

    examples: dict[int, list[Columns]] = field(default_factory=dict)


@dataclass(frozen=True)
class ToyExperiment:
    """A toy problem, its reference, and the evaluation of methods."""

    in_stretches: ClassVar[bool] = False

    run: Run

    @property
    def recipe(self) -> ToyRecipe:
        """The run's recipe."""
        assert isinstance(self.run.recipe, ToyRecipe)
        return self.run.recipe

    @cached_property
    def toy(self) -> ToyProblem:
        """The problem with its training data."""
        return toy_problem(self.recipe)

    @cached_property
    def reference(self) -> Reference | None:
        """The recipe's reference, or None; raises an InputError if it is of another problem."""
        recipe = self.recipe
        if recipe.reference.path is None:
            return None
        path = shipped_reference(recipe.problem) if recipe.reference.path == SHIPPED else Path(recipe.reference.path)
        reference = load_reference(path)
        check_fits(reference, self.toy, recipe.prior_scale, recipe.hidden)
        return reference

    def checks(self) -> list[Check]:
        """Return the checks of data and reference."""
        return [Check("data", self.check_data), Check("reference", self.check_reference, step="evaluate")]

    def all_checks(self, every: bool, follow: Follow) -> list[Check]:
        """Return the checks of `epibench data check`."""
        convergence = Check("convergence", self.check_convergence, required=False)
        return [*self.checks(), convergence, *further_checks(self.recipe, self.run.folder, None)]

    def check_room(self, steps: Sequence[RunStep]) -> None:
        """Check nothing: points and small networks need little space."""

    def check_data(self) -> str:
        """Check that the training data can be made or read."""
        return f"{len(self.toy.train.target):,} points"

    def check_reference(self) -> str:
        """Check that the reference, if any, is of this problem."""
        return "none: no KL is measured" if self.reference is None else f"{self.recipe.reference.path}: fits"

    def check_convergence(self) -> str:
        """Check that the reference, if any, has converged."""
        if self.reference is None:
            return "no reference"
        if not self.reference.converged:
            raise InputError(self.convergence)
        return self.convergence

    @property
    def convergence(self) -> str:
        """The verdict on the reference's convergence, with a fix if it has not converged."""
        assert self.reference is not None
        command = f"epibench reference {self.recipe.problem} with more --batches, --chains or --samples"
        return self.reference.convergence + ("" if self.reference.converged else f". Fix: {command}.")

    def prepare(self, steps: Sequence[RunStep]) -> None:
        """Print whether the reference has converged."""
        if "evaluate" in steps and self.reference is not None:
            facts = reference_facts(self.reference, self.recipe.reference.path)
            for text in (self.convergence, *facts.notes):
                self.run.reporter.say(f"reference {facts.path}: {text}")

    def evaluate(self, name: str, networks: Trained, failed: dict[str, str]) -> ToyMethodResults:
        """Evaluate every draw of a method: KLs, and metrics on fresh points.

        Points inside and outside of the training region have separate metrics.

        Raises:
            InputError: The method cannot be evaluated, e.g. because a prediction is not finite.
        """
        lost = len(networks.diverged)
        number = len(networks.networks) + lost
        try:
            evaluated = self._evaluate(name, networks)
        except ValueError as error:
            if isinstance(error, InputError) and not lost:
                raise InputError(f"{name}: {error}") from None
            about = f"{lost} of {number} networks diverged; " if lost else ""  # otherwise a prediction is not finite
            raise InputError(f"{name}: {about}{error}; lower {self.recipe.setting(name, 'learning_rate')}") from None
        if lost:
            note = f"{lost} of {number} diverged and are left out."
            evaluated.facts.notes.append(note)
            self.run.reporter.say(f"{name}: {note}")
        return evaluated

    def _evaluate(self, name: str, networks: Trained) -> ToyMethodResults:
        recipe, toy, begun = self.recipe, self.toy, time.perf_counter()
        pool = self.pool(networks)
        draws = draws_of(recipe, name, pool)
        tests = fresh_points(recipe, toy)
        settings = SuiteSettings(toy.kind, "pooled", check_uncertainty(toy.kind, None), num_classes=2)
        about = {
            "method": name,
            "kind": toy.kind,
            "counted": "points",
            "settings": {"convention": "pooled"},
            "pool": pool_size(pool, len(networks.networks)),
        }
        scores = list[Score]()
        with self.run.reporter.step(f"evaluate {name}", (1 + len(tests)) * len(draws.sets)) as advance:
            # The grid is small: the predictions of all draws stay in memory, for divergences and pictures.
            grid = predict(pool, draws, toy.kind, toy.grid, math.exp(PREDICTED_LOG_VARIANCE_LIMIT), advance)
            if "mean" in grid:
                grid["variance"] = grid["aleatoric"] + grid["epistemic"]
            predicted = time.perf_counter() - begun
            for domain, points in tests.items():
                values, families = scored(StackedOnPoints(pool, points), draws, settings, advance)
                scores.append(make_score(draws, values, families, domain=domain, **about))
        if self.reference is not None:
            predictive, kls = self.reference.predictive(), dict[str, dict[str, Tensor]]()  # by region and metric
            for convention in CONVENTIONS:
                suffix = "" if convention == "pooled" else f"_{convention}"
                for direction, regions in divergences(predictive, grid, toy.inside, convention).items():
                    for region, values_of_draws in regions.items():
                        kls.setdefault(region, {})[f"{KL_NAMES[direction]}{suffix}"] = values_of_draws
            scores += [make_score(draws, values, {}, domain=region, **about) for region, values in kls.items()]
        facts = method_facts(recipe, name, len(networks.networks), pool)
        parameters = pool.network.num_parameters
        facts.cost = Cost(parameters=parameters, train_seconds=networks.seconds, predict_seconds=predicted)
        return ToyMethodResults(facts, scores, examples=self.examples(draws, grid))

    def pool(self, networks: Trained) -> StackedPool:
        """Return the members of trained networks. Dropout passes of one network share its parameters."""
        method, device = networks.method, self.run.machine.here
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

    def results(self, evaluated: Mapping[str, ToyMethodResults]) -> dict[str, Any]:
        """Return the part of results that only toy problems have."""
        reference = self.reference
        return {
            "problem": self.toy.name,
            "domains": DOMAINS,
            "reference": None if reference is None else reference_facts(reference, self.recipe.reference.path),
            "toy": self.pictures(evaluated),
        }

    def pictures(self, evaluated: Mapping[str, ToyMethodResults]) -> ToyPictures:
        """Return grid, truth, data, reference, direct regression, and some draws of each method and M."""
        toy, reference = self.toy, self.reference
        inputs, target, direct = toy.train.inputs, toy.train.target, None
        if toy.kind == "gaussian":
            x = toy.grid[::EVERY, 0].double()
            grid: Columns = {"x": rounded(x)}
            truth: Columns = {"mean": rounded(true_mean(x.numpy())), "std": rounded(true_std(x.numpy()))}
            data: Columns = {"x": rounded(inputs[:, 0]), "y": rounded(target)}
            direct = {"mean": rounded(self.direct_regression()[::EVERY])}
        else:
            axis = rounded(toy.grid[: GRID_SIDE[toy.name], 0])
            grid, truth = {"x1": axis, "x2": axis}, {"class": true_class(toy.grid).tolist()}
            data = {"x1": rounded(inputs[:, 0]), "x2": rounded(inputs[:, 1]), "class": target.tolist()}
        return ToyPictures(
            grid=grid,
            truth=truth,
            data=data,
            reference=None if reference is None else prediction(reference.predictive()),
            direct=direct,
            methods={name: each.examples for name, each in evaluated.items()},
        )

    def examples(self, draws: Draws, grid: Mapping[str, Tensor]) -> dict[int, list[Columns]]:
        """Return the first draws of each M of the pictures.

        If a method has none of these M, its first M is used.
        """
        options = self.recipe.pictures
        sizes = [size for size in options.members if size in draws.sizes] or list(draws.sizes[:1])
        return {
            size: [
                prediction({name: values[number] for name, values in grid.items()})
                for number in draws.of_size(size)[: options.examples]
            ]
            for size in sizes
        }

    def direct_regression(self) -> Tensor:
        """Return the prediction of a network without uncertainty on the grid, (point,), for the pictures."""
        training = stacked_training(self.recipe, self.toy, method := Direct())
        keys = Keys.of(self.recipe.seed, method.name, range(1), self.run.machine.here)
        parameters = trained(training, keys)[:, -1]
        inputs = self.toy.grid.to(parameters.device)
        return training.objective.predict(training.network.outputs(parameters, inputs.T.expand(1, -1, -1)))["mean"][0]


def reference_facts(reference: Reference, path: str | None) -> ReferenceFacts:
    """Return the facts about a reference for results. `path` is the recipe's."""
    notes, infinite = list(reference.notes), False
    floor: dict[str, dict[str, dict[str, float | None]]] = {}
    for convention, directions in reference.floor().items():
        for direction, regions in directions.items():
            known = {region: kl if kl is not None and math.isfinite(kl) else None for region, kl in regions.items()}
            floor.setdefault(convention, {})[direction] = known
            infinite |= known != regions
    if infinite:
        notes.append("The noise floor is infinite: one half of the chains excludes what the other half predicts.")
    return ReferenceFacts(
        path=path,
        about=reference.about,
        floor=floor,
        notes=notes,
        converged=reference.converged,
        convergence=reference.convergence,
    )


def fresh_points(recipe: ToyRecipe, toy: ToyProblem) -> dict[str, Points]:
    """Return fresh points with targets, inside and outside of the training region."""
    if not recipe.test_points:
        return {}
    # Seeds of training data are small numbers: no user's seed equals this one.
    seed = recipe.data.seed + 2**32
    inside = sample(toy.name, "train", recipe.test_points, seed)
    wide = sample(toy.name, "grid", 16 * recipe.test_points, seed)
    outside = torch.nonzero(~in_region(toy.name, wide.inputs)).flatten()[: recipe.test_points]
    return {"inside": inside, "outside": Points(wide.inputs[outside], wide.target[outside])}


def scored(
    predictor: StackedOnPoints, draws: Draws, settings: SuiteSettings, advance: Callable[[int], None]
) -> tuple[dict[str, Tensor], dict[str, dict[str, Tensor]]]:
    """Return every metric and curve of every draw. A few draws are evaluated at a time, to bound the memory."""
    values, families = dict[str, list[Tensor]](), dict[str, dict[str, list[Tensor]]]()
    gc.freeze()  # the collections below visit metrics alone, not the objects of all libraries
    try:
        for start in range(0, len(draws.sets), DRAWS_AT_ONCE):
            some = Draws(draws.num_members, draws.sets[start : start + DRAWS_AT_ONCE])
            evaluation = Evaluation(predictor, some, settings, instead={"sparsification": sort_points})
            evaluation.run(after_draws=advance)
            of_some, curves = evaluation.results()
            del evaluation
            gc.collect()  # metrics are in reference cycles, and their states are large
            for name, value in of_some.items():
                values.setdefault(name, []).append(value)
            for family, own in curves.items():
                for name, value in own.items():
                    families.setdefault(family, {}).setdefault(name, []).append(value)
    finally:
        gc.unfreeze()
    return {name: torch.cat(parts) for name, parts in values.items()}, {
        family: {name: parts[0] if name == "x" else torch.cat(parts) for name, parts in own.items()}
        for family, own in families.items()
    }


def sort_points(weights: Tensor, settings: SuiteSettings) -> Sparsification:
    """Return the AUSE of few points, by sorting them."""
    return Sparsification("rmse" if settings.kind == "gaussian" else "brier", len(weights), exact=True)


def prediction(predicted: Mapping[str, Tensor]) -> Columns:
    """Return the plotted columns of a prediction."""
    if "probs" in predicted:
        return {"probs": rounded(predicted["probs"][:, 0])}
    shown = {"mean": predicted["mean"], "std": predicted["variance"].sqrt()}
    if "aleatoric" in predicted:
        shown["aleatoric_std"] = predicted["aleatoric"].sqrt()
    return {name: rounded(values[::EVERY]) for name, values in shown.items()}


def rounded(values: Tensor | NDArray[np.float64]) -> list[int | float | None]:
    """Return numbers rounded for a picture."""
    return [float(value) for value in np.round(torch.as_tensor(values).double().cpu().numpy(), DIGITS)]
