"""Results dicts that look like those of `score --json`; as a command, write the pages of several scenes.

python tests/report/fake_results.py OUT_FOLDER
"""

import math
import random
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist, fmean
from typing import Any

NORMAL = NormalDist()
LEVELS = [i / 100 for i in range(1, 100)]
FRACTIONS = [i / 100 for i in range(100)]
BINS = [0.05 + i / 10 for i in range(10)]
CITYSCAPES = """road sidewalk building wall fence pole light sign vegetation terrain sky
person rider car truck bus train motorcycle bicycle""".split()  # noqa: SIM905


def stat(values: list[Any]) -> dict[str, Any]:
    """Mean and population std of the draws' values, as the score writes them."""
    if isinstance(values[0], list):
        columns = [stat(list(column)) for column in zip(*values, strict=True)]
        return {
            "mean": [c["mean"] for c in columns],
            "std": [c["std"] for c in columns] if len(values) > 1 else None,
            "n": len(values),
        }
    if any(value is None for value in values):
        return {"mean": None, "std": None, "n": len(values)}
    mean = sum(values) / len(values)
    std = math.sqrt(sum((value - mean) ** 2 for value in values) / len(values)) if len(values) > 1 else None
    return {"mean": mean, "std": std, "n": len(values)}


def gaussian_draw(quality: float, m: int, rng: random.Random) -> dict[str, Any]:
    """One draw's metrics and curves: more members calibrate better, with a floor set by `quality`."""
    noise = rng.gauss(0, 0.03 / math.sqrt(m))
    spread = 0.55 + 0.38 * (1 - 1 / m) * (1.1 - quality) + noise  # predicted over true standard deviation
    coverage = [2 * NORMAL.cdf(NORMAL.inv_cdf((p + 1) / 2) * spread) - 1 for p in LEVELS]
    power = 0.42 + 0.1 * quality + 0.25 / m + noise / 3
    curve = [(1 - 0.97 * f) ** (0.9 - power) * (1 - 0.12 * math.sin(math.pi * f)) for f in FRACTIONS]
    oracle = [(1 - f) ** 0.85 * math.exp(-1.9 * f) for f in FRACTIONS]
    gaps = [c - p for c, p in zip(coverage, LEVELS, strict=True)]
    rmse = 1.83 + 0.34 * quality + 0.29 / m + noise
    metrics = {
        "ause": fmean(c - o for c, o in zip(curve, oracle, strict=True)),
        "ause_bound": 1.4e-4,
        "ause_standard_error": 1.1e-6,
        "auce": fmean(abs(g) for g in gaps) * 0.98,
        "auce_signed": fmean(gaps) * 0.98,
        "interval_length": 3.29 * spread * 0.9,
        "rmse": rmse,
        "mae": 0.41 * rmse + noise / 4,
        "nll": 1.2 + 2.1 * (1 - spread) ** 2 + 0.4 / m,
        "nll_infinite": 0,
        "nll_gaussian": 1.31 + 2.3 * (1 - spread) ** 2 + 0.5 / m,
        "crps": 0.31 * rmse + noise / 5,
        "crps_gaussian": 0.32 * rmse + noise / 5,
        "ence": abs(1 - spread) + 0.04,
        "ence_bound": 3e-4,
        "interval_score": 5.1 * rmse + abs(noise),
    }
    curves = {
        "sparsification": {"curve": curve, "oracle": oracle},
        "calibration": {
            "coverage": coverage,
            "interval_length": [2 * NORMAL.inv_cdf((p + 1) / 2) * spread * 0.9 for p in LEVELS],
        },
    }
    return {"metrics": metrics, "curves": curves}


def categorical_draw(quality: float, m: int, rng: random.Random, num_classes: int) -> dict[str, Any]:
    """One draw's metrics and curves for classes; the least confident bin is empty, as with many classes."""
    noise = rng.gauss(0, 0.006 / math.sqrt(m))
    over = 0.03 + 0.06 * quality + 0.07 / m + noise
    confidence = [None, *[c + 0.004 for c in BINS[1:9]], 0.983]
    accuracy = [None, *[max(c - over * (1 + 0.4 * math.sin(8 * c)), 0.0) for c in BINS[1:9]], 0.983 - 0.35 * over]
    count = [0, *[int(30000 * (1 + 5 * c) * (1 + noise)) for c in BINS[1:9]], 7_200_000]
    iou = [
        max(0.02, min(0.97, 0.9 - 0.7 * ((7 * k) % 19) / 19 - 0.05 * quality - 0.06 / m + noise))
        for k in range(num_classes)
    ]
    curve = [(1 - 0.98 * f) ** (1.4 - 0.5 * quality - 0.3 / m) for f in FRACTIONS]
    oracle = [(1 - f) * math.exp(-6 * f) for f in FRACTIONS]
    metrics = {
        "ause": fmean(c - o for c, o in zip(curve, oracle, strict=True)) + noise,
        "ause_bound": 2e-4,
        "ause_standard_error": 3e-6,
        "ece": 0.5 * over,
        "ece_adaptive": 0.52 * over,
        "ece_adaptive_bound": 1e-4,
        "miou": fmean(iou),
        "iou_per_class": iou,
        "accuracy": 0.93 - 0.02 * quality - 0.02 / m + noise,
        "brier": 0.11 + 0.03 * quality + 0.02 / m - noise,
        "nll": None if quality > 0.8 and m == 1 else 0.24 + 0.08 * quality + 0.12 / m - noise,
        "nll_infinite": 1287 if quality > 0.8 and m == 1 else 0,
    }
    curves = {
        "sparsification": {"curve": curve, "oracle": oracle},
        "reliability": {"confidence": confidence, "accuracy": accuracy, "count": count},
    }
    return {"metrics": metrics, "curves": curves}


def scored_file(
    path: str,
    *,
    method: str | None = None,
    kind: str = "gaussian",
    domain: str | None = "wild",
    quality: float = 0.0,
    members: tuple[int, ...] = (1, 2, 4, 8, 16),
    draws: int = 8,
    pool: int = 33,
    unit: str | None = "m",
    class_names: list[str] | None = None,
    num_classes: int = 19,
    notes: list[str] | None = None,
) -> dict[str, Any]:
    """One entry of `files`, with `quality` 0 the best and 1 the worst."""
    rng = random.Random(ascii(path))
    make: Callable[[int], dict[str, Any]] = (
        (lambda m: gaussian_draw(quality, m, rng))
        if kind == "gaussian"
        else (lambda m: categorical_draw(quality, m, rng, num_classes))
    )
    made = {m: [make(m) for _ in range(draws if m < pool else 1)] for m in members}
    summary = {
        str(m): {name: stat([d["metrics"][name] for d in ds]) for name in ds[0]["metrics"]} for m, ds in made.items()
    }
    curves: dict[str, Any] = {}
    axes = {"sparsification": FRACTIONS, "calibration": LEVELS, "reliability": BINS}
    for name, parts in made[members[0]][0]["curves"].items():
        curves[name] = {"x": axes[name], "M": {}}
        for m, ds in made.items():
            means = {part: stat([d["curves"][name][part] for d in ds]) for part in parts}
            curves[name]["M"][str(m)] = {p: {"mean": s["mean"], "std": s["std"]} for p, s in means.items()}
    return {
        "path": path,
        "method": method,
        "domain": domain,
        "kind": kind,
        "unit": unit if kind == "gaussian" else None,
        "class_names": class_names,
        "num_members": pool,
        "num_groups": None,
        "pixels": {"valid": 9_000_000, "masked": 1_000_000, "ignored": 0, "skipped": 0},
        "plan": "random",
        "uncertainty": "total" if kind == "gaussian" else "entropy",
        "sparsification": "streamed",
        "notes": notes or [],
        "overlap": {str(m): (m / pool if m > 1 else 0.0) for m in members},
        "draws": [
            {"M": m, "members": sorted(rng.sample(range(pool), min(m, pool))), "metrics": d["metrics"]}
            for m, ds in made.items()
            for d in ds
        ],
        "summary": summary,
        "curves": curves,
    }


def results(*files: dict[str, Any], convention: str = "pooled") -> dict[str, Any]:
    """A whole results dict around some files."""
    return {
        "version": 1,
        "epibench": "0.1.0",
        "convention": convention,
        "settings": {"plan": "random", "draws": 16, "seed": 0, "uncertainty": "total", "skip_invalid": False},
        "files": list(files),
    }


def two_gaussian() -> dict[str, Any]:
    """The everyday page: two methods on one domain."""
    return results(
        scored_file("preds/ensemble.zarr", method="ensemble"),
        scored_file("preds/mc_dropout.zarr", method="mc_dropout", quality=0.9),
    )


def three_categorical() -> dict[str, Any]:
    """Three methods with named classes, one with an infinite NLL."""
    kinds = {"kind": "categorical", "class_names": CITYSCAPES, "pool": 26}
    return results(
        scored_file("preds/ensemble.zarr", method="ensemble", **kinds),
        scored_file("preds/sghmc.zarr", method="sghmc", quality=0.4, **kinds),
        scored_file("preds/mc_dropout.zarr", method="mc_dropout", quality=0.9, **kinds),
    )


def single() -> dict[str, Any]:
    """One file, one M, one draw: dots, no lines, no std."""
    return results(scored_file("model.npz", method=None, domain=None, unit=None, members=(4,), draws=1, pool=4))


def crowded() -> dict[str, Any]:
    """Six files with long paths, many M, M up to the pool, and notes."""
    folder = "/mnt/experiments/2024-11-depth-completion/virtual-kitti-to-kitti/run-0007-resnet34/predictions"
    many = (*range(1, 13), 14, 16, 20, 24, 28, 32, 33)
    names = ["ensemble", "mc_dropout", "sgld", "sghmc", "cyclical", "map_with_a_rather_long_name_of_its_own"]
    files = [
        scored_file(f"{folder}/{name}-{'x' * 20}.zarr", method=name, quality=i / 5, members=many, draws=4)
        for i, name in enumerate(names)
    ]
    files[0] = scored_file(f"{folder}/ensemble.zarr", method="ensemble", members=(1, 2, 4, 8, 16, 32))
    files[1]["notes"] = ["12,034 pixels had a variance of 0 and count as covered only where the mean is exact."]
    files[2]["notes"] = ["The store has no `valid` array: every pixel was scored."]
    files[2]["pixels"] = {"valid": 8_500_000, "masked": 1_000_000, "ignored": 0, "skipped": 500_000}
    return results(*files)


def mixed() -> dict[str, Any]:
    """Both kinds, one M for the classes, 150 class names, two domains."""
    names = [f"class name number {i}" for i in range(150)]
    return results(
        scored_file("a/ensemble.zarr", method="ensemble"),
        scored_file("b/ensemble.zarr", method="ensemble", domain="train", quality=0.1),
        scored_file(
            "c/seg.zarr", method="ensemble", kind="categorical", class_names=names, num_classes=150, members=(8,)
        ),
        scored_file(
            "d/seg.zarr",
            method="sgld",
            kind="categorical",
            class_names=names,
            num_classes=150,
            members=(8,),
            quality=0.7,
        ),
        convention="gustafsson2020",
    )


def hostile() -> dict[str, Any]:
    """Text that tries to leave its place, and every mean None."""
    bad = "<script>alert(1)</script>\"'&\x00\udc80"
    file = scored_file(bad, method=bad, domain=bad, unit=bad, notes=[bad])
    other = scored_file(
        bad, kind="categorical", class_names=[bad] * 19, members=(1, 2), method="</style><img src=x onerror=alert(1)>"
    )
    for metrics in other["summary"].values():
        for value in metrics.values():
            value.update(mean=None, std=None)
    file["summary"]["1"][bad] = {"mean": 1.0, "std": 0.5, "n": 16}
    return results(file, other, convention=bad)


SCENES = {f.__name__: f for f in (two_gaussian, three_categorical, single, crowded, mixed, hostile)}


if __name__ == "__main__":
    from epibench.report import write_score_page

    for scene_name, scene in SCENES.items():
        print(write_score_page(scene(), Path(sys.argv[1]) / scene_name))
