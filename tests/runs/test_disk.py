"""A run whose files do not fit onto the disk is refused before it begins."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from silent_reporter import Silent, run_in
from small_dense_recipe import small_dense

from epibench.errors import InputError


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("scenes")


REFUSED = r"^disk: about .* MB are needed .*, .* MB are free\. Fix: give another --out, or make room\.$"


def test_a_full_disk_is_refused_before_anything_is_written(cache: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=2_000_000))
    reporter = Silent()
    with pytest.raises(InputError, match=REFUSED):
        run_in(tmp_path / "run", small_dense(cache), reporter=reporter)
    assert not (tmp_path / "run").exists()
    assert reporter.steps == []


def test_networks_that_are_there_need_no_more_room(cache: Path, tmp_path: Path, monkeypatch) -> None:
    run_in(tmp_path / "run", small_dense(cache, 'methods=["ensemble"]', "data.domains.clean.num_images=1"))
    weights = (tmp_path / "run/members/ensemble/0000.safetensors").stat().st_size
    # Three and two networks, and two states of one at a time: its weights and both moments of Adam.
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=9 * weights))
    with pytest.raises(InputError, match=REFUSED):
        run_in(tmp_path / "fresh", small_dense(cache, "data.domains.clean.num_images=1"))
    run_in(tmp_path / "run", small_dense(cache, "data.domains.clean.num_images=1"))


def test_a_store_of_predictions_needs_room(cache: Path, tmp_path: Path, monkeypatch) -> None:
    few = ('methods=["ensemble"]', "data.domains.clean.num_images=1")
    run_in(tmp_path / "run", small_dense(cache, *few))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=50_000))
    run_in(tmp_path / "run", small_dense(cache, *few, "draws=2"))
    with pytest.raises(InputError, match=REFUSED):
        run_in(tmp_path / "run", small_dense(cache, *few, "draws=2", "evaluation.store=true"))
