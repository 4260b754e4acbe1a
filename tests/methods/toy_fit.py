"""Fit a method to a small problem in memory: train its stacked networks, then make the pool of its members."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from epibench import randomness
from epibench.data.batch import Points
from epibench.data.sets.toy import sample
from epibench.members.stacked import StackedPool
from epibench.methods import Member, Method, TrainedNetwork
from epibench.networks.mlp import StackedMLP
from epibench.training import stacked
from epibench.training.stacked import OBJECTIVES, Keys, StackedTraining
from epibench.training.state import TrainingCallbacks, Weights


@dataclass(frozen=True)
class Problem:
    """Points, and the networks that learn them. kind: of predictions, or `direct`."""

    kind: str
    data: Points
    network: StackedMLP
    prior_scale: float = 1.0

    @classmethod
    def of(cls, kind: str, inputs: Tensor, target: Tensor, network: StackedMLP, prior_scale: float) -> Problem:
        """A problem with these points."""
        return cls(kind, Points(inputs, target), network, prior_scale)


def make_problem(name: str, num_points: int = 40) -> Problem:
    """Regression or classification with few points."""
    regression = name == "regression"
    points = sample("toy-regression" if regression else "toy-classification", "train", num_points, 0)
    network = StackedMLP(1, 1, heads=2) if regression else StackedMLP(2, 2)
    return Problem("gaussian" if regression else "categorical", points, network)


def grid_of(problem: str, num_points: int = 30) -> Tensor:
    """Inputs all over the plane or line of a problem."""
    return sample("toy-regression" if problem == "regression" else "toy-classification", "grid", num_points, 1).inputs


def training_of(method: Method, problem: Problem) -> StackedTraining:
    """How a method trains its networks on a problem."""
    plain = StackedTraining(
        **vars(method.training),
        network=problem.network,
        objective=OBJECTIVES[problem.kind],
        data=problem.data,
        prior_precision=(1 - method.dropout) / problem.prior_scale**2 if method.prior else 0.0,
    )
    return method.stack(plain)


def keys_of(method: Method, seed: int = 0, together: int = 1) -> Keys:
    """The random keys of a method; together: how many networks in a row see the batches of one."""
    keys = Keys.of(seed, method.name, range(method.num_trained), torch.device("cpu"))
    return replace(keys, order=keys.order.repeat_interleave(together))


def begun(method: Method, problem: Problem, given: Tensor | None = None) -> Tensor:
    """The parameters that training starts from, (network, parameter); given: of networks to start from."""
    return stacked.start(training_of(method, problem), keys_of(method), given).parameters


def train(
    method: Method, problem: Problem, seed: int = 0, *, start: Tensor | None = None, keys: Keys | None = None
) -> Tensor:
    """The kept parameters of all networks, (network, snapshot, parameter).

    start: parameters to start from; keys: others than those of the method.
    """
    training, keys, kept = training_of(method, problem), keys or keys_of(method, seed), list[Tensor]()
    state = None if start is None else stacked.start(training, keys, start.clone())
    callbacks = TrainingCallbacks(keep=lambda epoch, weights: kept.append(weights["parameters"].clone()))
    stacked.train(training, keys, state, callbacks)
    return torch.stack(kept, 1)


def view_of(method: Method, problem: Problem, kept: Tensor, number: int, seed: int = 0) -> TrainedNetwork:
    """A trained network as its method sees it, with what the method has fitted to it."""

    def points() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        yield problem.data.inputs, problem.data.target, torch.ones(len(problem.data.target), dtype=torch.bool)

    def raw(weights: Weights, inputs: Tensor) -> Tensor:
        return problem.network.outputs(weights["parameters"][None], inputs.T[None])[0]

    key = partial(randomness.key, seed, method.name, number)
    view = TrainedNetwork(
        number,
        lambda snapshot: {"parameters": kept[number, snapshot]},
        {},
        key,
        points,
        raw,
        last_layers=lambda weights: problem.network.last_layers(weights["parameters"]),
        likelihood=problem.kind,
    )
    return replace(view, posterior=method.posterior(view))


def pool_of(method: Method, problem: Problem, kept: Tensor, seed: int = 0) -> StackedPool:
    """The members of trained networks, each with weights of its own."""
    views = [view_of(method, problem, kept, number, seed) for number in range(len(kept))]
    table = method.members(range(len(kept)))
    owners = [Member(m.network, m.snapshot) if method.dropout else m for m in table.members]
    rows = {owner: row for row, owner in enumerate(dict.fromkeys(owners))}  # passes of one network share its row
    weights = [method.weights(owner, views[owner.network])["parameters"] for owner in rows]
    return StackedPool(
        network=problem.network,
        objective=OBJECTIVES[problem.kind],
        table=table,
        parameters=torch.stack(weights),
        rows=tuple(rows[owner] for owner in owners),
        seed=seed,
        method=method.name,
        rate=method.dropout,
    )


def fit(method: Method, problem: Problem, seed: int = 0) -> StackedPool:
    """Train, then make the pool."""
    return pool_of(method, problem, train(method, problem, seed), seed)
