"""The deep-ensemble equivalent: exact on a known curve, bounded beyond it, as uncertain as the draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import fake
import numpy as np
import pytest
from html_tree import Node

from epibench.report.equivalent import (
    EnsembleCurve,
    Equivalent,
    Scores,
    equivalent_members,
    equivalents,
    resampled_means,
)
from epibench.report.equivalent_section import BETTER, ensembles_of, equivalents_on, scores_of
from epibench.report.metric_info import HEADLINES, metric_info
from epibench.report.runs import methods_of, read_runs
from epibench.report.table_files import render_markdown, tables_of
from epibench.results import PoolSize, Results

SIZES = [1, 2, 4, 8, 16]
LARGE_POOL = PoolSize(1000)
CURVE = np.array([3 - 0.5 * math.log(m) for m in SIZES])  # which is linear in log M


def scores(draws: Mapping[int, Sequence[float]], pool: PoolSize = LARGE_POOL) -> Scores:
    return Scores({m: float(np.mean(values)) for m, values in draws.items()}, draws, pool)


def steady(curve: Sequence[float] = tuple(CURVE)) -> EnsembleCurve:
    """An ensemble whose draws do not differ."""
    return EnsembleCurve.of(scores({m: [mean] * 8 for m, mean in zip(SIZES, curve, strict=True)}))


def at(score: float, means: Sequence[float] = tuple(CURVE)) -> float:
    return float(equivalent_members(SIZES, np.array(means), np.array(score)))


@pytest.mark.parametrize("members", [1, 1.5, 2, 3, 5.5, 8, 15.9, 16])
def test_on_a_curve_that_is_linear_in_log_m_it_is_the_m(members: float) -> None:
    assert at(3 - 0.5 * math.log(members)) == pytest.approx(members, rel=1e-12)


def test_between_two_m_it_is_linear_in_log_m() -> None:
    assert at(2.25, [3, 2, 1.5, 1.2, 1.1]) == pytest.approx(2**0.75)


def test_beyond_the_curve_it_is_a_bound() -> None:
    assert at(3.01) == -math.inf
    assert at(1.0) == math.inf
    found = Equivalent(-math.inf, -math.inf, 2.34, (1, 16))
    assert (found.text, found.interval) == ("<\u00a01", "<\u00a01 to 2.3")
    found = Equivalent(math.inf, math.inf, math.inf, (1, 16))
    assert (found.text, found.interval) == (">\u00a016", ">\u00a016")
    assert (found.bounded(found.members), found.bounded(3.0)) == ((">", 16), ("", 3.0))


def test_a_curve_that_gets_worse_counts_with_its_best_so_far() -> None:
    worse = [3, 2, 2.5, 2.2, 1]
    assert at(2.0, worse) == 2  # the smallest M that reaches it
    assert at(1.5, worse) == pytest.approx(math.exp((math.log(8) + math.log(16)) / 2))
    assert at(2.3, worse) < 2


def test_many_curves_at_once_are_each_alone() -> None:
    generator = np.random.default_rng(0)
    curves, targets = generator.normal(size=(50, 5)), generator.normal(size=50)
    together = equivalent_members(SIZES, curves, targets)
    assert list(together) == [at(score, curve) for curve, score in zip(curves, targets, strict=True)]
    assert list(equivalent_members(SIZES, curves[0], targets)) == [at(score, curves[0]) for score in targets]


def test_the_interval_is_that_of_the_mean_of_the_draws() -> None:
    values = 2.2 + 0.2 * np.random.default_rng(1).normal(size=400)
    (found,) = equivalents(steady(), scores({4: list(values)}), "mine").values()
    error = values.std() / 20
    low, high = (math.exp((3 - values.mean() + sign * 1.645 * error) / 0.5) for sign in (-1, 1))
    assert (found.low, found.high) == (pytest.approx(low, rel=0.02), pytest.approx(high, rel=0.02))
    assert found.members == pytest.approx(math.exp((3 - values.mean()) / 0.5))


def test_the_interval_grows_with_the_variation_of_the_ensemble() -> None:
    generator = np.random.default_rng(2)
    method = scores({4: list(2.2 + 0.01 * generator.normal(size=50))})
    moving = {m: list(mean + 0.3 * generator.normal(size=16)) for m, mean in zip(SIZES, CURVE, strict=True)}
    (wide,), (narrow,) = (
        equivalents(curve, method, "mine").values() for curve in (EnsembleCurve.of(scores(moving)), steady())
    )
    assert (wide.low or 0) < (narrow.low or 0)
    assert (wide.high or 0) > (narrow.high or 0)


def test_draws_of_one_network_count_once() -> None:
    values = list(2.2 + 0.2 * np.random.default_rng(3).normal(size=40))
    (alone,), (shared,) = (
        equivalents(steady(), scores({4: values}, pool), "mine").values()
        for pool in (PoolSize(160, 40, 40), PoolSize(160, 40, 5))
    )
    assert alone.low is not None
    assert alone.high is not None
    assert shared.low is not None
    assert shared.high is not None
    assert math.log(shared.high / shared.low) > 2 * math.log(alone.high / alone.low)


@pytest.mark.parametrize("number", [2, 3, 5, 20])
def test_intervals_of_few_draws_cover_as_often_as_those_of_many(number: int) -> None:
    generator, covered = np.random.default_rng(number), list[bool]()
    for _ in range(600):
        found = resampled_means(scores({1: list(generator.normal(size=number))}), 1, "mine")
        assert found is not None
        low, high = np.quantile(found, (0.05, 0.95))
        covered.append(bool(low < 0 < high))
    assert 0.86 < np.mean(covered) < 0.94  # 90 %; the mean of 600 has a standard error of 1.2 %


def test_where_sets_overlap_the_variation_is_that_of_a_smaller_m() -> None:
    draws = {2: [2.3, 2.5, 2.7, 2.1], 8: [2.2]}
    found = equivalents(steady(), scores(draws, PoolSize(8)), "mine")
    assert found[8].low is not None
    assert found[8].high is not None
    assert found[8].low < found[8].members < found[8].high


def test_one_draw_has_no_interval() -> None:
    found = equivalents(steady(), scores({4: [2.2]}), "mine")[4]
    assert (found.low, found.high, found.interval) == (None, None, "")
    assert found.members == pytest.approx(math.exp(1.6))


def test_the_same_draws_give_the_same_interval() -> None:
    method = scores({4: [2.1, 2.2, 2.4], 8: [2.0, 2.1, 2.05]})
    assert equivalents(steady(), method, "mine") == equivalents(steady(), method, "mine")


def test_a_metric_that_is_better_higher_is_turned_round() -> None:
    method = methods_of(read_runs([fake.segmentation()]))[1]
    entry = method.on("clean")
    found = scores_of(entry, "miou")
    mean = entry.mean("miou", 4)
    assert mean is not None
    assert found.means[4] == -mean
    assert np.mean(found.draws[4]) == pytest.approx(-mean)


def test_directions_are_those_that_metrics_declare() -> None:
    assert {name: metric_info(name).better for name in BETTER} == BETTER
    assert {name for names in HEADLINES.values() for name in names} <= set(BETTER)


def test_methods_are_counted_in_the_ensemble_of_their_own_run() -> None:
    methods = methods_of(read_runs([fake.small(), fake.small()], ["a", "b"]))
    ensembles = ensembles_of(methods)
    assert [each.name for each in ensembles.values()] == ["ensemble", "ensemble"]
    assert [entry.label for entry, _ in equivalents_on("clean", methods, "nll")] == [methods[1].label, methods[3].label]


RunDocument = Callable[..., Node]


def without_ensemble() -> Results:
    return fake.dense_run(methods=("mc_dropout", "sghmc"), domains=("clean", "wild"), members=(1, 2))


def test_the_page_has_a_table_over_m_for_each_domain(run_document: RunDocument) -> None:
    results = fake.small()
    document = run_document(results)
    (by_nll, *_) = [t for t in document.find_all("div", "scroll") if "In ensemble" in str(t.attributes["aria-label"])]
    rows = [[td.text.split() for td in tr.find_all("td")] for tr in by_nll.find_all("tr")]
    (_, found), *_ = equivalents_on("clean", methods_of(read_runs([results])), "nll")
    assert [" ".join(cell) for cell in rows[2]] == [
        f"{each.text} ({each.interval})".replace("\u00a0", " ") for each in found.values()
    ]


def test_a_run_without_an_ensemble_says_so(run_document: RunDocument) -> None:
    text = run_document(without_ensemble()).text
    assert "The run has no ensemble at several M, in whose members the other methods could be counted." in text


def test_without_other_methods_there_is_nothing_to_count(run_document: RunDocument) -> None:
    assert "In ensemble members" not in run_document(fake.dense_run(methods=("ensemble",), members=(1, 2))).text


def test_tables_for_papers_have_it(tmp_path) -> None:
    runs = read_runs([fake.depth()])
    (_, found), *_ = equivalents_on("clean", methods_of(runs), "nll")
    plain = found[4].text.replace("\u00a0", " ")
    assert f"{plain} ({found[4].interval})".replace("\u00a0", " ") in render_markdown(runs).replace("\u00a0", " ")
    (table,) = [each for each in tables_of(runs) if each.name == "clean-equivalents"]
    assert f"${plain}$" in table.latex
    assert "Deep-ensemble equivalent by NLL" in table.latex


def test_a_frame_has_every_number_and_its_bounds() -> None:
    results = fake.depth()
    frame = results.frame("equivalents")
    (_, found), *_ = equivalents_on("wild", methods_of(read_runs([results])), "crps")
    rows = frame[(frame["domain"] == "wild") & (frame["metric"] == "crps")]
    assert list(rows["M"]) == list(found)
    assert list(rows["members"]) == [each.bounded(each.members)[1] for each in found.values()]
    assert list(rows["bound"]) == [each.bounded(each.members)[0] for each in found.values()]
    assert set(rows["ensemble"]) == {"ensemble"}
    assert set(rows["method"]) == {"mc_dropout"}
    assert without_ensemble().frame("equivalents").empty
