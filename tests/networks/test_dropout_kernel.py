"""The fused kernel drops what the plain path drops: on a GPU, and without one in Triton's interpreter."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest
import torch

from epibench import randomness
from epibench.networks import dropout

COMPARE = """
import itertools
import torch
from epibench import randomness
from epibench.networks import dropout
from epibench.networks.dropout_kernel import fused_dropout

keys = torch.tensor([randomness.key(0, "dropout", image) for image in range(2)])
shapes = [((2, 5, 7, 9), False), ((4, 70, 7, 5), True), ((2, 3, 11), False), ((6, 3, 1, 1), True), ((2, 1025), False)]
cases = itertools.product(shapes, [(0, 0.5), (1, 0.3), (2**23 - 1, 0.77), (3, 1e-7)], [torch.float32, torch.bfloat16])
for (shape, last), (place, rate), dtype in cases:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    values = values.contiguous(memory_format=torch.channels_last) if last else values
    found = fused_dropout(values, keys, place, dropout._threshold(rate), 1 / (1 - rate))
    plain = dropout.drop_elements(values, keys, place, rate)
    assert found.stride() == values.stride()
    assert torch.equal(found == 0, plain == 0), (shape, place, rate)
    # The interpreter rounds to bfloat16 in another way than a GPU does.
    torch.testing.assert_close(found, plain, rtol=0 if dtype == torch.float32 else 2**-7, atol=0)
print("compared")
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_in_the_interpreter_it_is_the_plain_path() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", COMPARE]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert ended.stdout == "compared\n", ended.stderr


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels last"])
def test_on_a_gpu_it_is_the_plain_path(dtype: torch.dtype, last: bool) -> None:
    keys = torch.tensor([randomness.key(0, "dropout", image) for image in range(2)], device="cuda")
    values = torch.randn(4, 70, 37, 9, device="cuda").to(dtype)
    values = values.contiguous(memory_format=torch.channels_last) if last else values
    assert dropout.can_fuse(values)
    found = dropout.drop_elements(values, keys, 5, 0.3)
    windows = dropout._in_windows(values, 2)
    plain = dropout._drop(windows, dropout._drops(keys, 5, tuple(windows.shape[1:]), 0.3), 0.3)
    assert torch.equal(found, plain.reshape(values.shape))
    assert found.stride() == values.stride()


def test_a_cpu_has_the_plain_path() -> None:
    assert not dropout.can_fuse(torch.rand(2, 3))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_plain_kernels_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.rand(2, 3, device="cuda")
    assert dropout.can_fuse(values)
    monkeypatch.setenv("EPIBENCH_KERNELS", "plain")
    assert not dropout.can_fuse(values)
