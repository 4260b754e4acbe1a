"""Pools of large networks: a member predicts the same in any batch, with any others, resident or loaded anew."""

from __future__ import annotations

import gc
from dataclasses import dataclass, field, fields, replace
from functools import partial
from weakref import WeakSet

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import small_pools
from epibench import randomness
from epibench.members.draws import Draws, make_draws
from epibench.members.networks import NetworkPool
from epibench.methods import Member, Method
from epibench.networks.depth_completion import DepthCompletion
from epibench.networks.dropout import SeededDropout, dropout_after
from small_pools import method_of

Values = dict[str, Tensor]
SIZE = (16, 32)


@dataclass
class Stored:
    """The weights of networks, made up, and which were asked for."""

    loaded: list[tuple[int, int]] = field(default_factory=list)

    def load(self, member: Member) -> Values:
        self.loaded.append((member.network, member.snapshot))
        torch.manual_seed(10 * member.network + member.snapshot)
        return build().state_dict()


build = partial(DepthCompletion, 8, (1, 1, 1, 1), init_std=None)
METHODS: dict[str, Method] = {
    "ensemble": method_of("ensemble", num_members=4),
    "dropout": method_of("mc_dropout", num_networks=2, num_passes=3, rate=0.3),
    "repeats": method_of("mc_dropout", num_networks=2, num_passes=2, repeats=2, rate=0.3),
    "chains": method_of("sgld", num_chains=2, num_epochs=4, num_snapshots=2),
    "views": method_of("tta", num_networks=2),
}


def network_pool(name: str = "dropout", resident: int = 64) -> tuple[NetworkPool, Stored]:
    stored = Stored()
    return small_pools.network_pool(METHODS[name], build, stored.load, seed=7, resident=resident), stored


@pytest.fixture(scope="module")
def images() -> Values:
    generator = torch.Generator().manual_seed(3)
    image = torch.randint(0, 256, (4, 3, *SIZE), dtype=torch.uint8, generator=generator)
    return {"image": image, "sparse_depth": 20 * torch.rand(4, 1, *SIZE, generator=generator)}


def everything(pool: NetworkPool) -> slice:
    return slice(0, pool.num_members)


def outputs(pool: NetworkPool, inputs: Values, members: slice, numbers: range) -> Values:
    return {name: values[:, :, 0] for name, values in pool.outputs(inputs, members, numbers).values.items()}


@pytest.mark.parametrize("name", METHODS)
def test_a_member_predicts_an_image_the_same_in_any_batch(name: str, images: Values) -> None:
    pool, _ = network_pool(name)
    expected = outputs(pool, images, everything(pool), range(10, 14))
    for first, last in ((0, 1), (1, 4)):
        part = {key: values[first:last] for key, values in images.items()}
        found = outputs(pool, part, everything(pool), range(10 + first, 10 + last))
        for key, values in expected.items():
            room = 1e-5 * float(values.abs().max())
            torch.testing.assert_close(found[key], values[:, first:last], rtol=1e-5, atol=room)


@pytest.mark.parametrize("name", METHODS)
def test_a_member_predicts_the_same_with_any_others(name: str, images: Values) -> None:
    pool, _ = network_pool(name)
    expected = outputs(pool, images, everything(pool), range(4))
    fresh, _ = network_pool(name)
    for member in reversed(range(pool.num_members)):
        alone = outputs(fresh, images, slice(member, member + 1), range(4))
        assert all(torch.equal(alone[key][0], expected[key][member]) for key in expected)


def test_members_differ(images: Values) -> None:
    for name in METHODS:
        pool, _ = network_pool(name)
        means = outputs(pool, images, everything(pool), range(4))["mean"]
        assert len({tuple(mean.flatten().tolist()) for mean in means}) == pool.num_members


def test_dropout_differs_from_image_to_image(images: Values) -> None:
    pool, _ = network_pool()
    same = {key: values[:1].expand(2, *values.shape[1:]) for key, values in images.items()}
    found = outputs(pool, same, slice(0, 1), range(2))["mean"][0]
    assert not torch.allclose(found[0], found[1])


@pytest.mark.parametrize("name", METHODS)
def test_networks_that_come_and_go_predict_as_those_that_stay(name: str, images: Values) -> None:
    pool, _ = network_pool(name)
    expected = outputs(pool, images, everything(pool), range(4))
    small, _ = network_pool(name, resident=1)
    for _ in range(2):
        found = [outputs(small, images, part, range(4)) for part in small.resident_slices(everything(small))]
        for key in expected:
            assert torch.equal(torch.cat([each[key] for each in found]), expected[key])


@pytest.mark.parametrize(
    ("name", "resident", "expected"),
    [
        ("ensemble", 64, [(0, 4)]),
        ("ensemble", 3, [(0, 3), (3, 4)]),
        ("ensemble", 1, [(0, 1), (1, 2), (2, 3), (3, 4)]),
        ("dropout", 1, [(0, 3), (3, 6)]),
        ("chains", 1, [(0, 1), (1, 2), (2, 3), (3, 4)]),
        ("chains", 2, [(0, 2), (2, 4)]),
    ],
)
def test_groups_hold_as_many_networks_as_fit(name: str, resident: int, expected: list[tuple[int, int]]) -> None:
    pool, _ = network_pool(name, resident)
    assert [(part.start, part.stop) for part in pool.resident_slices(everything(pool))] == expected


def test_groups_begin_where_they_are_asked_for() -> None:
    pool, _ = network_pool("ensemble", 2)
    assert [(part.start, part.stop) for part in pool.resident_slices(slice(1, 4))] == [(1, 3), (3, 4)]


def test_networks_that_fit_are_loaded_once(images: Values) -> None:
    pool, stored = network_pool("dropout")
    for _ in range(2):
        outputs(pool, images, everything(pool), range(4))
    assert stored.loaded == [(0, 0), (1, 0)]


def test_no_more_networks_than_fit_are_kept(images: Values) -> None:
    pool, stored = network_pool("ensemble", 2)
    for part in pool.resident_slices(everything(pool)):
        outputs(pool, images, part, range(4))
    assert stored.loaded == [(0, 0), (1, 0), (2, 0), (3, 0)]
    assert len(pool._networks) == 2


def test_threads_predict_as_one_does(images: Values, two_threads) -> None:
    many, _ = network_pool()
    both = outputs(many, images, everything(many), range(4))
    torch.set_num_threads(1)
    one, _ = network_pool()
    alone = outputs(one, images, everything(one), range(4))
    assert all(torch.equal(both[key], alone[key]) for key in alone)


def test_the_mode_of_the_networks_is_that_of_prediction(images: Values) -> None:
    pool, _ = network_pool("ensemble")
    first = outputs(pool, images, everything(pool), range(4))["mean"]
    again = outputs(pool, images, everything(pool), range(4))["mean"]
    assert torch.equal(first, again)  # in training mode, batch norm would have changed its statistics


@pytest.mark.parametrize(
    "method",
    [
        method_of("mc_dropout", num_networks=3, num_passes=2),
        method_of("mc_dropout", num_networks=3, num_passes=1),
        method_of("mc_dropout", num_networks=3, num_passes=1, repeats=2),
        method_of("sgld", num_chains=3, num_epochs=4, num_snapshots=2),
        method_of("sgld", num_chains=3, num_epochs=4, num_snapshots=1),
    ],
    ids=["passes", "one pass", "repeats", "snapshots", "one snapshot"],
)
def test_every_network_or_chain_is_drawn_by_itself(method: Method) -> None:
    table = method.members(range(3))
    draws: Draws = make_draws(len(table.members), (1,), plan=table.plan, group=table.group)
    drawn = {table.members[number].network for members in draws.sets for number in members}
    assert drawn == {0, 1, 2}


def test_members_of_networks_that_are_left_keep_their_networks() -> None:
    table = METHODS["dropout"].members((0, 2))
    assert [member.network for member in table.members] == [0, 0, 0, 2, 2, 2]


def test_one_network_is_built_and_weights_that_were_given_stay_as_they_are(images: Values) -> None:
    pool, stored = network_pool("ensemble")
    given = [stored.load(member) for member in pool.table.members]
    before = [{key: values.clone() for key, values in each.items()} for each in given]
    built = []

    def count() -> DepthCompletion:
        built.append(build())
        return built[-1]

    counted = replace(pool, build=count, load=lambda member: given[member.network])
    found = outputs(counted, images, everything(pool), range(4))
    expected = outputs(pool, images, everything(pool), range(4))
    assert counted.num_bytes(pool.table.members[0]) == sum(values.nbytes for values in given[0].values())
    assert len(built) == 1
    assert all(torch.equal(found[key], expected[key]) for key in expected)
    assert all(torch.equal(each[key], kept[key]) for each, kept in zip(given, before, strict=True) for key in each)


def test_networks_that_are_read_at_once_are_those_that_are_read_alone(images: Values) -> None:
    pool, stored = network_pool("chains")
    kept = {member: stored.load(member) for member in pool.table.members}
    several = replace(pool, load=kept.__getitem__, loaded_at_once=3)
    found, expected = (outputs(each, images, everything(each), range(4)) for each in (several, pool))
    assert all(torch.equal(found[key], expected[key]) for key in expected)


def test_a_network_that_keeps_its_parameters_elsewhere_too_is_loaded(images: Values) -> None:
    """Without stages nothing is known of a network: its own parameters are filled, and not replaced."""

    class Aliased(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 2, 1)
            self.kept = [self.conv.weight]

        def forward(self, inputs: Values) -> Tensor:
            return functional.conv2d(inputs["image"].float(), self.kept[0])

    weights = Aliased().state_dict()
    table = method_of("ensemble", num_members=1).members((0,))
    pool = NetworkPool("gaussian", table, Aliased, lambda member: weights, "ensemble")
    found = outputs(pool, images, slice(0, 1), range(4))["mean"][0]
    raw = functional.conv2d(images["image"].float(), weights["conv.weight"])
    assert torch.equal(found, raw[:, 0])


def test_passes_share_what_comes_before_their_dropout(images: Values) -> None:
    pool, _ = network_pool("dropout")
    seen = []
    for member in pool.table.members:
        network = pool.network(member)
        network.encoder[0].register_forward_hook(lambda *_: seen.append("before"))
        network.encoder[3].register_forward_hook(lambda *_: seen.append("after"))
        assert not network.encoder[2]._forward_hooks
    outputs(pool, images, everything(pool), range(4))
    # Each network has one hook for each of its passes, and each of these counts.
    assert (seen.count("before"), seen.count("after")) == (2 * 3, 2 * 3 * 3)


def test_passes_are_those_of_a_network_with_dropout_after_its_places(images: Values) -> None:
    pool, _ = network_pool("dropout")
    plain = replace(pool, rate=0.0)
    found = outputs(pool, images, everything(pool), range(4))["mean"]
    for number, member in enumerate(pool.table.members):
        network = plain.load_network(member)
        keys = torch.tensor(
            [randomness.key(7, pool.method, member.network, "pass", member.number, i) for i in range(4)]
        )
        dropped = dropout_after(network, network.dropout_places, 0.3)
        with torch.inference_mode(), dropped, SeededDropout(keys, by_mode=True):
            raw = network(images)
        assert torch.equal(found[number], raw[:, 0])


@pytest.mark.parametrize("at_once", [1, 3])
def test_networks_make_room_before_others_are_loaded(at_once: int) -> None:
    pool, _ = network_pool("chains", resident=2)
    alive, most = WeakSet[nn.Module](), 0

    class Counted(NetworkPool):
        def load_network(self, member: Member) -> nn.Module:
            nonlocal most
            network = super().load_network(member)
            alive.add(network)
            gc.collect()
            most = max(most, len(alive))
            return network

    given = {each.name: getattr(pool, each.name) for each in fields(pool) if each.init}
    counted = Counted(**given | {"loaded_at_once": at_once})
    members = counted.table.members
    for chosen in (members[:2], members[2:], members[1:3]):
        counted.load_all(chosen)
        assert {*counted._networks} == {*chosen}
    assert most == 2


def test_networks_that_stay_are_not_loaded_anew() -> None:
    pool, stored = network_pool("chains", resident=3)
    pool.loaded_at_once = 2
    first, second, third, fourth = pool.table.members
    pool.load_all([first, second])
    pool.load_all([first, third, fourth])
    loaded = [(member.network, member.snapshot) for member in (first, second, third, fourth)]
    assert sorted(stored.loaded) == sorted(loaded)
    assert {*pool._networks} == {first, third, fourth}
