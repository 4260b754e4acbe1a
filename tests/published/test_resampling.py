"""The resampling test, where the answer is known."""

import numpy as np
import pytest
from scipy.stats import norm

from epibench.published.resampling import chance_differences, detectable, joint, probability

NORMAL = norm.ppf((np.arange(2000) + 0.5) / 2000)  # as good as a sample of the standard normal can be


@pytest.fixture(scope="module")
def by_chance() -> np.ndarray:
    """Means of 4 normal numbers less means of 12 of them."""
    return chance_differences(NORMAL, 4, 12, "normal")


ERROR = np.sqrt(1 / 4 + 1 / 12)


@pytest.mark.parametrize("difference", [-2.5, -1.96, -0.5, 0.0, 1.0, 1.96, 2.5])
def test_p_of_normal_numbers_is_that_of_the_normal_test(difference: float, by_chance: np.ndarray) -> None:
    p = 2 * norm.sf(abs(difference))
    assert probability(difference * ERROR, by_chance) == pytest.approx(p, abs=4 * np.sqrt(p / len(by_chance)) + 1e-4)


def test_power_of_normal_numbers_is_that_of_the_normal_test(by_chance: np.ndarray) -> None:
    seen = (norm.ppf(0.975) + norm.ppf(0.8)) * ERROR
    assert detectable(by_chance) == (pytest.approx(-seen, rel=0.03), pytest.approx(seen, rel=0.03))


def test_a_shift_that_can_be_told_apart_is_seen_in_80_of_100_cases(by_chance: np.ndarray) -> None:
    _, shift = detectable(by_chance)
    fresh = np.random.default_rng(1).standard_normal((400, 16))
    differences = fresh[:, :4].mean(1) - fresh[:, 4:].mean(1) + shift
    assert np.mean([probability(each, by_chance) < 0.05 for each in differences]) == pytest.approx(0.8, abs=0.07)


def test_of_one_draw_that_is_1_in_10_the_answer_is_binomial() -> None:
    """One published draw of ours, whose mean hardly varies: 0.9 above it in one of ten cases, 0.1 below it in nine."""
    units = [0.0] * 900 + [1.0] * 100
    by_chance = chance_differences(units, 1, 20_000, "one in ten")
    assert probability(0.8, by_chance) == pytest.approx(2 * 0.1, abs=0.02)
    assert probability(-0.2, by_chance) < 0.001


def test_a_long_upper_tail_excuses_no_mean_that_is_too_low() -> None:
    units = [1.0] * 95 + [20.0] * 5
    by_chance = chance_differences(units, 10, 100, "tail")
    assert np.mean(np.abs(by_chance) >= 1.9) > 0.05
    assert probability(-1.9, by_chance) < 0.05


def test_the_same_series_gives_the_same_numbers_and_another_gives_others() -> None:
    one, again, other = (chance_differences(NORMAL, 4, 12, name) for name in ("one", "one", "other"))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_cells_of_as_many_units_resample_the_same_ones() -> None:
    one, doubled = (chance_differences(units, 4, 12, "series") for units in (NORMAL, 2 * NORMAL))
    assert np.allclose(2 * one, doubled)


def test_p_is_never_zero_or_above_one(by_chance: np.ndarray) -> None:
    assert 0 < probability(99.0, by_chance) < 0.001
    assert probability(float(np.median(by_chance)), by_chance) == 1.0


@pytest.mark.parametrize("paired", [True, False])
def test_two_cells_that_are_one_have_together_the_p_of_either(paired: bool, by_chance: np.ndarray) -> None:
    together = joint([1.0, 1.0], [by_chance, by_chance], "series", paired)
    assert together.p == pytest.approx(probability(1.0, by_chance), abs=1e-6)


def test_cells_that_differ_in_opposite_directions_shift_nothing_together(by_chance: np.ndarray) -> None:
    assert joint([1.0, -1.0], [by_chance, by_chance], "series", True).p > 0.9


def test_cells_that_hang_together_less_make_a_common_shift_less_probable(by_chance: np.ndarray) -> None:
    other = chance_differences(NORMAL, 4, 12, "another")
    apart, entirely = (joint([0.9, 0.9], [by_chance, other], "series", paired).p for paired in (True, False))
    assert apart < entirely
