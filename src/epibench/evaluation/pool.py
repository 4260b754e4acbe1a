"""Pools: what evaluation asks of a method, and one pass over points for every draw of every M."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from epibench.evaluation.scoring import evaluate
from epibench.evaluation.suite import SuiteSettings, make_suite
from epibench.likelihoods import LIKELIHOODS
from epibench.members.draws import Draws, Plan
from epibench.store.reader import Pixels

# Members × points whose outputs are computed at once.
OUTPUTS_AT_ONCE = 2**20


class Drawn(Protocol):
    """Members, numbered from 0, and how they are drawn from."""

    @property
    def num_members(self) -> int:
        """How many members there are."""

    @property
    def group(self) -> tuple[int, ...] | None:
        """The network or chain behind each member, if there are several members of one; equal ones lie together."""

    @property
    def plan(self) -> Plan:
        """How draws are made from it."""


class Pool(Drawn, Protocol):
    """Members that predict points."""

    def outputs(self, inputs: Tensor, members: slice, first: int = 0) -> dict[str, Tensor]:
        """What members predict: `mean` and `variance`, (member, point), or `probs`, (member, point, class).

        inputs: (point, feature); first: the number of the first point in its data set, so that what is random at
        prediction does not depend on batches.
        """


@dataclass(frozen=True)
class Part:
    """Members that are drawn from by themselves, with the draws among them: rows of `weights` (draw, member)."""

    members: slice
    draws: list[int]
    weights: Tensor


def parts_of(pool: Drawn, draws: Draws) -> list[Part]:
    """The groups that draws stay within, one after another; the whole pool where draws mix members of groups.

    Members are run once either way; but what is computed for pairs of members, or kept for all of them, stays small.
    """
    group = pool.group or (0,) * pool.num_members
    within = all(len({group[member] for member in members}) == 1 for members in draws.sets)
    ends = _group_ends(group) if within else [pool.num_members]
    weights, found, start = draws.weights, [], 0
    for end in ends:
        numbers = [number for number, members in enumerate(draws.sets) if start <= members[0] < end]
        found.append(Part(slice(start, end), numbers, weights[numbers, start:end]))
        start = end
    return [part for part in found if part.draws]


def _group_ends(group: Sequence[int]) -> list[int]:
    return [end for end in range(1, len(group) + 1) if end == len(group) or group[end] != group[end - 1]]


def point_slices(part: Part, num_points: int) -> Iterator[slice]:
    """Points in stretches that bound the memory."""
    size = max(1, OUTPUTS_AT_ONCE // (part.members.stop - part.members.start))
    return (slice(start, min(start + size, num_points)) for start in range(0, num_points, size))


def predict(
    pool: Pool,
    draws: Draws,
    kind: str,
    inputs: Tensor,
    max_variance: float = math.inf,
    progress: Callable[[int], None] = lambda draws: None,
) -> dict[str, Tensor]:
    """What every draw predicts: `mean`, `aleatoric`, `epistemic`, (draw, point), or `probs`, (draw, point, class).

    max_variance: the largest variance that a member may predict.
    """
    names = ("mean", "aleatoric", "epistemic") if kind == "gaussian" else ("probs",)
    found: dict[str, Tensor] = {}
    for part in parts_of(pool, draws):
        for points in point_slices(part, len(inputs)):
            outputs = pool.outputs(inputs[points], part.members, points.start)
            if kind == "gaussian":
                outputs["variance"] = outputs["variance"].clamp(max=max_variance)
            predictive = LIKELIHOODS[kind].combine(outputs, part.weights)
            for name in names:
                values = getattr(predictive, name).cpu()
                if name not in found:
                    found[name] = values.new_empty((len(draws.sets), len(inputs), *values.shape[2:]))
                found[name][part.draws, points] = values
        progress(len(part.draws))
    return found


def score(
    pool: Pool,
    draws: Draws,
    settings: SuiteSettings,
    inputs: Tensor,
    target: Tensor,
    progress: Callable[[int], None] = lambda draws: None,
) -> tuple[dict[str, Tensor], dict[str, dict[str, Tensor]]]:
    """Every metric of every draw on points with known targets, and their curves; each member is run once."""
    values: dict[str, Tensor] = {}
    curves: dict[str, dict[str, Tensor]] = {}
    for part in parts_of(pool, draws):
        suite = make_suite(part.weights, settings)
        evaluate(_blocks(pool, part, inputs, target), LIKELIHOODS[settings.kind], part.weights, suite)
        place(values, suite.compute(), part, len(draws.sets))
        for family, found in suite.curves().items():
            place(curves.setdefault(family, {"x": found["x"]}), without_x(found), part, len(draws.sets))
        progress(len(part.draws))
    return values, curves


def _blocks(pool: Pool, part: Part, inputs: Tensor, target: Tensor) -> Iterator[Pixels]:
    for points in point_slices(part, len(inputs)):
        outputs = {
            name: output.cpu() for name, output in pool.outputs(inputs[points], part.members, points.start).items()
        }
        wanted = torch.float64 if target.is_floating_point() else torch.int64
        yield Pixels(outputs, target[points].to(wanted), None, points.stop - points.start)


def without_x(curves: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A family of curves without its abscissa."""
    return {name: curve for name, curve in curves.items() if name != "x"}


def place(into: dict[str, Tensor], values: Mapping[str, Tensor], part: Part, num_draws: int) -> None:
    """Put the values of a part's draws in their places among all draws."""
    for name, value in values.items():
        if name not in into:
            into[name] = value.new_zeros((num_draws, *value.shape[1:]))
        into[name][part.draws] = value
