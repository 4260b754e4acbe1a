"""Links between documents lead somewhere, and the site has every page. `make docs` builds it, as strictly."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
DOCUMENTS = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")), *PAGES]
MADE = {"index.md", "contributing.md", "changelog.md", "api-reference.md"}  # by docs/_site.py
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")


def links(text: str) -> list[str]:
    """Where the links and pictures of a document lead, but those within code."""
    return LINK.findall(re.sub(r"`[^`\n]*`", "code", FENCE.sub("", text)))


def anchors(text: str) -> set[str]:
    """The places within a document: its headings, as GitHub and the site name them."""
    headings = re.findall(r"^#+ (.*?)\s*$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(document: Path, text: str) -> list[str]:
    wrong = []
    for link in links(text):
        path, _, place = link.partition("#")
        target = document.parent / path if path else document
        if re.match(r"[a-z]+:", link):
            continue
        if not target.exists() or (place and place not in anchors(target.read_text(encoding="utf-8"))):
            wrong.append(link)
    return wrong


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    assert broken(document, document.read_text(encoding="utf-8")) == []


def test_a_broken_link_is_found() -> None:
    text = "[a](docs/nowhere.md) [b](#nowhere) [c](docs/metrics.md#nowhere) [`d`](docs/metrics.md#ause) `[e](f.md)`"
    assert broken(ROOT / "README.md", text) == ["docs/nowhere.md", "#nowhere", "docs/metrics.md#nowhere"]


def test_the_site_has_every_page_once() -> None:
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    nav = re.findall(r": (\S+\.md)$", config[config.index("\nnav:") :], re.MULTILINE)
    assert sorted(nav) == sorted([*MADE, *(str(page.relative_to(ROOT / "docs")) for page in PAGES)])


def test_the_site_loads_nothing_from_elsewhere() -> None:
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "font: false" in config
    assert "http" not in config
