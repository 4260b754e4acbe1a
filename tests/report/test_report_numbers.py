import pytest

from epibench.report.numbers import aligned, change, finite, measured, significant


@pytest.mark.parametrize(
    ("mean", "std", "text"),
    [
        (0.512345, 0.01234, "0.512 ± 0.012"),
        (0.512345, None, "0.5123"),
        (0.512345, 0.0, "0.5123 ± 0.0000"),
        (-1.5, 0.25, "−1.50 ± 0.25"),
        (12345.6, 1234.5, "12,300 ± 1,200"),
        (0.0, 0.01, "0.000 ± 0.010"),
        (0.0, None, "0"),
        (0.5, 1e-9, "0.500000 ± 1.0×10⁻⁹"),
        (3.21e-7, 1.2e-8, "3.210×10⁻⁷ ± 1.2×10⁻⁸"),
        (-0.001, 0.5, "0.00 ± 0.50"),
        (None, None, "–"),
    ],
)
def test_a_mean_is_rounded_to_two_digits_of_its_std(mean: float | None, std: float | None, text: str) -> None:
    assert measured(mean, std) == text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, True, "3", [1.0]])
def test_what_is_no_finite_number_is_none(value: object) -> None:
    assert finite(value) is None


def test_decimal_points_line_up() -> None:
    texts = aligned(["1.25", "10", "0.5", "–"])
    assert texts == ["1.25", "10\u2008\u2007\u2007", "0.5\u2007", "–"]


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


def test_significant_digits() -> None:
    assert [significant(v) for v in (0.012345, 1234.5, 0.0, None)] == ["0.0123", "1,230", "0", "–"]
