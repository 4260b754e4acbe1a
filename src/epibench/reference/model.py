"""The posterior of the toy networks in JAX: layout of parameters, energy and predictions.

U(θ) = −β·log p(Y|X, θ) − log p(θ), with all constants; β = 1 is the posterior, β = 0 the prior N(0, prior_scale²).

One mass matrix serves all chains: the precision of the prior plus the mean Fisher information of a population. Targets
known to 0.01 make the energy 10⁷ times as steep in some directions as in others. These directions differ between
networks, because hidden units can be exchanged. The mean over many networks still removes most of the difference: steps
can be a hundred times as long. The matrix is fixed during sampling, so that the posterior does not change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from epibench.data.sets.toy import ToyProblem
from epibench.reference.settings import HIDDEN

Array = jax.Array
MASS_NETWORKS = 256
AT_ONCE = 16  # networks whose derivatives are in memory at the same time


@dataclass(frozen=True)
class Posterior:
    """The input of a sampler: the number of parameters, energies and predictions, each for one flat θ."""

    num_parameters: int
    prior_scale: float
    log_likelihood: Callable[[Array], Array]
    score_factors: Callable[[Array], Array]
    predict: Callable[[Array], dict[str, Array]]

    def log_prior(self, parameters: Array) -> Array:
        """Return the log density of N(0, prior_scale²)."""
        constant = self.num_parameters * np.log(self.prior_scale * np.sqrt(2 * np.pi))
        density: Array = -0.5 * jnp.sum(jnp.square(parameters / self.prior_scale)) - constant
        return density

    def potential(self, parameters: Array, inverse_temperature: Array | float = 1.0) -> Array:
        """Return the energy U(θ), with the likelihood raised to the power β."""
        return -inverse_temperature * self.log_likelihood(parameters) - self.log_prior(parameters)


def posterior_of(problem: ToyProblem, prior_scale: float = 1.0, group: int = 1) -> Posterior:
    """Return the posterior of a toy problem.

    `predict` returns a member's prediction on the problem's grid. The Fisher information of the likelihood is FᵀF with
    F = `score_factors`, (output × point, parameter). For regression, `group` neighbours can form one point.
    """
    grid = jnp.asarray(problem.grid.numpy().T)
    if problem.name == "toy-regression":
        points = grouped(problem.train.inputs.numpy()[:, 0], problem.train.target.numpy(), group)
        return Posterior(
            2 * num_weights(1, 1),
            prior_scale,
            lambda parameters: gaussian_log_likelihood(*gaussian_network(parameters, points.inputs), points),
            lambda parameters: gaussian_score_factors(parameters, points),
            lambda parameters: dict(zip(("mean", "log_variance"), gaussian_network(parameters, grid), strict=True)),
        )
    inputs, classes = jnp.asarray(problem.train.inputs.numpy().T), jnp.asarray(problem.train.target.numpy())
    return Posterior(
        num_weights(2, 2),
        prior_scale,
        lambda parameters: categorical_log_likelihood(network(parameters, inputs, 2), classes),
        lambda parameters: categorical_score_factors(parameters, inputs),
        lambda parameters: {"probs": jax.nn.softmax(network(parameters, grid, 2), axis=0).T},
    )


@dataclass(frozen=True)
class Points:
    """Training points of the regression, each for a group of neighbours. inputs: (1, point); others: (point,)."""

    inputs: Array
    target: Array
    spread: Array
    count: Array


def grouped(inputs: npt.NDArray[np.float32], target: npt.NDArray[np.float32], size: int) -> Points:
    """Group neighbours in x: their mean, and their mean squared distance from a line through it.

    The line has the slope of the data around the group. With size 1 the points are the data.
    """
    order = np.argsort(inputs, kind="stable")
    x, y = inputs[order].astype(np.float64), target[order].astype(np.float64)
    groups = np.arange(len(x)) // size
    count = np.bincount(groups).astype(np.float64)
    centre, level = (np.bincount(groups, values) / count for values in (x, y))
    from_line = y - level[groups] - local_slope(x, y, centre)[groups] * (x - centre[groups])
    spread = np.bincount(groups, np.square(from_line)) / count if size > 1 else np.zeros_like(count)
    return Points(*(jnp.asarray(values, jnp.float32) for values in (centre[None], level, spread, count)))


def local_slope(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], at: npt.NDArray[np.float64]) -> Any:
    """Return the slope of a line through the points within about 0.2 of each given point."""
    weights = np.exp(-0.5 * np.square((x - at[:, None]) / 0.2))
    weights /= weights.sum(1, keepdims=True)
    from_centre = x - (weights @ x)[:, None]
    variance = (weights * np.square(from_centre)).sum(1)
    return (weights * from_centre) @ y / np.maximum(variance, 1e-12)


def num_weights(num_inputs: int, num_outputs: int) -> int:
    """Return the number of weights and biases of one network."""
    return sum((before + 1) * after for before, after in pairwise((num_inputs, *HIDDEN, num_outputs)))


def network(parameters: Array, inputs: Array, num_outputs: int) -> Array:
    """Return a ReLU network with two hidden layers. inputs: (feature, point); result: (output, point).

    Layout of the parameters: weights (output, input) row by row, then biases, layer after layer, as in PyTorch. Points
    are the last axis, so that many networks at once have long rows for a GPU.
    """
    values, start = inputs, 0
    for layer, (before, after) in enumerate(pairwise((inputs.shape[0], *HIDDEN, num_outputs))):
        weights = parameters[start : start + before * after].reshape(after, before)
        biases = parameters[start + before * after : start + (before + 1) * after]
        # With one input, an outer product fuses with the next operation; a matrix product does not.
        values = weights * values if before == 1 else jnp.matmul(weights, values, precision="highest")
        values = values + biases[:, None]
        values = jax.nn.relu(values) if layer < len(HIDDEN) else values
        start += (before + 1) * after
    return values


def gaussian_network(parameters: Array, inputs: Array) -> tuple[Array, Array]:
    """Return mean and log variance, (point,) each, of two networks. The mean's parameters come first."""
    half = parameters.shape[0] // 2
    return network(parameters[:half], inputs, 1)[0], network(parameters[half:], inputs, 1)[0]


def gaussian_log_likelihood(mean: Array, log_variance: Array, points: Points) -> Array:
    """Return the sum over points of log N(y; μ, e^s)."""
    squares = (jnp.square(points.target - mean) + points.spread) * jnp.exp(-log_variance)
    density: Array = -0.5 * jnp.sum(points.count * (squares + log_variance + np.log(2 * np.pi)))
    return density


def categorical_log_likelihood(logits: Array, classes: Array) -> Array:
    """Return the sum over points of the log probability of the true class. logits: (class, point)."""
    density: Array = jnp.sum(jnp.take_along_axis(jax.nn.log_softmax(logits, axis=0), classes[None], axis=0))
    return density


def slopes(network_of: Callable[[Array, Array], Array], parameters: Array, inputs: Array) -> Array:
    """Return ∂output/∂θ at each point, (point, output, parameter), point by point: outputs depend on one point."""
    at_point = jax.jacrev(lambda values, point: network_of(values, point[:, None])[:, 0])
    all_points: Array = jax.vmap(at_point, in_axes=(None, 1))(parameters, inputs)
    return all_points


def gaussian_score_factors(parameters: Array, points: Points) -> Array:
    """Return rows ∂μ/∂θ·e^(−s/2) and ∂s/∂θ/√2, whose squares sum to the Fisher information of N(μ, e^s)."""
    both = slopes(lambda values, at: jnp.stack(gaussian_network(values, at)), parameters, points.inputs)
    log_variance = gaussian_network(parameters, points.inputs)[1]
    scale = jnp.stack((jnp.exp(-0.5 * log_variance), jnp.full_like(log_variance, np.sqrt(0.5))), axis=1)
    scale = scale * jnp.sqrt(points.count)[:, None]
    return (both * scale[:, :, None]).reshape(-1, parameters.shape[0])


def categorical_score_factors(parameters: Array, inputs: Array) -> Array:
    """Return rows √p·(∂logit/∂θ − its mean over classes), whose squares sum to the Fisher information."""
    probs = jax.nn.softmax(network(parameters, inputs, 2), axis=0).T[:, :, None]
    both = slopes(lambda values, points: network(values, points, 2), parameters, inputs)
    centred = both - jnp.sum(probs * both, axis=1, keepdims=True)
    return (jnp.sqrt(probs) * centred).reshape(-1, parameters.shape[0])


def inverse_root(posterior: Posterior, population: Array, inverse_temperature: float = 1.0) -> Array:
    """Return the symmetric inverse root M^(−1/2) of the mass matrix M, (parameter, parameter).

    Products are in float64: in float32, rounding of the data's 10⁸ would exceed the prior's 1.
    """
    chosen = population[:: -(-len(population) // MASS_NETWORKS)]
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
