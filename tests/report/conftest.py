import contextlib
import io
import shutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import fake
import pytest
from html_tree import Node, Rendered, parse_html

from epibench.cli import main
from epibench.report import write_run_page
from epibench.results import Results


class Said(NamedTuple):
    status: int
    out: str
    err: str
    markdown: str = ""


def run(*arguments: object) -> Said:
    """Run `epibench …` in this process, without a terminal."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(sys, "argv", ["epibench", *map(str, arguments)])
        patch.setenv("COLUMNS", "40")  # no terminal, so the width does not count
        patch.delenv("FORCE_COLOR", raising=False)
        with pytest.raises(SystemExit) as stop:
            main()
    for stream in (out, err):
        stream.seek(0)
    return Said(int(stop.value.code or 0), out.read(), err.read())


@pytest.fixture(scope="session")
def command() -> Callable[..., Said]:
    """A function that runs `epibench …` with some arguments."""
    return run


def saved(results: Results, path: Path) -> Path:
    """Write results into a file, or into a folder as `results.json`."""
    file = path if path.suffix == ".json" else path / "results.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    results.save(file)
    return path


@pytest.fixture(scope="session")
def save() -> Callable[[Results, Path], Path]:
    return saved


@pytest.fixture(scope="session")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Said]:
    """A function from a scene to the output of `epibench report` and its Markdown."""

    @cache
    def report(scene: str) -> Said:
        folder = tmp_path_factory.mktemp("reported")
        runs = [saved(results, folder / f"run{number}") for number, results in enumerate(fake.SCENES[scene]())]
        said = run("report", *runs, "--out", folder / "page.html", "--markdown", folder / "tables.md")
        assert said.status == 0, said.err
        return said._replace(markdown=(folder / "tables.md").read_text(encoding="utf-8"))

    return report


def rendered_page(path: Path) -> Rendered:
    page = path.read_text(encoding="utf-8")
    return Rendered(page, parse_html(page))


@pytest.fixture(scope="session")
def rendered_scene(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Rendered]:
    """A function from the name of a scene to its page, which is made once and only read."""
    folder = tmp_path_factory.mktemp("scenes")
    return cache(lambda scene: rendered_page(write_run_page(fake.SCENES[scene](), folder / f"{scene}.html")))


@pytest.fixture(scope="session", params=sorted(fake.SCENES))
def rendered_run(request: pytest.FixtureRequest, rendered_scene: Callable[[str], Rendered]) -> Rendered:
    """The page of each scene in turn."""
    return rendered_scene(request.param)


@pytest.fixture(scope="session")
def scene_document(rendered_scene: Callable[[str], Rendered]) -> Callable[[str], Node]:
    """A function from the name of a scene to the document of its page."""
    return lambda scene: rendered_scene(scene).document


@pytest.fixture
def run_document(tmp_path: Path) -> Callable[..., Node]:
    """A function from results to the document of their page."""
    return lambda *results: rendered_page(write_run_page(results, tmp_path / "report.html")).document


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser; tests that need it are skipped without it."""
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("needs the program chromium on the PATH (Debian: apt-get install chromium)")
    return found
