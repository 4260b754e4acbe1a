"""What only lists, helps or complains starts at once: nothing heavy is imported for it."""

import os
import subprocess
import sys

import pytest

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
