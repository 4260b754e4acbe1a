"""Devices, precisions and executors, by name."""

from __future__ import annotations

import os
import re
from typing import Literal

from epibench.errors import ArgumentError

Precision = Literal["32-true", "bf16-mixed"]

EXECUTORS = ("local", "ray")
# Of torch, by their old and new names.
ALLOCATOR_SETTINGS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


def check_executor(name: str, option: str = "executor") -> str:
    """Refuse a name that no executor has. option: what a message calls it."""
    if name not in EXECUTORS:
        raise ArgumentError(f"{option} '{name}' is unknown: there are {' and '.join(EXECUTORS)}")
    return name


def check_device(name: str, option: str = "device") -> str:
    """Refuse words that name no device, without torch. option: what a message calls it."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", name):
        raise ArgumentError(f"{option} '{name}' is unknown: give auto, cpu or cuda")
    return name


def resolve_device(name: str, option: str = "device") -> str:
    """The device to compute on; `auto` takes a GPU if there is one."""
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

    Blocks of pixels differ in size from image to image; without this, each that is a little larger than all before it
    is asked of the driver anew. It must come before the first tensor on a GPU, and holds for child processes, too.
    """
    if not any(name in os.environ for name in ALLOCATOR_SETTINGS):
        os.environ[ALLOCATOR_SETTINGS[0]] = "expandable_segments:True"


def resolve_precision(name: Literal["auto", "32-true", "bf16-mixed"], device: str) -> Precision:
    """The precision of a kind of device; `auto` takes bf16 on GPUs that have it."""
    if name != "auto":
        return name
    import torch

    return "bf16-mixed" if device == "cuda" and torch.cuda.is_bf16_supported() else "32-true"
