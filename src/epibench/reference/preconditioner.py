"""One mass matrix for all chains: the precision of the prior plus the mean Fisher information of a population.

Targets known to 0.01 make the energy 10⁷ times as steep in some directions as in others. Which ones differs between
networks, because hidden units can be exchanged, but the mean over many networks still removes most of it: steps can
be a hundred times as long. The matrix is fixed while samples are taken, so that the posterior stays what it is.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from epibench.reference.model import Array, Posterior

NUM_NETWORKS = 256
AT_ONCE = 16  # networks whose derivatives are held in memory together


def inverse_root(posterior: Posterior, population: Array, inverse_temperature: float = 1.0) -> Array:
    """The symmetric inverse root M^(−1/2) of the mass matrix M, (parameter, parameter).

    Products in float64: in float32 their rounding would drown the prior's 1 beside the data's 10⁸.
    """
    chosen = population[:: -(-len(population) // NUM_NETWORKS)]
    with jax.enable_x64(True):
        information = np.asarray(_mean_information(posterior, chosen))
    mass = inverse_temperature * information + np.eye(posterior.num_parameters) / posterior.prior_scale**2
    values, vectors = np.linalg.eigh(mass)
    return jnp.asarray((vectors / np.sqrt(values)) @ vectors.T, jnp.float32)


@partial(jax.jit, static_argnums=0)
def _mean_information(posterior: Posterior, population: Array) -> Array:
    def squared(parameters: Array) -> Array:
        factors = posterior.score_factors(parameters).astype(jnp.float64)
        return factors.T @ factors

    return jnp.mean(jax.lax.map(squared, population, batch_size=min(AT_ONCE, len(population))), axis=0)
