"""Every test that docs/reliability.md names is there, and every fault has one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows() -> list[str]:
    text = (ROOT / "docs/reliability.md").read_text(encoding="utf-8")
    table = [line for line in text.splitlines() if line.startswith("| ")]
    return table[1:]  # less its head


def names_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_every_fault_has_a_test_that_exists() -> None:
    assert len(rows()) > 10
    for row in rows():
        named = NAMED.findall(row)
        assert named, f"no test is named: {row}"
        assert [pair for pair in named if pair[1] not in names_in(pair[0])] == []
