"""Schedules against their formulas."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epibench.methods.cyclical import cyclical
from epibench.training.rules import constant, poly


@pytest.mark.parametrize("step", [1, 500, 1000])
def test_constant(step: int) -> None:
    assert constant(0.01)(step, 1000) == (0.01, 1.0)


@pytest.mark.parametrize(
    ("step", "expected"), [(250, 0.01 * 0.75**0.9), (500, 0.01 * 0.5**0.9), (999, 0.01 * 1e-3**0.9)]
)
def test_poly_decay(step: int, expected: float) -> None:
    assert poly(0.01)(step, 1000).rate == pytest.approx(expected, rel=1e-12)


@given(total=st.integers(1, 10**8))
def test_poly_ends_at_exactly_0(total: int) -> None:
    assert poly(0.01)(total, total).rate == 0


@given(total=st.integers(1, 10**7), data=st.data())
def test_poly_is_always_a_number(total: int, data: st.DataObject) -> None:
    rate = poly(0.01)(data.draw(st.integers(1, total)), total).rate
    assert isinstance(rate, float)
    assert 0 <= rate < 0.01


def test_power_0_is_a_constant_rate_to_the_last_step() -> None:
    assert [poly(0.01, 0.0)(step, 10).rate for step in (1, 5, 10)] == [0.01] * 3


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
