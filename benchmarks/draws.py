"""Draws and metrics of one image, with kernels and with plain operations: time, and whether they agree.

    python benchmarks/draws.py                         # on a GPU: both tasks at their published size
    python benchmarks/draws.py segmentation --profile  # where the time goes
    python benchmarks/draws.py --tiny --device cpu     # tries the script; without a GPU both ways are the plain one

Members' outputs are random numbers on the grid that networks predict: what members agree about, and noise of each.
Logits are scored once as they are and once sharpened, so that most pixels are as sure as trained networks are of them.
An eighth of the pixels of a segmentation has no label; of a depth map, 70 %.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor

from epibench import kernels
from epibench.data.batch import Batch
from epibench.evaluation.loop import evaluate
from epibench.evaluation.suite import Suite, SuiteSettings, make_suite
from epibench.likelihoods import LIKELIHOODS
from epibench.members.draws import make_draws
from epibench.members.maps import WindowMaps, whole
from epibench.members.on_images import ImagePortion
from epibench.members.pool import DrawnPart

WAYS = ("plain", "kernels")


@dataclass(frozen=True)
class Task:
    """The size of an evaluation: members that predict an image, and their draws."""

    kind: str
    size: tuple[int, int]
    members: int
    sizes: tuple[int, ...]
    sets: int
    labelled: float
    classes: int | None = None
    images: int = 1  # that are scored together, as the evaluator does it


TASKS = {
    "segmentation": Task("categorical", (1024, 2048), 26, (1, 2, 4, 8, 16), 8, 0.875, 19),
    "depth": Task("gaussian", (352, 1216), 33, (1, 2, 4, 8, 16, 32), 20, 0.3, images=8),
}
TINY = {
    "segmentation": Task("categorical", (32, 64), 5, (1, 2, 4), 3, 0.875, 19),
    "depth": Task("gaussian", (32, 64), 6, (1, 2, 4), 3, 0.3, images=2),
}


def predicted(task: Task, device: str, sharpness: float, seed: int) -> tuple[Batch, WindowMaps]:
    """An image without inputs, and what members predict for it."""
    random = torch.Generator(device).manual_seed(seed)
    height, width = task.size

    def noise(*shape: int) -> Tensor:
        return torch.randn(shape, device=device, generator=random)

    if task.classes:
        rows, columns = height // 8, width // 8
        shared = torch.nn.functional.interpolate(noise(1, task.classes, rows // 4, columns // 4), (rows, columns))
        logits = sharpness * (4 * shared + noise(task.members, task.classes, rows, columns))
        outputs = {"logits": logits}
        fine = torch.nn.functional.interpolate(logits[:1], task.size, mode="bilinear", align_corners=True)
        target = (fine + 2 * sharpness * noise(*fine.shape)).argmax(1)
    else:
        target = 40 + 10 * noise(1, height, width)
        outputs = {
            "mean": target + noise(task.members, height, width),
            "variance": noise(task.members, *task.size).exp(),
        }
    valid = torch.rand((1, height, width), device=device, generator=random) < task.labelled
    maps = WindowMaps(task.size, whole(task.size), {name: each[:, None, None] for name, each in outputs.items()})
    return Batch({}, target, valid), maps


def scoring(
    task: Task, device: str, sharpness: float, depth: bool
) -> tuple[Callable[[], Suite], Callable[[Suite], None]]:
    """What makes new metrics, and what scores the image with them."""
    images = [predicted(task, device, sharpness, seed) for seed in range(task.images)]
    weights = make_draws(task.members, task.sizes, max_draws=task.sets).weights
    part = DrawnPart(slice(0, task.members), list(range(len(weights))), weights)
    weights = weights.to(device)
    uncertainty = LIKELIHOODS[task.kind].uncertainties[0]
    settings = SuiteSettings(task.kind, "pooled", uncertainty, task.images, task.classes, depth=depth)
    predictor = SimpleNamespace(num_classes=task.classes, device=torch.device(device))
    batches = [(range(number, number + 1), batch) for number, (batch, _) in enumerate(images)]
    portion = ImagePortion(cast(Any, predictor), batches, sum(int(batch.valid.sum()) for batch, _ in images))

    def make() -> Suite:
        suite = make_suite(weights, settings)
        suite.metrics.to(device)
        return suite

    def score(suite: Suite) -> None:
        evaluate(portion._pixel_blocks([maps for _, maps in images], part), LIKELIHOODS[task.kind], weights, suite)

    return make, score


def milliseconds(work: Callable[[], Any], device: str, repeats: int, images: int) -> list[float]:
    """Times of `work` on some images, for each of them, after a run that does not count."""
    times = []
    for _ in range(repeats + 1):
        synchronize(device)
        begun = time.perf_counter()
        work()
        synchronize(device)
        times.append(1000 * (time.perf_counter() - begun) / images)
    return times[1:]


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def compared(one: Suite, other: Suite) -> tuple[int, int, float]:
    """Counts that differ, all counts that are not 0, and the largest relative difference of sums."""
    differing, all_counts, farthest = 0, 0, 0.0
    second = other.state()
    for name, value in one.state().items():
        if value.dtype == torch.int64:
            differing += int((value != second[name]).sum())
            all_counts += int((value != 0).sum())
        else:
            scale = value.abs().clamp(min=torch.finfo(value.dtype).tiny)
            apart = torch.where(value == second[name], 0, (value - second[name]).abs() / scale)
            farthest = max(farthest, float(apart.max()))
    return differing, all_counts, farthest


def report(name: str, options: argparse.Namespace, sharpness: float) -> None:
    task = (TINY if options.tiny else TASKS)[name]
    make, score = scoring(task, options.device, sharpness, depth=name == "depth")
    suites, fastest = {}, {}
    for way in WAYS:
        os.environ[kernels.CHOICE] = way
        suites[way] = make()
        score(suites[way])
        suite = make()
        times = milliseconds(lambda: score(suite), options.device, options.repeats, task.images)  # noqa: B023
        fastest[way] = min(times)
        print(f"  {way}: {min(times):.1f} ms per image (of {len(times)}: {min(times):.1f} … {max(times):.1f})")
    again = make()
    score(again)
    differing, counts, farthest = compared(suites["plain"], suites["kernels"])
    print(
        f"  {fastest['plain'] / fastest['kernels']:.1f} × as fast; of {counts:,} counts {differing:,} differ, ", end=""
    )
    print(f"sums by at most {farthest:.1e}; with kernels twice: {compared(suites['kernels'], again)}", flush=True)
    if options.profile:
        profile(lambda: score(again), options.device)


def profile(work: Callable[[], Any], device: str) -> None:
    """Print which operations take the time of one run."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiled

    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device == "cuda" else [])
    with profiled(activities=activities) as seen:
        work()
        synchronize(device)
    events = [
        event for event in seen.key_averages() if event.self_device_time_total > 0 and not event.is_user_annotation
    ]
    kernels_alone = [event for event in events if event.device_type.name == "CUDA"]
    total = sum(event.self_device_time_total for event in kernels_alone)
    print(f"    {sum(event.count for event in kernels_alone):,} kernels, {total / 1000:.1f} ms on the device")
    for event in sorted(kernels_alone, key=lambda event: -event.self_device_time_total)[:14]:
        print(f"    {event.self_device_time_total / 1000:8.2f} ms {event.count:6,} × {event.key[:110]}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", default=list(TASKS), help=" or ".join(TASKS))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    where = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    print(f"torch {torch.__version__} on {where}")
    for name in options.tasks:
        task = (TINY if options.tiny else TASKS)[name]
        for sharpness in (1.0, 5.0) if task.classes else (1.0,):
            draws = len(make_draws(task.members, task.sizes, max_draws=task.sets).sets)
            sharpened = f", logits × {sharpness:g}" if task.classes else ""
            size = f"{task.images} of {task.size[0]} × {task.size[1]}"
            print(f"{name}: {size}, {task.members} members, {draws} draws{sharpened}")
            with torch.inference_mode():
                report(name, options, sharpness)


if __name__ == "__main__":
    main()
