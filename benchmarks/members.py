"""What members of every kind cost: a prediction with M of them, and what is fitted after training.

    python benchmarks/members.py                     # on a GPU: the published DeepLabv3 at 512×1024, about a minute
    python benchmarks/members.py --tiny --device cpu

Times are those of a pool as it evaluates, in bf16 on a GPU, with mixture and interpolation (`evaluation.cost`). Samples
of SWAG are networks of their own and cost what as many networks of an ensemble cost; those of a last-layer Laplace
approximation share all but the last stage. What is fitted once for each trained network comes on top. Weights and
images are random numbers.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from epibench.evaluation.cost import cost_per_image
from epibench.members.draws import Draws
from epibench.members.networks import NetworkPool
from epibench.methods import Member, MemberTable
from epibench.methods.laplace import Laplace
from epibench.networks.deeplabv3 import DeepLabV3
from epibench.networks.last_layer import last_layers_of
from epibench.training.laplace import Fit, TrainingPixels
from epibench.training.statistics import batch_norm_statistics
from epibench.views import parse_views

CLASSES = 19
VIEWS = ("identity", "flip", "scale 0.75", "flip scale 1.25")
IMAGES = 16  # that something is fitted to


def make(tiny: bool) -> nn.Module:
    """The published network, or a small one."""
    small = {"depth": 18, "width": 8, "head_width": 16, "rates": (1, 2), "stem": "single"} if tiny else {}
    return DeepLabV3(CLASSES, **small)  # type: ignore[arg-type]


def pool_of(
    build: Callable[[], nn.Module], members: int, views: tuple[str, ...], device: torch.device, sampled: bool = False
) -> NetworkPool:
    """Networks with weights of their own, one network through several views, or one with samples of its last layer."""
    one = bool(views) or sampled
    named = tuple(Member(0, 0, number) if one else Member(number, 0) for number in range(members))
    weights = build().state_dict()
    precision = torch.bfloat16 if device.type == "cuda" else torch.float32
    table = MemberTable(named, "prefix", (0,) * members if one else None)
    more: dict[str, Any] = {"views": parse_views(views)} if views else {}
    more |= {"shared_stages": Laplace().shared_stages} if sampled else {}
    return NetworkPool(
        "categorical", table, build, lambda member: weights, "members", device=device, precision=precision, **more
    )


def image(size: tuple[int, int], number: int) -> dict[str, Tensor]:
    """An image of noise."""
    noise = torch.Generator().manual_seed(number)
    return {"image": torch.randint(0, 256, (1, 3, *size), dtype=torch.uint8, generator=noise)}


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """How long it takes."""
    begun = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begun


def training_images(size: tuple[int, int]) -> Iterator[tuple[dict[str, Tensor], Tensor, Tensor]]:
    """Images with classes, all valid."""
    for number in range(IMAGES):
        target = torch.randint(0, CLASSES, (1, *size), generator=torch.Generator().manual_seed(number))
        yield image(size, number), target, torch.ones(1, *size, dtype=torch.bool)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    device, size = torch.device(options.device), (64, 128) if options.tiny else (512, 1024)
    build, inputs = partial(make, options.tiny), {name: each.to(device) for name, each in image(size, 0).items()}
    print(f"a prediction of one image of {size[0]}×{size[1]}: ms, and operations")
    kinds: dict[str, tuple[tuple[str, ...], bool]] = {
        "networks, or samples of SWAG": ((), False),
        "samples of Laplace": ((), True),
        "test-time augmentation": (VIEWS, False),
    }
    for label, (views, sampled) in kinds.items():
        pool = pool_of(build, 4, views, device, sampled)
        for m, cost in cost_per_image(pool, inputs, size, Draws(4, ((0,), (0, 1), (0, 1, 2, 3)))).items():
            flops = "–" if cost.flops is None else f"{cost.flops / 1e9:,.0f} GFLOP"
            assert cost.seconds is not None
            print(f"  {label}, M = {m}: {1000 * cost.seconds:.1f} ms, {flops}", flush=True)
    network = build().to(device).eval()
    print(f"what is fitted after training, seconds for {IMAGES} images, one at a time")
    with torch.no_grad():
        layers = last_layers_of(network, inputs)
        weights = {name: each.detach() for name, each in network.state_dict().items()}
        batches = partial(to_device, partial(training_images, size), device)
        for curvature in ("full", "kronecker"):
            pixels = TrainingPixels(layers, batches, 1, 1024)
            fit = Fit("categorical", curvature, "marginal", 1.0)
            fitting = partial(fit, pixels, weights)
            print(f"  Laplace, {curvature}, 1,024 pixels of each: {seconds(fitting, device):.2f} s", flush=True)
    stream = [{name: each.to(device).expand(2, -1, -1, -1) for name, each in inputs.items()}] * (IMAGES // 2)
    refresh = partial(batch_norm_statistics, build().to(device), stream)
    print(f"  SWAG, statistics of batch norm of one sample: {seconds(refresh, device):.2f} s", flush=True)


def to_device(batches: Callable[[], Iterator[Any]], device: torch.device) -> Iterator[Any]:
    """The same batches where the network is."""
    for inputs, target, valid in batches():
        yield {name: each.to(device) for name, each in inputs.items()}, target, valid


if __name__ == "__main__":
    main()
