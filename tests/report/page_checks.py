"""What every page of the report must hold to."""

import itertools
import re

from html_tree import Node


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
