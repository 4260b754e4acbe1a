"""The parts of one's own in examples/ are what docs/own.md shows, and run through the command line."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from epibench.errors import InputError
from epibench.results import load_results
from named_recipes import recipe_of

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_documented_parts_are_those_of_the_example() -> None:
    example = (ROOT / "examples" / "own.py").read_text(encoding="utf-8")
    blocks = BLOCK.findall((ROOT / "docs" / "own.md").read_text(encoding="utf-8"))
    assert [block.split("(")[0].split(":")[0].strip() for block in blocks[1:]] == [
        "class TinyNetwork",
        "class LastEpochs",
        "class Boards",
    ]
    for block in blocks:
        assert block in example


def test_the_documented_recipe_is_that_of_the_example() -> None:
    (block,) = re.findall(r"^```json\n(.*?)^```$", (ROOT / "docs" / "own.md").read_text(), re.MULTILINE | re.DOTALL)
    assert json.loads(block) == json.loads((ROOT / "examples" / "own.json").read_text())


def test_the_documented_parts_are_all_that_is_needed(tmp_path: Path) -> None:
    blocks = BLOCK.findall((ROOT / "docs" / "own.md").read_text(encoding="utf-8"))
    (tmp_path / "own.py").write_text("\n".join(blocks))
    code = "import own; own.LastEpochs(num_epochs=8); own.TinyNetwork(3); own.Boards(2)[0]"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=120)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the example in a folder of its own, smaller."""
    folder = tmp_path_factory.mktemp("own")
    for name in ("own.py", "own.json"):
        shutil.copy(ROOT / "examples" / name, folder)
    fewer = ("training.epoch_steps=2", "ensemble.num_members=2", "members=[1, 2]")
    settings = [word for setting in fewer for word in ("--set", setting)]
    command = [sys.executable, "-m", "epibench", "run", "own.json", "--out", "out", "--jobs", "1", *settings]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder / "out"


def test_the_example_runs_with_network_method_and_data_of_its_own(run: Path) -> None:
    results = load_results(run)
    assert results.recipe["network"] == {"kind": "own", "name": "own:TinyNetwork", "options": {}}
    assert results.methods["last"].label == "Last epochs"
    assert results.score("last", "day").pool.num_members == 8  # four epochs of each of two trainings
    assert results.domains["day"].class_names == ["grass", "dark square", "light square"]
    assert [results.domains[name].role for name in ("day", "dusk")] == ["in-domain", "shifted"]
    assert (run / "report.html").exists()


METHODS = """
from typing import ClassVar

from epibench.methods.optimised import Optimised
from epibench.views import View


class Last(Optimised):
    name: ClassVar[str] = "last"
    label: ClassVar[str] = "Last"
    epochs: tuple[int, ...] = (1, 2)
    drawn: int = 2
    num_epochs: int = 2

    @property
    def num_trained(self):
        return 1

    @property
    def largest_draw(self):
        return self.drawn

    @property
    def keep(self):
        return self.epochs


class Unfinished(Optimised):
    name: ClassVar[str] = "unfinished"
    label: ClassVar[str] = "Unfinished"


class Mirrored(Last):
    rate: float = 0.0
    num_views: int = 2

    @property
    def dropout(self):
        return self.rate

    @property
    def passes(self):
        return (2, 1)

    @property
    def member_views(self):
        return (View(), View(flip=True))[: self.num_views]
"""


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("Last", {}, None),
        ("Last", {"epochs": []}, "variants.mine.method: Last.keep is (); give epochs from 1 to 2, ascending"),
        ("Last", {"epochs": [2, 1]}, "Last.keep is (2, 1)"),
        ("Last", {"epochs": [1, 3]}, "Last.keep is (1, 3)"),
        ("Last", {"drawn": 9}, "Last.largest_draw is 9, but only 2 members can be drawn together"),
        ("Mirrored", {}, None),
        ("Mirrored", {"rate": 0.5}, "Mirrored: members are passes with dropout, have views, or share stages"),
        ("Mirrored", {"num_views": 1}, "Mirrored.member_views: there are 1; give each number of a member one"),
        ("Unfinished", {}, "variants.mine.method: Can't instantiate abstract class Unfinished"),
    ],
)
def test_methods_of_the_user_are_looked_at_before_anything_is_trained(
    method: str, options: dict[str, object], message: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "my_methods", raising=False)
    (tmp_path / "my_methods.py").write_text(METHODS)
    variants = {"mine": {"method": f"my_methods:{method}", "options": options}}
    settings = [f"variants={json.dumps(variants)}", 'methods=["mine"]', "members=[1, 2]"]
    if message is None:
        assert recipe_of("street-segmentation", *settings).method("mine").keep == (1, 2)
    else:
        with pytest.raises(InputError) as caught:
            recipe_of("street-segmentation", *settings)
        assert message in str(caught.value)
