"""Draws, facts and scores of a method, for images and toy problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from epibench.evaluation.summary import per_draw, summarise, summarise_curves
from epibench.members.draws import Draws, make_draws
from epibench.members.pool import Pool
from epibench.recipes import Recipe
from epibench.results import MethodFacts, Picture, PoolSize, Score


@dataclass(frozen=True)
class MethodResults:
    """Results of one method. `images` holds the pictures of each domain."""

    facts: MethodFacts
    scores: list[Score]
    images: Mapping[str, list[Picture]] = field(default_factory=dict)


def draws_of(recipe: Recipe, name: str, pool: Pool) -> Draws:
    """Return the draws from a method's pool, as the recipe sets them."""
    method = recipe.method(name)
    return make_draws(
        pool.num_members,
        method.draw_sizes(recipe.members),
        plan=pool.plan,
        max_draws=lambda size: method.max_draws(size, recipe.draws),
        seed=recipe.seed,
        group=pool.group,
    )


def method_facts(recipe: Recipe, name: str, num_networks: int, pool: Pool, notes: Sequence[str] = ()) -> MethodFacts:
    """Return the label, members and notes of a method."""
    method, asked = recipe.method(name), ", ".join(map(str, recipe.members))
    alone = method.single and 1 not in recipe.members
    own = [f"It has no members that predict together: M is 1, and not {asked}."] if alone else []
    return MethodFacts(
        label=recipe.label(name),
        method=method.name,
        num_networks=num_networks,
        plan=pool.plan,
        members=member_table(pool),
        notes=[*own, *recipe.left_out(name), *notes],
    )


def member_table(pool: Pool) -> list[tuple[int, int, int]]:
    """Return network, snapshot and number of each member."""
    return [(member.network, member.snapshot, member.number) for member in pool.table.members]


def pool_size(pool: Pool, num_networks: int) -> PoolSize:
    """Return the size of a pool of trained networks."""
    return PoolSize(pool.num_members, None if pool.group is None else len(set(pool.group)), num_networks, pool.plan)


def make_score(draws: Draws, values: Mapping[str, Tensor], curves: Mapping[str, Any], **facts: Any) -> Score:
    """Return a score from the metrics and curves of every draw. `facts` are its other fields."""
    return Score(
        summary=summarise(draws.sets, values),
        draws=per_draw(draws.sets, values),
        curves=summarise_curves(draws.sets, curves),
        **facts,
    )
