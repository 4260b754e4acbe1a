"""One batch of chains: its start, its NUTS chains, and its results. Batches are independent.

Batches with even numbers start from the prior, batches with odd numbers from trained networks, which are first heated.
Each batch then cools its own population. If both kinds agree, they have forgotten their starts.

NUTS (NumPyro) runs many chains at once, with one mass matrix and one step size for all of them. Warm-up has rounds: the
mass matrix is computed from the chains' positions, then the step size adapts to the acceptance of all chains. Both are
fixed for the samples. Every step size is drawn from a fixed distribution around this value, because a chain in a narrow
place sometimes needs a short one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from numpyro.infer.hmc import hmc

from epibench.data.sets.toy import ToyProblem
from epibench.metrics.divergence import PREDICTED_LOG_VARIANCE_LIMIT
from epibench.reference.model import Array, Posterior, inverse_root, posterior_of
from epibench.reference.settings import NutsSettings, ReferenceSettings
from epibench.reference.starts import Population, cool, log_likelihoods, prior_start, resampled, shaken, trained_start

Arrays = dict[str, npt.NDArray[Any]]
Progress = Callable[[str], None]

# Trained networks have HEATING times the moves of a temperature to forget their start.
HEATING = 6
# Steps are scaled by e^u, u uniform in this interval.
JITTER = (-2.0, 0.0)
TARGET_ACCEPTANCE = 0.85


@dataclass(frozen=True)
class Posteriors:
    """The posterior, and a smoother one with neighbouring points grouped, for cooling."""

    exact: Posterior
    rough: Posterior


def posteriors_of(problem: ToyProblem, settings: ReferenceSettings) -> Posteriors:
    """Return both posteriors of a problem. Call it once, since compiled functions belong to them."""
    exact = posterior_of(problem, settings.prior_scale)
    grouped = settings.group > 1
    return Posteriors(exact, posterior_of(problem, settings.prior_scale, settings.group) if grouped else exact)


def run_batch(
    problem: ToyProblem, posteriors: Posteriors, settings: ReferenceSettings, number: int, progress: Progress
) -> Arrays:
    """Run the chains of one batch, and return sums over draws, traces and energies."""
    began = time.perf_counter()
    start_key, chain_key = jax.random.split(jax.random.fold_in(jax.random.key(settings.seed), number))
    starts, step_size = start_population(posteriors, settings, number, start_key, progress)
    started = time.perf_counter() - began
    kept = Kept(problem, posteriors.exact, settings)
    step_size = run_nuts(posteriors.exact, starts, chain_key, settings.nuts, step_size, kept.add, progress)
    numbers = {"start_seconds": started, "seconds": time.perf_counter() - began, "step_size": step_size}
    return {**kept.arrays(), **{name: np.array(value) for name, value in numbers.items()}}


def start_population(
    posteriors: Posteriors, settings: ReferenceSettings, number: int, key: Array, progress: Progress
) -> tuple[Array, float]:
    """Return networks for the start of chains, and a suitable step size."""
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


@dataclass(frozen=True)
class Draws:
    """One draw of all chains, each (chain, …)."""

    parameters: Array
    potential: Array
    diverging: Array
    num_steps: Array
    acceptance: Array


def run_nuts(
    posterior: Posterior,
    starts: Array,
    key: Array,
    settings: NutsSettings,
    step_size: float,
    collect: Callable[[Draws], None],
    progress: Progress = lambda words: None,
) -> float:
    """Warm up, pass each draw of all chains to `collect`, and return the step size."""
    start, step = _compiled(posterior, settings.max_tree_depth)
    positions = starts
    *round_keys, last_key = jax.random.split(key, settings.rounds + 1)
    for round_key in round_keys:
        root = inverse_root(posterior, positions)
        state = start(positions, jax.random.split(round_key, len(positions)), root)
        for _ in range(settings.warmup):
            state, draws = step(state, positions, root, step_size)
            step_size *= float(jnp.exp(0.5 * (jnp.mean(draws.acceptance) - TARGET_ACCEPTANCE)))
            progress("warm-up")
        positions = draws.parameters
    root = inverse_root(posterior, positions)
    state = start(positions, jax.random.split(last_key, len(positions)), root)
    for _ in range(settings.samples):
        state, draws = step(state, positions, root, step_size)
        collect(draws)
        progress("samples")
    return step_size


@lru_cache(maxsize=4)
def _compiled(posterior: Posterior, max_tree_depth: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return functions for the first state and the next draw of all chains.

    θ = origin + R·z, with R the inverse root of the mass matrix. Each chain's own origin keeps z small, and so precise
    in float32.
    """

    def potential_of(origin: Array, root: Array) -> Callable[[Array], Array]:
        return lambda z: posterior.potential(origin + root @ z)

    init, sample = hmc(potential_fn_gen=potential_of, algo="NUTS")
    begin = partial(init, num_warmup=0, adapt_step_size=False, adapt_mass_matrix=False, max_tree_depth=max_tree_depth)

    def start(position: Array, key: Array, root: Array) -> Any:
        return begin(jnp.zeros_like(position), model_args=(position, root), rng_key=key)

    def step(state: Any, origin: Array, root: Array, step_size: Array) -> tuple[Any, tuple[Array, ...]]:
        jitter_key, rng_key = jax.random.split(state.rng_key)
        jittered = step_size * jnp.exp(jax.random.uniform(jitter_key, minval=JITTER[0], maxval=JITTER[1]))
        state = state._replace(rng_key=rng_key, adapt_state=state.adapt_state._replace(step_size=jittered))
        state = sample(state, (origin, root))
        position = origin + root @ state.z
        return state, (position, state.potential_energy, state.diverging, state.num_steps, state.accept_prob)

    all_start = jax.jit(jax.vmap(start, in_axes=(0, 0, None)))
    all_step = jax.jit(jax.vmap(step, in_axes=(0, 0, None, None)))

    def next_draws(*arguments: Any) -> tuple[Any, Draws]:
        state, values = all_step(*arguments)
        return state, Draws(*values)

    return all_start, next_draws


class Kept:
    """Results of all draws: sums of predictions on the grid, traces at some points, energies of each chain."""

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
        """Add one draw of all chains."""
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
        """Return all results by name. trace: (output, chain, draw, point)."""
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
    """Return grid points for traces: about 64 inside the training region and 32 outside, evenly spaced."""
    inside = problem.inside.numpy()
    chosen = [np.flatnonzero(inside)[:: max(1, inside.sum() // 64)], np.flatnonzero(~inside)[:: (~inside).sum() // 32]]
    return np.sort(np.concatenate(chosen)).astype(np.int64)


def summed(posterior: Posterior, parameters: Array, centre: Array) -> dict[str, Array]:
    """Return sums over members of their predictions on the grid; `mean` and its squares relative to `centre`."""
    predicted = jax.vmap(posterior.predict)(parameters)
    if "probs" in predicted:
        probs = predicted["probs"]
        return {"mean": probs[:, :, 0].sum(0) - len(parameters) * centre, "probs": probs.sum(0)}
    mean, log_variance = predicted["mean"] - centre, predicted["log_variance"]
    return {
        "mean": mean.sum(0),
        "squares": jnp.square(mean).sum(0),
        "variance_clipped": jnp.exp(jnp.minimum(log_variance, PREDICTED_LOG_VARIANCE_LIMIT)).sum(0),
    }


def traced(posterior: Posterior, parameters: Array, points: npt.NDArray[np.int64]) -> Array:
    """Return each chain's predictions at grid points, (output, chain, point): mean and log variance, or class 0."""
    predicted = jax.vmap(posterior.predict)(parameters)
    if "probs" in predicted:
        return predicted["probs"][None, :, points, 0]
    return jnp.stack((predicted["mean"][:, points], predicted["log_variance"][:, points]))
