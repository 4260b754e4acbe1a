"""The parts of one's own in examples/ are what docs/own.md shows, and run through the command line."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_documented_parts_are_those_of_the_example() -> None:
    example = (ROOT / "examples" / "own.py").read_text(encoding="utf-8")
    blocks = BLOCK.findall((ROOT / "docs" / "own.md").read_text(encoding="utf-8"))
    assert [block.split("(")[0].split(":")[0].strip() for block in blocks] == [
        "class TinyNetwork",
        "class LastEpochs",
        "class Boards",
    ]
    for block in blocks:
        assert block in example


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the example in a folder of its own, smaller."""
    folder = tmp_path_factory.mktemp("own")
    for name in ("own.py", "own.json"):
        shutil.copy(ROOT / "examples" / name, folder)
    fewer = ("training.epoch_steps=2", "ensemble.num_members=2", "members=[1, 2]")
    settings = [word for setting in fewer for word in ("--set", setting)]
    command = [sys.executable, "-m", "epibench", "run", "own.json", "--out", "out", *settings]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder / "out"


def test_the_example_runs_with_network_method_and_data_of_its_own(run: Path) -> None:
    results = json.loads((run / "results.json").read_text())
    assert results["recipe"]["network"] == {"kind": "own", "name": "own:TinyNetwork", "options": {}}
    assert results["methods"]["last"]["label"] == "Last epochs"
    assert results["methods"]["last"]["num_members"] == 8  # four epochs of each of two trainings
    assert results["class_names"] == ["grass", "dark square", "light square"]
    assert [results["domains"][name]["role"] for name in ("day", "dusk")] == ["in-domain", "shifted"]
    assert (run / "report.html").exists()
