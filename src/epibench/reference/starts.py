"""Where chains can start: networks drawn from the prior, or trained to a maximum of the posterior."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from epibench.reference.model import Array, Posterior

TRAINING_STEPS = 4000
LEARNING_RATE = 0.01
SHRINKAGE = 0.3  # from draws as wide as the prior, one network in three ends in a poor place


def prior_start(posterior: Posterior, num_networks: int, key: Array) -> Array:
    """Networks drawn from the prior, (network, parameter)."""
    return posterior.prior_scale * jax.random.normal(key, (num_networks, posterior.num_parameters))


@partial(jax.jit, static_argnums=(0, 1))
def trained_start(posterior: Posterior, num_networks: int, key: Array) -> Array:
    """Networks drawn from the shrunken prior and trained with Adam on the whole of U(θ), (network, parameter)."""
    slope = jax.vmap(jax.grad(posterior.potential))

    def adam(step: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        parameters, first, second = state
        gradient = slope(parameters)
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * jnp.square(gradient)
        count = step + 1.0
        rate = LEARNING_RATE * (1 - step / TRAINING_STEPS)
        scaled = first / (1 - 0.9**count) / (jnp.sqrt(second / (1 - 0.999**count)) + 1e-8)
        return parameters - rate * scaled, first, second

    start = SHRINKAGE * prior_start(posterior, num_networks, key)
    nothing = jnp.zeros_like(start)
    trained: Array = jax.lax.fori_loop(0, TRAINING_STEPS, adam, (start, nothing, nothing))[0]
    return trained
