"""Numbers and titles of metrics as text."""

import pytest

from epibench import metrics
from epibench.report.metric_info import metric_info, ordered
from epibench.report.numbers import aligned, change, listed, measured, significant


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((0.512345, 0.01234), "0.512 ± 0.012"),
        ((0.512345, None), "0.5123"),
        ((0.512345, 0.0), "0.5123 ± 0.0000"),
        ((-1.5, 0.25), "−1.50 ± 0.25"),
        ((12345.6, 1234.5), "12,300 ± 1,200"),
        ((0.0, 0.01), "0.000 ± 0.010"),
        ((0.0, None), "0"),
        ((0.5, 1e-9), "0.500000 ± 1.0×10⁻⁹"),
        ((3.21e-7, 1.2e-8), "3.210×10⁻⁷ ± 1.2×10⁻⁸"),
        ((-0.001, 0.5), "0.00 ± 0.50"),
        ((None, None), "–"),
        ((5.8e-7, 8.2e-7, 8e-4), "< 0.0008"),
        ((5.8e-7, 8.2e-7, 8.1e-4), "< 0.0009"),
        ((0.0608, 0.0012, 8e-4), "0.0608 ± 0.0012"),
        ((0.060812, 0.000123, 8e-4), "0.0608 ± 0.0001"),
        ((0.060812, 0.000012, 8e-4), "0.0608 ± <0.0001"),
        ((0.06081234, None, 8e-4), "0.0608"),
        ((0.06081234, None, 1.5e-3), "0.061"),
        ((0.06081234, None, 0.0), "0.06081"),
        ((0.0, 0.0, 8e-4), "< 0.0008"),
        ((None, None, 8e-4), "–"),
    ],
)
def test_a_mean_has_two_digits_of_its_std_and_none_below_its_numerical_error(numbers, text: str) -> None:
    assert measured(*numbers) == text


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (1.0, 0.63, "−37\u00a0%"),
        (1.0, 1.05, "+5.0\u00a0%"),
        (-0.1, 0.1, "+0.20"),
        (2.0, 2.0, "unchanged"),
        (1, 29, "×\u00a029"),
    ],
)
def test_changes_are_relative_unless_they_cross_zero(before: float, after: float, text: str) -> None:
    assert change(before, after) == text


def test_lists_end_with_and_or_with_the_number_of_the_rest() -> None:
    assert [listed(words) for words in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]
    assert listed(["a", "b", "c", "d"], 2) == "a, b and 2 more"
    assert listed(["a", "b"], 2) == "a and b"


def test_digits_are_significant_and_decimal_points_line_up() -> None:
    assert [significant(v) for v in (0.012345, 1234.5, 0.0, None)] == ["0.0123", "1,230", "0", "–"]
    assert aligned(["1.25", "10", "0.5", "–"]) == ["1.25", "10\u2008\u2007\u2007", "0.5\u2007", "–"]


def test_errors_of_depth_have_titles_directions_and_units() -> None:
    assert metric_info("delta1").better == "higher"
    assert metric_info("irmse").title == "iRMSE (1/km)"
    assert metric_info("sq_rel").in_unit
    names = list(metrics.errors_of_depth([1.0], [1.0]))
    assert ordered(["depth_left_out_targets", *names, "rmse"], "gaussian")[:3] == ["rmse", "abs_rel", "sq_rel"]
    assert "depth_left_out" in ordered(names, "gaussian")  # their number is a row of its own
