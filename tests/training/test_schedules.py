"""Schedules against their formulas."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
