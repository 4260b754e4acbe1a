"""What members cost is counted on what a pool really runs, and what it takes to train them on the networks behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from epibench.evaluation.cost import cost_per_image, count_flops, training_cost
from epibench.members.draws import make_draws
from epibench.members.networks import NetworkPool
from epibench.methods import Member, MemberTable, Method
from epibench.networks.depth_completion import DepthCompletion
from epibench.training.state import Weights
from small_pools import method_of, network_pool

SIZE = (32, 64)
RATE = 0.3
build = partial(DepthCompletion, 8, (1, 1, 1, 1), init_std=None)
METHODS: dict[str, Method] = {
    "ensemble": method_of("ensemble", num_members=4),
    "dropout": method_of("mc_dropout", num_networks=2, num_passes=4, rate=RATE),
    "chains": method_of("sgld", num_chains=2, num_epochs=16, num_snapshots=4),
}


def weights_of(member: Member) -> Weights:
    torch.manual_seed(10 * member.network + member.snapshot)
    return build().state_dict()


def pool_of(name: str, backend: str | None = None) -> NetworkPool:
    return network_pool(METHODS[name], build, weights_of, backend=backend)


def first(*sizes: int) -> Any:
    """The first M members, for every M."""
    return make_draws(max(sizes), sizes, plan="prefix")


@pytest.fixture(scope="module")
def image() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    colours = torch.randint(0, 256, (1, 3, *SIZE), dtype=torch.uint8, generator=generator)
    return {"image": colours, "sparse_depth": 20 * torch.rand(1, 1, *SIZE, generator=generator)}


@pytest.fixture(params=[1, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def operations(function: object, *given: object) -> int:
    counter = FlopCounterMode(display=False)
    with torch.inference_mode(), counter:
        function(*given)  # type: ignore[operator]
    return int(counter.get_total_flops())


def first_stages(network: nn.Module, number: int) -> Callable[[Any], Any]:
    def run(state: Any) -> Any:
        for stage in list(network.stages().values())[:number]:
            state = stage(state)
        return state

    return run


def test_networks_of_an_ensemble_cost_as_many_times_one(image: dict[str, Tensor], threads: int) -> None:
    one = operations(build().eval(), image)
    pool = pool_of("ensemble")
    assert [count_flops(pool, image, SIZE, range(size)) for size in (1, 2, 4)] == [one, 2 * one, 4 * one]
    assert torch.get_num_threads() == threads


def test_what_passes_share_is_counted_once(image: dict[str, Tensor], threads: int) -> None:
    network = build().eval()
    ends = [
        max(n for n, name in enumerate(network.stages(), 1) if f"{name}.".startswith(f"{place}."))
        for place in network.dropout_places
    ]
    shared = operations(first_stages(network, min(ends)), image)
    rest = operations(network, image) - shared
    assert shared > 0
    assert rest > 0
    pool = pool_of("dropout")
    assert [count_flops(pool, image, SIZE, range(size)) for size in (1, 2, 4)] == [shared + m * rest for m in (1, 2, 4)]


def test_a_trunk_that_members_share_is_counted_once(image: dict[str, Tensor], threads: int) -> None:
    heads = MemberTable(tuple(Member(0, 0, number) for number in range(4)), "prefix", (0,) * 4)
    pool = replace(pool_of("ensemble"), table=heads, shared_stages=lambda names: len(names) // 2)
    network = build().eval()
    shared = operations(first_stages(network, len(network.stages()) // 2), image)
    rest = operations(network, image) - shared
    assert shared > 0
    assert rest > 0
    assert [count_flops(pool, image, SIZE, range(size)) for size in (1, 4)] == [shared + m * rest for m in (1, 4)]
    one, two, four = (pool.weight_bytes(range(size)) for size in (1, 2, 4))
    assert four - two == 2 * (two - one)
    assert 0 < two - one < one  # a further member brings its own stages alone


def test_members_of_several_trunks_are_counted_with_all_of_these(image: dict[str, Tensor]) -> None:
    heads = MemberTable(
        tuple(Member(network, 0, number) for network in range(2) for number in range(3)), "random", None
    )
    pool = replace(pool_of("ensemble"), table=heads, shared_stages=lambda names: len(names) // 2)
    network = build().eval()
    shared = operations(first_stages(network, len(network.stages()) // 2), image)
    rest = operations(network, image) - shared
    drawn = replace(make_draws(6, [2, 3, 4], max_draws=1), sets=((5, 0), (0, 1, 2), (0, 4, 1, 3)))
    costs = cost_per_image(pool, image, SIZE, drawn)
    assert {m: each.flops for m, each in costs.items()} == {
        m: t * shared + m * rest for m, t in ((2, 2), (3, 1), (4, 2))
    }
    of_one, of_two = pool.weight_bytes(range(1)), pool.weight_bytes(range(2))
    assert costs[2].weight_bytes == 2 * of_one > of_two  # two trunks


def test_windows_are_counted_each(image: dict[str, Tensor]) -> None:
    window = replace(pool_of("ensemble"), window=(32, 32))
    half = {name: values[..., :32] for name, values in image.items()}
    assert count_flops(window, image, SIZE, (0, 1)) == 2 * 2 * operations(build().eval(), half)


def test_operations_of_compiled_networks_are_those_of_plain_ones(image: dict[str, Tensor]) -> None:
    pool = pool_of("dropout", "eager")
    pool.outputs(image, slice(0, 2), range(1))  # from here on it is compiled
    compiled = pool.compiled
    assert compiled is not None
    assert count_flops(pool, image, SIZE, (0, 1)) == count_flops(pool_of("dropout"), image, SIZE, (0, 1))
    assert pool.compiled is compiled
    assert pool.speed.backend == "eager"


def test_weights_that_passes_share_are_counted_once(image: dict[str, Tensor]) -> None:
    ensemble, dropout = (cost_per_image(pool_of(name), image, SIZE, first(1, 4)) for name in ("ensemble", "dropout"))
    one = ensemble[1].weight_bytes
    assert one is not None
    assert one >= 4 * sum(each.numel() for each in build().parameters() if each.dim() == 4)  # its kernels
    assert ensemble[4].weight_bytes == 4 * one
    assert dropout[4].weight_bytes == dropout[1].weight_bytes == one


def test_a_tensor_that_networks_share_is_counted_once() -> None:
    pool = replace(pool_of("ensemble"), precision=torch.bfloat16)  # nothing is folded
    kept = weights_of(Member(0, 0))
    pool.load = lambda member: kept
    one, shared = pool.weight_bytes(range(1)), sum(each.nbytes for each in kept.values())
    assert pool.weight_bytes(range(4)) == shared + 4 * (one - shared)  # constants are each network's own


@pytest.mark.parametrize(("name", "networks"), [("ensemble", (1, 2, 4)), ("dropout", (1, 1, 1)), ("chains", (1, 1, 1))])
def test_training_is_that_of_the_networks_behind_the_members(name: str, networks: tuple[int, ...]) -> None:
    table = METHODS[name].members(range(METHODS[name].num_trained))
    draws = make_draws(len(table.members), (1, 2, 4), plan=table.plan, group=table.group)
    found = training_cost(table, draws, seconds=2.5, steps=100)
    for m, number in zip((1, 2, 4), networks, strict=True):
        assert (found[m].networks, found[m].seconds, found[m].steps) == (number, 2.5 * number, 100 * number)


def test_draws_from_several_networks_take_as_many_as_they_have_in_the_mean() -> None:
    members = tuple(Member(network, 0, number) for network in range(2) for number in range(2))
    draws = make_draws(4, (2,), max_draws=6)  # all six pairs, of which two are of one network
    (found,) = training_cost(MemberTable(members, "random", None), draws, 1.0, 30).values()
    assert found.networks == pytest.approx(10 / 6)
    assert found.steps == pytest.approx(50)
