"""Scoring large stores from disk: seconds and peak memory.

    python benchmarks/store.py                  # depth and segmentation; needs 7 GB of disk
    python benchmarks/store.py billion          # a billion pixels; needs 13 GB of disk
    python benchmarks/store.py --scale 0.1      # a tenth of the pixels

`depth`: 33 Gaussian members over 10⁷ pixels, 102 draws. `segmentation`: one Cityscapes image, 26 members × 1024 × 2048
pixels × 19 classes, 40 draws. `billion`: 2 Gaussian members over 10⁹ pixels, 3 draws. The predictions are random; the
command is `epibench score`, run as a user would.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal

import numpy as np

from epibench.store import StoreWriter


def write_depth(
    path: Path, scale: float, members: int = 33, images: int = 24, dtype: Literal["float16", "float32"] = "float32"
) -> int:
    """Members that differ by a fraction of their own standard deviation."""
    images, height, width = max(1, round(images * scale)), 352, 1216
    rng = np.random.default_rng(0)
    with StoreWriter(
        path, kind="gaussian", unit="m", dtype=dtype, num_members=members, num_images=images, size=(height, width)
    ) as store:
        for image in range(images):
            target = rng.gamma(4, 5, (height, width)).astype(np.float32)
            std = 0.05 * target
            store.write_target(image, target)
            for member in range(members):
                mean = target + std * rng.standard_normal(target.shape, dtype=np.float32)
                store.write(member, image, mean=mean, variance=(std * rng.uniform(0.5, 1.5)) ** 2)
    return images * height * width


def write_billion(path: Path, scale: float) -> int:
    """Two members over a billion pixels, in 16 bits."""
    return write_depth(path, scale, members=2, images=2337, dtype="float16")


def write_segmentation(path: Path, scale: float) -> int:
    """26 members whose probabilities peak at the target in most pixels."""
    height, width, classes = max(1, round(1024 * scale)), 2048, 19
    rng = np.random.default_rng(0)
    with StoreWriter(path, kind="categorical", num_members=26, num_images=1, size=(height, width)) as store:
        target = rng.integers(0, classes, (height, width))
        store.write_target(0, target)
        for member in range(26):
            logits = 2 * rng.normal(size=(height, width, classes)).astype(np.float32)
            np.put_along_axis(logits, target[..., None], 4.0, -1)
            probs = np.exp(logits)
            store.write(member, 0, probs=probs / probs.sum(-1, keepdims=True))
    return height * width


CASES = {
    "depth": (write_depth, ["--members", "1,2,4,8,16,32", "--draws", "17"]),
    "segmentation": (write_segmentation, ["--members", "1,2,4,8,16", "--draws", "8"]),
    "billion": (write_billion, []),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--folder", type=Path, help="where to put the stores; default: a temporary folder")
    parser.add_argument("cases", nargs="*", default=["depth", "segmentation"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for name in arguments.cases:
            write, options = CASES[name]
            path = Path(folder) / f"{name}.zarr"
            pixels = write(path, arguments.scale)
            size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
            print(f"{name}: {pixels:,} pixels, {size / 2**30:.2f} GiB on disk", flush=True)
            command = [sys.executable, "-m", "epibench", "score", str(path), *options, "--device", arguments.device]
            start = time.perf_counter()
            process = subprocess.Popen(command, env={**os.environ, "COLUMNS": "140"})
            _, status, usage = os.wait4(process.pid, 0)
            seconds, peak = time.perf_counter() - start, usage.ru_maxrss * 1024
            if status:
                sys.exit(f"{name}: failed")
            print(f"{name}: {seconds:.1f} s, {pixels / seconds / 1e6:.3f} Mpixel/s, peak {peak / 2**30:.2f} GiB\n")


if __name__ == "__main__":
    main()
