"""The methods that docs/methods.md shows run as they are printed there, on a toy problem and on images."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_dense_recipe import small_dense
from small_recipes import small

import epibench
from epibench.recipes import Recipe

DOCUMENT = Path(__file__).parents[2] / "docs" / "methods.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The code of the page, as a file in the folder of the user."""
    (tmp_path / "snapshots.py").write_text("\n".join(BLOCK.findall(DOCUMENT.read_text(encoding="utf-8"))))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("snapshots", None)


def on_toy(folder: Path, *settings: str) -> Recipe:
    return small("toy-regression", *settings)


def on_images(folder: Path, *settings: str) -> Recipe:
    return small_dense(folder / "cache", *settings)


SNAPSHOTS = {"num_runs": 2, "num_snapshots": 2, "num_epochs": 2, "batch_size": 2}


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize("make", [on_toy, on_images])
@pytest.mark.parametrize(
    ("name", "options", "members", "groups"),
    [
        ("SnapshotAverage", SNAPSHOTS, 4, 2),
        ("WeightAverage", SNAPSHOTS, 2, None),
        ("Shrunk", {"num_members": 2, "batch_size": 2}, 2, None),
    ],
)
def test_it_runs(make, name: str, options: dict[str, int], members: int, groups: int | None, tmp_path: Path) -> None:
    variants = {name: {"method": f"snapshots:{name}", "options": options}}
    settings = [f"methods={json.dumps([f'snapshots:{name}'])}", f"variants={json.dumps(variants)}", "members=[1, 2]"]
    results = epibench.run(make(tmp_path, *settings), tmp_path / "run", device="cpu", jobs=1)
    assert results.failed == {}
    for score in results.scores:
        assert (score.pool.num_networks, score.pool.num_members, score.pool.num_groups) == (2, members, groups)
        assert {draw.M for draw in score.draws} == {1, 2}
        assert None not in [draw.metrics["nll"] for draw in score.draws]
