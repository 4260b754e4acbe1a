"""What only lists, helps or complains starts at once: nothing heavy is imported for it."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import epibench

HEAVY = ("torch", "lightning", "zarr", "torchmetrics", "safetensors", "matplotlib")
LOADED = f"import sys; print(*sorted(set(sys.modules) & set({HEAVY})), file=sys.stderr)"


def loaded_by(code: str) -> list[str]:
    """The heavy packages that are imported after this code."""
    guarded = f"try:\n    {code}\nexcept SystemExit:\n    pass\n{LOADED}"
    run = subprocess.run(
        [sys.executable, "-c", guarded], capture_output=True, text=True, encoding="utf-8", check=True, env=os.environ
    )
    return run.stderr.splitlines()[-1].split()


@pytest.mark.parametrize(
    "module", ["conventions", "imported", "street", "data.sets", "data.sets.toy", "data.source", "recipes"]
)
def test_modules_that_recipes_need(module: str) -> None:
    assert loaded_by(f"import epibench.{module}") == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("data", "check", "--help"),
        ("recipes",),
        ("recipes", "street-depth"),
        ("run", "street-depth", "--set", "typo=1"),
        ("train", "typo"),
        ("evaluate", "nowhere"),
        ("data", "check", "typo"),
        ("export", "--help"),
        ("export", "typo", "--svg", "figures"),
    ],
    ids=" ".join,
)
def test_commands(arguments: tuple[str, ...]) -> None:
    assert loaded_by(f"import sys; sys.argv[1:] = {arguments}; from epibench.cli import main; main()") == []


SHOWN = """
import importlib, pkgutil, sys
sys.modules["torch"] = None  # an import of torch fails
import epibench.report
for module in pkgutil.walk_packages(epibench.report.__path__, "epibench.report."):
    importlib.import_module(module.name)
from epibench.cli import app
app(["report", "results.json", "--out", "page.html", "--markdown", "tables.md"], standalone_mode=False)
app(["export", "results.json", "--csv", "csv", "--latex", "latex"], standalone_mode=False)
results = epibench.load_results("results.json")
assert "AUSE" in results._repr_html_()
assert "ause" in set(results.frame().metric)
"""


def test_results_are_shown_and_exported_without_torch(tmp_path: Path) -> None:
    target = np.random.default_rng(0).normal(size=50)
    results = epibench.score({"mean": target[None] + [[0.1], [0.2]], "variance": np.ones((2, 50)), "target": target})
    results.save(tmp_path / "results.json")
    subprocess.run([sys.executable, "-c", SHOWN], cwd=tmp_path, check=True)
    assert "AUSE" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert list((tmp_path / "latex").glob("*.tex"))
