import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import fake
import pytest
from html_tree import Node, Rendered, parse_html

from epibench.report import write_run_page
from epibench.results import Results


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

    def document(*results: Results) -> Node:
        return rendered_page(write_run_page(results, tmp_path / "report.html")).document

    return document


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser; tests that need it are skipped without it."""
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("needs the program chromium on the PATH (Debian: apt-get install chromium)")
    return found
