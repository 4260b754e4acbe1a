"""The published segmentation network at its published sizes: training steps, and inference of whole images.

    python benchmarks/deeplabv3.py                                 # on a GPU: two minutes
    python benchmarks/deeplabv3.py --parts training,inference      # without torch.compile: half a minute
    python benchmarks/deeplabv3.py --quick                         # small networks and images, on a CPU

A step is 8 crops of 512×512: forward, logits upsampled to the crop, cross-entropy, backward, and SGD with momentum, in
bf16. Inference is one image of 1024×2048, logits upsampled to it. Marks were measured on one H200 with torchvision's
DeepLabv3-ResNet101, which has another stem and a head half as wide: so times are compared per FLOP, and the same
architecture of ours is measured beside the published one. Weights are random: time does not depend on them.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from epibench.networks.deeplabv3 import DeepLabV3

NUM_CLASSES = 19
PARTS = ("training", "inference", "settings", "compiled")
TRAINING, FLOAT32, BF16, COMPILED = "training, bf16", "float32", "bf16", "bf16, compiled"
MARKS = {TRAINING: 61.0, FLOAT32: 28.0, BF16: 15.0, COMPILED: 10.9}  # ms on one H200
PUBLISHED: dict[str, Any] = {}
TORCHVISION: dict[str, Any] = {"head_width": 256, "stem": "single"}
QUICK: dict[str, Any] = {"depth": 18, "width": 8, "head_width": 16}


@dataclass(frozen=True)
class Bench:
    """Sizes are (images, height, width)."""

    device: torch.device
    crops: tuple[int, int, int]
    images: tuple[int, int, int]
    repeats: int
    channels_last: bool

    def network(self, options: dict[str, Any]) -> DeepLabV3:
        with self.device:
            network = DeepLabV3(NUM_CLASSES, **options)
        if self.channels_last:
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return network

    def batch(self, size: tuple[int, int, int]) -> tuple[dict[str, Tensor], Tensor]:
        number, height, width = size
        image = torch.randint(0, 256, (number, 3, height, width), dtype=torch.uint8, device=self.device)
        return {"image": image}, torch.randint(0, NUM_CLASSES, size, device=self.device)

    def milliseconds(self, work: Callable[[], object]) -> float:
        """The median time, after the first ones, which choose algorithms and compile."""
        for _ in range(3):
            work()
        times = []
        for _ in range(self.repeats):
            self.wait()
            start = time.perf_counter()
            work()
            self.wait()
            times.append(1000 * (time.perf_counter() - start))
        return statistics.median(times)

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def mixed(self, enabled: bool = True) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=enabled)


def full_size(logits: Tensor, size: tuple[int, ...]) -> Tensor:
    return functional.interpolate(logits, size, mode="bilinear", align_corners=True)


def train_step(network: nn.Module, optimiser: torch.optim.Optimizer, batch: tuple[dict[str, Tensor], Tensor]) -> None:
    inputs, target = batch
    optimiser.zero_grad()
    with torch.autocast(target.device.type, torch.bfloat16):
        logits = full_size(network(inputs), tuple(target.shape[1:]))
        loss = functional.cross_entropy(logits.float(), target, ignore_index=255)
    loss.backward()  # type: ignore[no-untyped-call]
    optimiser.step()


def training_time(bench: Bench, options: dict[str, Any], compiled: bool = False) -> float:
    network = bench.network(options).train()
    optimiser = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    module = cast(nn.Module, torch.compile(network)) if compiled else network
    return bench.milliseconds(partial(train_step, module, optimiser, bench.batch(bench.crops)))


def inference_time(bench: Bench, network: nn.Module, mixed: bool) -> float:
    inputs, target = bench.batch(bench.images)

    def predict() -> Tensor:
        with torch.inference_mode(), bench.mixed(mixed):
            return full_size(network(inputs), tuple(target.shape[1:]))

    return bench.milliseconds(predict)


def teraflops(options: dict[str, Any], size: tuple[int, int, int], training: bool) -> float:
    """10¹² operations of one step or one inference, a multiplication and an addition being two."""
    number, height, width = size
    with torch.device("meta"):
        network = DeepLabV3(NUM_CLASSES, **options).train(training)
        inputs = {"image": torch.empty(number, 3, height, width, dtype=torch.uint8)}
    with FlopCounterMode(display=False) as counter:
        logits = network(inputs)
        if training:
            logits.sum().backward()
    return float(counter.get_total_flops()) / 1e12


def print_row(what: str, milliseconds: float, work: float, mark: float | None = None) -> None:
    """work: 10¹² operations; mark: ms for each of those."""
    pace = milliseconds / work
    against = "" if mark is None else f"{mark:10.2f}{pace / mark:8.2f}"
    print(f"  {what:48}{milliseconds:10.2f}{1000 * work:12.1f}{pace:12.2f}{against}", flush=True)


def print_title(title: str) -> None:
    print(f"{title:50}{'ms':>10}{'GFLOP':>12}{'ms/TFLOP':>12}{'mark':>10}{'ratio':>8}", flush=True)


def native_batch_norm(norm: nn.BatchNorm2d, features: Tensor) -> Tensor:
    """Batch norm in evaluation by torch's own kernel."""
    statistics = norm.running_mean, norm.running_var
    return torch.native_batch_norm(features, norm.weight, norm.bias, *statistics, False, 0.0, norm.eps)[0]


def compare_settings(bench: Bench, options: dict[str, Any], work: float, marks: dict[str, float]) -> None:
    """What settings do to inference."""
    plain = replace(bench, channels_last=False).network(options).eval()
    print_row("float32, channels first", inference_time(bench, plain, False), work, marks.get(FLOAT32))
    network = bench.network(options).eval()
    torch.backends.cudnn.allow_tf32 = False
    print_row("float32 without TF32", inference_time(bench, network, False), work, marks.get(FLOAT32))
    torch.backends.cudnn.allow_tf32 = True
    with patch.object(nn.BatchNorm2d, "forward", native_batch_norm):
        milliseconds = inference_time(bench, network, False)
    print_row("float32, batch norm by torch, not cuDNN", milliseconds, work, marks.get(FLOAT32))
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.to(torch.bfloat16)
    print_row("bf16, convolutions' weights cast once", inference_time(bench, network, True), work, marks.get(BF16))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--quick", action="store_true", help="small networks and images")
    parser.add_argument("--parts", default=",".join(PARTS), help="which of these to measure (default: %(default)s)")
    parser.add_argument("--autotune", action="store_true", help="let cuDNN try its algorithms (cudnn.benchmark)")
    parser.add_argument("--repeats", type=int, default=15)
    given = parser.parse_args()
    torch.backends.cudnn.benchmark = given.autotune
    device, parts = torch.device(given.device), given.parts.split(",")
    crops, images = ((2, 64, 64), (1, 64, 128)) if given.quick else ((8, 512, 512), (1, 1024, 2048))
    bench = Bench(device, crops, images, 3 if given.quick else given.repeats, channels_last=device.type == "cuda")
    small = QUICK if given.quick else {}
    published, torchvision = {**PUBLISHED, **small}, {**TORCHVISION, **small}
    marks = {}
    step, image = (teraflops(torchvision, size, size is crops) for size in (crops, images))
    if device.type == "cuda" and not given.quick:
        marks = {name: mark / (step if name == TRAINING else image) for name, mark in MARKS.items()}
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}; channels last and TF32 on a GPU unless said otherwise")
    for title, options in (("torchvision's architecture", torchvision), ("the published network", published)):
        step, image = (teraflops(options, size, size is crops) for size in (crops, images))
        print_title(title)
        if "training" in parts:
            print_row(TRAINING, training_time(bench, options), step, marks.get(TRAINING))
        if "inference" in parts:
            network = bench.network(options).eval()
            print_row(FLOAT32, inference_time(bench, network, False), image, marks.get(FLOAT32))
            print_row(BF16, inference_time(bench, network, True), image, marks.get(BF16))
    if "settings" in parts:
        compare_settings(bench, published, image, marks)
    if "compiled" in parts:
        compiled = cast(nn.Module, torch.compile(bench.network(published).eval()))
        print_row(COMPILED, inference_time(bench, compiled, True), image, marks.get(COMPILED))
        milliseconds = training_time(bench, published, compiled=True)
        print_row("training, bf16, compiled", milliseconds, step, marks.get(TRAINING))


if __name__ == "__main__":
    main()
