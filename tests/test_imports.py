"""Imports point one way: from the command line down to the metrics, never up."""

import ast
from pathlib import Path

import pytest

import epibench

# Each part may import from those before it. The street world needs batches and Cityscapes' classes; it is itself a data
# set, so that the rest of `data` comes after it.
ORDER = [
    "errors",
    "files",
    "progress",
    "imported",
    "parallel",
    "randomness",
    "metrics",
    "likelihoods",
    "results",
    "data.classes",
    "data.cityscapes_classes",
    "data.batch",
    "street",
    "data",
    "networks",
    "training",
    "store",
    "methods",
    "members",
    "evaluation",
    "reference",
    "recipes",
    "runs",
    "published",
    "report",
    "cli",
    "__main__",
]
ROOT = Path(epibench.__file__).parent


def part_of(module: str) -> str:
    """The longest name in ORDER that a module is called by, or its first one."""
    names = module.split(".")[1:]
    return next((part for part in (".".join(names[:2]), ".".join(names[:1])) if part in ORDER), ".".join(names[:1]))


def imported_parts(path: Path) -> set[str]:
    parts = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("epibench."):
            parts.update(part_of(f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "epibench":
            parts.update(alias.name for alias in node.names if not alias.name.startswith("__"))
        elif isinstance(node, ast.Import):
            parts.update(part_of(alias.name) for alias in node.names if alias.name.startswith("epibench"))
    return parts - {""}


SOURCES = [path for path in sorted(ROOT.rglob("*.py")) if path != ROOT / "__init__.py"]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_upstream_only(path: Path) -> None:
    own = part_of(".".join(["epibench", *path.relative_to(ROOT).with_suffix("").parts]))
    later = {part for part in imported_parts(path) if ORDER.index(part) > ORDER.index(own)}
    assert not later, f"{own} must not import {later}"


def test_metrics_know_nothing_of_the_rest() -> None:
    imported = set().union(*(imported_parts(path) for path in (ROOT / "metrics").glob("*.py")))
    assert imported == {"conventions", "metrics", "parallel"}
