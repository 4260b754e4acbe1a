from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_results
import pytest
from html_tree import Node, Rendered, parse_html

from epibench.report import write_score_page


@pytest.fixture(scope="session", params=sorted(fake_results.SCENES))
def rendered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    """The page of each scene in turn, made once."""
    path = write_score_page(fake_results.SCENES[request.param](), tmp_path_factory.mktemp("report"))
    page = path.read_text(encoding="utf-8")
    return Rendered(page, parse_html(page))


@pytest.fixture
def document_of(tmp_path: Path) -> Callable[[dict[str, Any]], Node]:
    """A function from a results dict to the document of its page."""
    return lambda results: parse_html(write_score_page(results, tmp_path).read_text(encoding="utf-8"))
