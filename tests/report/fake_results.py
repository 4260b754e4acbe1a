"""Results that look like those of `score`; as a command, write the pages of several scenes.

python tests/report/fake_results.py OUT_FOLDER
"""

import math
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import NormalDist, fmean
from typing import Any, NamedTuple

from epibench.results import (
    ClassStat,
    Curve,
    CurveFamilies,
    Curves,
    Draw,
    FileResults,
    ScoredDraw,
    ScoreResults,
    Stat,
    Summary,
    Tally,
)

NORMAL = NormalDist()
LEVELS = [i / 100 for i in range(1, 100)]
FRACTIONS = [i / 100 for i in range(100)]
BINS = [0.05 + i / 10 for i in range(10)]
AXES = {"sparsification": FRACTIONS, "calibration": LEVELS, "reliability": BINS}
CITYSCAPES = """road sidewalk building wall fence pole light sign vegetation terrain sky
person rider car truck bus train motorcycle bicycle""".split()  # noqa: SIM905
BAD_TEXT = "<script>alert(1)</script>\"'&\x00\udc80"  # tries to leave its place


class FakeDraw(NamedTuple):
    """One draw's metrics, and its curves by family and name."""

    metrics: dict[str, Any]
    curves: dict[str, dict[str, list[Any]]]


Made = Mapping[int, Sequence[FakeDraw]]  # draws for each M


def mean_and_std(values: Sequence[Any]) -> tuple[Any, Any]:
    """Mean and population std of the draws' values, one by one for lists; None if any is, or for one draw."""
    if isinstance(values[0], list):
        pairs = [mean_and_std(column) for column in zip(*values, strict=True)]
        return [mean for mean, _ in pairs], [std for _, std in pairs] if len(values) > 1 else None
    if any(value is None for value in values):
        return None, None
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / len(values)) if len(values) > 1 else None


def stat(values: Sequence[Any]) -> Any:
    """A metric over draws."""
    mean, std = mean_and_std(values)
    return (ClassStat if isinstance(mean, list) else Stat)(mean=mean, std=std, n=len(values))


def summary_of(made: Made) -> Summary:
    return {m: {name: stat([d.metrics[name] for d in ds]) for name in ds[0].metrics} for m, ds in made.items()}


def curves_of(made: Made) -> CurveFamilies:
    families: CurveFamilies = {}
    for family, parts in next(iter(made.values()))[0].curves.items():
        families[family] = Curves(x=AXES[family], M={m: {} for m in made})
        for m, draws in made.items():
            for part in parts:
                lines = [draw.curves[family][part] for draw in draws]
                mean, std = mean_and_std(lines)
                families[family].M[m][part] = Curve(mean=mean, std=std, draws=lines)
    return families


def draws_of(made: Made) -> list[Draw]:
    return [Draw(M=m, metrics=draw.metrics) for m, draws in made.items() for draw in draws]


def sparsification(curve: list[float], oracle: list[float]) -> dict[str, list[Any]]:
    return {"curve": curve, "oracle": oracle, "error": [c - o for c, o in zip(curve, oracle, strict=True)]}


def gaussian_draw(quality: float, m: int, rng: random.Random) -> FakeDraw:
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
        "sparsification": sparsification(curve, oracle),
        "calibration": {
            "coverage": coverage,
            "interval_length": [2 * NORMAL.inv_cdf((p + 1) / 2) * spread * 0.9 for p in LEVELS],
        },
    }
    return FakeDraw(metrics, curves)


def categorical_draw(quality: float, m: int, rng: random.Random, num_classes: int) -> FakeDraw:
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
        "sparsification": sparsification(curve, oracle),
        "reliability": {"confidence": confidence, "accuracy": accuracy, "count": count},
    }
    return FakeDraw(metrics, curves)


def scored_file(
    path: str,
    *,
    method: str | None = None,
    kind: str = "gaussian",
    quality: float = 0.0,
    members: tuple[int, ...] = (1, 2, 4, 8, 16),
    draws: int = 8,
    pool: int = 33,
    unit: str | None = "m",
    num_classes: int = 19,
    **parts: Any,
) -> FileResults:
    """The results of a file, with `quality` 0 the best and 1 the worst; parts: what else differs."""
    rng = random.Random(ascii(path))
    made = {
        m: [
            gaussian_draw(quality, m, rng) if kind == "gaussian" else categorical_draw(quality, m, rng, num_classes)
            for _ in range(draws if m < pool else 1)
        ]
        for m in members
    }
    chosen = {m: sorted(rng.sample(range(pool), min(m, pool))) for m in members}
    facts = {
        "domain": "wild",
        "class_names": None,
        "pixels": Tally(valid=9_000_000, masked=1_000_000),
        "notes": [],
        "overlap": {m: (m / pool if m > 1 else 0.0) for m in members},
    }
    return FileResults(
        path=path,
        method=method,
        kind=kind,
        unit=unit if kind == "gaussian" else None,
        num_members=pool,
        num_groups=None,
        plan="random",
        uncertainty="total" if kind == "gaussian" else "entropy",
        draws=[ScoredDraw(M=draw.M, metrics=draw.metrics, members=chosen[draw.M]) for draw in draws_of(made)],
        summary=summary_of(made),
        curves=curves_of(made),
        **{**facts, **parts},
    )


def results(*files: FileResults, convention: str = "pooled") -> ScoreResults:
    """Whole results around some files."""
    settings = {"plan": "random", "draws": 16, "seed": 0, "uncertainty": "total", "skip_invalid": False}
    versions = {"epibench": "0.1.0", "torch": "2.13.0"}
    return ScoreResults(convention=convention, settings=settings, files=list(files), **versions)


def two_gaussian() -> ScoreResults:
    """The everyday page: two methods on one domain."""
    return results(
        scored_file("preds/ensemble.zarr", method="ensemble"),
        scored_file("preds/mc_dropout.zarr", method="mc_dropout", quality=0.9),
    )


def three_categorical() -> ScoreResults:
    """Three methods with named classes, one with an infinite NLL."""
    kinds: dict[str, Any] = {"kind": "categorical", "class_names": CITYSCAPES, "pool": 26}
    return results(
        scored_file("preds/ensemble.zarr", method="ensemble", **kinds),
        scored_file("preds/sghmc.zarr", method="sghmc", quality=0.4, **kinds),
        scored_file("preds/mc_dropout.zarr", method="mc_dropout", quality=0.9, **kinds),
    )


def single() -> ScoreResults:
    """One file, one M, one draw: dots, no lines, no std."""
    return results(scored_file("model.npz", method=None, domain=None, unit=None, members=(4,), draws=1, pool=4))


def crowded() -> ScoreResults:
    """Six files with long paths, many M, M up to the pool, and notes."""
    folder = "/mnt/experiments/2024-11-depth-completion/virtual-kitti-to-kitti/run-0007-resnet34/predictions"
    many = (*range(1, 13), 14, 16, 20, 24, 28, 32, 33)
    names = ["ensemble", "mc_dropout", "sgld", "sghmc", "cyclical", "map_with_a_rather_long_name_of_its_own"]
    files = [
        scored_file(f"{folder}/{name}-{'x' * 20}.zarr", method=name, quality=i / 5, members=many, draws=4)
        for i, name in enumerate(names)
    ]
    files[0] = scored_file(f"{folder}/ensemble.zarr", method="ensemble", members=(1, 2, 4, 8, 16, 32))
    files[1].notes = ["12,034 pixels had a variance of 0 and count as covered only where the mean is exact."]
    files[2].notes = ["The store has no `valid` array: every pixel was scored."]
    files[2].pixels = Tally(valid=8_500_000, masked=1_000_000, skipped=500_000)
    return results(*files)


def mixed() -> ScoreResults:
    """Both kinds, one M for the classes, 150 class names, two domains."""
    names = [f"class name number {i}" for i in range(150)]
    classes: dict[str, Any] = {"kind": "categorical", "class_names": names, "num_classes": 150, "members": (8,)}
    return results(
        scored_file("a/ensemble.zarr", method="ensemble"),
        scored_file("b/ensemble.zarr", method="ensemble", domain="train", quality=0.1),
        scored_file("c/seg.zarr", method="ensemble", **classes),
        scored_file("d/seg.zarr", method="sgld", quality=0.7, **classes),
        convention="gustafsson2020",
    )


def undefined(file: FileResults) -> FileResults:
    """A file with every mean None."""
    for metrics in file.summary.values():
        for name, one in metrics.items():
            none = [None] * len(one.mean) if isinstance(one.mean, list) else None
            metrics[name] = type(one)(mean=none, std=None, n=one.n)
    return file


def hostile() -> ScoreResults:
    """Text that tries to leave its place, and every mean None."""
    file = scored_file(BAD_TEXT, method=BAD_TEXT, domain=BAD_TEXT, unit=BAD_TEXT, notes=[BAD_TEXT])
    image = "</style><img src=x onerror=alert(1)>"
    names = [BAD_TEXT] * 19
    other = scored_file(BAD_TEXT, kind="categorical", class_names=names, members=(1, 2), method=image)
    named = file.model_dump()
    named["summary"][1][BAD_TEXT] = {"mean": 1.0, "std": 0.5, "n": 16}
    return results(FileResults(**named), undefined(other), convention=BAD_TEXT)


SCENES: dict[str, Callable[[], ScoreResults]] = {
    f.__name__: f for f in (two_gaussian, three_categorical, single, crowded, mixed, hostile)
}


if __name__ == "__main__":
    from epibench.report import write_score_page

    for scene_name, scene in SCENES.items():
        print(write_score_page(scene(), Path(sys.argv[1]) / scene_name))
