"""Effect of pruning channels: parameters, operations, time and memory of a pass, against the whole network.

    python benchmarks/pruning.py                          # on a GPU: the published networks at 512×1024
    python benchmarks/pruning.py --multiple 1             # exactly the share goes, whatever the GPU takes at a time
    python benchmarks/pruning.py --tiny --device cpu      # small networks and images

One image goes through the published DeepLabv3 (ResNet101, output stride 8) and the published depth network, in bf16 and
channels last, as written and compiled. Weights are random: time does not depend on them. `members` is how many pruned
networks take the time of the whole one, in the same way of running.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from epibench.evaluation.cost import num_parameters
from epibench.networks.deeplabv3 import DeepLabV3
from epibench.networks.depth_completion import DepthCompletion
from epibench.networks.pruning import prune_channels
from epibench.networks.shaping import shape_like
from epibench.recipes.dense import SegmentationNetwork

SHARES = (0.0, 0.3, 0.5, 0.7, 0.9)
PUBLISHED: dict[str, Callable[[], nn.Module]] = {
    "DeepLabv3": lambda: DeepLabV3(19, **SegmentationNetwork.published),
    "depth completion": lambda: DepthCompletion(grey=True, image_max=255),
}
TINY: dict[str, Callable[[], nn.Module]] = {
    "DeepLabv3": lambda: DeepLabV3(19, depth=18, width=16, head_width=32, rates=(1, 2), stem="single"),
    "depth completion": lambda: DepthCompletion(width=16, blocks=(1, 1, 1, 1), grey=True),
}


@dataclass(frozen=True)
class Row:
    """What a pass over one image costs. eager, compiled: milliseconds; memory: MB at its peak, with the weights."""

    parameters: int
    flops: int
    eager: float
    compiled: float | None
    memory: float | None


@dataclass(frozen=True)
class Bench:
    """One image of a size on a device."""

    device: torch.device
    size: tuple[int, int]
    repeats: int
    compile: bool

    def inputs(self) -> dict[str, Tensor]:
        image = torch.randint(0, 256, (1, 3, *self.size), dtype=torch.uint8, device=self.device)
        return {"image": image, "sparse_depth": 80 * torch.rand(1, 1, *self.size, device=self.device)}

    def measure(self, network: nn.Module) -> Row:
        before = self.allocated()
        network.to(self.device).eval().requires_grad_(False)
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        inputs = self.inputs()
        with torch.inference_mode(), FlopCounterMode(display=False) as counter:
            network(inputs)
        parameters, flops = num_parameters(network), counter.get_total_flops()
        eager, peak = self.milliseconds(network, inputs), self.peak(network, inputs)
        memory = None if peak is None else (peak - before) / 1e6
        compiled = None
        if self.compile:
            compiled = self.milliseconds(cast(nn.Module, torch.compile(network)), inputs)
        return Row(parameters, flops, eager, compiled, memory)

    def allocated(self) -> int:
        """Bytes that are in use before a network is there; what was compiled for the last one is forgotten."""
        torch.compiler.reset()
        gc.collect()
        return torch.cuda.memory_allocated(self.device) if self.device.type == "cuda" else 0

    def predict(self, network: nn.Module, inputs: dict[str, Tensor]) -> None:
        with torch.inference_mode(), torch.autocast(self.device.type, torch.bfloat16):
            network(inputs)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def milliseconds(self, network: nn.Module, inputs: dict[str, Tensor]) -> float:
        """The median, after the first ones, which choose algorithms and compile."""
        for _ in range(3):
            self.predict(network, inputs)
        times = []
        for _ in range(self.repeats):
            start = time.perf_counter()
            self.predict(network, inputs)
            times.append(1000 * (time.perf_counter() - start))
        return statistics.median(times)

    def peak(self, network: nn.Module, inputs: dict[str, Tensor]) -> int | None:
        """Bytes in use at the peak of a pass as written."""
        if self.device.type != "cuda":
            return None
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self.device)
        self.predict(network, inputs)
        return torch.cuda.max_memory_allocated(self.device)


def pruned(make: Callable[[], nn.Module], share: float, multiple: int) -> nn.Module:
    network = make()
    weights = prune_channels(network.state_dict(), network, share, multiple)
    shape_like(network, weights).load_state_dict(weights)
    return network


def print_row(share: float, row: Row, whole: Row) -> None:
    """With what each number is of the whole network's, and how many members take its time."""
    pairs = ((row.parameters, whole.parameters, 1e-6), (row.flops, whole.flops, 1e-9), (row.eager, whole.eager, 1))
    cells = [f"{value * unit:10.2f}{value / all_of_it:7.2f}" for value, all_of_it, unit in pairs]
    members = whole.eager / row.eager
    if row.compiled is not None and whole.compiled is not None:
        cells.append(f"{row.compiled:10.2f}{row.compiled / whole.compiled:7.2f}")
        members = whole.compiled / row.compiled
    if row.memory is not None and whole.memory is not None:
        cells.append(f"{row.memory:10.0f}{row.memory / whole.memory:7.2f}")
    print(f"  {share:5.0%}{''.join(cells)}{members:9.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tiny", action="store_true", help="small networks and images")
    parser.add_argument("--multiple", type=int, default=8, help="channels that stay are a multiple of it")
    parser.add_argument("--eager", action="store_true", help="compile nothing")
    parser.add_argument("--repeats", type=int, default=15)
    given = parser.parse_args()
    device = torch.device(given.device)
    size, repeats = ((64, 128), 3) if given.tiny else ((512, 1024), given.repeats)
    bench = Bench(device, size, repeats, not given.eager)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}; {size[0]}×{size[1]}, bf16, channels last; multiple {given.multiple}")
    titles = ["parameters, 10⁶", "GFLOP", "ms as written", *([] if given.eager else ["ms compiled"])]
    titles += ["peak MB"] if device.type == "cuda" else []
    for title, make in (TINY if given.tiny else PUBLISHED).items():
        print(f"{title}\n  share{''.join(f'{each:>17}' for each in titles)}{'members':>9}", flush=True)
        whole: Row | None = None
        for share in SHARES:
            row = bench.measure(pruned(make, share, given.multiple))
            whole = whole or row
            print_row(share, row, whole)


if __name__ == "__main__":
    main()
