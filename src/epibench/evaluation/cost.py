"""The cost of predictions and of training as functions of M.

Members may share a part of a network, be pruned, or be views of the image. So operations and weights are counted while
a pool runs, not multiplied by M.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from epibench.likelihoods import LIKELIHOODS
from epibench.members.draws import Draws, Members
from epibench.members.maps import Size, joined
from epibench.members.networks import ImagePool
from epibench.members.on_images import bands
from epibench.members.pool import chunk_size
from epibench.methods.contract import MemberTable
from epibench.parallel import in_this_thread
from epibench.results import ImageCost, TrainingCost

REPEATS = 3
SECONDS = 4.0  # for all repeats of one M


def num_parameters(network: nn.Module) -> int:
    """Return the number of learnt numbers of a network."""
    return sum(each.numel() for each in network.parameters())


def cost_per_image(
    pool: ImagePool, inputs: Mapping[str, Tensor], image_size: Size, draws: Draws
) -> dict[int, ImageCost]:
    """Return seconds and peak bytes of one image, by M.

    They are of the first draw of each M: its passes and their mixture.

    The peak includes the weights and all temporary memory. Operations are of the passes alone.
    """
    first = {size: draws.sets[draws.of_size(size)[0]] for size in draws.sizes}
    return {size: _measure(pool, inputs, image_size, members) for size, members in first.items()}


def _measure(pool: ImagePool, inputs: Mapping[str, Tensor], image_size: Size, drawn: Members) -> ImageCost:
    size = len(drawn)
    weights = torch.full((1, size), 1 / size, dtype=torch.float64, device=pool.device)

    def predict() -> None:
        parts = pool.slices_of(drawn)
        maps = joined([pool.outputs(inputs, members, range(1), image_size) for members in parts])
        for rows in bands(maps.size, chunk_size(1, size, maps.num_classes, pool.device)):
            predictive = LIKELIHOODS[pool.kind].combine(maps.pixels(0, rows), weights)
            _ = predictive.probs if pool.kind == "categorical" else predictive  # probabilities are computed on access
        if pool.device.type == "cuda":
            torch.cuda.synchronize(pool.device)

    predict()  # first runs initialise and cache
    before = begin_peak(pool.device)
    seconds: list[float] = []
    begun = time.perf_counter()
    while len(seconds) < REPEATS and time.perf_counter() - begun < SECONDS:
        started = time.perf_counter()
        predict()
        seconds.append(time.perf_counter() - started)
    cuda = pool.device.type == "cuda"
    most = int(torch.cuda.max_memory_allocated(pool.device)) if cuda else _status("VmHWM")
    weight_bytes = pool.weight_bytes(drawn)
    needed = None if before is None or most is None else most - before + weight_bytes
    return ImageCost(
        seconds=statistics.median(seconds),
        peak_bytes=needed,
        flops=count_flops(pool, inputs, image_size, drawn),
        weight_bytes=weight_bytes or None,
    )


def count_flops(pool: ImagePool, inputs: Mapping[str, Tensor], image_size: Size, drawn: Sequence[int]) -> int | None:
    """Return floating-point operations of some members on one image (a multiplication and an addition: two).

    Operations that members share count once. None if operations are not visible, as in models of other frameworks.
    """
    counter = FlopCounterMode(display=False)
    with in_this_thread(), pool.uncompiled(), counter:
        for members in pool.slices_of(drawn):
            pool.outputs(inputs, members, range(1), image_size)
    return int(counter.get_total_flops()) or None


def training_cost(table: MemberTable, draws: Draws, seconds: float, steps: int) -> dict[int, TrainingCost]:
    """Return the training cost of the networks behind M members, by M.

    It is the mean over draws of M. An ensemble of M takes M trainings. Passes, snapshots or samples of one network take
    one training.

    Args:
        table: Table of members.
        draws: Draws.
        seconds: Seconds of training of one network.
        steps: Steps of one network.
    """
    network = [member.network for member in table.members]
    costs = {}
    for size in draws.sizes:
        numbers = [len({network[member] for member in draws.sets[number]}) for number in draws.of_size(size)]
        behind = statistics.fmean(numbers)
        costs[size] = TrainingCost(networks=behind, seconds=behind * seconds, steps=behind * steps)
    return costs


def begin_peak(device: torch.device) -> int | None:
    """Start to measure the peak memory of tensors or of this process. Return the present use; None if unknown."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return int(torch.cuda.memory_allocated(device))
    try:
        ctypes.CDLL(None).malloc_trim(0)  # memory that the C library caches would hide the need
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except (OSError, AttributeError):
        return None
    return _status("VmRSS")


def _status(name: str) -> int | None:
    """Return a value of this process from Linux, in bytes."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))
    except (OSError, StopIteration, ValueError):
        return None
