"""Free memory of the machine or of the container."""

from pathlib import Path

import pytest

from epibench.free_memory import free_memory


def test_the_limit_of_a_container_counts(tmp_path: Path, monkeypatch) -> None:
    limit, used = tmp_path / "max", tmp_path / "current"
    monkeypatch.setattr("epibench.free_memory.MEMORY_FILES", ((str(limit), str(used)),))
    whole = free_memory()
    limit.write_text("max\n")
    used.write_text("1000\n")
    assert free_memory() == pytest.approx(whole, rel=0.5)
    limit.write_text("501000\n")
    assert free_memory() == 500_000


def test_free_memory_is_a_part_of_the_machines() -> None:
    assert 2**20 < free_memory() < 2**50
