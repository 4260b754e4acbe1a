import copy
from typing import Any

import fake_dense_run
import pytest

from epibench.report.domain_verdicts import Verdict, compared_at, finding, metric_verdict
from epibench.report.domains import domains_of, entries_on, featured
from epibench.report.entries import Entry
from epibench.report.gains import member_gains, shift_costs
from epibench.report.metric_errors import error_of, gain_error
from epibench.report.runs import methods_of, read_runs

Stats = dict[int, tuple[float | None, float | None, int]]  # mean, std, n for each M
SETS = {"num_members": 16}  # of networks that are drawn at random
GROUPS = {"num_groups": 4, "num_networks": 4}


def entry(label: str, stats: Stats, about: dict[str, Any] | None = None, name: str = "ause") -> Entry:
    """A method with one metric."""
    summary = {str(m): {name: {"mean": mean, "std": std, "n": n}} for m, (mean, std, n) in stats.items()}
    return Entry(0, label, "gaussian", summary, raw=about or {})


def verdict(*entries: Entry, name: str = "ause") -> Verdict:
    return metric_verdict(name, entries)


def test_a_lead_of_two_standard_errors_is_clear() -> None:
    found = verdict(entry("A", {4: (1.0, 0.1, 4)}, GROUPS), entry("B", {4: (1.2, 0.1, 4)}, GROUPS))
    assert [one.label for one in found.best] == ["A"]
    assert found.card.headline == "A"  # 0.2 / √(0.05² + 0.05²) = 2.8
    assert "20 % higher: 2.8 standard errors" in found.card.sentences[0].replace("\u00a0", " ")


def test_a_lead_between_one_and_two_is_narrow() -> None:
    found = verdict(entry("A", {4: (1.0, 0.1, 4)}, GROUPS), entry("B", {4: (1.1, 0.1, 4)}, GROUPS))
    assert found.card.headline == "A, narrowly"
    assert found.praise == "ranks errors best (AUSE, narrowly)"


def test_less_than_one_standard_error_is_too_close_to_call() -> None:
    found = verdict(entry("A", {4: (1.0, 0.1, 4)}, GROUPS), entry("B", {4: (1.05, 0.1, 4)}, GROUPS))
    assert found.card.headline == "A and B: too close to call"
    assert finding([found]) == "At M\u00a0=\u00a04, A and B cannot be told apart by AUSE."


def test_one_draw_makes_no_certain_lead() -> None:
    found = verdict(entry("A", {4: (1.0, None, 1)}), entry("B", {4: (2.0, 0.1, 4)}, GROUPS))
    assert found.card.headline == "A, not certain"


def test_higher_is_better_for_miou() -> None:
    pair = [entry(label, {4: (mean, 0.01, 4)}, GROUPS, "miou") for label, mean in (("A", 0.4), ("B", 0.6))]
    assert [one.label for one in verdict(*pair, name="miou").best] == ["B"]


def test_a_method_without_a_value_is_left_out() -> None:
    found = verdict(entry("A", {4: (None, None, 4)}), entry("B", {4: (2.0, 0.1, 4)}, GROUPS))
    assert [one.label for one in found.best] == ["B"]
    assert found.only == "AUSE 2.00 ± 0.10"


def test_without_any_value_there_is_no_finding() -> None:
    assert finding([verdict(entry("A", {4: (None, None, 4)}))]) == "There are no values to compare."


def test_methods_are_compared_where_all_were_scored() -> None:
    several = [entry("A", {1: (1.0, 0.1, 4), 8: (1.0, 0.1, 4)}), entry("B", {1: (1.0, 0.1, 4), 4: (1.0, 0.1, 4)})]
    m, m_of = compared_at([*several, entry("C", {2: (1.0, 0.1, 4)})])
    assert m == 1
    assert m_of == {"A": 1, "B": 1, "C": 2}


def test_sets_that_overlap_count_once() -> None:
    error = error_of(entry("A", {4: (1.0, 0.2, 100)}, SETS), "ause", 4)
    assert error is not None
    assert error.value == pytest.approx(0.2 / 2)  # 16 networks hold 4 sets of 4


def test_where_no_two_sets_are_independent_a_smaller_m_stands_in() -> None:
    error = error_of(entry("A", {4: (1.0, 0.2, 100), 8: (1.0, 0.1, 100), 16: (1.0, 0.0, 1)}, SETS), "ause", 16)
    assert error is not None
    assert error.m == 8


def test_gains_of_networks_are_judged_network_by_network() -> None:
    # Networks differ by far more than what members buy, but each of them gains.
    values = {1: [1.0, 2.0, 3.0, 4.0], 8: [0.9, 1.88, 2.91, 3.89]}
    draws = [{"M": m, "metrics": {"ause": value}} for m, column in values.items() for value in column]
    one = entry("A", {1: (2.5, 1.1, 4), 8: (2.4, 1.1, 4)}, {**GROUPS, "draws": draws})
    error = gain_error(one, "ause", 1, 8)
    assert error is not None
    assert error < 0.01


def test_without_draws_gains_are_judged_by_both_errors() -> None:
    one = entry("A", {1: (2.5, 0.6, 4), 8: (2.4, 0.8, 4)}, GROUPS)
    assert gain_error(one, "ause", 1, 8) == pytest.approx(0.5)


def test_the_hardest_shift_is_the_one_with_the_largest_error() -> None:
    results = copy.deepcopy(fake_dense_run.run(domains=("clean", "wild-1", "wild"), members=(1, 2)))
    for method in ("ensemble", "mc_dropout"):
        for stats in results["summary"][method]["wild-1"].values():
            stats["rmse"]["mean"] = 99.0
    (run,) = read_runs([results])
    assert [domain.name for domain in featured(domains_of([run]), methods_of([run]))] == ["clean", "wild-1"]


def test_gains_and_costs_have_a_tone() -> None:
    (run,) = read_runs([fake_dense_run.run(domains=("clean", "wild"))])
    methods, (inside, outside) = methods_of([run]), domains_of([run])
    bought = member_gains([inside, outside], methods, ["auce"])
    assert [[gain.tone for row in block.rows for gain in row.gains if gain] for block in bought] == [
        ["good", "good"],
        ["good", "bad"],
    ]
    costs = shift_costs(inside, outside, methods, ["rmse"])
    assert [gain.judgement for row in costs for gain in row.gains if gain] == ["worse", "worse"]


def test_a_domain_that_a_method_lacks_has_no_entry_of_it() -> None:
    (run,) = read_runs([fake_dense_run.partial()])
    assert [one.label for one in entries_on(methods_of([run]), "wild")] == ["Ensembling"]


@pytest.mark.parametrize(("ause", "bound", "chance"), [(0.5, 0.0, True), (0.3, 0.25, True), (0.3, 0.1, False)])
def test_no_ranking_is_praised_that_chance_does_as_well(ause: float, bound: float, chance: bool) -> None:
    results = copy.deepcopy(fake_dense_run.run("categorical", domains=("clean",), members=(1, 2)))
    for place, found in enumerate(results["summary"].values()):
        for metrics in found["clean"].values():
            metrics["ause"]["mean"] = ause + 0.2 * place
            metrics["ause_random"] = {"mean": 0.5, "std": 0.0, "n": 4}
            metrics["ause_bound"] = {"mean": bound, "std": 0.0, "n": 4}
    methods = methods_of(read_runs([results]))
    entries = entries_on(methods, "clean")
    said = finding([metric_verdict(name, entries) for name in ("ause", "ece")])
    assert ("no uncertainty is known to rank errors better than chance (AUSE)" in said) is chance
    assert ("ranks errors best" in said) is not chance
