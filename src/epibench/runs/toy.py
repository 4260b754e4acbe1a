"""Carry out a toy recipe: fit every method, compare its draws with the reference and the truth, write the results."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from epibench.data.points import Points
from epibench.data.sets.toy import ToyProblem, in_region, make_toy, sample
from epibench.errors import InputError
from epibench.metrics.divergence import PREDICTED_LOG_VARIANCE_LIMIT, divergences
from epibench.members.draws import Draws, make_draws
from epibench.evaluation.pool import Pool, predict, score
from epibench.evaluation.suite import SuiteSettings, check_uncertainty
from epibench.runs.heading import heading, method_facts
from epibench.runs.pictures import draw_pictures
from epibench.runs.reporter import Reporter
from epibench.runs.run_folder import RunFolder, Stamp
from epibench.methods import Problem, Watch
from epibench.methods.contract import finite
from epibench.methods.direct import Direct
from epibench.metrics.conventions import CONVENTIONS
from epibench.networks.mlp import StackedMLP
from epibench.recipes.toy import SHIPPED, ToyRecipe
from epibench.reference.predictions import Reference, check_fits, load_reference, shipped_reference
from epibench.evaluation.summary import per_draw, summarise, summarise_curves, to_plain
from epibench.files import write_text
from epibench.results import RunResults
from epibench.training.objectives import OBJECTIVES
from epibench.training.stacked import State

SAVE_SECONDS = 10.0
OUTPUTS = {"gaussian": 1, "categorical": 2}


@dataclass(frozen=True)
class Evaluated:
    """What a run found out about one method."""

    draws: Draws
    grid: dict[str, Tensor]
    facts: dict[str, Any]
    summary: dict[str, Any]
    curves: dict[str, Any]
    per_draw: dict[str, Any]
    kl: dict[str, Any]
    kl_draws: dict[str, Any]
    cost: dict[str, Any]


def run_toy(recipe: ToyRecipe, folder: RunFolder, device: torch.device, reporter: Reporter) -> RunResults:
    """The whole run; what is finished is found in the folder and not done again."""
    toy = make_toy(recipe.problem, recipe.data.seed, None if recipe.data.path is None else Path(recipe.data.path))
    reference = find_reference(recipe, toy)
    folder.claim(recipe)
    begun = time.perf_counter()
    problem = Problem(toy.kind, toy.train, network_of(recipe, toy), recipe.prior_scale, device)
    found, failed = {}, {}
    for name in recipe.methods:
        try:
            found[name] = fit_and_evaluate(name, recipe, toy, reference, problem, folder, reporter)
        except InputError as error:  # what other methods have done is not lost
            failed[name] = str(error)
            reporter.say(f"{name} failed: {error}")
    found_out = document(recipe, toy, reference, found, direct_regression(recipe, toy, problem), device)
    results = RunResults(**found_out, failed=failed, seconds=time.perf_counter() - begun)
    write_text(folder.results, results.model_dump_json(indent=1) + "\n")
    return results


def direct_regression(recipe: ToyRecipe, toy: ToyProblem, problem: Problem) -> Tensor | None:
    """What a network without uncertainty predicts on the grid, (point,), to be drawn beside the methods."""
    if toy.kind != "gaussian":
        return None
    return Direct().fit(problem, recipe.seed).outputs(toy.grid, slice(0, 1))["mean"][0]


def fit_and_evaluate(
    name: str,
    recipe: ToyRecipe,
    toy: ToyProblem,
    reference: Reference | None,
    problem: Problem,
    folder: RunFolder,
    reporter: Reporter,
) -> Evaluated:
    """Train one method, or find it trained, and evaluate what has not diverged of it."""
    parameters, seconds = train_method(name, recipe, problem, folder, reporter)
    kept = finite(parameters.to(problem.device))
    left = recipe.method(name).pool(problem, kept, recipe.seed)
    try:
        evaluated = evaluate_method(name, recipe, toy, reference, left, seconds, reporter)
    except ValueError as error:
        lost = len(parameters) - len(kept)
        about = f"{lost} of {len(parameters)} networks diverged; " if lost else ""
        raise InputError(f"{name}: {about}{error}; lower {name}.learning_rate") from None
    if len(kept) < len(parameters):
        note = f"{len(parameters) - len(kept)} of {len(parameters)} diverged and are left out."
        evaluated.facts["num_networks"] = len(kept)
        evaluated.facts["notes"].append(note)
        reporter.say(f"{name}: {note}")
    return evaluated


def network_of(recipe: ToyRecipe, toy: ToyProblem) -> StackedMLP:
    """The networks of a recipe: mean and log variance apart, or one with two logits."""
    return StackedMLP(toy.grid.shape[1], OUTPUTS[toy.kind], OBJECTIVES[toy.kind].heads, recipe.hidden)


def find_reference(recipe: ToyRecipe, toy: ToyProblem) -> Reference | None:
    """The reference that the recipe names, checked against its problem."""
    if recipe.reference.path is None:
        return None
    path = shipped_reference(recipe.problem) if recipe.reference.path == SHIPPED else Path(recipe.reference.path)
    reference = load_reference(path)
    check_fits(reference, toy, recipe.prior_scale, recipe.hidden)
    return reference


def train_method(
    name: str, recipe: ToyRecipe, problem: Problem, folder: RunFolder, reporter: Reporter
) -> tuple[Tensor, float]:
    """The parameters of a method and the seconds that they took: found in the folder, or trained to the end."""
    method, begun = recipe.method(name), time.perf_counter()
    stamp = Stamp.of(method, problem, recipe.seed)
    if (done := folder.load_members(name, stamp)) is not None:
        reporter.say(f"{name}: trained already")
        return done
    state, before = folder.load_state(name, stamp, problem.device) or (None, 0.0)
    done_epochs, saved = 0 if state is None else state.epoch, begun

    def seconds() -> float:
        return before + time.perf_counter() - begun

    def save(state: State) -> None:
        nonlocal saved
        if time.perf_counter() - saved > SAVE_SECONDS:
            folder.save_state(name, stamp, state, seconds())
            saved = time.perf_counter()

    with reporter.step(f"train {name}", method.training(problem).num_epochs, done_epochs) as advance:
        last = done_epochs

        def progress(epoch: int, total: int) -> None:
            nonlocal last
            advance(epoch - last)
            last = epoch

        parameters = method.train(problem, recipe.seed, Watch(progress, lambda: state, save))
    folder.save_members(name, stamp, parameters, seconds())
    return parameters, seconds()


def evaluate_method(
    name: str,
    recipe: ToyRecipe,
    toy: ToyProblem,
    reference: Reference | None,
    pool: Pool,
    train_seconds: float,
    reporter: Reporter,
) -> Evaluated:
    """Every draw of a pool against the reference on the grid, and against the truth on fresh points."""
    method, begun = recipe.method(name), time.perf_counter()
    sizes = (1,) if method.single else recipe.members
    draws = make_draws(
        pool.num_members,
        sizes,
        plan=pool.plan,
        max_draws=lambda size: method.max_draws(size, recipe.draws),
        seed=recipe.seed,
        group=pool.group,
    )
    tests = fresh_points(recipe, toy)
    with reporter.step(f"evaluate {name}", (1 + len(tests)) * len(draws.sets)) as advance:
        # The grid is small: what all draws predict on it is kept, for the divergences and the pictures.
        grid = with_variance(predict(pool, draws, toy.kind, toy.grid, math.exp(PREDICTED_LOG_VARIANCE_LIMIT), advance))
        predicted = time.perf_counter() - begun
        scored = {
            domain: score(pool, draws, suite_settings(toy.kind), data.inputs, data.target, advance)
            for domain, data in tests.items()
        }
    kl = (
        {}
        if reference is None
        else {
            convention: divergences(reference.predictive(), grid, toy.inside, convention) for convention in CONVENTIONS
        }
    )
    return Evaluated(
        draws=draws,
        grid=grid,
        facts=method_facts(recipe, name, method.num_trained, pool),
        summary={domain: summarise(draws.sets, values) for domain, (values, _) in scored.items()},
        curves={domain: summarise_curves(draws.sets, curves) for domain, (_, curves) in scored.items()},
        per_draw={domain: per_draw(draws.sets, values) for domain, (values, _) in scored.items()},
        kl=over_leaves(kl, lambda values: {m: cell["kl"] for m, cell in summarise(draws.sets, {"kl": values}).items()}),
        kl_draws=over_leaves(
            kl, lambda values: {str(size): to_plain(values[draws.of_size(size)]) for size in draws.sizes}
        ),
        cost={
            "parameters": network_of(recipe, toy).num_parameters,
            "train_seconds": train_seconds,
            "predict_seconds": predicted,
        },
    )


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


def document(
    recipe: ToyRecipe,
    toy: ToyProblem,
    reference: Reference | None,
    found: dict[str, Evaluated],
    direct: Tensor | None,
    device: torch.device,
) -> dict[str, Any]:
    """The results of a run as plain data."""
    return {
        **heading(recipe, device),
        "problem": toy.name,
        "kind": toy.kind,
        "methods": {name: each.facts for name, each in found.items()},
        "summary": {name: each.summary for name, each in found.items()},
        "curves": {name: each.curves for name, each in found.items()},
        "draws": {name: each.per_draw for name, each in found.items()},
        "kl": {name: each.kl for name, each in found.items()},
        "kl_draws": {name: each.kl_draws for name, each in found.items()},
        "reference": None if reference is None else reference_facts(recipe, reference),
        "pictures": draw_pictures(recipe, toy, reference, {n: (e.draws, e.grid) for n, e in found.items()}, direct),
        "cost": {name: each.cost for name, each in found.items()},
    }


def reference_facts(recipe: ToyRecipe, reference: Reference) -> dict[str, Any]:
    """What the results say of the reference."""
    return {
        "path": recipe.reference.path,
        "about": reference.about,
        "floor": reference.floor(),
        "notes": list(reference.notes),
    }
