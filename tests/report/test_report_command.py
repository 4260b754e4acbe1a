import io
import json
from pathlib import Path
from typing import Any

import fake_run
import pytest
from rich.console import Console

from epibench.cli.report import print_run_tables, run_report
from epibench.errors import InputError


def folder(path: Path, results: Any) -> Path:
    path.mkdir()
    (path / "results.json").write_text(json.dumps(results), encoding="utf-8")
    return path


def printed(results: dict[str, Any], width: int = 150) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    print_run_tables(results, console)
    return console.export_text()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_one_run_gets_its_page_in_its_folder(here: Path) -> None:
    run_report([folder(here / "a", fake_run.momentum())], None, None)
    assert (here / "a" / "report.html").is_file()


def test_a_results_file_stands_for_its_run(here: Path) -> None:
    run_report([folder(here / "a", fake_run.momentum()) / "results.json"], None, None)
    assert (here / "a" / "report.html").is_file()


def test_several_runs_get_one_page_here(here: Path) -> None:
    run_report([folder(here / name, fake_run.momentum()) for name in "ab"], None, None)
    assert sorted(path.name for path in here.iterdir()) == ["a", "b", "report.html"]


def test_the_page_goes_where_it_is_asked_for(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_report([folder(here / "a", fake_run.bare())], Path("new/page.html"), None)
    assert (here / "new" / "page.html").is_file()
    assert "report:  new/page.html" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("results", "complaint"),
    [
        ({"files": [], "methods": {}}, "not the results of a run"),
        ([1], "not the results of a run"),
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
        run_report([folder(here / "a", fake_run.bare())], here, None)


def test_the_table_has_every_m_and_the_floor() -> None:
    lines = printed(fake_run.classification()).splitlines()
    assert lines[1].split() == ["floor", *(word for m in fake_run.MEMBERS for word in ("M", "=", str(m)))]
    assert lines[2].split()[:5] == ["Ensembling", "0.00090", "0.135", "±", "0.053"]


def test_a_narrow_terminal_gets_the_largest_m_without_std() -> None:
    text = printed(fake_run.classification(), width=60)
    assert "±" not in text.split("Ensembling is closest")[0].split("KLs")[1]
    assert "M = 256" in text
    assert max(len(line) for line in text.splitlines()[1:6]) <= 60


def test_point_estimates_stand_in_the_last_column_with_their_m() -> None:
    line = next(line for line in printed(fake_run.regression()).splitlines() if line.startswith("MAP (M = 1)"))
    assert line.split()[-3:] == ["3.4", "±", "3.3"]


def test_published_counts_and_caveats_are_printed() -> None:
    text = printed(fake_run.dropout_rates())
    assert "of 18 published cells 9 have a value of ours; 9 within one published std" in text
    assert "quick variant" in text


def test_who_is_closest_is_printed() -> None:
    assert "Ensembling is closest." in printed(fake_run.classification())


def test_a_run_without_a_reference_says_so() -> None:
    assert "no KL, as there was no reference" in printed({**fake_run.bare(), "kl": {"map": {}}})
