"""A function's work on a GPU as one CUDA graph.

The launch of a graph costs the host as much as one kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Generic, TypeVar

import torch

Result = TypeVar("Result")


class Graph(Generic[Result]):
    """A recording of a function without arguments. Every call reads and writes the same memory."""

    def __init__(self, function: Callable[[], Result], device: torch.device, warm_up: int = 1):
        """Call the function `warm_up` times, then record it on the device of its tensors."""
        self.device = device
        with torch.cuda.device(device):
            # torch's own stream for recordings stays on the GPU of the first recording, so other GPUs need their own.
            stream, current = _stream(device), torch.cuda.current_stream(device)
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                for _ in range(warm_up):  # to choose algorithms and compile kernels, which cannot be recorded
                    function()
            current.wait_stream(stream)
            self.graph = torch.cuda.CUDAGraph()
            # Other threads, e.g. the one that copies batches, may use the GPU meanwhile.
            with torch.cuda.graph(self.graph, stream=stream, capture_error_mode="thread_local"):
                self.result = function()

    def __call__(self) -> Result:
        """Return the function's result; the next call overwrites it."""
        with torch.cuda.device(self.device):
            self.graph.replay()
        return self.result


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
