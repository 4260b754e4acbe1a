"""Summaries over draws, and JSON that any reader can parse."""

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from epibench.errors import InputError
from epibench.evaluation.summary import mean_and_std, per_draw, summarise, summarise_curves, to_plain
from epibench.files import numbers_in_lines, write_json
from epibench.results import ClassStat, Curve, Draw, PoolSize, Results, Score, Stat, load_results, parse_results

SETS = ((0,), (1,), (0, 1))


def test_summary_has_population_std_and_number_of_draws() -> None:
    summary = summarise(SETS, {"ause": torch.tensor([1.0, 3.0, 7.0])})
    assert summary[1]["ause"] == Stat(mean=2.0, std=1.0, n=2)


def test_std_of_one_draw_is_null() -> None:
    assert summarise(SETS, {"ause": torch.tensor([1.0, 3.0, 7.0])})[2]["ause"] == Stat(mean=7.0, std=None, n=1)


def test_metrics_per_class_keep_their_axis() -> None:
    values = torch.tensor([[1.0, math.nan], [3.0, math.nan], [5.0, 6.0]])
    summary = summarise(SETS, {"iou_per_class": values})
    assert summary[1]["iou_per_class"] == ClassStat(mean=[2.0, None], std=[1.0, None], n=2)


def test_draws_carry_members_and_metrics() -> None:
    values = {"count": torch.tensor([4, 5, 6])}
    assert per_draw(SETS, values)[2] == Draw(M=2, members=[0, 1], metrics={"count": 6})


def test_curves_are_summarised_per_size() -> None:
    curves = {"x": torch.tensor([0.0, 0.5]), "curve": torch.tensor([[1.0, 0.0], [3.0, 0.0], [9.0, 9.0]])}
    summary = summarise_curves(SETS, {"sparsification": curves})["sparsification"]
    assert summary.x == [0.0, 0.5]
    assert summary.M[1]["curve"] == Curve(mean=[2.0, 0.0], std=[1.0, 0.0], draws=[[1.0, 0.0], [3.0, 0.0]])
    assert summary.M[2]["curve"] == Curve(mean=[9.0, 9.0], std=None, draws=[[9.0, 9.0]])


@pytest.mark.parametrize("number", [16, 17, 40, 1000])
def test_curves_of_at_most_sixteen_draws_are_kept_the_first_and_the_last_among_them(number: int) -> None:
    sets = [(member,) for member in range(number)]
    curves = {"x": torch.tensor([0.0]), "curve": torch.arange(float(number))[:, None]}
    curve = summarise_curves(sets, {"sparsification": curves})["sparsification"].M[1]["curve"]
    kept = [values[0] for values in curve.draws or []]
    steps = [after - before for before, after in itertools.pairwise(kept)]
    assert len(kept) == 16
    assert (kept[0], kept[-1]) == (0.0, number - 1)
    assert max(steps) - min(steps) <= 1
    assert curve.mean == [(number - 1) / 2]


def test_curves_of_draws_have_five_digits_and_counts_stay_whole() -> None:
    curves = {
        "x": torch.tensor([0.0, 0.5]),
        "accuracy": torch.tensor([[1 / 3, math.nan]], dtype=torch.float64),
        "count": torch.tensor([[1234567, 0]]),
    }
    summary = summarise_curves([(0,)], {"reliability": curves})["reliability"].M[1]
    assert summary["accuracy"].mean[0] == 1 / 3
    assert summary["accuracy"].draws == [[0.33333, None]]
    assert summary["count"].draws == [[1234567, 0]]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_becomes_null(value: float) -> None:
    assert to_plain(torch.tensor([value, 1.0])) == [None, 1.0]
    assert mean_and_std(torch.tensor([value, 1.0]))[0] is None


def test_lists_of_numbers_stand_on_one_line_and_mean_the_same() -> None:
    content = {"a": [1, -2.5e-07, None], "b": [[], [3]], "text": ["[1,\n 2]", "x"], "c": [{"d": [1, 2]}]}
    text = numbers_in_lines(json.dumps(content, indent=1))
    assert json.loads(text) == content
    assert ' "a": [1, -2.5e-07, null],\n' in text
    assert '"d": [1, 2]\n' in text


def test_json_is_written_whole_or_not_at_all(tmp_path) -> None:
    path = tmp_path / "results.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="Out of range"):
        write_json(path, {"a": math.nan})
    assert json.loads(path.read_text()) == {"a": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["results.json"]


def score(method: str = "a", domain: str = "b", **parts: Any) -> Score:
    facts = {"settings": {"precision": "fp32"}, "kind": "gaussian", "pool": PoolSize(4), "summary": {}}
    return Score(method=method, domain=domain, **{**facts, **parts})


def results(*scores: Score, **parts: Any) -> Results:
    facts = {"epibench": "0", "torch": "0", "recipe": {}, "problem": "p", "methods": {}, "domains": {}}
    return Results(**{**facts, "scores": scores, **parts})


def test_results_read_back_and_a_changed_digit_is_noticed(tmp_path: Path) -> None:
    made = results(score(summary={1: {"ause": Stat(mean=0.5, std=None, n=1)}}))
    (tmp_path / "results.json").write_text(made.as_json())
    assert load_results(tmp_path) == load_results(tmp_path / "results.json") == made
    (tmp_path / "results.json").write_text(made.as_json().replace("0.5", "0.6"))
    with pytest.raises(InputError, match="damaged: its checksum does not fit"):
        load_results(tmp_path)


def test_the_newest_evaluation_before_post_processing_is_the_latest() -> None:
    older, tempered = score(settings={"precision": "bf16"}), score(post="temperature")
    first, second, other = score(), score("c"), score(domain="d")
    assert results(first, tempered, second, older, other).latest() == [first, second, other]
    assert results(first, older).score("a", "b") == first
    # Of stored predictions each file is a score of its own.
    files = [score(source=source) for source in ("x", "y")]
    assert results(*files, recipe={"stored": {}}).latest() == files


def test_text_that_html_cannot_hold_is_replaced() -> None:
    made = results(score("\x00\udc80"), recipe={"name": ["\x07"]})
    assert (made.scores[0].method, made.recipe) == ("\ufffd?", {"name": ["\ufffd"]})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not a JSON file"),
        ("[1]", "not results \\(no 'scores'\\)"),
        ('{"version": 1, "scores": []}', "results of version 1; this epibench reads version 2"),
        ('{"version": 2}', "not results \\(no 'scores'\\)"),
        ('{"version": 2, "scores": []}', "not results as this version writes them: epibench: field required"),
    ],
)
def test_other_files_are_refused_in_one_line(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem) as refused:
        parse_results(text, "x.json")
    assert "\n" not in str(refused.value)
