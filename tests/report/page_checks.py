"""What every page of the report must hold to, and how tests read it."""

import base64
import hashlib
import itertools
import re

from html_tree import Node

SPACES = str.maketrans({"\u00a0": " ", "\u2007": " ", "\u2008": " ", "−": "-"})


def plain(text: str) -> str:
    """Text with ordinary spaces and minus signs."""
    return re.sub(r"\s+", " ", text.translate(SPACES)).strip()


def texts(document: Node, tag: str, class_: str = "") -> list[str]:
    """The plain texts of all such nodes."""
    return [plain(node.text) for node in document.find_all(tag, class_)]


def rows(table: Node) -> dict[str, list[str]]:
    """The cells of each row by the label at its head."""
    lines = [tr for body in table.find_all("tbody") for tr in body.find_all("tr") if tr.find_all("td")]
    return {
        plain(tr.find_all("span", "ellipsis")[0].text): [plain(td.text) for td in tr.find_all("td")] for tr in lines
    }


def assert_accessible(document: Node) -> None:
    """Headings descend one level at a time from a single first one; tables and charts speak to screen readers."""
    levels = [int(n.tag[1]) for n in document.walk() if re.fullmatch(r"h[1-6]", n.tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert all(th.attributes.get("scope") in ("col", "row", "rowgroup") for th in document.find_all("th"))
    for svg in document.find_all("svg", "chart"):
        assert svg.attributes["role"] == "img"
        assert svg.attributes["aria-label"]


def assert_links_stay(document: Node) -> None:
    """Ids are unique, links lead to them, and nothing is loaded from elsewhere."""
    ids = [n.attributes["id"] for n in document.walk() if "id" in n.attributes]
    assert len(ids) == len(set(ids))
    targets = {n.attributes["href"] or "" for n in document.walk() if "href" in n.attributes}
    assert {target[1:] for target in targets if not target.startswith("data:image/png;base64,")} <= set(ids)
    assert all(target.startswith(("#", "data:image/png;base64,")) for target in targets)
    assert not [n for n in document.walk() if n.tag in ("link", "img", "iframe", "object", "embed")]
    assert not re.search(r"url\(|@import", document.find_all("style")[0].text)


def assert_safe(document: Node, page: str) -> None:
    """The policy names the one script by its hash; no text has become a tag or an attribute that runs."""
    (script,) = document.find_all("script")
    assert "alert" not in script.text
    digest = base64.b64encode(hashlib.sha256(script.text.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page
    assert not [name for n in document.walk() for name in n.attributes if name.startswith("on")]
