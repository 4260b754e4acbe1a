"""The schedule of cyclical SG-MCMC."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epibench.methods.cyclical import cyclical


@given(total=st.integers(1, 10**6), num_cycles=st.integers(1, 50), data=st.data())
def test_cyclical_is_equation_1_of_zhang_et_al(total: int, num_cycles: int, data: st.DataObject) -> None:
    step = data.draw(st.integers(1, total))
    length = math.ceil(total / num_cycles)
    expected = 0.5 / 2 * (math.cos(math.pi * ((step - 1) % length) / length) + 1)
    assert cyclical(0.5, num_cycles, 0.8)(step, total).rate == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_every_cycle_begins_at_the_full_rate() -> None:
    schedule = cyclical(0.5, 4, 0.8)
    assert [step for step in range(1, 101) if schedule(step, 100).rate == 0.5] == [1, 26, 51, 76]


def test_noise_comes_after_the_exploring_part_of_each_cycle() -> None:
    """Algorithm 1: a step explores if mod(k − 1, ⌈K/M⌉)/⌈K/M⌉ < β."""
    schedule = cyclical(0.5, 2, 0.8)
    noisy = [step for step in range(1, 21) if schedule(step, 20).temperature == 1]
    assert noisy == [9, 10, 19, 20]
    assert all(schedule(step, 20).temperature == 0 for step in range(1, 21) if step not in noisy)
