"""What every evaluation shares, of images and of points: the draws of a method, and what comes out for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from epibench.members.draws import Draws, make_draws
from epibench.members.pool import Pool
from epibench.recipes import Recipe
from epibench.results import Cost, CurveFamilies, Draw, MethodFacts, Summary


@dataclass(frozen=True)
class MethodResults:
    """What came out for one method; summary, curves and draws (their metrics) by domain."""

    facts: MethodFacts
    summary: dict[str, Summary]
    curves: dict[str, CurveFamilies]
    draws: dict[str, list[Draw]]
    cost: Cost


def draws_of(recipe: Recipe, name: str, pool: Pool) -> Draws:
    """The draws from the pool of a method that a recipe asks for."""
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
    """What a reader should know of a method before its numbers."""
    method, asked = recipe.method(name), ", ".join(map(str, recipe.members))
    alone = method.single and 1 not in recipe.members
    own = [f"It has no members that predict together: M is 1, and not {asked}."] if alone else []
    return MethodFacts(
        label=recipe.label(name),
        method=method.name,
        num_networks=num_networks,
        num_members=pool.num_members,
        num_groups=None if pool.group is None else len(set(pool.group)),
        plan=pool.plan,
        notes=[*own, *recipe.left_out(name), *notes],
    )
