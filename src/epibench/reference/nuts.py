"""NUTS (NumPyro) for many chains at once, from given starts, with one mass matrix and one step size for all of them.

Warm-up goes in rounds: the mass matrix is made from where the chains are, then the step size follows the acceptance of
all chains. For the samples both stay as they are. Every step size is drawn from a fixed distribution around that: a
chain in a narrow place needs a short one now and then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.infer.hmc import hmc

from epibench.reference.model import Array, Posterior, inverse_root
from epibench.reference.settings import NutsSettings

# Steps are scaled by e^u, u uniform in this interval.
JITTER = (-2.0, 0.0)
TARGET_ACCEPTANCE = 0.85


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
    progress: Callable[[str], None] = lambda words: None,
) -> float:
    """Warm up, then hand each draw of all chains to `collect`; returns the step size that was found."""
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
    """The first state and the next draw of all chains, with θ = origin + R·z and R the inverse root of the mass matrix.

    A chain's own origin keeps z small, and so precise in float32.
    """

    def potential_of(origin: Array, root: Array) -> Callable[[Array], Array]:
        return lambda z: posterior.potential(origin + root @ z)

    init, sample = hmc(potential_fn_gen=potential_of, algo="NUTS")

    def start(position: Array, key: Array, root: Array) -> Any:
        return init(
            jnp.zeros_like(position),
            num_warmup=0,
            adapt_step_size=False,
            adapt_mass_matrix=False,
            max_tree_depth=max_tree_depth,
            model_args=(position, root),
            rng_key=key,
        )

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
