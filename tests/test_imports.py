"""Imports point one way: from the command line down to the metrics, never up."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import epibench

# Each part may import from those before it. The street world needs batches and Cityscapes' classes; it is itself a data
# set, so that the rest of `data` comes after it.
ORDER = [
    "errors",
    "conventions",
    "plans",
    "views",
    "oklab",
    "mirror",
    "files",
    "progress",
    "console",
    "stopping",
    "devices",
    "picture_files",
    "arguments",
    "results",
    "standard_errors",
    "imported",
    "parallel",
    "free_memory",
    "randomness",
    "interpolation",
    "cuda_graphs",
    "kernels",
    "metrics",
    "likelihoods",
    "data.classes",
    "data.cityscapes_classes",
    "data.virtual_kitti_videos",
    "data.batch",
    "street",
    "data",
    "networks",
    "published",
    "training",
    "methods",
    "store",
    "members",
    "evaluation",
    "reference",
    "recipes",
    "runs",
    "report",
    "api",
    "reading",
    "preparing",
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


def test_only_results_find_what_stands_above_them_by_its_name() -> None:
    named = {path.name for path in SOURCES if 'import_module(f"epibench.' in path.read_text(encoding="utf-8")}
    assert named == {"results.py"}


def test_metrics_know_nothing_of_the_rest() -> None:
    imported = set().union(*(imported_parts(path) for path in (ROOT / "metrics").glob("*.py")))
    assert imported == {"conventions", "kernels", "metrics", "parallel"}


SCORE = """
import sys
import numpy as np
from epibench.cli import app
from epibench.store import write_store
rng = np.random.default_rng(0)
target = rng.normal(size=50)
write_store("store.zarr", kind="gaussian", target=target, mean=rng.normal(size=(3, 50)), variance=np.ones((3, 50)))
app(["score", "store.zarr", "--json", "scores.json", "--report", "page"], standalone_mode=False)
print("loaded", *(name for name in sys.modules if name.startswith("epibench.") or name == "ray"))
"""


def test_score_loads_no_method_trainer_network_recipe_scene_or_ray(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCORE], cwd=tmp_path, capture_output=True, encoding="utf-8", check=True
    )
    loaded = done.stdout.splitlines()[-1].split()[1:]
    assert "epibench.evaluation.loop" in loaded
    assert not {part_of(name) for name in loaded} & {
        "methods",
        "training",
        "networks",
        "recipes",
        "runs",
        "street",
    }
    assert "ray" not in loaded


CONTRIBUTING = ROOT.parents[1] / "CONTRIBUTING.md"


def imports(text: str, module: str) -> bool:
    parent, _, last = module.rpartition(".")
    return f"{module} import" in text or re.search(rf"from {parent} import .*\b{last}\b", text) is not None


def test_the_walk_from_the_command_to_the_page_goes_from_importer_to_imported() -> None:
    walk = re.findall(r"^\| `([\w/]+\.py)` \|", CONTRIBUTING.read_text(encoding="utf-8"), re.MULTILINE)
    assert 20 <= len(walk) <= 25
    for number, module in enumerate(walk[1:], 1):
        name = "epibench." + module.removesuffix(".py").replace("/", ".")
        above = [(ROOT / each).read_text(encoding="utf-8") for each in walk[:number]]
        package = (ROOT / module).parent / "__init__.py"  # what a package offers counts as its own
        offered = imports(package.read_text(encoding="utf-8"), name) and any(
            f"{name.rpartition('.')[0]} import" in text for text in above
        )
        assert offered or any(imports(text, name) for text in above), f"nothing above imports {module}"
