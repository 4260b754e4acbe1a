"""What grows with the number of images, and what does not: a billion pixels evaluated, and 10,000 stretches merged.

    python benchmarks/billion.py pixels [--pixels 1e8 1e9] [--device cuda]
    python benchmarks/billion.py merge [--stretches 100 1000 10000]

`pixels` evaluates images of a megapixel that are made on the fly, through the loop of `epibench evaluate`, with all
metrics of classes; every number of pixels in a process of its own, whose peak memory is printed. `merge` adds up the
states of as many stretches as are asked for, each read from a file and checked.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from epibench.data.batch import Batch
from epibench.evaluation.loop import Evaluation
from epibench.evaluation.suite import SuiteSettings
from epibench.members.draws import make_draws
from epibench.members.networks import NetworkPool
from epibench.members.on_images import NetworksOnImages
from epibench.methods import Member, MemberTable
from epibench.runs.stretches import STRETCH_IMAGES, Stretches

SIDE, CLASSES, MEMBERS = 1000, 4, 4
SIZES = (1, 2, 4)
PEAK_BYTES = 1024  # of the unit of ru_maxrss on Linux


@dataclass(frozen=True)
class Made:
    """Images that are functions of their numbers."""

    length: int

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Batch:
        noise = torch.Generator().manual_seed(index)
        image = torch.randint(0, 256, (3, SIDE, SIDE), generator=noise, dtype=torch.uint8)
        target = (image[0] // 64).long()
        return Batch({"image": image}, target, torch.ones(SIDE, SIDE, dtype=torch.bool))


class Small(nn.Module):
    """Classes from the colours of a pixel, with weights of one's own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, CLASSES, 1)

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        logits: Tensor = self.layer(inputs["image"].float() / 64)
        return logits


def begun(num_images: int, device: str, draws: int) -> Evaluation:
    """An evaluation of that many images, in stretches as a run has them."""
    torch.manual_seed(0)
    networks = [Small().state_dict() for _ in range(MEMBERS)]
    table = MemberTable(tuple(Member(number, 0) for number in range(MEMBERS)), "random", None)
    pool = NetworkPool(
        "categorical", table, Small, lambda member: networks[member.network], "ensemble", device=torch.device(device)
    )
    data = NetworksOnImages(pool, Made(num_images), 1, 0, (), CLASSES, None, stretch=STRETCH_IMAGES)
    settings = SuiteSettings("categorical", "pooled", "entropy", num_images, CLASSES, published=True)
    return Evaluation(data, make_draws(MEMBERS, SIZES, plan="random", max_draws=draws), settings)


def evaluated(pixels: int, device: str) -> tuple[float, int]:
    """Seconds, and valid pixels that were counted."""
    evaluation = begun(pixels // SIDE**2, device, 1)
    start = time.perf_counter()
    evaluation.run()
    evaluation.results()
    return time.perf_counter() - start, evaluation.done.pixels


def merged(count: int, folder: Path, draws: int) -> tuple[float, int]:
    """Seconds to add up the states of that many stretches, and images that were counted."""
    evaluation = begun(STRETCH_IMAGES * count, "cpu", draws)
    files = Stretches(folder, "benchmark", STRETCH_IMAGES * count, STRETCH_IMAGES)
    first = begun(STRETCH_IMAGES * count, "cpu", draws)
    first.predictor.stop = STRETCH_IMAGES  # type: ignore[attr-defined]
    first.run(after_stretch=lambda: files.save(0, *first.cut_stretch()))
    for number in range(1, count):  # the same content under many names takes no room
        if not files.path(number).exists():
            os.link(files.path(0), files.path(number))
    start = time.perf_counter()
    for number in range(count):
        loaded = files.load(number)
        assert loaded is not None
        evaluation.add_stretch(*loaded)
    evaluation.results()
    return time.perf_counter() - start, evaluation.done.images


def alone(work: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """What a function returns in a process of its own, and the peak memory of that process in MiB."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_with_peak, (work, arguments))


def _with_peak(work: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, float]:
    result = work(*arguments)
    return result, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * PEAK_BYTES / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["pixels", "merge"])
    parser.add_argument("--pixels", type=float, nargs="+", default=[1e8, 1e9])
    parser.add_argument("--stretches", type=int, nargs="+", default=[100, 1000, 10000])
    parser.add_argument("--draws", type=int, default=3, help="of each M, in merge")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    table = Table("pixels" if options.what == "pixels" else "stretches", "seconds", "per second", "peak memory, MiB")
    if options.what == "pixels":
        for pixels in map(int, options.pixels):
            (seconds, counted), peak = alone(evaluated, pixels, options.device)
            assert counted == pixels
            table.add_row(f"{pixels:,}", f"{seconds:.1f}", f"{pixels / seconds:,.0f}", f"{peak:,.0f}")
    else:
        for count in options.stretches:
            with tempfile.TemporaryDirectory() as folder:
                (seconds, images), peak = alone(merged, count, Path(folder), options.draws)
                size = (Path(folder) / "000000.safetensors").stat().st_size
            assert images == STRETCH_IMAGES * count
            table.add_row(f"{count:,}", f"{seconds:.1f}", f"{count / seconds:,.0f}", f"{peak:,.0f}")
        table.caption = f"a file has {size / 1e6:.1f} MB"
    Console().print(table)


if __name__ == "__main__":
    main()
