"""When kernels are used, and when plain operations are."""

import importlib.util
import warnings

import pytest
import torch

from epibench import kernels


@pytest.fixture(autouse=True)
def _asked_anew():
    kernels._available.cache_clear()
    yield
    kernels._available.cache_clear()


def with_triton(monkeypatch, capability: tuple[int, int] = (9, 0)) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "old GPU")


def test_a_cpu_uses_plain_operations(monkeypatch) -> None:
    with_triton(monkeypatch)
    assert not kernels.usable(torch.zeros(1))


def test_a_gpu_with_triton_uses_kernels_unless_plain_ones_are_asked_for(monkeypatch) -> None:
    with_triton(monkeypatch)
    assert kernels.usable(torch.device("cuda"))
    monkeypatch.setenv(kernels.CHOICE, "plain")
    assert not kernels.usable(torch.device("cuda"))


def test_a_missing_triton_is_said_once(monkeypatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.warns(UserWarning, match="Triton is not installed: plain operations score on the GPU"):
        assert not kernels.usable(torch.device("cuda"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not kernels.usable(torch.device("cuda"))


def test_a_gpu_that_is_too_old_is_named(monkeypatch) -> None:
    with_triton(monkeypatch, (6, 1))
    with pytest.warns(UserWarning, match="Triton does not run on old GPU"):
        assert not kernels.usable(torch.device("cuda"))
