"""Kernels for a GPU, in Triton: what plain operations would write and read several times is done in one go.

Each has a plain counterpart beside its caller: the reference, and what a CPU uses. Triton comes with PyTorch where that
has CUDA, and is imported only there.
"""

from __future__ import annotations

import importlib.util
import os
import warnings
from contextlib import AbstractContextManager, nullcontext
from functools import cache

import torch
from torch import Tensor

CHOICE = "EPIBENCH_KERNELS"  # `plain`: do without
OLDEST_CAPABILITY = (7, 0)
MOST_PROGRAMS = 65_535  # along any but the first axis of a launch


def usable(where: Tensor | torch.device) -> bool:
    """Whether kernels can be used on a tensor or device: it is a GPU that runs them, and `plain` is not asked for."""
    device = where if isinstance(where, torch.device) else where.device
    return device.type == "cuda" and os.environ.get(CHOICE) != "plain" and _available(device)


def launching(tensor: Tensor) -> AbstractContextManager[object]:
    """Within it, kernels run where the tensor is."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


def launches(number: int, block: int = 1) -> list[slice]:
    """Stretches of what many blocks see, each of which one launch can take along its second axis."""
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
