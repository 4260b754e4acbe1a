"""Starts of chains: networks from the prior, or trained and heated ones, then cooled as a population.

Cooling is sequential Monte Carlo. At each step the power β of the likelihood grows until the effective size of the
weighted population has fallen to a given share. Networks are resampled by weight and moved by Hamiltonian Monte Carlo
at the new β. Del Moral, Doucet & Jasra (2006), with the temperatures of Jasra et al. (2011).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from epibench.reference.model import Array, Posterior, inverse_root
from epibench.reference.settings import TemperingSettings

TRAINING_STEPS = 4000
LEARNING_RATE = 0.01
SHRINKAGE = 0.3  # with starts as wide as the prior, one network in three ends in a poor place
MOVE_ACCEPTANCE = 0.8
# Steps are scaled by e^u, u uniform in this interval: short steps free networks in narrow places.
MOVE_JITTER = (-1.5, 0.3)


def prior_start(posterior: Posterior, num_networks: int, key: Array) -> Array:
    """Return networks from the prior, (network, parameter)."""
    return posterior.prior_scale * jax.random.normal(key, (num_networks, posterior.num_parameters))


@partial(jax.jit, static_argnums=(0, 1))
def trained_start(posterior: Posterior, num_networks: int, key: Array) -> Array:
    """Return networks from the shrunken prior, trained with Adam on the whole of U(θ), (network, parameter)."""
    slope = jax.vmap(jax.grad(posterior.potential))

    def adam(step: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        parameters, first, second = state
        gradient = slope(parameters)
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * jnp.square(gradient)
        count, rate = step + 1.0, LEARNING_RATE * (1 - step / TRAINING_STEPS)
        scaled = first / (1 - 0.9**count) / (jnp.sqrt(second / (1 - 0.999**count)) + 1e-8)
        return parameters - rate * scaled, first, second

    start = SHRINKAGE * prior_start(posterior, num_networks, key)
    nothing = jnp.zeros_like(start)
    trained: Array = jax.lax.fori_loop(0, TRAINING_STEPS, adam, (start, nothing, nothing))[0]
    return trained


@dataclass(frozen=True)
class Population:
    """Networks at one temperature, (network, parameter), and a suitable step size."""

    networks: Array
    step_size: float = 0.1


def cool(
    posterior: Posterior,
    population: Population,
    key: Array,
    settings: TemperingSettings,
    inverse_temperature: float = 0.0,
    progress: Callable[[str], None] = lambda words: None,
) -> Population:
    """Cool a population to β = 1, from the prior (β = 0) or from its present β."""
    while inverse_temperature < 1.0:
        draw, shake, key = jax.random.split(key, 3)
        log_likelihood = log_likelihoods(posterior, population.networks)
        following = next_inverse_temperature(log_likelihood, inverse_temperature, settings.effective_share)
        networks = resampled(population.networks, (following - inverse_temperature) * log_likelihood, draw)
        population, inverse_temperature = Population(networks, population.step_size), following
        population = shaken(posterior, population, shake, inverse_temperature, settings.moves, settings)
        progress(f"cooling, β = {inverse_temperature:.1e}")
    return population


def shaken(
    posterior: Posterior,
    population: Population,
    key: Array,
    inverse_temperature: float,
    moves: int,
    settings: TemperingSettings,
) -> Population:
    """Return the population after some moves at one temperature. The step size adapts to their acceptance."""
    root = inverse_root(posterior, population.networks, inverse_temperature)
    networks, step_size = population.networks, population.step_size
    for move_key in jax.random.split(key, moves):
        networks, acceptance = hamiltonian_move(
            posterior, networks, move_key, inverse_temperature, root, step_size, settings.leapfrog_steps
        )
        step_size *= float(np.exp(float(acceptance) - MOVE_ACCEPTANCE))
    return Population(networks, step_size)


def resampled(
    population: Array, log_weights: npt.NDArray[np.float64], key: Array, num_members: int | None = None
) -> Array:
    """Resample members by weight: as many as before, or a given number."""
    weights = np.exp(log_weights - log_weights.max())
    return population[systematic(weights, float(jax.random.uniform(key)), num_members or len(population))]


def log_likelihoods(posterior: Posterior, population: Array) -> npt.NDArray[np.float64]:
    """Return the log likelihood of every member, (member,)."""
    return np.asarray(_log_likelihoods(posterior, population), np.float64)


def next_inverse_temperature(log_likelihood: npt.NDArray[np.float64], current: float, effective_share: float) -> float:
    """Return the β, at most 1, at which the effective share of the reweighted population is `effective_share`."""
    relative = log_likelihood - log_likelihood.max()

    def share(following: float) -> float:
        weights = np.exp((following - current) * relative)
        return float(weights.sum() ** 2 / (np.square(weights).sum() * len(weights)))

    if share(1.0) >= effective_share:
        return 1.0
    # The first steps are as small as 10⁻⁹: bisect the logarithm of the step.
    low, high = np.log(1e-12), np.log(1.0 - current)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if share(current + np.exp(middle)) >= effective_share else (low, middle)
    return float(current + np.exp(low))


def systematic(weights: npt.NDArray[np.float64], offset: float, num_members: int) -> npt.NDArray[np.int64]:
    """Return indices by weight with one common offset in [0, 1): each appears ⌊N·w⌋ or ⌈N·w⌉ times."""
    shares = np.cumsum(weights) / np.sum(weights)
    places = (np.arange(num_members) + offset) / num_members
    return np.minimum(np.searchsorted(shares, places, side="right"), len(weights) - 1)


@partial(jax.jit, static_argnums=0)
def _log_likelihoods(posterior: Posterior, population: Array) -> Array:
    return jax.vmap(posterior.log_likelihood)(population)


@partial(jax.jit, static_argnums=0)
def hamiltonian_move(
    posterior: Posterior,
    population: Array,
    key: Array,
    inverse_temperature: float | Array,
    root: Array,
    step_size: float | Array,
    leapfrog_steps: int,
) -> tuple[Array, Array]:
    """Take one HMC step of every network, with mass matrix root⁻². Return networks and mean acceptance."""
    energy_and_slope = jax.vmap(jax.value_and_grad(posterior.potential), in_axes=(0, None))
    push, stretch, accept = jax.random.split(key, 3)
    momentum = jax.random.normal(push, population.shape)
    low, high = MOVE_JITTER
    steps = step_size * jnp.exp(jax.random.uniform(stretch, (len(population), 1), minval=low, maxval=high))
    energy, slope = energy_and_slope(population, inverse_temperature)

    def leapfrog(_: int, state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        position, momentum, slope = state[:3]
        momentum = momentum - 0.5 * steps * (slope @ root)
        position = position + steps * (momentum @ root)
        energy, slope = energy_and_slope(position, inverse_temperature)
        return position, momentum - 0.5 * steps * (slope @ root), slope, energy

    state = (population, momentum, slope, energy)
    moved, final, _, final_energy = jax.lax.fori_loop(0, leapfrog_steps, leapfrog, state)
    change = energy - final_energy + 0.5 * jnp.sum(jnp.square(momentum) - jnp.square(final), axis=1)
    probability = jnp.where(jnp.isfinite(change), jnp.exp(jnp.minimum(change, 0.0)), 0.0)
    accepted = jax.random.uniform(accept, probability.shape) < probability
    return jnp.where(accepted[:, None], moved, population), jnp.mean(probability)
