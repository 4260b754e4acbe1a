"""Snapshot ensembles: where cycles end, how the rate falls in each, and which snapshots a draw has."""

from __future__ import annotations

import itertools
import math

import pytest

from epibench.members.draws import make_draws
from epibench.methods import Member
from epibench.methods.snapshot import Snapshot


@pytest.mark.parametrize(
    ("epochs", "cycles", "keep"),
    [
        (150, 5, (30, 60, 90, 120, 150)),
        (5, 5, (1, 2, 3, 4, 5)),
        (5, 4, (1, 2, 3, 5)),
        (10, 4, (2, 5, 7, 10)),
        (7, 1, (7,)),
    ],
)
def test_a_snapshot_is_kept_at_the_end_of_every_cycle(epochs: int, cycles: int, keep: tuple[int, ...]) -> None:
    assert Snapshot(num_epochs=epochs, num_cycles=cycles).keep == keep


@pytest.mark.parametrize("epochs", range(1, 30))
def test_there_are_as_many_cycles_as_asked_for_and_the_last_ends_training(epochs: int) -> None:
    for cycles in range(1, epochs + 1):
        keep = Snapshot(num_epochs=epochs, num_cycles=cycles).keep
        lengths = {after - before for before, after in itertools.pairwise((0, *keep))}
        assert (len(keep), keep[-1]) == (cycles, epochs)
        assert max(lengths) - min(lengths) <= 1 <= min(lengths)


@pytest.mark.parametrize("epoch_steps", [1, 7, 32])
def test_the_rate_in_every_cycle_is_half_a_cosine(epoch_steps: int) -> None:
    """Equation 2 of Huang et al. 2017, with cycles of whole epochs."""
    method = Snapshot(num_epochs=10, num_cycles=4, learning_rate=0.2)
    total = 10 * epoch_steps
    rates = [method.schedule(step, total).rate for step in range(1, total + 1)]
    expected = list[float]()
    for first, last in itertools.pairwise((0, *method.keep)):
        length = (last - first) * epoch_steps
        expected += [0.1 * (math.cos(math.pi * step / length) + 1) for step in range(length)]
    assert rates == pytest.approx(expected, rel=1e-12)


def test_with_cycles_as_long_as_each_other_it_is_equation_2_as_printed() -> None:
    method, total = Snapshot(num_epochs=12, num_cycles=3, learning_rate=0.2), 120
    for step in range(1, total + 1):
        length = math.ceil(total / 3)
        expected = 0.1 * (math.cos(math.pi * ((step - 1) % length) / length) + 1)
        assert method.schedule(step, total).rate == pytest.approx(expected, rel=1e-12)


def test_draws_are_the_last_snapshots_of_each_network() -> None:
    method = Snapshot(num_networks=2, num_cycles=4)
    table = method.members(range(2))
    draws = make_draws(len(table.members), [1, 2, 4], plan=table.plan, group=table.group)
    drawn = [[table.members[each] for each in members] for members in draws.sets]
    assert drawn == [
        [Member(network, snapshot) for snapshot in snapshots]
        for snapshots in ([3], [3, 2], [3, 2, 1, 0])
        for network in (0, 1)
    ]


def test_all_cycles_together_take_as_long_as_a_network_of_an_ensemble() -> None:
    method = Snapshot()
    assert (method.num_epochs, method.training.keep[-1]) == (150, 150)
