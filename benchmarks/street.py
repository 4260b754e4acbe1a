"""Street scenes: how fast they are drawn, what is in them, and how far each domain is from clean.

    python benchmarks/street.py             # speed and memory, one thread
    python benchmarks/street.py shares --count 300                    # share of each class and of known depth
    python benchmarks/street.py shares --count 20 --size 375x1242     # the same at KITTI's size
    python benchmarks/street.py shift       # Fréchet distance of patch descriptors to clean, per severity and factor
    python benchmarks/street.py strip       # street-severity.png: the same scenes at each severity

Speed counts seconds of this process's own work, so that other work on the machine does not show; `wall` beside it does.
Memory is the largest amount that NumPy held at once while one scene was drawn.

Shift compares patches. A patch has a descriptor: mean and spread of its colours, how much neighbouring pixels differ,
and the shares of groups of classes. Each set of frames is summarised by the mean m and covariance C of its descriptors,
and two sets by the Fréchet distance of these Gaussians: |m₁ − m₂|² + tr(C₁ + C₂ − 2(C₁^½ C₂ C₁^½)^½), in units of the
first set's spread.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable, Iterable

import numpy as np
from PIL import Image
from rich.console import Console
from rich.table import Table

from epibench.data.cityscapes_classes import CITYSCAPES, TRAIN_IDS
from epibench.street import FACTORS, Domain, Frame, make_domain, render_frame
from epibench.street.arrays import Array
from epibench.street.export import parse_size

Size = tuple[int, int]
STRIP = (42, 46)  # scenes of seed 0: fair weather and dusk
SIZES = ((128, 256), (256, 512), (352, 1216), (512, 1024))
PATCH = 16
GROUPS = (
    ("road",),
    ("sidewalk", "terrain"),
    ("building", "wall", "fence"),
    ("vegetation",),
    ("sky",),
    ("car", "truck", "bus", "train", "motorcycle", "bicycle"),
    ("person", "rider"),
    ("pole", "traffic sign", "traffic light"),
)


def print_speed(count: int, _: Size) -> None:
    table = Table("domain", "size", "scenes/s", "wall", "MB per scene")
    for name in ("clean", "wild"):
        domain = make_domain(name)
        for size in SIZES:
            render_frame(domain, 0, 0, size)
            number = max(5, count * 128 * 256 // (size[0] * size[1]))
            work, wall = time.process_time(), time.perf_counter()
            for index in range(number):
                render_frame(domain, 1, index, size)
            work, wall = time.process_time() - work, time.perf_counter() - wall
            memory = peak_memory(domain, size) / 2**20
            table.add_row(name, f"{size[0]}×{size[1]}", f"{number / work:.1f}", f"{number / wall:.1f}", f"{memory:.0f}")
    Console().print(table)


def peak_memory(domain: Domain, size: tuple[int, int]) -> int:
    tracemalloc.start()
    for index in range(2):
        render_frame(domain, 1, index, size)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def print_shares(count: int, size: Size) -> None:
    table = Table("", "clean %", "in scenes", "wild %", "in scenes")
    columns = []
    for name in ("clean", "wild"):
        frames = [render_frame(make_domain(name), 0, index, size) for index in range(count)]
        counts = np.array([np.bincount(frame.labels.ravel(), minlength=256) for frame in frames])
        shares, present = 100 * counts.sum(0) / counts.sum(), (counts > 0).mean(0)
        column = [(f"{shares[number]:.2f}", f"{present[number]:.2f}") for number in (*range(len(CITYSCAPES)), 255)]
        for field in ("sparse_depth", "target_depth"):
            column.append((f"{100 * np.mean([(getattr(frame, field) > 0).mean() for frame in frames]):.1f}", ""))
        columns.append(column)
    names = [*(street_class.name for street_class in CITYSCAPES), "(no class)", "sparse depth", "target depth"]
    for name, clean, wild in zip(names, *columns, strict=True):
        table.add_row(name, *clean, *wild)
    Console().print(table)


def print_shift(count: int, size: Size) -> None:
    def described(domain: Domain, seed: int) -> Array:
        return patch_descriptors(render_frame(domain, seed, index, size) for index in range(count))

    clean = described(make_domain("clean"), 0)
    table = Table("domain", "distance to clean")
    table.add_row("clean, other scenes", f"{frechet_distance(clean, described(make_domain('clean'), 1)):.2f}")
    for severity in range(1, 6):
        distance = frechet_distance(clean, described(make_domain("wild", severity), 1))
        table.add_row(f"wild, severity {severity}", f"{distance:.2f}")
    for factor in FACTORS:
        table.add_row(factor, f"{frechet_distance(clean, described(make_domain(factor), 1)):.2f}")
    Console().print(table)


def patch_descriptors(frames: Iterable[Frame]) -> Array:
    """One row per patch of every frame, (patch, feature) float64."""
    return np.concatenate([frame_descriptors(frame) for frame in frames])


def frame_descriptors(frame: Frame) -> Array:
    """Descriptors of the patches of one frame; pixels beyond the last whole patch are left out."""
    image = _patches(frame.image.astype(np.float64) / 255)
    labels = _patches(frame.labels[..., None])[..., 0]
    grey = image.mean(-1)
    across, down = np.abs(np.diff(grey, axis=2)).mean((1, 2)), np.abs(np.diff(grey, axis=1)).mean((1, 2))
    shares = [np.isin(labels, [TRAIN_IDS[name] for name in group]).mean((1, 2)) for group in GROUPS]
    features = [*image.mean((1, 2)).T, *image.std((1, 2)).T, across, down, *shares]
    return np.stack(features, -1)


def frechet_distance(reference: Array, other: Array) -> float:
    """The Fréchet distance of two sets of descriptors, each in units of the reference's standard deviation."""
    scale = reference.std(0) + 1e-6
    means = [part.mean(0) / scale for part in (reference, other)]
    covariances = [np.cov(part / scale, rowvar=False) for part in (reference, other)]
    root = _root(covariances[0])
    cross = _root(root @ covariances[1] @ root)
    difference = means[0] - means[1]
    return float(difference @ difference + np.trace(covariances[0] + covariances[1] - 2 * cross))


def _root(matrix: Array) -> Array:
    values, vectors = np.linalg.eigh(matrix)
    root: Array = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    return root


def _patches(picture: Array) -> Array:
    """(patch, PATCH, PATCH, channel)."""
    rows, columns = (length // PATCH for length in picture.shape[:2])
    cut = picture[: rows * PATCH, : columns * PATCH].reshape(rows, PATCH, columns, PATCH, -1)
    return cut.transpose(0, 2, 1, 3, 4).reshape(rows * columns, PATCH, PATCH, -1)


def draw_strip(count: int, _: Size) -> None:
    rows = []
    for index in STRIP[:count]:
        domains = [make_domain("wild", severity).without("layout", "objects") for severity in range(6)]
        rows.append(np.concatenate([render_frame(domain, 0, index, (104, 208)).image for domain in domains], 1))
    Image.fromarray(np.concatenate(rows)).save("street-severity.png")


def main() -> None:
    tables: dict[str, Callable[[int, Size], None]] = {
        "speed": print_speed,
        "shares": print_shares,
        "shift": print_shift,
        "strip": draw_strip,
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", nargs="?", choices=tables, default="speed")
    parser.add_argument("--count", type=int, default=100, help="scenes for each row")
    parser.add_argument("--size", type=parse_size, default=(128, 256), help="height x width of shares and shift")
    arguments = parser.parse_args()
    tables[arguments.table](arguments.count, arguments.size)


if __name__ == "__main__":
    main()
