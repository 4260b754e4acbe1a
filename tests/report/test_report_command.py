"""`epibench report`: where the page goes, and what is refused."""

from pathlib import Path

import fake
import pytest

from epibench.errors import InputError
from epibench.reading import report
from epibench.results import Results


def folder(path: Path, results: Results) -> Path:
    path.mkdir()
    (path / "results.json").write_text(results.as_json(), encoding="utf-8")
    return path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("given", [".", "results.json"])
def test_one_run_gets_its_page_in_its_folder(given: str, here: Path) -> None:
    report([folder(here / "a", fake.bare()) / given])
    assert (here / "a" / "report.html").is_file()


def test_several_runs_get_one_page_here(here: Path) -> None:
    report([folder(here / name, fake.bare()) for name in "ab"])
    assert sorted(path.name for path in here.iterdir()) == ["a", "b", "report.html"]


def test_the_page_goes_where_it_is_asked_for(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = folder(here / "a", fake.bare())
    report([run], Path("new/page.html"), progress=True)
    assert (here / "new" / "page.html").is_file()
    assert "report:  new/page.html" in capsys.readouterr().err
    with pytest.raises(InputError, match="is a folder"):
        report([run], here)


def test_missing_and_broken_files_are_refused(here: Path) -> None:
    with pytest.raises(InputError, match="no such file or folder"):
        report([here / "nowhere"])
    with pytest.raises(InputError, match=r"holds no results\.json"):
        report([here])
    (here / "results.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match="damaged, or of another version: it does not end in a checksum"):
        report([here])
