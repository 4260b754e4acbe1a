"""AUSE, AUCE, RMSE and ECE: pixels per second and peak memory, ours against what a user would pick instead.

    python benchmarks/metrics.py                           # 10⁶ and 10⁷ pixels
    python benchmarks/metrics.py --pixels 1e6 1e7 1e8      # the table of docs/performance.md
    python benchmarks/metrics.py --device cuda

Every way runs in a process of its own, on the same gamma-distributed pixels; the time is the best of several runs, the
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
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from epibench.metrics import (
    ConfidenceCalibration,
    IntervalCalibration,
    RootMeanSquaredError,
    Sparsification,
    ause,
)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pixels", type=float, nargs="+", default=[1e6, 1e7])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    console = Console(width=120)
    console.print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, device {arguments.device}")
    state = sum(getattr(Sparsification(), name).nbytes for name in Sparsification()._defaults)
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
