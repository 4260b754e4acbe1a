import json
from pathlib import Path
from typing import Any

import fake
import pytest

from epibench.cli.report import run_report
from epibench.errors import InputError
from epibench.results import Results


def folder(path: Path, results: Any) -> Path:
    path.mkdir()
    made = results.model_dump(mode="json") if isinstance(results, Results) else results
    (path / "results.json").write_text(json.dumps(made), encoding="utf-8")
    return path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_one_run_gets_its_page_in_its_folder(here: Path) -> None:
    run_report([folder(here / "a", fake.momentum())], None, None)
    assert (here / "a" / "report.html").is_file()


def test_a_results_file_stands_for_its_run(here: Path) -> None:
    run_report([folder(here / "a", fake.momentum()) / "results.json"], None, None)
    assert (here / "a" / "report.html").is_file()


def test_several_runs_get_one_page_here(here: Path) -> None:
    run_report([folder(here / name, fake.momentum()) for name in "ab"], None, None)
    assert sorted(path.name for path in here.iterdir()) == ["a", "b", "report.html"]


def test_the_page_goes_where_it_is_asked_for(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_report([folder(here / "a", fake.bare())], Path("new/page.html"), None)
    assert (here / "new" / "page.html").is_file()
    assert "report:  new/page.html" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("results", "complaint"),
    [
        ({"files": [], "methods": {}}, "not results"),
        ([1], "not results"),
        ({"methods": {}, "version": 99}, "results of version 99"),
    ],
)
def test_what_is_no_run_is_refused(here: Path, results: Any, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        run_report([folder(here / "a", results)], None, None)


def test_a_folder_without_results_is_refused(here: Path) -> None:
    with pytest.raises(InputError, match=r"holds no results\.json"):
        run_report([here], None, None)


def test_a_file_that_is_not_json_is_refused(here: Path) -> None:
    (here / "results.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match="not a JSON file"):
        run_report([here], None, None)


def test_a_missing_run_is_refused(here: Path) -> None:
    with pytest.raises(InputError, match="no such file or folder"):
        run_report([here / "nowhere"], None, None)


def test_a_folder_is_no_place_for_the_page(here: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        run_report([folder(here / "a", fake.bare())], here, None)


def test_results_of_another_shape_are_refused_in_one_line(here: Path) -> None:
    made = fake.bare().model_dump(mode="json")
    made["scores"][0]["summary"] = 7
    with pytest.raises(InputError, match=r"scores\.0\.summary") as caught:
        run_report([folder(here / "a", made)], None, None)
    assert "\n" not in str(caught.value)
