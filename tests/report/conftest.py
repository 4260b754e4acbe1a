import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import fake_dense_run
import fake_results
import fake_run
import pytest
from html_tree import Node, Rendered, parse_html

from epibench.report import write_run_page, write_score_page
from epibench.results import ScoreResults

RUN_SCENES = {**fake_run.SCENES, **fake_dense_run.SCENES}


@pytest.fixture(scope="session", params=sorted(fake_results.SCENES))
def rendered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    """The page of each scene in turn, made once."""
    path = write_score_page(fake_results.SCENES[request.param](), tmp_path_factory.mktemp("report"))
    page = path.read_text(encoding="utf-8")
    return Rendered(page, parse_html(page))


@pytest.fixture(scope="session", params=sorted(RUN_SCENES))
def rendered_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    """The run page of each scene in turn, made once."""
    path = write_run_page(RUN_SCENES[request.param](), tmp_path_factory.mktemp("run") / "report.html")
    page = path.read_text(encoding="utf-8")
    return Rendered(page, parse_html(page))


@pytest.fixture
def document_of(tmp_path: Path) -> Callable[[ScoreResults], Node]:
    """A function from results to the document of their page."""
    return lambda results: parse_html(write_score_page(results, tmp_path).read_text(encoding="utf-8"))


@pytest.fixture
def run_document(tmp_path: Path) -> Callable[..., Node]:
    """A function from the results of runs to the document of their page."""
    return lambda *results: parse_html(write_run_page(results, tmp_path / "report.html").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def scene_document(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Node]:
    """A function from the name of a scene to the document of its run page, which is made once and only read."""

    @cache
    def document(scene: str) -> Node:
        path = write_run_page(RUN_SCENES[scene](), tmp_path_factory.mktemp("scene") / "report.html")
        return parse_html(path.read_text(encoding="utf-8"))

    return document


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser; tests that need it are skipped without it."""
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("needs the program chromium on the PATH (Debian: apt-get install chromium)")
    return found
