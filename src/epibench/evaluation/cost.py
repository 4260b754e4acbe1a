"""What a prediction costs: parameters, FLOPs, and time and peak memory per image as a function of M."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from epibench.evaluation.dense import ImagePool
from epibench.likelihoods import LIKELIHOODS

REPEATS = 3
SECONDS = 4.0  # for all repeats of one M: enough to see what it costs


def network_cost(network: nn.Module, inputs: Mapping[str, Tensor]) -> dict[str, int]:
    """Parameters, and floating-point operations of one pass over one image (a multiplication and an addition: two)."""
    counter = FlopCounterMode(display=False)
    with torch.inference_mode(), counter:
        network(inputs)
    return {"parameters": sum(each.numel() for each in network.parameters()), "flops": int(counter.get_total_flops())}


def cost_per_image(
    pool: ImagePool, kind: str, inputs: Mapping[str, Tensor], sizes: Sequence[int]
) -> dict[str, dict[str, Any]]:
    """Seconds and peak bytes of predicting one image with the first M members, by M: their passes and their mixture."""
    return {str(size): _measure(pool, kind, inputs, size) for size in sizes}


def _measure(pool: ImagePool, kind: str, inputs: Mapping[str, Tensor], size: int) -> dict[str, Any]:
    weights = torch.full((1, size), 1 / size, dtype=torch.float64, device=pool.device)

    def predict() -> None:
        groups = [pool.outputs(inputs, members, range(1)) for members in pool.groups(slice(0, size))]
        outputs = {name: torch.cat([found[name] for found in groups]).flatten(1, 3) for name in groups[0]}
        LIKELIHOODS[kind].combine(outputs, weights)
        if pool.device.type == "cuda":
            torch.cuda.synchronize(pool.device)

    predict()  # what is done for the first time only
    reset_peak(pool.device)
    seconds: list[float] = []
    begun = time.perf_counter()
    while len(seconds) < REPEATS and time.perf_counter() - begun < SECONDS:
        started = time.perf_counter()
        predict()
        seconds.append(time.perf_counter() - started)
    return {"seconds": statistics.median(seconds), "peak_bytes": peak(pool.device)}


def reset_peak(device: torch.device) -> None:
    """Begin to measure the peak anew; on a CPU Linux does it for this process."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return


def peak(device: torch.device) -> int | None:
    """The most memory since then: of tensors on a GPU, of the whole process on a CPU; None where nobody knows."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration, ValueError):
        return None
