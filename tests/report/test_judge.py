import fake
import pytest

from epibench.report.entries import Entry
from epibench.report.judge import (
    better_between,
    compared_at,
    error_of,
    judge,
    judge_at,
    member_change,
    mostly_reached,
)
from epibench.results import Draw, PoolSize, Stat

Stats = dict[int, tuple[float | None, float | None, int]]  # mean, std, n for each M
SETS = PoolSize(16)  # of networks that are drawn at random
GROUPS = PoolSize(64, num_groups=4, num_networks=4)


def entry(label: str, stats: Stats, pool: PoolSize = GROUPS, name: str = "ause", **companions: float) -> Entry:
    """A method with one metric; companions: such as `bound` and `random`, the same at every M."""
    summary: dict[int, dict[str, Stat]] = {}
    for m, (mean, std, n) in stats.items():
        summary[m] = {name: Stat(mean=mean, std=std, n=n)}
        for suffix, value in companions.items():
            summary[m][f"{name}_{suffix}"] = Stat(mean=value, std=0.0, n=n)
    return fake.entry(label, summary, pool=pool)


def kl(label: str, mean: float, std: float | None = 0.001, floor: float | None = 0.01) -> Entry:
    return fake.entry(label, {8: {"kl": Stat(mean=mean, std=std, n=4)}}, pool=GROUPS, floor=floor)


def pair(mean: float, std: float | None = 0.1, **companions: float) -> list[Entry]:
    """A at 1.0 and B behind it, from four independent draws: the standard error of the difference is std / √2."""
    n = 1 if std is None else 4
    return [entry(label, {4: (value, std, n)}, **companions) for label, value in (("A", 1.0), ("B", mean))]


@pytest.mark.parametrize(
    ("mean", "std", "certainty", "errors"),
    [(1.2, 0.1, "clear", 2.83), (1.1, 0.1, "narrow", 1.41), (1.2, None, "unknown", None), (1.2, 0.0, "unknown", None)],
)
def test_a_lead_is_measured_in_standard_errors(
    mean: float, std: float | None, certainty: str, errors: float | None
) -> None:
    ranking = judge("ause", pair(mean, std))
    assert [one.label for one in ranking.leaders] == ["A"]
    assert ranking.best == ({"A"} if certainty != "unknown" else set())
    assert ranking.lead is not None
    assert ranking.lead.certainty == certainty
    assert ranking.lead.errors == (None if errors is None else pytest.approx(errors, abs=0.01))


def test_less_than_one_standard_error_is_a_tie() -> None:
    ranking = judge("ause", pair(1.05))
    assert ranking.tied == {"A", "B"}
    assert ranking.best == set()
    assert ranking.lead is None


def test_equal_values_are_a_tie() -> None:
    assert judge("ause", pair(1.0, None)).tied == {"A", "B"}


def test_a_gap_within_the_numerical_bound_is_a_tie_however_small_the_error() -> None:
    assert judge("ause", pair(1.0008, 1e-6, bound=1e-3)).tied == {"A", "B"}
    assert judge("ause", pair(1.0012, 1e-6, bound=1e-3)).best == {"A"}


def test_higher_is_better_for_miou() -> None:
    both = [entry(label, {4: (mean, 0.01, 4)}, name="miou") for label, mean in (("A", 0.4), ("B", 0.6))]
    assert judge("miou", both).best == {"B"}


def test_what_is_no_better_than_chance_leads_nothing_however_small() -> None:
    untrained = entry("untrained", {4: (5.8e-7, 8.2e-7, 4)}, random=5.8e-7, bound=8e-4)
    trained = entry("trained", {4: (0.2, 0.01, 4)}, random=0.86, bound=8e-4)
    ranking = judge("ause", [untrained, trained])
    assert [one.label for one in ranking.leaders] == ["trained"]
    assert [one.label for one in ranking.at_chance] == ["untrained"]


@pytest.mark.parametrize(("ause", "bound", "by_chance"), [(0.5, 0.0, True), (0.3, 0.25, True), (0.3, 0.1, False)])
def test_the_bound_counts_against_a_method_beside_chance(ause: float, bound: float, by_chance: bool) -> None:
    ranking = judge("ause", [entry("A", {4: (ause, 0.01, 4)}, random=0.5, bound=bound)])
    assert bool(ranking.at_chance) is by_chance
    assert bool(ranking.leaders) is not by_chance


def test_kls_at_the_noise_floor_are_a_tie() -> None:
    ranking = judge("kl", [kl("A", 0.001), kl("B", 0.009)])
    assert ranking.tied == {"A", "B"}
    assert all(one.at_floor for one in ranking.leaders)


@pytest.mark.parametrize(("mean", "certainty"), [(0.305, "within floor"), (0.5, "clear")])
def test_a_lead_of_less_than_the_floor_is_called_so(mean: float, certainty: str) -> None:
    ranking = judge("kl", [kl("A", 0.3), kl("B", mean)])
    assert ranking.lead is not None
    assert ranking.lead.certainty == certainty


def test_a_method_without_a_value_is_left_out() -> None:
    ranking = judge("ause", [entry("A", {4: (None, None, 4)}), entry("B", {4: (2.0, 0.1, 4)})])
    assert [one.label for one in ranking.ordered] == ["B"]
    assert ranking.best == set()  # there is no one to lead


def test_groups_start_anew_where_the_first_can_be_told() -> None:
    # B is close to A and C is close to B, but C can be told from A.
    three = [entry(label, {8: (mean, 0.1, 4)}) for label, mean in (("A", 0.30), ("B", 0.36), ("C", 0.42))]
    groups = judge("ause", three).groups
    assert [[one.label for one in group] for group in groups] == [["A", "B"], ["C"]]


def test_one_that_is_too_uncertain_to_tell_ties_with_the_best() -> None:
    stats = {"A": (1.0, 0.01), "B": (1.1, 0.01), "C": (1.2, 9.0)}
    three = [entry(label, {8: (mean, std, 4)}) for label, (mean, std) in stats.items()]
    assert judge("ause", three).tied == {"A", "C"}


def test_methods_are_compared_where_all_were_scored() -> None:
    several = [entry("A", {1: (1.0, 0.1, 4), 8: (1.0, 0.1, 4)}), entry("B", {1: (1.0, 0.1, 4), 4: (1.0, 0.1, 4)})]
    m, m_of = compared_at([*several, entry("C", {2: (1.0, 0.1, 4)})])
    assert m == 1
    assert m_of == {"A": 1, "B": 1, "C": 2}


def test_at_an_m_only_those_that_were_scored_there_are_ranked() -> None:
    both = [entry("A", {1: (1.0, 0.1, 4)}), entry("B", {1: (2.0, 0.1, 4), 4: (1.0, 0.1, 4)})]
    assert judge_at("ause", both, 1).best == {"A"}
    assert [one.label for one in judge_at("ause", both, 4).ordered] == ["B"]


def test_sets_that_overlap_count_once() -> None:
    error = error_of(entry("A", {4: (1.0, 0.2, 100)}, SETS), "ause", 4)
    assert error is not None
    assert error.value == pytest.approx(0.2 / 2)  # 16 networks hold 4 sets of 4


def test_draws_of_one_network_do_not_sharpen_the_standard_error() -> None:
    repeated = PoolSize(10_000, num_groups=100, num_networks=4)
    error = error_of(entry("A", {8: (0.3, 0.1, 100)}, repeated), "ause", 8)
    assert error is not None
    assert error.value == pytest.approx(0.05)


def test_where_no_two_sets_are_independent_the_error_is_that_of_a_smaller_m() -> None:
    error = error_of(entry("A", {4: (1.0, 0.2, 100), 8: (1.0, 0.1, 100), 16: (1.0, 0.0, 1)}, SETS), "ause", 16)
    assert error is not None
    assert error.m == 8


def test_gains_of_networks_are_judged_network_by_network() -> None:
    # Networks differ by far more than what members buy, but each of them gains.
    values = {1: [1.0, 2.0, 3.0, 4.0], 8: [0.9, 1.88, 2.91, 3.89]}
    one = entry("A", {1: (2.5, 1.1, 4), 8: (2.395, 1.1, 4)})
    draws = [Draw(M=m, metrics={"ause": value}) for m, column in values.items() for value in column]
    with_draws = fake.entry("A", one.score.summary, pool=GROUPS, draws=draws)
    changes = [member_change(entry, "ause", 1, 8) for entry in (with_draws, one)]
    assert [change.certainty for change in changes if change] == ["clear", "none"]


@pytest.mark.parametrize(
    ("end", "std", "bound", "certainty"),
    [
        (0.5, 0.1, 0.0, "clear"),
        (0.9, 0.1, 0.0, "narrow"),
        (0.95, 0.1, 0.0, "none"),
        (0.5, None, 0.0, "unknown"),
        (0.9, 1e-6, 0.2, "none"),
    ],
)
def test_a_gain_is_judged_as_a_lead_is(end: float, std: float | None, bound: float, certainty: str) -> None:
    change = member_change(entry("A", {1: (1.0, std, 4), 8: (end, std, 4)}, bound=bound), "ause", 1, 8)
    assert change is not None
    assert change.gained == pytest.approx(1.0 - end)
    assert change.certainty == certainty


def test_an_m_in_between_that_beats_both_ends_is_found() -> None:
    assert better_between(entry("A", {1: (2.0, 0.01, 4), 2: (0.5, 0.01, 4), 4: (1.0, 0.01, 4)}), "ause") == 2
    assert better_between(entry("A", {1: (2.0, 0.01, 4), 2: (0.999, 0.1, 4), 4: (1.0, 0.1, 4)}), "ause") is None


def test_the_m_that_brings_most_of_a_gain_is_found() -> None:
    assert mostly_reached(entry("A", {1: (2.0, 0.01, 4), 2: (1.08, 0.01, 4), 4: (1.0, 0.01, 4)}), "ause") == 2
    assert mostly_reached(entry("A", {1: (2.0, 0.01, 4), 2: (1.5, 0.01, 4), 4: (1.0, 0.01, 4)}), "ause") is None
