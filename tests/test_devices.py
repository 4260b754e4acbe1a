"""What is set up for a GPU before it is used."""

import os
import subprocess
import sys

import pytest

from epibench.devices import ALLOCATOR_SETTINGS, let_memory_grow


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ALLOCATOR_SETTINGS:
        monkeypatch.delenv(name, raising=False)


def test_memory_of_a_gpu_can_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "before", "1")  # restores what follows
    let_memory_grow()
    assert os.environ.pop("PYTORCH_CUDA_ALLOC_CONF") == "expandable_segments:True"


@pytest.mark.parametrize("name", ALLOCATOR_SETTINGS)
def test_what_the_user_has_said_is_left(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "max_split_size_mb:512")
    let_memory_grow()
    assert [os.environ.get(each) for each in ALLOCATOR_SETTINGS if each != name] == [None]
    assert os.environ[name] == "max_split_size_mb:512"


def test_torch_understands_it() -> None:
    code = "from epibench.devices import resolve_device; print(resolve_device('cpu')); import torch; torch.ones(1)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "cpu"
