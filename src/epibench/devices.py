"""Devices, precisions and executors, by name."""

from __future__ import annotations

import os
import re
from typing import Literal

from epibench.errors import ArgumentError

Precision = Literal["32-true", "bf16-mixed"]

EXECUTORS = ("local", "ray")
# Environment variables of torch's allocator, by their old and new names.
ALLOCATOR_SETTINGS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


def check_executor(name: str, option: str = "executor") -> str:
    """Raise an InputError for an unknown executor.

    Args:
        name: Name of the executor.
        option: Name of the option in the message.

    Returns:
        The name.
    """
    if name not in EXECUTORS:
        raise ArgumentError(f"{option} '{name}' is unknown: there are {' and '.join(EXECUTORS)}")
    return name


def check_device(name: str, option: str = "device") -> str:
    """Raise an InputError for an unknown device, without an import of torch.

    Args:
        name: `auto`, `cpu`, `cuda` or `cuda:N`.
        option: Name of the option in the message.

    Returns:
        The name.
    """
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", name):
        raise ArgumentError(f"{option} '{name}' is unknown: give auto, cpu or cuda")
    return name


def resolve_device(name: str, option: str = "device") -> str:
    """Return the device to compute on: `auto` is a GPU if one exists, otherwise the CPU."""
    check_device(name, option)
    import torch

    let_memory_grow()
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name != "cpu" and not torch.cuda.is_available():
        raise ArgumentError(f"{option} {name}: torch {torch.__version__} sees no CUDA device; give cpu or auto")
    if name.startswith("cuda:") and int(name.removeprefix("cuda:")) >= torch.cuda.device_count():
        raise ArgumentError(f"{option} {name}: there are {torch.cuda.device_count()} CUDA devices, numbered from 0")
    return name


def let_memory_grow() -> None:
    """Let torch extend its blocks of GPU memory, unless the user chose otherwise.

    Blocks of pixels differ in size between images. Without this setting, torch requests a new block from the driver for
    each one that is larger than all before. Call it before the first tensor on a GPU. Child processes inherit it.
    """
    if not any(name in os.environ for name in ALLOCATOR_SETTINGS):
        os.environ[ALLOCATOR_SETTINGS[0]] = "expandable_segments:True"


def resolve_precision(name: Literal["auto", "32-true", "bf16-mixed"], device: str) -> Precision:
    """Return the precision for a device: `auto` is bf16 on GPUs that support it, otherwise float32."""
    if name != "auto":
        return name
    import torch

    return "bf16-mixed" if device == "cuda" and torch.cuda.is_bf16_supported() else "32-true"
