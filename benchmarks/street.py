"""Street scenes: how fast they are drawn, what is in them, and how far each domain is from clean.

    python benchmarks/street.py             # speed and memory, one thread
    python benchmarks/street.py shares --count 300                    # share of each class and of known depth
    python benchmarks/street.py shares --count 20 --size 375x1242     # the same at KITTI's size
    python benchmarks/street.py shift       # Fréchet distance of patch descriptors to clean, per severity and factor
    python benchmarks/street.py strip       # street-severity.png: the same scenes at each severity

Speed counts seconds of this process's own work, so that other work on the machine does not show; `wall` beside it does.
Memory is the largest amount that NumPy held at once while one scene was drawn.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable

import numpy as np
from PIL import Image
from rich.console import Console
from rich.table import Table

from epibench.cli.data import parse_size
from epibench.data.cityscapes_classes import CITYSCAPES
from epibench.street import FACTORS, Domain, make_domain, render_frame
from epibench.street.shift import frechet_distance, patch_descriptors

Size = tuple[int, int]
STRIP = (42, 46)  # scenes of seed 0: fair weather and dusk
SIZES = ((128, 256), (256, 512), (352, 1216), (512, 1024))


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
    def described(domain: Domain, seed: int) -> np.ndarray:
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
