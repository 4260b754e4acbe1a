"""One batch of chains: its start, its NUTS chains, and what is kept of them. A batch depends on no other batch.

Batches with even numbers start from the prior; those with odd numbers from trained networks, which are heated first.
Each then cools a population of its own. Where both agree, the start has been forgotten.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from epibench.data.sets.toy import ToyProblem
from epibench.metrics.divergence import PREDICTED_LOG_VARIANCE_LIMIT
from epibench.reference.model import Array, Posterior, posterior_of
from epibench.reference.nuts import Draws, run_nuts
from epibench.reference.settings import ReferenceSettings
from epibench.reference.starts import Population, cool, log_likelihoods, prior_start, resampled, shaken, trained_start

Arrays = dict[str, npt.NDArray[Any]]
Progress = Callable[[str], None]

# Trained networks get so many times the moves of a temperature to forget where they come from.
HEATING = 6


@dataclass(frozen=True)
class Posteriors:
    """The posterior, and one of the same data with neighbouring points taken together, to cool on."""

    exact: Posterior
    rough: Posterior


def posteriors_of(problem: ToyProblem, settings: ReferenceSettings) -> Posteriors:
    """Both posteriors of a problem; make them once, since compiled functions belong to them."""
    exact = posterior_of(problem, settings.prior_scale)
    return Posteriors(
        exact, posterior_of(problem, settings.prior_scale, settings.group) if settings.group > 1 else exact
    )


def run_batch(
    problem: ToyProblem, posteriors: Posteriors, settings: ReferenceSettings, number: int, progress: Progress
) -> Arrays:
    """Start and run the chains of one batch; returns sums over draws, traces and energies."""
    began = time.perf_counter()
    start_key, chain_key = jax.random.split(jax.random.fold_in(jax.random.key(settings.seed), number))
    starts, step_size = start_population(posteriors, settings, number, start_key, progress)
    started = time.perf_counter() - began
    kept = Kept(problem, posteriors.exact, settings)
    step_size = run_nuts(posteriors.exact, starts, chain_key, settings.nuts, step_size, kept.add, progress)
    numbers = {"start_seconds": started, "seconds": time.perf_counter() - began}
    numbers |= {"step_size": step_size}
    return {**kept.arrays(), **{name: np.array(value) for name, value in numbers.items()}}


def start_population(
    posteriors: Posteriors, settings: ReferenceSettings, number: int, key: Array, progress: Progress
) -> tuple[Array, float]:
    """Networks to start chains from, and a step size that suits them."""
    first, heat, cooling, draw = jax.random.split(key, 4)
    exact, rough, tempering = posteriors.exact, posteriors.rough, settings.tempering
    if number % 2 == 0:
        begin, population = 0.0, Population(prior_start(rough, tempering.networks, first))
    else:
        progress("training")
        trained = trained_start(rough, min(settings.chains, tempering.networks), first)
        spread = Population(jnp.resize(trained, (tempering.networks, rough.num_parameters)))
        progress("heating")
        begin = tempering.hottest
        population = shaken(rough, spread, heat, begin, HEATING * tempering.moves, tempering)
    population = cool(rough, population, cooling, tempering, begin, progress)
    difference = log_likelihoods(exact, population.networks) - log_likelihoods(rough, population.networks)
    return resampled(population.networks, difference, draw, settings.chains), population.step_size


class Kept:
    """What is kept of all draws: sums of predictions on the grid, traces at some points, energies of each chain."""

    def __init__(self, problem: ToyProblem, posterior: Posterior, settings: ReferenceSettings) -> None:
        self.settings = settings
        self.points = trace_points(problem)
        self.sums: dict[str, npt.NDArray[np.float64]] = {}
        self.traces: list[npt.NDArray[np.float32]] = []
        self.energies: list[npt.NDArray[np.float32]] = []
        self.totals = np.zeros((3, settings.chains))
        self.draws = 0
        self.centre: Any = jnp.zeros(len(problem.grid))
        self._sums = jax.jit(lambda values, centre: summed(posterior, values, centre))
        self._trace = jax.jit(lambda values: traced(posterior, values, self.points))

    def add(self, draws: Draws) -> None:
        """One draw of all chains."""
        if self.draws == 0:
            self.centre = self._sums(draws.parameters, self.centre)["mean"] / len(draws.parameters)
        for name, value in self._sums(draws.parameters, self.centre).items():
            self.sums[name] = self.sums.get(name, 0) + np.asarray(value, np.float64)
        saturated = draws.num_steps >= 2**self.settings.nuts.max_tree_depth - 1
        self.totals += np.stack([np.asarray(each) for each in (draws.diverging, saturated, draws.acceptance)])
        self.energies.append(np.asarray(draws.potential))
        every = max(1, -(-self.settings.nuts.samples // self.settings.trace_draws))
        if self.draws % every == 0:
            self.traces.append(np.asarray(self._trace(draws.parameters[: self.settings.trace_chains])))
        self.draws += 1

    def arrays(self) -> Arrays:
        """All of it, by name. trace: (output, chain, draw, point)."""
        energies = np.stack(self.energies, axis=1)
        third = max(1, self.draws // 3)
        return {
            **{f"sum_{name}": value for name, value in self.sums.items()},
            "centre": np.asarray(self.centre, np.float64),
            "members": np.array(self.draws * self.settings.chains),
            "trace": np.stack(self.traces, axis=2),
            "trace_points": self.points,
            "energy": energies.mean(1),
            "energy_first_and_last": np.array([energies[:, :third].mean(), energies[:, -third:].mean()]),
            "diverging": self.totals[0],
            "saturated": self.totals[1],
            "acceptance": self.totals[2] / self.draws,
        }


def trace_points(problem: ToyProblem) -> npt.NDArray[np.int64]:
    """Grid points to trace: about 64 inside the training region, and 32 outside of it, evenly spread."""
    inside = problem.inside.numpy()
    chosen = [np.flatnonzero(inside)[:: max(1, inside.sum() // 64)], np.flatnonzero(~inside)[:: (~inside).sum() // 32]]
    return np.sort(np.concatenate(chosen)).astype(np.int64)


def summed(posterior: Posterior, parameters: Array, centre: Array) -> dict[str, Array]:
    """Sums over members of what they predict on the grid; `mean` and its squares relative to `centre`."""
    predicted = jax.vmap(posterior.predict)(parameters)
    if "probs" in predicted:
        return {
            "mean": predicted["probs"][:, :, 0].sum(0) - len(parameters) * centre,
            "probs": predicted["probs"].sum(0),
        }
    mean, log_variance = predicted["mean"] - centre, predicted["log_variance"]
    return {
        "mean": mean.sum(0),
        "squares": jnp.square(mean).sum(0),
        "variance_clipped": jnp.exp(jnp.minimum(log_variance, PREDICTED_LOG_VARIANCE_LIMIT)).sum(0),
    }


def traced(posterior: Posterior, parameters: Array, points: npt.NDArray[np.int64]) -> Array:
    """What each chain predicts at some grid points, (output, chain, point): mean and log variance, or class 0."""
    predicted = jax.vmap(posterior.predict)(parameters)
    if "probs" in predicted:
        return predicted["probs"][None, :, points, 0]
    return jnp.stack((predicted["mean"][:, points], predicted["log_variance"][:, points]))
