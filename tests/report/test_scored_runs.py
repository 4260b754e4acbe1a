"""Scored files as runs: in-domain against shifted on the page of a score, and beside runs on one page."""

from pathlib import Path

import fake_dense_run
import fake_results
import pytest
from epibench.report.score_page import render_score_page
from epibench.report.scored import as_runs
from html_tree import parse_html
from page_checks import assert_accessible

from epibench.cli.report import run_report
from epibench.cli.tables import print_tables
from epibench.errors import InputError
from epibench.report import write_score_page
from epibench.report.dense_section import shift_rows
from epibench.report.runs import read_runs
from epibench.results import RunResults, ScoreResults


def on_domains(*domains: str, in_domain: str | None = None) -> ScoreResults:
    """Two methods on every domain; the later a domain, the larger its errors."""
    results = fake_results.two_gaussian()
    files = []
    for number, domain in enumerate(domains):
        for file in results.files:
            copied = file.model_copy(deep=True, update={"domain": domain, "path": f"{file.path}-{domain}"})
            for metrics in copied.summary.values():
                metrics["rmse"].mean *= 1 + number  # type: ignore[union-attr,operator]
            files.append(copied)
    return results.model_copy(update={"files": files, "in_domain": in_domain})


def test_a_method_has_its_numbers_on_every_domain() -> None:
    results = on_domains("night", "day", in_domain="day")
    (run,) = as_runs(results)
    assert [facts.role for facts in run.domains.values()] == ["in-domain", "shifted"]
    assert list(run.domains) == ["day", "night"]
    for file in results.files:
        (label,) = [name for name in run.methods if name == file.method]
        assert run.summary[label][str(file.domain)] == file.summary
        assert run.methods[label].num_members == file.num_members


def test_files_of_several_kinds_or_units_are_apart() -> None:
    results = fake_results.two_gaussian()
    other = fake_results.three_categorical()
    results.files[0] = results.files[0].model_copy(update={"unit": "mm"})
    runs = as_runs(results.model_copy(update={"files": [*results.files, *other.files]}))
    assert [(run.kind, run.unit) for run in runs] == [("gaussian", "mm"), ("gaussian", "m"), ("categorical", None)]


def test_the_shift_is_from_the_in_domain_to_the_hardest() -> None:
    runs = read_runs(as_runs(on_domains("day", "night", "fog", in_domain="day")))
    shift = shift_rows(runs)
    assert shift is not None
    assert shift["title"] == "day → fog"
    assert [row["gains"][2]["judgement"] for row in shift["rows"]] == ["worse", "worse"]


def test_without_an_in_domain_there_is_no_shift() -> None:
    results = on_domains("day", "night")
    assert shift_rows(read_runs(as_runs(results))) is None
    assert "What the shift costs" not in render_score_page(results)


def test_the_page_shows_in_domain_against_shifted(tmp_path: Path) -> None:
    path = write_score_page(on_domains("day", "night", in_domain="day"), tmp_path)
    page = path.read_text(encoding="utf-8")
    document = parse_html(page)
    assert_accessible(document)
    assert "What the shift costs" in page
    assert "day → night" in page
    ids = [node.attributes["id"] for node in document.walk() if "id" in node.attributes]
    assert len(ids) == len(set(ids))
    assert {(a.attributes["href"] or "")[1:] for a in document.find_all("a")} <= set(ids)


def test_the_terminal_says_what_the_shift_costs(capsys: pytest.CaptureFixture[str]) -> None:
    print_tables(on_domains("day", "night", in_domain="day"))
    lines = capsys.readouterr().out.splitlines()
    start = lines.index("day → night, the hardest shift: what it costs")
    assert all("RMSE (m)" in line and "→" in line for line in lines[start + 1 : start + 3])


def scored_like(run: RunResults) -> ScoreResults:
    """Files of one method on the domains of a run, under the labels of these."""
    results = fake_results.two_gaussian()
    files = [
        results.files[0].model_copy(update={"domain": facts.label, "method": "theirs", "unit": run.unit})
        for facts in run.domains.values()
    ]
    return results.model_copy(update={"files": files})


def test_scored_files_join_the_problem_and_the_domains_of_a_run() -> None:
    run = fake_dense_run.depth()
    (scored,) = as_runs(scored_like(run), "scored theirs", [run])
    assert scored.problem == run.problem
    assert list(scored.domains) == list(run.domains)
    assert [facts.role for facts in scored.domains.values()] == [facts.role for facts in run.domains.values()]
    assert scored.summary["theirs"][next(iter(run.domains))] == scored_like(run).files[0].summary


def test_report_puts_runs_and_scored_files_on_one_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = fake_dense_run.depth()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "results.json").write_text(run.as_json(), encoding="utf-8")
    (tmp_path / "theirs.json").write_text(scored_like(run).as_json(), encoding="utf-8")
    run_report([Path("run"), Path("theirs.json")], None, Path("tables.md"))
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "theirs · scored theirs" in page
    assert "what their methods were trained on is not known here" in page
    assert "trained on different data" not in page
    assert "theirs · scored theirs" in capsys.readouterr().out
    assert "theirs · scored theirs" in (tmp_path / "tables.md").read_text(encoding="utf-8")


def test_scored_files_alone_get_a_page(tmp_path: Path) -> None:
    file = tmp_path / "scores.json"
    file.write_text(on_domains("day", "night", in_domain="day").as_json(), encoding="utf-8")
    run_report([file], None, None)
    assert "What the shift costs" in (tmp_path / "report.html").read_text(encoding="utf-8")
    with pytest.raises(InputError, match="written over"):
        run_report([file], file, None)


def test_other_numbers_of_targets_are_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = fake_dense_run.depth()
    Path("results.json").write_text(run.as_json(), encoding="utf-8")
    Path("theirs.json").write_text(scored_like(run).as_json(), encoding="utf-8")
    run_report([Path("results.json"), Path("theirs.json")], Path("page.html"), None)
    assert "is not the same data in all runs" in Path("page.html").read_text(encoding="utf-8")
