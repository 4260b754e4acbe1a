"""What a function does on a GPU as one CUDA graph: to launch it takes the host as long as one of its kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Generic, TypeVar

import torch

Result = TypeVar("Result")


class Graph(Generic[Result]):
    """A recording of a function without arguments, which reads from and writes to the same memory every time."""

    def __init__(self, function: Callable[[], Result], device: torch.device, warm_up: int = 1):
        """Record it on the device that its tensors have; before, it is called as often as `warm_up`."""
        self.device = device
        with torch.cuda.device(device):
            # torch's own stream for recordings lies on the GPU of the first one: on another nothing would be recorded.
            stream, current = _stream(device), torch.cuda.current_stream(device)
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                for _ in range(warm_up):  # algorithms are chosen and kernels compiled, which cannot be recorded
                    function()
            current.wait_stream(stream)
            self.graph = torch.cuda.CUDAGraph()
            # Other threads, as the one that copies batches, may go on meanwhile.
            with torch.cuda.graph(self.graph, stream=stream, capture_error_mode="thread_local"):
                self.result = function()

    def __call__(self) -> Result:
        """What the function returns now; the next call overwrites it."""
        with torch.cuda.device(self.device):
            self.graph.replay()
        return self.result


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
