"""Tests import public names and the package that they test, so that other packages can be rebuilt beneath them.

Public are the names that README.md and docs/ import or name, errors, results, metrics and the command line. Builders
make what tests of several folders need, and may import anything.
"""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

import pytest

import epibench

TESTS = Path(__file__).parent
SOURCE = Path(epibench.__file__).parent
DOCUMENTS = [TESTS.parent / "README.md", *sorted((TESTS.parent / "docs").glob("*.md"))]
BLOCK = re.compile(r"^ *```(?:python|py)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
PUBLIC_PARTS = (
    "epibench.api",
    "epibench.errors",
    "epibench.metrics",
    "epibench.preparing",
    "epibench.reading",
    "epibench.results",
)
BUILDERS = {
    "decoded_pictures.py",
    "given/author_networks.py",
    "made_up_images.py",
    "memory_stores.py",
    "methods/toy_fit.py",
    "named_recipes.py",
    "report/fake.py",
    "runs/child_processes.py",
    "runs/conftest.py",
    "runs/fault_injection.py",
    "runs/silent_reporter.py",
    "runs/small_dense_recipe.py",
    "runs/small_recipes.py",
    "runs/small_segmentation_recipe.py",
    "small_pools.py",
    "stored_pixels.py",
    "street_files.py",
    "street_runs.py",
    "toy_points.py",
    "toy_references.py",
    "trained_runs.py",
    "work_sizes.py",
}
OWN = {"given": "published", "mirrored_files": "mirror"}  # folders that are not named after the package that they test
# Files that still import other names, with their number. Only a smaller number may replace one.
EXCEPTIONS: dict[str, int] = {
    "cli/test_console.py": 11,
    "cli/test_data_check.py": 2,
    "cli/test_documented_commands.py": 10,
    "cli/test_recipe_check.py": 1,
    "cli/test_score_command.py": 1,
    "data/sets/test_synscapes.py": 4,
    "evaluation/test_stored_pictures.py": 4,
    "given/test_given_models.py": 1,
    "given/test_published_checkpoints.py": 3,
    "kernels/test_kernels.py": 13,
    "outside/test_sequences.py": 2,
    "published/test_published.py": 4,
    "published/test_published_dense.py": 3,
    "recipes/test_network_options.py": 4,
    "report/test_picture_files.py": 2,
    "report/test_stored_page.py": 1,
    "report/test_terminal.py": 1,
    "runs/test_checkpoints.py": 3,
    "runs/test_class_weights.py": 3,
    "runs/test_damage.py": 1,
    "runs/test_executors.py": 1,
    "runs/test_shards.py": 3,
    "runs/test_shared_run.py": 3,
    "runs/test_toy_training.py": 4,
    "street/test_street_export.py": 2,
    "test_api.py": 2,
    "test_mirrored_files.py": 1,
    "training/test_laplace_fit.py": 4,
}


def imported(tree: ast.AST) -> set[str]:
    """The dotted names of epibench that code imports, also by their names in texts."""
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "epibench":
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names if alias.name.split(".")[0] == "epibench")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.update(re.findall(r"\Aepibench(?:\.\w+)+\Z", node.value))
            for module, found in re.findall(r"^ *from (epibench[\w.]*) import ([\w, ]+)$", node.value, re.MULTILINE):
                names.update(f"{module}.{name.split()[0]}" for name in found.split(","))
    return names


def module_file(module: str) -> Path | None:
    """The file of a module."""
    path = SOURCE.joinpath(*module.split(".")[1:])
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()), None)


def documented(text: str) -> set[str]:
    """The names that code of a document imports, and those that a paragraph or row names with their module."""
    names = set[str]()
    for block in BLOCK.findall(text):
        names |= imported(ast.parse(textwrap.dedent(block)))
    for part in re.split(r"\n(?=\n|- |\|)", text):
        for name in re.findall(r"`(epibench(?:\.\w+)+)", part):
            if (file := module_file(name)) is None:
                names.add(name)
                continue
            offered = set[str]()
            for node in ast.parse(file.read_text(encoding="utf-8")).body:
                offered.update([node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else ())
                offered.update(target.id for target in getattr(node, "targets", ()) if isinstance(target, ast.Name))
            names.update(f"{name}.{word}" for word in re.findall(r"`(\w+)", part) if word in offered)
    return names


PUBLIC = {"epibench", "epibench.cli.app", "epibench.cli.main", "epibench.recipes.Recipe"}
PUBLIC |= {f"epibench.{name}" for name in epibench.__all__}
PUBLIC = PUBLIC.union(*(documented(path.read_text(encoding="utf-8")) for path in DOCUMENTS))


def foreign(tree: ast.AST, own: str) -> set[str]:
    """The names that a test of the package `own` should not import."""
    parts = (*PUBLIC_PARTS, f"epibench.{own}")
    return {
        name
        for name in imported(tree) - PUBLIC
        if not any(f"{name}.".startswith(f"{part}.") for part in parts) and not name.startswith("epibench.__")
    }


def code_of_tests() -> dict[str, ast.AST]:
    """All files by their names, but for the two that hold such names as data."""
    paths = [path for path in TESTS.rglob("*.py") if not path.name.startswith("test_imports")]
    return {path.relative_to(TESTS).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def test_tests_import_public_names_and_the_package_that_they_test() -> None:
    found = {}
    for name, tree in sorted(code_of_tests().items()):
        folder = name.split("/")[0].removeprefix("test_").removesuffix(".py")
        own = OWN.get(folder, folder)
        if name not in BUILDERS and (names := foreign(tree, own)):
            found[name] = names
    numbers = {name: len(names) for name, names in found.items()}
    changed = "".join(
        f"\n{name}: {sorted(found.get(name, ()))}"
        for name in numbers | EXCEPTIONS
        if numbers.get(name) != EXCEPTIONS.get(name)
    )
    assert numbers == EXCEPTIONS, f"{changed}\nEXCEPTIONS = {numbers}"


def test_builders_hand_on_nothing_that_they_import() -> None:
    trees = code_of_tests()
    assert trees.keys() >= BUILDERS, "BUILDERS: no such file"
    inside = {Path(name).stem: {full.rpartition(".")[2] for full in imported(trees[name])} for name in BUILDERS}
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module in inside:
                taken = {alias.name for alias in node.names} & inside[node.module]
                assert not taken, f"{name} imports {taken} from {node.module}"


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("from epibench import runs, metrics, evaluate", {"epibench.runs"}),
        ("from epibench.runs.folder import RunFolder", {"epibench.runs.folder.RunFolder"}),
        ("from epibench.data.batch import Batch, Points", {"epibench.data.batch.Points"}),
        ("import epibench.runs.folder as folder", {"epibench.runs.folder"}),
        ("patch('epibench.runs.folder.locked')", {"epibench.runs.folder.locked"}),
        ("SCRIPT = '''\nfrom epibench.runs import run\n'''", {"epibench.runs.run"}),
        ("from epibench.networks.mlp import Layer", set()),
        ("from epibench.training.rules import Adam, Step", set()),
        ("from epibench.metrics.ranking import cut_at\nfrom epibench.cli import main\nimport torch", set()),
    ],
)
def test_names_of_other_packages_are_found(code: str, names: set[str]) -> None:
    assert foreign(ast.parse(code), "networks") == names
