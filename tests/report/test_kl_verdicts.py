from typing import Any

import pytest

from epibench.report.kl_figures import kl_chart, kl_table
from epibench.report.kl_verdicts import Verdict, gain_up_to, groups, places_at, verdict
from epibench.report.runs import VIEWS, Method, methods_of, read_runs

VIEW = VIEWS[0]
Stats = dict[str, tuple[float | None, float | None, int]]


def methods(floor: float | None = 0.01, about: dict[str, Any] | None = None, **kls: Stats) -> list[Method]:
    """Methods of one run, each with (mean, std, n) at some M."""
    kl = {
        name: {VIEW.convention: {VIEW.direction: {VIEW.region: {m: as_stat(*stat) for m, stat in stats.items()}}}}
        for name, stats in kls.items()
    }
    floors = {VIEW.convention: {VIEW.direction: {VIEW.region: floor}}}
    reference = {"floor": floors} if floor is not None else None
    run = {"methods": {name: about or {} for name in kls}, "kl": kl, "reference": reference}
    return methods_of(read_runs([run]))


def as_stat(mean: float | None, std: float | None, n: int) -> dict[str, Any]:
    return {"mean": mean, "std": std, "n": n}


def said(found: Verdict) -> str:
    return " ".join([found.headline, *found.sentences]).replace("\u00a0", " ")


def test_a_lead_beyond_error_and_floor_is_clear() -> None:
    found = verdict(methods(a={"8": (0.3, 0.1, 100)}, b={"8": (0.5, 0.1, 100)}), VIEW)
    assert found.headline == "a is closest"
    assert "b is next, farther by 0.20 (14 standard errors, 20 × the noise floor)." in said(found)


def test_means_within_the_combined_standard_error_are_indistinguishable() -> None:
    found = verdict(methods(a={"8": (0.30, 0.1, 25)}, b={"8": (0.32, 0.1, 25)}, c={"8": (0.9, 0.1, 25)}), VIEW)
    assert found.headline == "a and b are closest, and indistinguishable"
    assert [standing.rank.replace("\u00a0", " ") for standing in found.standings] == ["1 =", "1 =", "3"]


def test_draws_of_one_network_do_not_sharpen_the_standard_error() -> None:
    kls: dict[str, Stats] = {"a": {"8": (0.30, 0.1, 100)}, "b": {"8": (0.34, 0.1, 100)}}
    assert verdict(methods(**kls), VIEW).headline == "a is closest"
    repeated = methods(about={"num_groups": 100, "num_networks": 4}, **kls)
    assert verdict(repeated, VIEW).headline == "a and b are indistinguishable"


def test_a_lead_smaller_than_the_floor_is_said_to_be_so() -> None:
    found = verdict(methods(a={"8": (0.300, 0.001, 100)}, b={"8": (0.305, 0.001, 100)}), VIEW)
    assert found.headline == "a is closest, by less than the noise floor"
    assert "less than another reference could change" in said(found)


def test_what_is_below_the_floor_is_at_the_floor_and_not_ranked() -> None:
    found = verdict(methods(a={"8": (0.001, 1e-5, 100)}, b={"8": (0.009, 1e-5, 100)}), VIEW)
    assert found.headline == "a and b are at the noise floor"
    assert [standing.floors for standing in found.standings] == ["at the floor"] * 2


def test_a_lead_of_less_than_two_standard_errors_is_narrow() -> None:
    found = verdict(methods(a={"8": (0.30, 0.1, 50)}, b={"8": (0.33, 0.1, 50)}), VIEW)
    assert found.headline == "a is narrowly closest"


def test_one_draw_supports_no_rank() -> None:
    found = verdict(methods(a={"8": (0.3, None, 1)}, b={"8": (0.9, None, 1)}), VIEW)
    assert found.headline == "a and b are indistinguishable"
    assert "one independent draw alone does not tell" in said(found)


def test_without_a_floor_that_is_said() -> None:
    assert "no noise floor of the reference is known" in said(verdict(methods(None, a={"8": (0.3, 0.1, 9)}), VIEW))


def test_infinite_means_come_last_without_a_rank() -> None:
    found = verdict(methods(a={"8": (None, None, 9)}, b={"8": (0.5, 0.1, 9)}), VIEW)
    assert [(s.method.label, s.rank) for s in found.standings] == [("b", "1"), ("a", "–")]


def test_only_infinite_means_make_no_ranking() -> None:
    assert verdict(methods(a={"8": (None, None, 9)}), VIEW).headline == "No finite KL"


def test_nothing_at_all_is_said() -> None:
    assert verdict(methods(a={}), VIEW).headline == "No KL in these results"


def test_a_point_estimate_is_compared_at_its_only_m() -> None:
    found = verdict(methods(map={"1": (2.0, 0.1, 9)}, b={"8": (0.9, 0.1, 9), "16": (0.5, 0.1, 9)}), VIEW)
    assert found.where.replace("\u00a0", " ") == "At M = 16"
    assert [s.verdict.replace("\u00a0", " ") for s in found.standings] == ["closest", "farther, at M = 1"]


def test_another_leader_at_another_m_is_named() -> None:
    a: Stats = {"8": (0.9, 0.1, 100), "16": (0.3, 0.1, 100)}
    b: Stats = {"8": (0.5, 0.1, 100), "16": (0.4, 0.1, 100)}
    assert "At M = 8, b has the smallest mean." in said(verdict(methods(a=a, b=b), VIEW))


def test_groups_start_anew_where_the_first_can_be_told() -> None:
    # b is close to a and c is close to b, but c can be told from a.
    found = methods(a={"8": (0.30, 0.1, 100)}, b={"8": (0.31, 0.1, 100)}, c={"8": (0.32, 0.1, 100)})
    assert [[place.label for place in group] for group in groups(places_at(found, VIEW, 8))] == [["a", "b"], ["c"]]


@pytest.mark.parametrize(
    ("means", "reached"),
    [((0.9, 0.5, 0.3), "32, the largest"), ((0.9, 0.301, 0.3), "16"), ((0.302, 0.301, 0.3), "none")],
)
def test_the_m_up_to_which_there_is_a_gain(means: tuple[float, ...], reached: str) -> None:
    stats: Stats = {str(m): (mean, 0.1, 100) for m, mean in zip((8, 16, 32), means, strict=True)}
    assert gain_up_to(methods(a=stats)[0], VIEW) == reached


def test_the_table_marks_the_smallest_and_its_equals() -> None:
    found = kl_table(methods(a={"8": (0.30, 0.1, 25)}, b={"8": (0.32, 0.1, 25)}, c={"8": (0.9, 0.1, 25)}), VIEW)
    cells = [line.row.cells[0] for line in found.rows]
    assert [cell.best for cell in cells] == [True, False, False]
    assert ["≈" in cell.spread for cell in cells] == [True, True, False]


def test_every_kl_stands_beside_its_floor() -> None:
    found = kl_table(methods(a={"8": (0.3, 0.1, 25)}, b={"8": (0.5, 0.1, 25)}), VIEW)
    assert [line.floor for line in found.rows] == ["0.010", "0.010"]


def test_a_floor_far_below_is_named_and_not_drawn() -> None:
    near = str(kl_chart(methods(0.01, a={"8": (0.3, 0.1, 9), "16": (0.2, 0.1, 9)}), VIEW))
    far = str(kl_chart(methods(1e-6, a={"8": (0.3, 0.1, 9), "16": (0.2, 0.1, 9)}), VIEW))
    assert 'class="floor"' in near
    assert 'class="floor"' not in far
    assert "below this chart" in far


def test_a_band_that_reaches_below_zero_stays_on_the_chart() -> None:
    chart = str(kl_chart(methods(a={"8": (0.3, 0.9, 9), "16": (0.2, 0.5, 9)}), VIEW))
    assert "nan" not in chart
    assert "inf" not in chart
