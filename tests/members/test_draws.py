"""Each plan as conventions.md (Draws) defines it."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from epibench.errors import InputError
from epibench.members.draws import Draws, default_sizes, make_draws

PLANS = ("random", "disjoint", "prefix", "spread")
in_any_time = settings(deadline=None, max_examples=30)
pools = st.integers(1, 40)
seeds = st.integers(0, 2**63)


@st.composite
def pool_and_size(draw: st.DrawFn) -> tuple[int, int]:
    pool = draw(pools)
    return pool, draw(st.integers(1, pool))


@in_any_time
@given(pool_and_size(), seeds, st.sampled_from(PLANS), st.integers(1, 20))
def test_sets_hold_m_different_members_of_the_pool_in_order(
    pool_size: tuple[int, int], seed: int, plan: str, most: int
) -> None:
    pool, size = pool_size
    for members in make_draws(pool, [size], plan=plan, seed=seed, max_draws=most).sets:
        assert len(members) == size
        assert list(members) == sorted(set(members))
        assert 0 <= members[0] <= members[-1] < pool


@pytest.mark.parametrize("plan", PLANS)
def test_the_same_seed_gives_the_same_draws(plan: str) -> None:
    assert make_draws(33, plan=plan, seed=5) == make_draws(33, plan=plan, seed=5)


@in_any_time
@given(st.lists(st.integers(1, 20), min_size=1, max_size=6), st.integers(1, 20), st.sampled_from(PLANS))
def test_adding_an_m_changes_no_other(sizes: list[int], added: int, plan: str) -> None:
    before, after = make_draws(20, sizes, plan=plan), make_draws(20, [*sizes, added], plan=plan)
    kept = [members for members in after.sets if len(members) in sizes]
    assert kept == list(before.sets)


@pytest.mark.parametrize("plan", PLANS)
def test_the_order_and_repetition_of_sizes_do_not_matter(plan: str) -> None:
    assert make_draws(16, [8, 1, 8, 2], plan=plan) == make_draws(16, [1, 2, 8], plan=plan)


@pytest.mark.parametrize("plan", ["random", "disjoint"])
def test_seeds_differ(plan: str) -> None:
    drawn = {make_draws(33, [4], plan=plan, seed=seed).sets for seed in range(20)}
    assert len(drawn) == 20


def test_plans_differ() -> None:
    first = {make_draws(33, [4], plan=plan, seed=3).sets[0] for plan in PLANS}
    assert len(first) == len(PLANS)


def test_sizes_of_one_seed_are_drawn_independently() -> None:
    pairs = [make_draws(33, [1, 2], plan="disjoint", seed=seed, max_draws=1).sets for seed in range(50)]
    assert sum(one[0] in two for one, two in pairs) < 15  # 3 expected


def test_plans_of_one_seed_are_drawn_independently() -> None:
    orders = [[make_draws(9, [1], plan=plan, seed=seed).sets for plan in ("random", "disjoint")] for seed in range(9)]
    assert all(one != other for one, other in orders)


@pytest.mark.parametrize(
    ("plan", "group"), [("random", None), ("disjoint", None), ("prefix", list("ab") * 20), ("spread", list("ab") * 20)]
)
def test_max_draws_is_a_maximum(plan: str, group: list[str] | None) -> None:
    assert len(make_draws(40, [4], plan=plan, group=group, max_draws=1).sets) == 1


@pytest.mark.parametrize(
    ("pool", "sizes"), [(1, (1,)), (2, (1, 2)), (7, (1, 2, 4, 7)), (8, (1, 2, 4, 8)), (33, (1, 2, 4, 8, 16, 32, 33))]
)
@pytest.mark.parametrize("plan", PLANS)
def test_m_is_by_default_the_powers_of_two_up_to_the_pool_and_the_pool(
    plan: str, pool: int, sizes: tuple[int, ...]
) -> None:
    assert make_draws(pool, plan=plan).sizes == sizes


@given(pool=st.integers(1, 10**6))
def test_default_sizes_double_until_the_pool(pool: int) -> None:
    *powers, last = default_sizes(pool)
    assert last == pool
    assert powers == [2**power for power in range(len(powers))]
    assert not powers or powers[-1] < pool <= 2 * powers[-1]


@in_any_time
@given(pool_and_size(), seeds, st.integers(1, 40))
def test_random_sets_are_distinct(pool_size: tuple[int, int], seed: int, most: int) -> None:
    pool, size = pool_size
    sets = make_draws(pool, [size], seed=seed, max_draws=most).sets
    assert len(set(sets)) == len(sets) == min(most, math.comb(pool, size))


@pytest.mark.parametrize(("pool", "size"), [(5, 1), (5, 2), (5, 4), (5, 5), (6, 3)])
def test_all_sets_are_drawn_where_there_are_no_more_than_asked_for(pool: int, size: int) -> None:
    sets = make_draws(pool, [size], max_draws=20).sets
    assert sorted(sets) == list(itertools.combinations(range(pool), size))


@pytest.mark.parametrize("most", [2, 10], ids=["by guessing", "from all sets"])
def test_random_sets_are_uniform_over_all_sets(most: int) -> None:
    seeds_tried = 2000
    drawn = Counter(
        members for seed in range(seeds_tried) for members in make_draws(6, [3], max_draws=most, seed=seed).sets
    )
    counts = [drawn[members] for members in itertools.combinations(range(6), 3)]
    # Without repetition, counts vary by (1 − most/20) of what independent ones would: the test is on the safe side.
    assert stats.chisquare(counts).pvalue > 1e-3


def test_random_sets_of_a_large_pool_use_every_member_equally() -> None:
    drawn = Counter(
        member for seed in range(400) for members in make_draws(33, [8], seed=seed).sets for member in members
    )
    counts = np.array([drawn[member] for member in range(33)])
    assert stats.chisquare(counts).pvalue > 1e-3


def test_random_ignores_groups() -> None:
    assert make_draws(8, [4], group=list("aabbccdd")) == make_draws(8, [4])


def test_a_pool_of_a_thousand_is_drawn_from_without_listing_its_sets() -> None:
    assert len(make_draws(1024, [512], max_draws=16).sets) == 16


@in_any_time
@given(pool_and_size(), seeds, st.integers(1, 50))
def test_disjoint_sets_share_no_member_and_are_as_many_as_fit(pool_size: tuple[int, int], seed: int, most: int) -> None:
    pool, size = pool_size
    sets = make_draws(pool, [size], plan="disjoint", seed=seed, max_draws=most).sets
    members = [member for members in sets for member in members]
    assert len(members) == len(set(members))
    assert len(sets) == min(most, pool // size)


def test_disjoint_sets_leave_out_members_at_random() -> None:
    left_out = Counter(
        member
        for seed in range(1000)
        for member in set(range(5)).difference(*make_draws(5, [2], plan="disjoint", seed=seed).sets)
    )
    assert stats.chisquare([left_out[member] for member in range(5)]).pvalue > 1e-3


def test_disjoint_ignores_groups() -> None:
    assert make_draws(8, [4], plan="disjoint", group=list("aabbccdd")) == make_draws(8, [4], plan="disjoint")


def test_prefix_takes_the_first_m() -> None:
    assert make_draws(10, [1, 3, 10], plan="prefix").sets == ((0,), (0, 1, 2), tuple(range(10)))


def test_prefix_takes_the_first_m_of_each_interleaved_group() -> None:
    sets = make_draws(8, [1, 3], plan="prefix", group=["b", "a"] * 4).sets
    assert sets == ((0,), (1,), (0, 2, 4), (1, 3, 5))


def test_spread_takes_evenly_spaced_members_of_each_interleaved_group() -> None:
    sets = make_draws(10, [1, 3], plan="spread", group=[0, 1] * 5).sets
    assert sets == ((8,), (9,), (0, 4, 8), (1, 5, 9))


@pytest.mark.parametrize("plan", ["prefix", "spread"])
def test_groups_may_be_a_numpy_array_of_names(plan: str) -> None:
    names = np.array(["net 0", "net 1", "net 0", "net 1"])
    assert make_draws(4, [2], plan=plan, group=names).sets == ((0, 2), (1, 3))


@pytest.mark.parametrize("plan", ["prefix", "spread"])
def test_the_smallest_group_limits_the_default_m(plan: str) -> None:
    assert make_draws(9, plan=plan, group=list("aaabbbbbb")).sizes == (1, 2, 3)


def test_spread_acts_within_each_group_of_unequal_size() -> None:
    assert make_draws(9, [3], plan="spread", group=list("aaabbbbbb")).sets == ((0, 1, 2), (3, 5, 8))


def spread(length: int, size: int) -> tuple[int, ...]:
    (chosen,) = make_draws(length, [size], plan="spread").sets
    return chosen


@in_any_time
@given(pool_and_size())
def test_spread_includes_the_last(length_size: tuple[int, int]) -> None:
    length, size = length_size
    assert spread(length, size)[-1] == length - 1


@in_any_time
@given(pool_and_size())
def test_spread_is_evenly_spaced_to_within_one(length_size: tuple[int, int]) -> None:
    length, size = length_size
    gaps = np.diff(spread(length, size))
    assert size < 3 or gaps.max() - gaps.min() <= 1


@in_any_time
@given(st.integers(1, 200))
def test_spread_over_all_is_all(length: int) -> None:
    assert spread(length, length) == tuple(range(length))


@pytest.mark.parametrize("plan", PLANS)
def test_an_m_above_the_pool_names_both(plan: str) -> None:
    with pytest.raises(InputError, match=r"M = 9 is impossible: the pool has 8 members"):
        make_draws(8, [4, 9], plan=plan)


@pytest.mark.parametrize("plan", ["prefix", "spread"])
def test_an_m_above_the_smallest_group_names_both(plan: str) -> None:
    with pytest.raises(InputError, match=r"M = 4 is impossible: the smallest group has 3 members"):
        make_draws(9, [4], plan=plan, group=list("aaabbbbbb"))


@pytest.mark.parametrize("size", [0, -1])
def test_an_m_below_1_is_refused(size: int) -> None:
    with pytest.raises(InputError, match=f"M = {size} is impossible"):
        make_draws(8, [size])


def test_no_m_at_all_is_refused() -> None:
    with pytest.raises(InputError, match="no M to draw: 'sizes' is empty"):
        make_draws(8, [])


@pytest.mark.parametrize("plan", PLANS)
def test_an_empty_pool_is_refused(plan: str) -> None:
    with pytest.raises(InputError, match="no M to draw: the pool is empty"):
        make_draws(0, plan=plan, group=[])


def test_an_unknown_plan_names_those_there_are() -> None:
    with pytest.raises(InputError, match="plan 'shuffle' is unknown; there are random, disjoint, prefix, spread"):
        make_draws(8, plan="shuffle")


def test_no_draw_is_refused() -> None:
    with pytest.raises(InputError, match="at least one draw is needed, not 0"):
        make_draws(8, max_draws=0)


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(InputError, match="the seed must be 0 or more, not -1"):
        make_draws(8, seed=-1)


def test_a_group_for_each_member_is_needed() -> None:
    with pytest.raises(InputError, match="'group' has 3 entries, but the pool has 8 members"):
        make_draws(8, plan="prefix", group=[0, 1, 2])


@in_any_time
@given(pools, seeds, st.sampled_from(PLANS))
def test_rows_of_weights_sum_to_1(pool: int, seed: int, plan: str) -> None:
    rows = make_draws(pool, plan=plan, seed=seed).weights.sum(1)
    torch.testing.assert_close(rows, torch.ones_like(rows), rtol=1e-14, atol=0)


@in_any_time
@given(pools, seeds, st.sampled_from(PLANS))
def test_weights_are_1_over_m_for_the_members_of_a_set_and_0_elsewhere(pool: int, seed: int, plan: str) -> None:
    draws = make_draws(pool, plan=plan, seed=seed)
    expected = [[1 / len(members) if m in members else 0.0 for m in range(pool)] for members in draws.sets]
    assert draws.weights.tolist() == expected


def test_weights_are_float64() -> None:
    assert make_draws(3).weights.dtype == torch.float64


def test_of_size_finds_the_draws_of_an_m() -> None:
    draws = Draws(4, ((0,), (1,), (0, 1), (2, 3)))
    assert [draws.of_size(size) for size in (1, 2, 3)] == [[0, 1], [2, 3], []]


@in_any_time
@given(pool_and_size(), seeds, st.sampled_from(PLANS), st.integers(2, 16))
def test_overlap_is_the_mean_over_pairs_of_draws(pool_size: tuple[int, int], seed: int, plan: str, most: int) -> None:
    pool, size = pool_size
    draws = make_draws(pool, [size], plan=plan, seed=seed, max_draws=most)
    pairs = [len(set(a) & set(b)) / size for a, b in itertools.combinations(draws.sets, 2)]
    assert draws.overlap(size) == (pytest.approx(np.mean(pairs)) if pairs else None)


def test_overlap_counts_only_draws_of_that_m() -> None:
    assert Draws(4, ((0, 1), (1, 2), (0, 1, 2, 3))).overlap(2) == 0.5


def test_disjoint_draws_do_not_overlap() -> None:
    assert make_draws(32, [8], plan="disjoint").overlap(8) == 0


def test_one_draw_has_no_overlap() -> None:
    assert make_draws(8, [8]).overlap(8) is None
