"""A run whose files do not fit onto the disk is refused before it begins."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from small_dense_recipe import small_dense

import epibench
from epibench.errors import InputError


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("scenes")


run = partial(epibench.run, device="cpu", jobs=1)
REFUSED = r"^disk: about .* MB are needed .*, .* MB are free\. Fix: give another --out, or make room\.$"


def test_a_full_disk_is_refused_before_anything_is_written(cache: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=2_000_000))
    with pytest.raises(InputError, match=REFUSED):
        run(small_dense(cache), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_networks_that_are_there_need_no_more_room(cache: Path, tmp_path: Path, monkeypatch) -> None:
    run(small_dense(cache, 'methods=["ensemble"]', "data.domains.clean.num_images=1"), tmp_path / "run")
    weights = (tmp_path / "run/members/ensemble/0000.safetensors").stat().st_size
    # Three and two networks, and two states of one at a time: its weights and both moments of Adam.
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=9 * weights))
    with pytest.raises(InputError, match=REFUSED):
        run(small_dense(cache, "data.domains.clean.num_images=1"), tmp_path / "fresh")
    run(small_dense(cache, "data.domains.clean.num_images=1"), tmp_path / "run")


def test_a_store_of_predictions_needs_room(cache: Path, tmp_path: Path, monkeypatch) -> None:
    few = ('methods=["ensemble"]', "data.domains.clean.num_images=1")
    run(small_dense(cache, *few), tmp_path / "run")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=50_000))
    run(small_dense(cache, *few, "draws=2"), tmp_path / "run")
    with pytest.raises(InputError, match=REFUSED):
        run(small_dense(cache, *few, "draws=2", "evaluation.store=true"), tmp_path / "run")
