from dataclasses import replace
from typing import Any

import fake_results

from epibench.report.entries import read_entries
from epibench.report.verdicts import Card, card, confidence_sentence, gain


def entries(
    *values: tuple[float, float | None], name: str = "rmse", overlap: float = 0.1, kind: str = "gaussian"
) -> Any:
    """Files with this mean and std at M = 4, and an M = 2 whose draws are apart."""
    files = []
    for i, (mean, std) in enumerate(values):
        file = fake_results.scored_file(f"{i}.zarr", method="abc"[i], kind=kind, members=(2, 4), draws=2)
        file["summary"] = {"4": {name: {"mean": mean, "std": std, "n": 2 if std is not None else 1}}}
        file["overlap"] = {"2": 0.0, "4": overlap}
        files.append(file)
    return read_entries(fake_results.results(*files))


def words(verdict: Card) -> str:
    return " ".join([verdict.headline, *verdict.sentences]).replace("\u00a0", " ")


def test_a_wide_gap_is_a_lead() -> None:
    said = words(card("rmse", entries((1.0, 0.1), (1.5, 0.05))))
    assert said == "a leads At M = 4, b is next, 50 % higher. The gap is 5.0 std of the draws."


def test_the_best_of_a_higher_metric_is_the_highest() -> None:
    said = words(card("miou", entries((0.5, 0.01), (0.6, 0.02), (0.4, 0.01), name="miou", kind="categorical")))
    assert said.startswith("b leads At M = 4, a is next, 17 % lower. The gap is 5.0 std")


def test_a_gap_of_less_than_two_std_is_narrow() -> None:
    assert words(card("rmse", entries((1.0, 0.1), (1.15, 0.05)))).startswith("a leads narrowly")


def test_a_gap_of_less_than_one_std_is_too_close() -> None:
    said = words(card("rmse", entries((1.0, 0.1), (1.05, 0.05))))
    assert said.startswith("Too close to call")
    assert said.endswith("The gap is only 0.50 std of the draws.")


def test_one_draw_supports_no_claim() -> None:
    said = words(card("rmse", entries((1.0, None), (1.5, None))))
    assert said.startswith("a is ahead At")
    assert "no spread of draws to judge the gap by" in said
    assert "std of the draws" not in said


def test_overlapping_draws_are_judged_at_a_smaller_m() -> None:
    found = entries((1.0, 0.001), (1.5, 0.001), overlap=0.8)
    for entry, mean in zip(found, (1.6, 1.2), strict=True):
        entry.summary["2"] = {"rmse": {"mean": mean, "std": 0.1, "n": 2}}
    said = words(card("rmse", found))
    assert said.startswith("a is ahead, not clearly")
    assert "The draws share 80 % of their members there, so that their std says little" in said
    assert said.endswith("at M = 2 b is ahead by 4.0 std of the draws.")


def test_equal_values_have_no_leader() -> None:
    assert words(card("rmse", entries((1.0, 0.1), (1.0, 0.2)))).startswith("Equal")


def test_a_gap_within_the_numerical_bound_is_too_close() -> None:
    found = entries((0.1, 1e-6), (0.1001, 1e-6), name="ause")
    for entry in found:
        entry.summary["4"]["ause_bound"] = {"mean": 1e-3, "std": 0.0, "n": 2}
    assert "numerical error" in words(card("ause", found))


def test_files_of_different_domains_are_not_ranked() -> None:
    found = entries((1.0, 0.1), (2.0, 0.1))
    found[0] = replace(found[0], domain="train")
    assert "Not ranked" in words(card("rmse", found))


def test_no_common_m_is_said() -> None:
    found = entries((1.0, 0.1), (2.0, 0.1))
    found[0] = replace(found[0], summary={"8": found[0].summary["4"]})
    assert "share no M" in words(card("rmse", found))


def test_a_gain_names_the_m_that_brings_most_of_it() -> None:
    (entry,) = entries((1.0, 0.01))
    means = {"1": 2.0, "2": 1.08, "4": 1.0}
    summary = {m: {"rmse": {"mean": mean, "std": 0.01, "n": 8}} for m, mean in means.items()}
    found = gain(replace(entry, summary=summary), "rmse")
    assert found is not None
    assert (found.change, found.judgement, found.reached) == ("−50\u00a0%", "better", "90\u00a0% by M\u00a0=\u00a02")


def test_an_m_in_between_that_beats_both_ends_is_named() -> None:
    (entry,) = entries((1.0, 0.01))
    means = {"1": 2.0, "2": 0.5, "4": 1.0}
    summary = {m: {"rmse": {"mean": x, "std": 0.01, "n": 8}} for m, x in means.items()}
    found = gain(replace(entry, summary=summary), "rmse")
    assert found is not None
    assert found.reached == "best at M\u00a0=\u00a02: 0.500"


def test_a_change_within_the_spread_is_no_gain() -> None:
    (entry,) = entries((1.0, 0.01))
    summary = {m: {"rmse": {"mean": x, "std": 0.5, "n": 8}} for m, x in {"1": 1.2, "4": 1.0}.items()}
    found = gain(replace(entry, summary=summary), "rmse")
    assert found is not None
    assert found.judgement == "no clear change"


def confidence(area: float, signed: float, at_90: float | None = None) -> str:
    (entry,) = entries((1.0, 0.01))
    coverage = {"x": [0.9], "M": {"4": {"coverage": {"mean": [at_90], "std": None}}}}
    entry = replace(entry, curves={"calibration": coverage} if at_90 is not None else {})
    entry.summary["4"] |= {
        "auce": {"mean": area, "std": 0.0, "n": 2},
        "auce_signed": {"mean": signed, "std": 0.0, "n": 2},
    }
    return confidence_sentence(entry)


def test_the_sign_of_the_area_tells_over_from_under() -> None:
    assert confidence(0.1, -0.1).startswith("is over-confident")
    assert confidence(0.1, 0.1).startswith("is under-confident")
    assert confidence(0.1, 0.01).startswith("is over-confident at some levels and under-confident at others")
    assert confidence(0.005, -0.005).startswith("is close to calibrated")


def test_a_90_percent_interval_that_contradicts_the_sign_makes_it_mixed() -> None:
    assert confidence(0.1, 0.1, at_90=0.95).startswith("is under-confident at M")
    assert confidence(0.1, 0.1, at_90=0.87).startswith("is over-confident at some levels and under-confident at others")


def test_classes_are_over_confident_where_confidence_exceeds_accuracy() -> None:
    (entry,) = read_entries(fake_results.results(fake_results.scored_file("x", kind="categorical", quality=0.9)))
    assert confidence_sentence(entry).startswith("is over-confident on average")
