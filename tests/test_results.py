"""Results as files: read back whole, or refused in one line."""

from pathlib import Path
from typing import Any

import pytest

from epibench.errors import InputError
from epibench.results import PoolSize, Results, Score, Stat, load_results, parse_results


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
