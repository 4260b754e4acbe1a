"""Triton kernels for a GPU, which combine operations that would write and read temporaries several times.

Each kernel has a plain counterpart beside its caller: the reference, which a CPU uses. Triton comes with PyTorch for
CUDA, and is imported only there.
"""

from __future__ import annotations

import importlib.util
import os
import warnings
from contextlib import AbstractContextManager, nullcontext
from functools import cache

import torch
from torch import Tensor

CHOICE = "EPIBENCH_KERNELS"  # `plain` switches kernels off
OLDEST_CAPABILITY = (7, 0)
MOST_PROGRAMS = 65_535  # along any but the first axis of a launch


def usable(where: Tensor | torch.device) -> bool:
    """Return whether kernels can run on a tensor or device: a suitable GPU, unless `plain` is set."""
    device = where if isinstance(where, torch.device) else where.device
    return device.type == "cuda" and os.environ.get(CHOICE) != "plain" and _available(device)


def launching(tensor: Tensor) -> AbstractContextManager[object]:
    """Return a context in which kernels run on the tensor's device."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


def launches(number: int, block: int = 1) -> list[slice]:
    """Return parts of the second axis of many blocks, each within one launch."""
    most = MOST_PROGRAMS * block
    return [slice(start, min(start + most, number)) for start in range(0, number, most)]


@cache
def _available(device: torch.device) -> bool:
    if importlib.util.find_spec("triton") is None:
        warnings.warn("Triton is not installed: plain operations score on the GPU, several times slower", stacklevel=3)
        return False
    capability = torch.cuda.get_device_capability(device)
    if capability < OLDEST_CAPABILITY:
        name = torch.cuda.get_device_name(device)
        warnings.warn(f"Triton does not run on {name}: plain operations score on it", stacklevel=3)
        return False
    return True
