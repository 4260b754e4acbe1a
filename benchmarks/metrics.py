"""AUSE, AUCE, RMSE and ECE: pixels per second and peak memory, ours against what a user would pick instead.

    python benchmarks/metrics.py                           # 10⁶ and 10⁷ pixels
    python benchmarks/metrics.py --pixels 1e6 1e7 1e8      # the table of docs/performance.md
    python benchmarks/metrics.py --device cuda
    python benchmarks/metrics.py categorical [--device cuda] [--forward-ms 30]

`categorical` takes apart what scoring one image of a segmentation costs beside the members' passes. Otherwise, every
way runs in a process of its own, on the same gamma-distributed pixels; the time is the best of several runs, the
memory what the process needed at its peak beyond the inputs. Ratios of one run compare; seconds of two machines do not.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from epibench.evaluation.loop import evaluate
from epibench.evaluation.suite import MetricInputs, SuiteSettings, make_suite
from epibench.likelihoods import LIKELIHOODS
from epibench.members.draws import make_draws
from epibench.members.maps import upsampled_rows
from epibench.members.pool import Pixels, chunk_size
from epibench.metrics import ConfidenceCalibration, IntervalCalibration, RootMeanSquaredError, Sparsification, ause
from epibench.parallel import silenced_torch_threads


@dataclass(frozen=True)
class Data:
    """Gamma-distributed variances, and errors that follow them but for a factor; classes for the ECE."""

    variance: torch.Tensor
    error: torch.Tensor
    loss: torch.Tensor

    @classmethod
    def make(cls, num_pixels: int, device: str) -> Data:
        generator = torch.Generator(device).manual_seed(0)
        variance, error, loss = (torch.empty(num_pixels, device=device) for _ in range(3))
        for start in range(0, num_pixels, 2**22):  # in pieces: the peak of this process shall be the metric's
            part = slice(start, start + 2**22)
            size = variance[part].shape
            first, second, normal = (torch.empty(size, device=device) for _ in range(3))
            variance[part] = first.exponential_(2, generator=generator) + second.exponential_(2, generator=generator)
            error[part] = variance[part].sqrt() * normal.normal_(generator=generator)
            loss[part] = error[part].square()
        return cls(variance, error, loss)

    def batches(self, size: int = 2**22) -> Iterator[Data]:
        for start in range(0, self.error.numel(), size):
            part = slice(start, start + size)
            yield Data(self.variance[part], self.error[part], self.loss[part])


def ours_streamed(data: Data) -> float:
    metric = Sparsification().to(data.variance.device)
    metric.update(data.variance, data.loss)
    return float(metric.compute()["ause"])


def ours_exact(data: Data) -> float:
    return float(ause(data.variance, data.loss))


def paper_way(data: Data) -> float:
    """Two argsorts, and for each of 100 fractions the mean of a sorted slice of each, in NumPy."""
    variance, loss = data.variance.numpy(), data.loss.numpy()
    by_variance, by_loss = loss[np.argsort(variance)], loss[np.argsort(loss)]
    curves = []
    for sorted_loss in (by_variance, by_loss):
        kept = [int((1 - cut / 100) * len(loss)) for cut in range(100)]
        curves.append(np.array([np.sqrt(np.mean(sorted_loss[:count])) for count in kept]))
    gap = curves[0] / curves[0][0] - curves[1] / curves[1][0]
    return float(np.trapezoid(gap, dx=0.01))


def argsort_cumsum(data: Data) -> float:
    """What a careful user writes in NumPy: two sorts, two cumulative sums."""
    variance, loss = data.variance.numpy(), data.loss.numpy().astype(np.float64)
    kept = len(loss) - np.arange(100) * len(loss) // 100
    curves = [np.sqrt(np.cumsum(loss[np.argsort(key)])[kept - 1] / kept) for key in (variance, loss)]
    return float(np.trapezoid(curves[0] / curves[0][0] - curves[1] / curves[1][0], dx=0.01))


def torch_uncertainty_ause(data: Data) -> float:
    """torch-uncertainty's own (a sum over what remains instead of its mean: another number)."""
    from torch_uncertainty.metrics import AUSE

    metric = AUSE()
    metric.update(data.loss, data.variance)
    return float(metric.compute())


def ours_three(data: Data) -> float:
    """AUSE + AUCE + RMSE in one go."""
    device = data.variance.device
    sparsification, calibration = Sparsification().to(device), IntervalCalibration().to(device)
    rmse = RootMeanSquaredError().to(device)
    for batch in data.batches():
        mean = torch.zeros((), device=device).expand_as(batch.error)
        sparsification.update(batch.variance, batch.loss)
        calibration.update(mean, batch.variance.sqrt(), batch.error)
        rmse.update(mean, batch.error)
    calibration.compute(), rmse.compute()
    return float(sparsification.compute()["ause"])


def two_class_probs(data: Data) -> tuple[torch.Tensor, torch.Tensor]:
    positive = torch.sigmoid(data.error * 3)
    return torch.stack([positive, 1 - positive], -1), (data.variance > 1).long()


def ours_ece(data: Data) -> float:
    metric = ConfidenceCalibration().to(data.variance.device)
    for batch in data.batches():
        metric.update(*two_class_probs(batch))
    return float(metric.compute()["ece"])


def torchmetrics_ece(data: Data) -> float:
    """torchmetrics' calibration error, which keeps every confidence."""
    from torchmetrics.classification import MulticlassCalibrationError

    metric = MulticlassCalibrationError(num_classes=2, n_bins=10, validate_args=False).to(data.variance.device)
    for batch in data.batches():
        metric.update(*two_class_probs(batch))
    return float(metric.compute())


WAYS: dict[str, dict[str, Callable[[Data], float]]] = {
    "AUSE": {
        "paper's way": paper_way,
        "argsort + cumsum": argsort_cumsum,
        "torch-uncertainty": torch_uncertainty_ause,
        "epibench exact": ours_exact,
        "epibench streamed": ours_streamed,
    },
    "AUSE + AUCE + RMSE": {"epibench": ours_three},
    "ECE": {"torchmetrics": torchmetrics_ece, "epibench": ours_ece},
}
CPU_ONLY = {paper_way, argsort_cumsum, torch_uncertainty_ause}


def peak_memory() -> int:
    """The most bytes this process has held since its peak was last forgotten."""
    status = Path("/proc/self/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found.group(1)) * 1024 if found else 0


def measure(way: Callable[[Data], float], num_pixels: int, device: str, repeats: int, queue: Any) -> None:
    """Time one way in this process and report seconds, peak bytes beyond the inputs, and the value."""
    data = Data.make(num_pixels, device)
    warm_up = Data.make(10_000, device)
    way(warm_up)
    if device == "cuda":
        way(data)  # the allocator keeps what it has asked for
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before, times, value = peak_memory(), [], 0.0
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    for _ in range(repeats):
        start = time.perf_counter()
        value = way(data)  # ends in float(): the device is done
        times.append(time.perf_counter() - start)
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else peak_memory()
    queue.put((min(times), peak - before, value))


def run(way: Callable[[Data], float], num_pixels: int, device: str, repeats: int) -> tuple[float, int, float] | None:
    """Measure in a fresh process; None if it died."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=measure, args=(way, num_pixels, device, repeats, queue))
    process.start()
    while process.is_alive() and queue.empty():
        time.sleep(0.05)
    result = None if queue.empty() else queue.get()
    process.join()
    return result


@dataclass(frozen=True)
class Scene:
    """The size of an evaluation: an image, members that predict it at an eighth of its resolution, and their draws."""

    size: tuple[int, int]
    members: int
    sizes: tuple[int, ...]
    classes: int = 19
    sets: int = 8

    def logits(self, device: str) -> torch.Tensor:
        """Members' logits, (member, class, row, column): what they agree about, and noise of each."""
        generator = torch.Generator(device).manual_seed(0)
        height, width = self.size[0] // 8, self.size[1] // 8
        shared, own = (
            torch.randn((number, self.classes, height // step, width // step), device=device, generator=generator)
            for number, step in ((1, 8), (self.members, 1))
        )
        return 4 * torch.nn.functional.interpolate(shared, (height, width), mode="bilinear") + own


SCENES = {"cpu": Scene((128, 256), 16, (1, 2, 4, 8)), "cuda": Scene((1024, 2048), 26, (1, 2, 4, 8, 16))}


def best(work: Callable[[], Any], device: str, repeats: int) -> float:
    """The least of some times of `work`, in milliseconds, after a run that does not count."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - start))
    return min(times[1:])


def categorical(device: str, repeats: int, forward_ms: float, console: Console) -> None:
    """Print what upsampling, averaging, judging and each metric of one image cost, and all of it together."""
    scene, likelihood = SCENES[device], LIKELIHOODS["categorical"]
    coarse, weights = scene.logits(device), make_draws(scene.members, scene.sizes, max_draws=scene.sets).weights
    weights = weights.to(device)
    suite = make_suite(weights, SuiteSettings("categorical", "pooled", "entropy", None, scene.classes))
    suite.metrics.to(device)
    rows = max(1, chunk_size(len(weights), weights.shape[1], scene.classes, torch.device(device)) // scene.size[1])
    bands = [slice(row, min(row + rows, scene.size[0])) for row in range(0, scene.size[0], rows)]
    truth = upsampled_rows(coarse.mean(0), scene.size, slice(0, scene.size[0]))
    truth = (truth + torch.randn(truth.shape, generator=torch.Generator().manual_seed(1)).to(device)).argmax(0)

    def outputs(band: slice) -> dict[str, torch.Tensor]:
        return {"logits": upsampled_rows(coarse, scene.size, band).flatten(2).movedim(1, 2)}

    def blocks() -> Iterator[Pixels]:
        for band in bands:
            target = truth[band].flatten()
            yield Pixels(outputs(band), target, None, len(target))

    def observed(pixels: Pixels) -> MetricInputs:
        return suite.inputs_of(likelihood.combine(pixels.outputs, weights), pixels.target, None)

    with silenced_torch_threads():  # as within `evaluate`: one thread does each step
        first = next(blocks())
        known = observed(first)
        scale = truth.numel() / len(first.target)
        steps: dict[str, Callable[[], Any]] = {
            "upsampling": lambda: outputs(bands[0]),
            "combine: softmax of members": lambda: likelihood.combine(first.outputs, weights),
            "observe: averages, entropy, scores": lambda: observed(first),
            "all metrics": lambda: suite.update(known),
        }
        for name, metric in suite.metrics.items():
            steps[f"  {name}"] = partial(metric.update, **metric._filter_kwargs(**known))
        found = {name: scale * best(step, device, repeats) for name, step in steps.items()}
    found["observe: averages, entropy, scores"] -= found["combine: softmax of members"]
    found["one image, all of it"] = best(lambda: evaluate(blocks(), likelihood, weights, suite), device, repeats)
    forward = scene.members * forward_ms
    each = truth.numel() * len(weights)
    height, width = scene.size
    console.print(f"{height} × {width} pixels, {scene.classes} classes, {scene.members} members, {len(weights)} draws")
    table = Table("step", "ms per image", "ns per pixel and draw", f"of {scene.members} passes of {forward_ms:g} ms")
    for name, milliseconds in found.items():
        table.add_row(name, f"{milliseconds:.1f}", f"{1e6 * milliseconds / each:.2f}", f"{milliseconds / forward:.1%}")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["arrays", "categorical"], default="arrays")
    parser.add_argument("--forward-ms", type=float, default=30.0)
    parser.add_argument("--pixels", type=float, nargs="+", default=[1e6, 1e7])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    console = Console(width=120)
    console.print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, device {arguments.device}")
    if arguments.what == "categorical":
        categorical(arguments.device, arguments.repeats, arguments.forward_ms, console)
        return
    state = sum(getattr(Sparsification(), name).nbytes for name in Sparsification().state_names)
    console.print(f"state of AUSE: {state / 2**20:.2f} MiB per draw, whatever the number of pixels")
    for metric, ways in WAYS.items():
        table = Table("way", "pixels", "seconds", "pixels/s", "× first", "peak memory", "value", title=metric)
        for number in arguments.pixels:
            slowest = None
            for name, way in ways.items():
                if arguments.device == "cuda" and way in CPU_ONLY:
                    continue
                if way is torch_uncertainty_ause and importlib.util.find_spec("torch_uncertainty") is None:
                    table.add_row(name, f"{number:.0e}", "not installed")
                    continue
                once = number > 5e7 and arguments.device == "cpu"
                found = run(way, int(number), arguments.device, 1 if once else arguments.repeats)
                if found is None:
                    table.add_row(name, f"{number:.0e}", "failed")
                    continue
                seconds, memory, value = found
                slowest = slowest or seconds
                speed, ratio = f"{number / seconds / 1e6:,.1f} M", f"{slowest / seconds:.1f}"
                row = (f"{seconds:.4g}", speed, ratio, f"{memory / 2**20:,.0f} MiB", f"{value:.7f}")
                table.add_row(name, f"{number:.0e}", *row)
            table.add_section()
        console.print(table)


if __name__ == "__main__":
    main()
