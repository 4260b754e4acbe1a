"""Made-up results of every command; as a command, write the pages of all scenes.

python tests/report/fake.py OUT_FOLDER
"""

import base64
import io
import itertools
import math
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath
from statistics import NormalDist, fmean
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image

from epibench.evaluation.scoring import NO_DOMAIN, ScoredStore, ScoreSettings, score_results
from epibench.evaluation.summary import per_draw, summarise, summarise_curves
from epibench.report.entries import Entry
from epibench.results import (
    ClassStat,
    Columns,
    Cost,
    DomainFacts,
    Grid,
    ImageCost,
    MethodFacts,
    PassCost,
    Picture,
    PoolSize,
    PredictedPicture,
    ReferenceFacts,
    Results,
    Score,
    Stat,
    Tally,
    ToyPictures,
    TrainingCost,
    TrainingLog,
)

NORMAL = NormalDist()
LEVELS = [i / 100 for i in range(1, 100)]
FRACTIONS = [i / 100 for i in range(100)]
BINS = [0.05 + i / 10 for i in range(10)]
AXES = {"sparsification": FRACTIONS, "calibration": LEVELS, "reliability": BINS}
CITYSCAPES = """road sidewalk building wall fence pole light sign vegetation terrain sky
person rider car truck bus train motorcycle bicycle""".split()  # noqa: SIM905
COLOURS: list[Any] = [
    (*bytes.fromhex(colour),)
    for colour in """804080 f423e8 464646 66669c be9999 999999 faaa1e dcdc00 6b8e23 98fb98 4682b4
    dc143c ff0000 00008e 000046 003c64 005064 0000e6 770b20""".split()  # noqa: SIM905
]
UNSEEN = 16  # a class that no domain holds
COMMON = ["road", "building", "sky", "vehicle"]  # of a domain with classes of its own; the last has no colour
COMMON_COLOURS = [COLOURS[0], COLOURS[2], COLOURS[10]]
BAD_TEXT = "<script>alert(1)</script>\"'&\x00\udc80"  # tries to leave its place
MEMBERS = (8, 16, 32, 64, 128, 256)  # of toy problems
VIEWS = list(itertools.product(("", "_gustafsson2020"), ("kl", "kl_reverse"), ("grid", "train")))
SINGLE = ("map", "ml")  # point estimates, which have no more than one member
LABELS = {"map": "MAP", "ml": "Maximum likelihood", "cyclical": "Cyclical SG-MCMC", "ensemble": "Ensembling"}
LABELS |= {"mc_dropout": "MC-dropout", "sgld": "SGLD", "sghmc": "SGHMC"}
REGRESSION = {"map": (4.1, 0.0, 0.4), "ml": (9.3, 0.0, 0.5), "ensemble": (0.298, 0.16, 0.5)}
REGRESSION |= {"mc_dropout": (0.95, 0.7, 0.6), "sgld": (0.31, 0.14, 0.5), "sghmc": (0.5, 0.2, 0.4)}
REGRESSION |= {"cyclical": (0.41, 0.25, 0.3)}
CLASSIFICATION = {"ensemble": (0.034, 0.055, 0.4), "mc_dropout": (0.121, 0.19, 0.45)}
CLASSIFICATION |= {"sgld": (0.14, 0.34, 0.7), "sghmc": (0.052, 0.5, 0.7)}
# KL at the largest M, how much more at M = 8, and the relative spread between draws there.
SHAPES = {"toy-regression": REGRESSION, "toy-classification": CLASSIFICATION}
DENSE_MEMBERS = (1, 2, 4, 8)
POOL = {"ensemble": 12, "mc_dropout": 4, "sghmc": 3}  # networks or chains
PLANS = {"ensemble": "random", "mc_dropout": "prefix", "sghmc": "spread"}
QUALITY = {"ensemble": 0.0, "mc_dropout": 0.45, "sghmc": 0.2}
STREET = {"clean": 0.0, "wild-1": 1.0, "wild-3": 3.0, "wild": 5.0}
IMAGE_SIZE, SCALE = (128, 256), 1 / 256


class FakeDraw(NamedTuple):
    """One draw's metrics, and its curves by family and name."""

    metrics: dict[str, Any]
    curves: Mapping[str, dict[str, list[Any]]] = {}


Made = Mapping[int, Sequence[FakeDraw]]  # draws for each M


def make_score(method: str, domain: str, made: Made, **facts: Any) -> Score:
    """A score of these draws. facts: the other fields."""

    def tensor(values: Any) -> torch.Tensor:
        unknown = np.array(values, dtype=object)
        whole = all(isinstance(value, int) for value in unknown.flat)
        return torch.from_numpy(unknown.astype(np.int64 if whole else np.float64))  # None becomes NaN

    sets = [tuple(range(m)) for m, draws in made.items() for _ in draws]
    draws = [draw for of_m in made.values() for draw in of_m]
    values = {name: tensor([draw.metrics[name] for draw in draws]) for name in draws[0].metrics}
    families = {
        family: {"x": torch.tensor(AXES[family], dtype=torch.float64)}
        | {part: tensor([draw.curves[family][part] for draw in draws]) for part in parts}
        for family, parts in draws[0].curves.items()
    }
    return Score(
        **{"method": method, "domain": domain, "settings": {"convention": "pooled"}, "draws": per_draw(sets, values)}
        | {"summary": summarise(sets, values), "curves": summarise_curves(sets, families), **facts}
    )


def entry(label: str, summary: Mapping[int, Mapping[str, Any]], **parts: Any) -> Entry:
    """A method with these metrics; parts: other fields of its score or of the entry."""
    about = {name: parts.pop(name) for name in ("index", "floor", "classes") if name in parts}
    facts = {"method": label, "domain": "", "settings": {}, "kind": "gaussian", "pool": PoolSize(64, 4, 4), **parts}
    return Entry(**{"index": 0, "label": label, "score": Score(summary=summary, **facts), **about})


def sparsification(curve: list[float], oracle: list[float]) -> dict[str, list[Any]]:
    return {"curve": curve, "oracle": oracle, "error": [c - o for c, o in zip(curve, oracle, strict=True)]}


def gaussian_draw(quality: float, m: int, rng: random.Random) -> FakeDraw:
    """More members calibrate better, with a floor set by `quality`: 0 is the best, 1 the worst."""
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
    lengths = [2 * NORMAL.inv_cdf((p + 1) / 2) * spread * 0.9 for p in LEVELS]
    calibration = {"coverage": coverage, "interval_length": lengths}
    return FakeDraw(metrics, {"sparsification": sparsification(curve, oracle), "calibration": calibration})


def categorical_draw(quality: float, m: int, rng: random.Random, num_classes: int) -> FakeDraw:
    """The least confident bin is empty, as with many classes."""
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
    infinite = quality > 0.8 and m == 1
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
        "nll": None if infinite else 0.24 + 0.08 * quality + 0.12 / m - noise,
        "nll_infinite": 1287 if infinite else 0,
    }
    reliability = {"confidence": confidence, "accuracy": accuracy, "count": count}
    return FakeDraw(metrics, {"sparsification": sparsification(curve, oracle), "reliability": reliability})


def run_results(**parts: Any) -> Results:
    """Results of a run without numbers, but for the given parts."""
    facts = {"epibench": "0.1.0", "torch": "2.13.0+cpu", "python": "3.12.3", "commit": "3f2a91c", "device": "cpu"}
    facts |= {"created": "2026-11-15T12:00:00Z", "seconds": 431.7, "recipe": {}, "problem": "toy-regression"}
    return Results(**{**facts, "methods": {}, "domains": {}, "scores": [], **parts})


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
    domain: str | None = "wild",
    num_classes: int = 19,
    class_names: Sequence[str] | None = None,
    **parts: Any,
) -> ScoredStore:
    """The score of a file; parts: other fields."""
    rng = random.Random(ascii(path))
    categorical = kind == "categorical"
    made = {
        m: [
            categorical_draw(quality, m, rng, num_classes) if categorical else gaussian_draw(quality, m, rng)
            for _ in range(draws if m < pool else 1)
        ]
        for m in members
    }
    settings = {"convention": "pooled", "uncertainty": "entropy" if categorical else "total"}
    facts = {"kind": kind, "unit": None if categorical else unit, "source": path, "pool": PoolSize(pool)}
    facts |= {"pixels": Tally(valid=9_000_000, masked=1_000_000), "settings": settings}
    facts |= {"overlap": {m: (m / pool if m > 1 else 0.0) for m in members}}
    score = make_score(method or PurePath(path).stem, domain or NO_DOMAIN, made, **{**facts, **parts})
    return ScoredStore(score, class_names, [])


def results(*files: ScoredStore, convention: str = "pooled", in_domain: str | None = None) -> Results:
    """Results of `epibench score`."""
    made = score_results(files, ScoreSettings(), in_domain)
    return Results(**{**dict(made), "convention": convention})


def two_gaussian(*domains: str, in_domain: str | None = None) -> Results:
    """The everyday scores: two methods; the later a domain, the larger its errors."""
    files = []
    for number, domain in enumerate(domains or ("wild",)):
        for name, quality in (("ensemble", 0.0), ("mc_dropout", 0.9)):
            file = scored_file(f"preds/{name}.zarr", method=name, quality=quality, domain=domain)
            for metrics in file.score.summary.values():
                metrics["rmse"].mean *= 1 + number  # type: ignore[union-attr,operator]
            files.append(file)
    return results(*files, in_domain=in_domain)


def three_categorical() -> Results:
    """Three methods with named classes, one with an infinite NLL."""
    kinds: dict[str, Any] = {"kind": "categorical", "class_names": CITYSCAPES, "pool": 26}
    qualities = {"ensemble": 0.0, "sghmc": 0.4, "mc_dropout": 0.9}
    return results(*(scored_file(f"preds/{n}.zarr", method=n, quality=q, **kinds) for n, q in qualities.items()))


def single() -> Results:
    """One file, one M, one draw: dots, no lines, no std."""
    return results(scored_file("model.npz", domain=None, unit=None, members=(4,), draws=1, pool=4))


def crowded() -> Results:
    """Six files with long paths, many M, M up to the pool, and notes."""
    folder = "/mnt/experiments/2024-11-depth-completion/virtual-kitti-to-kitti/run-0007-resnet34/predictions"
    many = (*range(1, 13), 14, 16, 20, 24, 28, 32, 33)
    names = ["mc_dropout", "sgld", "sghmc", "cyclical", "map_with_a_rather_long_name_of_its_own"]
    more: dict[str, Any] = {
        "mc_dropout": {
            "notes": ["12,034 pixels had a variance of 0 and count as covered only where the mean is exact."]
        },
        "sgld": {"pixels": Tally(valid=8_500_000, masked=1_000_000, skipped=500_000)},
    }
    made: dict[str, Any] = {"members": many, "draws": 4}
    return results(
        scored_file(f"{folder}/ensemble.zarr", method="ensemble", members=(1, 2, 4, 8, 16, 32)),
        *(
            scored_file(f"{folder}/{n}-{'x' * 20}.zarr", method=n, quality=(1 + i) / 5, **made, **more.get(n, {}))
            for i, n in enumerate(names)
        ),
    )


def mixed() -> Results:
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


def undefined(score: Score) -> Score:
    """A score with every mean None."""
    for metrics in score.summary.values():
        for name, one in metrics.items():
            none = [None] * len(one.mean) if isinstance(one.mean, list) else None
            metrics[name] = type(one)(mean=none, std=None, n=one.n)  # type: ignore[arg-type]
    return score


def hostile_scores() -> Results:
    """Text that tries to leave its place, and every mean None."""
    file = scored_file(BAD_TEXT, method=BAD_TEXT, domain=BAD_TEXT, unit=BAD_TEXT, notes=[BAD_TEXT])
    named = file.score.model_dump()
    named["summary"][1][BAD_TEXT] = {"mean": 1.0, "std": 0.5, "n": 16}
    image = "</style><img src=x onerror=alert(1)>"
    other = scored_file(BAD_TEXT, kind="categorical", class_names=[BAD_TEXT] * 19, members=(1, 2), method=image)
    undefined(other.score)
    return results(ScoredStore(Score(**named), None, []), other, convention=BAD_TEXT)


def num_draws(method: str, m: int, kind: str) -> int:
    """Draws per M of a toy problem, as in the paper's protocol."""
    if method == "ensemble":
        return 1024 // m if kind == "gaussian" else min(20, 1024 // m)
    return 16 if method in SINGLE else 30 if method.startswith("mc_dropout") else 24


def kls_of(method: str, shape: Sequence[float], kind: str, sizes: Sequence[int], seed: int) -> dict[str, Made]:
    """The KLs of a method on each region: they fall with M towards their limits."""
    rng = random.Random(f"{method}{seed}")
    made: dict[str, dict[int, list[FakeDraw]]] = {}
    for convention, direction, region in VIEWS:
        factor = 1.0 if convention else 0.9 if kind == "gaussian" else 1.6
        factor *= 1.0 if direction == "kl" else 2.4 if kind == "gaussian" else 0.8
        factor *= 1.0 if region == "grid" else 0.09
        for m in sizes:
            mean, sigma = factor * (shape[0] + shape[1] * (8 / m) ** 0.9), shape[2] * (8 / m) ** 0.35
            of_m = made.setdefault(region, {}).setdefault(m, [])
            of_m += [FakeDraw({}) for _ in range(num_draws(method, m, kind) - len(of_m))]
            for draw in of_m:
                draw.metrics[direction + convention] = mean * math.exp(rng.gauss(0, sigma) - sigma**2 / 2)
    return {**made}


def regression_pictures(methods: Sequence[str]) -> ToyPictures:
    """Bands of two draws at two M, which fan out beyond the training region."""
    x = [round(-7 + 14 * i / 249, 4) for i in range(250)]

    def band(tilt: float, width: float) -> Columns:
        out = [max(abs(v) - 3, 0.0) for v in x]
        mean = [round(math.sin(v) + tilt * o, 4) for v, o in zip(x, out, strict=True)]
        return {"mean": [*mean], "std": [round(0.1 + width * o, 4) for o in out], "aleatoric_std": [0.1 for _ in x]}

    sizes = {method: (1,) if method in SINGLE else (16, 64) for method in methods}
    return ToyPictures(
        grid={"x": [*x]},
        truth={"mean": band(0.0, 0.0)["mean"], "std": [0.1 for _ in x]},
        data={"x": [*x[71:179]], "y": band(0.0, 0.0)["mean"][71:179]},
        reference=band(0.0, 0.5),
        direct={"mean": band(0.3, 0.0)["mean"]},
        methods={name: {m: [band(0.4 / m, 0.3), band(-0.4 / m, 0.2)] for m in of} for name, of in sizes.items()},
    )


def classification_pictures(methods: Sequence[str]) -> ToyPictures:
    """Maps of two draws at two M; x1 varies fastest."""
    axis = [round(-6 + 12 * i / 59, 4) for i in range(60)]
    points = [(x1, x2) for x2 in axis for x1 in axis]

    def probs(shift: float) -> Columns:
        return {"probs": [round(1 / (1 + math.exp(math.hypot(*p) - 2.4 - shift)), 4) for p in points]}

    shown = [p for p in points if 0 < p[0] < 3 and abs(p[1]) < 3]
    inside = [int(math.hypot(*p) >= 2.4) for p in shown]
    return ToyPictures(
        grid={"x1": [*axis], "x2": [*axis]},
        truth={"class": [int(math.hypot(*p) >= 2.4) for p in points]},
        data={"x1": [p[0] for p in shown], "x2": [p[1] for p in shown], "class": [*inside]},
        reference=probs(0.0),
        methods={name: {m: [probs(4 / m), probs(-4 / m)] for m in (16, 64)} for name in methods},
    )


def reference_facts(kind: str) -> ReferenceFacts:
    """A shipped reference with its noise floors; that of regression has not converged."""
    size, command = (0.018 if kind == "gaussian" else 0.0009), "epibench reference toy-regression --chains 512"
    regions = {"grid": 1, "train": 20}
    directions = ("reference_to_method", "method_to_reference")
    word, percent = ("converged", 100) if kind == "categorical" else ("NOT converged", 33)
    return ReferenceFacts(
        path="shipped",
        about={"command": command, "num_chains": 512, "rhat": {"median": 1.004, "max": 1.31}, "seeds": [0, 1, 2, 3]},
        floor={
            convention: {
                direction: {r: size * factor / part for r, part in regions.items()} for direction in directions
            }
            for convention, factor in {"pooled": 1.0, "gustafsson2020": 0.7}.items()
        },
        notes=["Two batches that started from different networks lie at 0.016 from each other."],
        converged=kind == "categorical",
        convergence=f"{word}: R-hat ≤ 1.05 at {percent} % of points (goal 95 %)",
    )


def toy_run(
    problem: str = "toy-regression",
    *,
    name: str | None = None,
    shapes: Mapping[str, Sequence[float]] | None = None,
    labels: Mapping[str, str] | None = None,
    members: tuple[int, ...] = MEMBERS,
    data_path: str | None = None,
    variants: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Results:
    """The results of one run on a toy problem."""
    kind, shapes = ("gaussian" if problem == "toy-regression" else "categorical"), shapes or SHAPES[problem]
    scores: list[Score] = []
    methods: dict[str, MethodFacts] = {}
    for i, (method, shape) in enumerate(shapes.items()):
        sizes = (1,) if method in SINGLE else members
        chains = 10 if method.startswith("mc_dropout") else 24
        pool = PoolSize(24 * 640, 24, 24, "spread")
        if method in SINGLE or method == "ensemble":
            number = 16 if method in SINGLE else 1024
            pool = PoolSize(number, None, number, "disjoint")
        elif chains == 10:
            pool = PoolSize(30 * max(members), 30, 10, "prefix")
        notes = (
            ["Snapshots are taken at the ends of epochs, from 75 % of the chain on."] if pool.plan == "spread" else []
        )
        for domain in ("inside", "outside"):
            rng, worse = random.Random(method + domain), min(shape[0], 1.0) + (0.9 if domain == "outside" else 0.0)
            made: dict[int, list[FakeDraw]] = {}
            for m in sizes:
                draw = gaussian_draw if kind == "gaussian" else lambda *of: categorical_draw(*of, 2)
                made[m] = [draw(worse, m, rng) for _ in range(6)]
                for one in made[m]:
                    one.metrics.pop("miou", None), one.metrics.pop("iou_per_class", None)
            scores.append(make_score(method, domain, made, kind=kind, counted="points", pool=pool))
        for region, kls in kls_of(method, shape, kind, sizes, seed).items():
            scores.append(make_score(method, region, kls, kind=kind, counted="points", pool=pool))
        cost = Cost(parameters=282, train_seconds=12.3 * (i + 1), predict_seconds=0.41)
        methods[method] = MethodFacts(label={**LABELS, **(labels or {})}[method], method=method, notes=notes, cost=cost)
    roles = {"grid": "role unknown", "train": "in-domain", "inside": "in-domain", "outside": "shifted"}
    recipe = {"name": name or problem, "problem": problem, "seed": seed, "methods": [*shapes], "members": [*members]}
    recipe |= {"data": {"path": data_path, "seed": seed}, "reference": {"path": None}, "variants": variants or {}}
    return run_results(
        recipe={**recipe, "ensemble": {"num_networks": 1024, "optimizer": "adam", "learning_rate": 0.001}},
        problem=problem,
        methods=methods,
        domains={name: DomainFacts(label=name, role=role) for name, role in roles.items()},  # type: ignore[arg-type]
        scores=scores,
        reference=reference_facts(kind),
        toy=(regression_pictures if kind == "gaussian" else classification_pictures)([*shapes]),
    )


def regression() -> Results:
    """The everyday toy page."""
    return toy_run(data_path="published_training_data.npz")


def classification() -> Results:
    """The other problem, on data of our own."""
    return toy_run("toy-classification")


def momentum() -> Results:
    """Another optimiser, so that two runs can be compared."""
    shapes = {"ensemble": (0.7, 0.5, 0.6), "mc_dropout": (0.9, 1.4, 0.6)}
    return toy_run(name="toy-regression-momentum", shapes=shapes)


def dropout_rates() -> Results:
    """Variants of one method, in the quick variant of the recipe."""
    shapes = {"mc_dropout_5": (3.0, 9.0, 0.8), "mc_dropout_10": (1.1, 3.0, 0.6), "mc_dropout_20": (0.95, 0.7, 0.6)}
    rates = {"mc_dropout_5": 0.05, "mc_dropout_10": 0.1, "mc_dropout_20": 0.2}
    labels = {method: f"MC-dropout, p = {rate:g}" for method, rate in rates.items()}
    variants = {m: {"method": "mc_dropout", "label": "", "options": {"rate": r}} for m, r in rates.items()}
    about: dict[str, Any] = {"shapes": shapes, "labels": labels, "members": (8, 16, 32), "variants": variants}
    return toy_run(name="toy-regression-dropout-quick", **about)


def bare(kl: bool = True) -> Results:
    """One method, one M, an infinite KL or none, no reference, nothing else."""
    names = {convention + direction for direction, convention, _ in VIEWS}
    made = {1: [FakeDraw(dict.fromkeys(names) if kl else {"nll": None})]}
    facts: dict[str, Any] = {"kind": "gaussian", "counted": "points", "pool": PoolSize(16)}
    scores = [make_score("map", region, made, **facts) for region in ("grid", "train")]
    return run_results(methods={"map": MethodFacts(label="MAP", method="map")}, scores=scores)


def toy_failed() -> Results:
    """A run whose only method failed."""
    recipe = {"name": "toy-regression", "methods": ["sgld"]}
    return run_results(recipe=recipe, failed={"sgld": "the loss is not finite"})


def toy_hostile() -> Results:
    """Text that tries to leave its place, wherever a toy run has text."""
    made = toy_run(members=(8, 16)).model_dump()
    made["recipe"]["name"] = made["commit"] = made["device"] = BAD_TEXT
    made["recipe"][BAD_TEXT] = {BAD_TEXT: [BAD_TEXT]}
    made["methods"]["sgld"].update(label=BAD_TEXT, notes=[BAD_TEXT])
    made["reference"].update(path=BAD_TEXT, notes=[BAD_TEXT], about={BAD_TEXT: BAD_TEXT, "command": BAD_TEXT})
    return Results(**made)


def hardness(domain: str) -> float:
    """How much worse everything gets on a domain."""
    severity = STREET.get(domain)
    return 0.8 if severity is None else 0.16 * severity


def dense_draws(method: str, domain: str, kind: str, members: Sequence[int]) -> Made:
    """Draws for each M; those of one network share what is peculiar to it."""
    rng, hard = random.Random(method + domain + kind), hardness(domain)
    networks = [rng.gauss(0, 0.06) for _ in range(POOL[method])]
    made: dict[int, list[FakeDraw]] = {}
    for m in members:
        for network in range(8 if method == "ensemble" else POOL[method]):
            worse = QUALITY[method] + hard + (0.0 if method == "ensemble" else networks[network])
            draw = gaussian_draw(worse, m, rng) if kind == "gaussian" else categorical_draw(worse, m, rng, 19)
            if kind == "gaussian":
                for name in ("rmse", "mae", "crps", "crps_gaussian", "interval_score"):
                    draw.metrics[name] *= (1 + 1.6 * hard) / 2
            else:
                draw.metrics.update(per_class(draw.metrics["iou_per_class"], hard))
            made.setdefault(m, []).append(draw)
    return made


def per_class(iou: list[float], hard: float) -> dict[str, Any]:
    """The metrics of each class; the smaller a class, the more it loses, and one is never seen."""
    lost = [max(0.01, value - hard * 0.06 * (k % 7)) for k, value in enumerate(iou)]
    metrics: dict[str, Any] = {
        "iou_per_class": lost,
        "accuracy_per_class": [value**0.6 for value in lost],
        "ause_per_class": [0.1 + 0.2 * hard * (1 - value) for value in lost],
        "ause_per_class_bound": [1e-4 for _ in lost],
        "ece_per_class": [0.02 + 0.4 * hard * (1 - value) for value in lost],
        "brier_per_class": [1.2 * (1 - value) for value in lost],
        "nll_per_class": [0.1 - 2 * float(np.log(value)) for value in lost],
    }
    seen = {name: [None if k == UNSEEN else one for k, one in enumerate(of)] for name, of in metrics.items()}
    shares = [0.0 if k == UNSEEN else 0.3 * 0.75**k for k in range(len(iou))]
    return {**seen, "miou": sum(lost) / len(lost), "share_per_class": shares}


def dense_facts(method: str, members: Sequence[int]) -> MethodFacts:
    """Cost grows with M; passes of one network share a half of it, its weights and its training."""
    passes = {m: (m + 1) / 2 if method == "mc_dropout" else m for m in members}
    weights = {m: 1 if method == "mc_dropout" else m for m in members}
    images = {
        m: ImageCost(
            seconds=0.021 * m * (1 + 0.05 / m),
            peak_bytes=int(3.1e8 + 4e6 * m),
            flops=int(41_300_000_000 * passes[m]),
            weight_bytes=4 * 25_932_418 * weights[m],
        )
        for m in members
    }
    cost = Cost(
        parameters=25_932_418,
        flops=41_300_000_000,
        image_size=[*IMAGE_SIZE],
        train_seconds=410.0 * POOL[method],
        per_image=images,
        training={
            m: TrainingCost(networks=n, seconds=410.0 * n, steps=4000 * n)
            for m, n in {m: m if method == "ensemble" else 1 for m in members}.items()
        },
    )
    rng, steps = random.Random(method), [*range(100, 4001, 100)]
    logs = [
        TrainingLog(network=n, steps=steps, loss=[5.5 * (s / 100) ** -0.45 + rng.gauss(0, 0.06) for s in steps])
        for n in range(POOL[method])
    ]
    return MethodFacts(label=LABELS[method], method=method, cost=cost, training=logs)


def png_text(values: np.ndarray) -> str:
    """An image as base64 of a PNG."""
    buffer = io.BytesIO()
    Image.fromarray(values).save(buffer, "png")
    return base64.b64encode(buffer.getvalue()).decode()


def grid(values: np.ndarray) -> Grid:
    """Metres as counts in a 16-bit PNG."""
    return Grid(scale=SCALE, png=png_text(np.clip(values / SCALE, 0, 65535).round().astype(np.uint16)))


def pictures_on(
    domain: str, kind: str, methods: Sequence[str], m: int, num_classes: int = 19
) -> tuple[list[Picture], dict[str, list[PredictedPicture]]]:
    """Two images and predictions: errors grow with depth or come in blotches, and the uncertainty knows where."""
    pictures: list[Picture] = []
    predicted: dict[str, list[PredictedPicture]] = {method: [] for method in methods}
    for number in range(2):
        # Depths that fall towards the bottom and classes in stripes, both unknown at the lower edge.
        rows, columns = np.indices(IMAGE_SIZE)
        depth = np.where(rows < 120, 5.0 + 0.5 * (128 - rows) + 3 * np.sin(columns / 20 + number), 0.0)
        classes = np.where(rows < 114, columns // 24 + number, 255).astype(np.uint8)
        rng = np.random.default_rng(number + 7)
        for method in methods:
            size = (0.02 + 0.05 * hardness(domain)) * (depth + 10) * (1 + QUALITY[method])
            wrong = np.sin(np.indices(IMAGE_SIZE).sum(0) / 9) > 0.8 - 0.3 * QUALITY[method]
            if kind == "gaussian":
                mean = np.clip(np.where(depth > 0, depth, 60.0) + size * rng.standard_normal(IMAGE_SIZE), 0, 90)
                shown: dict[str, Any] = {"mean": grid(mean), "std": grid(size)}
            else:
                known = np.where(classes == 255, 0, classes) % num_classes
                chosen = np.where(wrong, (known + 1) % num_classes, known).astype(np.uint8)
                shown = {"predicted": png_text(chosen), "uncertainty": grid(0.1 + 1.5 * wrong)}
            predicted[method].append(PredictedPicture(image=3 + number, M=m, **shown))
        truth = np.where(classes == 255, 255, classes % num_classes).astype(np.uint8)
        sparse = np.where(rng.random(IMAGE_SIZE) < 0.03, depth, 0.0)
        pictures.append(
            Picture(
                image=3 + number,
                height=IMAGE_SIZE[0],
                width=IMAGE_SIZE[1],
                photo=png_text(rng.integers(0, 256, (*IMAGE_SIZE, 3)).astype(np.uint8)),
                sparse_depth=grid(sparse) if kind == "gaussian" else None,
                target=grid(depth) if kind == "gaussian" else png_text(truth),
            )
        )
    return pictures, predicted


def dense_run(
    kind: str = "gaussian",
    *,
    name: str | None = None,
    domains: tuple[str, ...] = tuple(STREET),
    methods: tuple[str, ...] = ("ensemble", "mc_dropout"),
    members: tuple[int, ...] = DENSE_MEMBERS,
) -> Results:
    """The results of one run on images."""
    problem = "depth-completion" if kind == "gaussian" else "segmentation"
    shown = {domain: pictures_on(domain, kind, methods, max(members)) for domain in domains}
    scores, facts = [], {}
    for domain in domains:
        severity, role = STREET.get(domain), "in-domain" if domain == "clean" else "shifted"
        label = (
            "street, clean" if domain == "clean" else f"street, wild (severity {severity:g})" if severity else domain
        )
        classes = {} if kind == "gaussian" else {"class_names": CITYSCAPES, "class_colours": COLOURS}
        about: dict[str, Any] = {"label": label, "role": role, "severity": severity, **classes}
        facts[domain] = DomainFacts(pictures=shown[domain][0], **about)
    for method, domain in itertools.product(methods, domains):
        grouped = method != "ensemble"
        number = POOL[method] * (max(members) if grouped else 1)
        of_pair = make_score(
            method,
            domain,
            dense_draws(method, domain, kind, members),
            settings={"precision": "32-true", "convention": "pooled", "uncertainty": "total"},
            kind=kind,
            unit="m" if kind == "gaussian" else None,
            pool=PoolSize(number, POOL[method] if grouped else None, POOL[method], PLANS[method]),
            num_images=64,
            pixels=Tally(valid=1_537_024 if domain == "clean" else 651_264),
            overlap={m: m / 12 if not grouped and m > 1 else 0.0 for m in members},
            pictures=shown[domain][1][method],
            cost=PassCost(forward_seconds=16.1, scoring_seconds=2.2),
        )
        scores.append(of_pair)
    return run_results(
        device="NVIDIA H200",
        seconds=5_312.0,
        recipe={"name": name or f"street-{problem}", "problem": problem, "seed": 0, "members": [*members]},
        problem=problem,
        domains=facts,
        methods={method: dense_facts(method, members) for method in methods},
        scores=scores,
    )


def small(kind: str = "gaussian") -> Results:
    """Two domains, two M."""
    return dense_run(kind, domains=("clean", "wild"), members=(1, 2))


def twice_evaluated() -> Results:
    """An older evaluation in another precision, of one method, with larger errors."""
    made = small()
    older = [one.model_copy(deep=True) for one in made.scores if one.method == "mc_dropout"]
    for one in older:
        one.settings["precision"] = "bf16"
        for metrics in one.summary.values():
            metrics["rmse"].mean *= 2  # type: ignore[union-attr,operator]
    return made.model_copy(update={"scores": [*made.scores, *older]})


def depth() -> Results:
    """The everyday page of images: two methods on a clean street and under three severities."""
    return dense_run()


def segmentation() -> Results:
    """Classes instead of depths, three methods."""
    return dense_run("categorical", methods=("ensemble", "mc_dropout", "sghmc"))


def earlier() -> Results:
    """Costs without the operations over M, weights and training, as where they cannot be counted."""
    made = small()
    for facts in made.methods.values():
        assert facts.cost is not None
        per_image = {m: ImageCost(seconds=c.seconds, peak_bytes=c.peak_bytes) for m, c in facts.cost.per_image.items()}
        facts.cost.per_image, facts.cost.training = per_image, {}
    return made


def kitti() -> Results:
    """A run that the paper shows numbers for."""
    made = dense_run(name="kitti-depth", domains=("clean", "kitti"), members=(1, 2, 4))
    made.domains["kitti"].label = "KITTI"
    for score in made.scores:
        if score.domain == "kitti":
            for metrics in score.summary.values():
                metrics["ause"] = Stat(mean=0.066, std=0.008, n=8)
            for number, draw in enumerate(score.draws):
                draw.metrics["ause"] = 0.066 + (0.008 if number % 2 else -0.008)
    return made


def cityscapes() -> Results:
    """The segmentation that the paper shows numbers for."""
    about: dict[str, Any] = {"domains": ("clean", "cityscapes"), "members": (1, 2, 4)}
    return dense_run("categorical", name="cityscapes-segmentation", **about)


def mapped() -> Results:
    """A domain that is scored on classes of its own."""
    about: dict[str, Any] = {"domains": ("clean", "camvid"), "members": (1, 2)}
    made = dense_run("categorical", name="folder-segmentation", **about)
    facts = made.domains["camvid"]
    facts.label, facts.class_names, facts.class_colours = "CamVid", COMMON, COMMON_COLOURS
    facts.pictures, predicted = pictures_on("camvid", "categorical", [*made.methods], 2, len(COMMON))
    for score in made.scores:
        if score.domain == "camvid":
            score.pictures = predicted[score.method]
            for one in (one for metrics in score.summary.values() for one in metrics.values()):
                if isinstance(one, ClassStat):
                    one.mean, one.std = one.mean[: len(COMMON)], one.std and one.std[: len(COMMON)]
    return made


def partial() -> Results:
    """A run with holes: a method that failed on a domain, one draw, undefined metrics, no pictures, no cost."""
    made = small()
    made.scores = [one for one in made.scores if (one.method, one.domain) != ("mc_dropout", "wild")]
    made.failed = {"mc_dropout": "CUDA out of memory"}
    for facts in made.methods.values():
        facts.cost, facts.training = None, []
    for domain in made.domains.values():
        domain.pictures = []
    for score in made.scores:
        score.pictures, score.overlap, score.draws, score.cost = [], {}, [], None
        score.curves = {} if score.method == "ensemble" else score.curves
    for metrics in made.scores[0].summary.values():
        for one in metrics.values():
            one.std, one.n = None, 1
        metrics["auce"] = Stat(mean=None, std=None, n=1)
        del metrics["rmse"]
    return made


def score(results: Results, method: str, domain: str) -> Score:
    """The score of a method on a domain."""
    found = results.score(method, domain)
    assert found is not None
    return found


def damaged_pictures() -> Results:
    """Pictures that cannot be read, or lack a part."""
    made = small()
    first, second = made.domains["clean"].pictures
    first.photo, first.target = "no picture", Grid(scale=SCALE, png="*")
    score(made, "ensemble", "clean").pictures[0].std = Grid(scale=SCALE, png=base64.b64encode(b"not a PNG").decode())
    second.sparse_depth = None
    del score(made, "mc_dropout", "clean").pictures[1]
    made.domains["wild"].pictures = []
    return made


def damaged_class_pictures() -> Results:
    """Maps of classes that cannot be read, lack a part, differ in size, or hold classes that nothing is known of."""
    made = small("categorical")
    first, second = made.domains["clean"].pictures
    ensemble, dropout = score(made, "ensemble", "clean").pictures, score(made, "mc_dropout", "clean").pictures
    first.target, second.target = png_text(np.zeros((8, 9), np.uint8)), png_text(np.full(IMAGE_SIZE, 300, np.uint16))
    ensemble[0].predicted = png_text(np.zeros((*IMAGE_SIZE, 3), np.uint8))
    ensemble[1].predicted = png_text(np.full(IMAGE_SIZE, 254, np.uint8))
    dropout[0].uncertainty = dropout[1].uncertainty = None
    dropout[1].predicted = png_text(np.full(IMAGE_SIZE, 40, np.uint8))
    for facts in made.domains.values():
        facts.class_colours, facts.class_names = COLOURS[:5], CITYSCAPES[:7]
    made.domains["wild"].pictures = []
    return made


def dense_hostile(kind: str = "gaussian") -> Results:
    """Text that tries to leave its place, wherever a run on images has text."""
    made = small(kind).model_dump()
    made["recipe"]["name"] = BAD_TEXT
    made["domains"]["wild"]["label"] = BAD_TEXT
    made["methods"]["ensemble"].update(label=BAD_TEXT, notes=[BAD_TEXT])
    made["failed"] = {BAD_TEXT: BAD_TEXT}
    for score in made["scores"]:
        if kind == "gaussian":
            score["unit"] = BAD_TEXT
        elif (score["method"], score["domain"]) == ("ensemble", "wild"):
            for metrics in score["summary"].values():
                metrics[f"{BAD_TEXT}_per_class"] = metrics["iou_per_class"]
    if kind == "gaussian":
        made["domains"]["clean"]["pictures"][0]["photo"] = BAD_TEXT
    else:
        for facts in made["domains"].values():
            facts["class_names"] = [BAD_TEXT] * len(COLOURS)
    return Results(**made)


def dense_failed() -> Results:
    """A run whose only method failed."""
    made = small()
    for facts in made.domains.values():
        facts.pictures = []
    failed = {"ensemble": "CUDA out of memory"}
    return made.model_copy(update={"failed": failed, "methods": {}, "scores": []})


SCORES = (two_gaussian, three_categorical, single, crowded, mixed, hostile_scores)
SCORE_SCENES: dict[str, Callable[[], Results]] = {make.__name__: make for make in SCORES}
ONE = (regression, classification, dropout_rates, bare, toy_failed, toy_hostile, depth, segmentation, earlier, kitti)
ONE += (
    cityscapes,
    mapped,
    damaged_class_pictures,
    partial,
    twice_evaluated,
    dense_failed,
    damaged_pictures,
    dense_hostile,
)
SCENES: dict[str, Callable[[], list[Results]]] = {
    **{make.__name__: lambda make=make: [make()] for make in (*ONE, *SCORE_SCENES.values())},  # type: ignore[misc]
    "class_hostile": lambda: [dense_hostile("categorical")],
    "shifted_scores": lambda: [two_gaussian("day", "night", "fog", in_domain="day")],
    "two_runs": lambda: [regression(), momentum()],
    "two_problems": lambda: [regression(), classification()],
    "depth_and_segmentation": lambda: [dense_run(k, domains=("clean", "wild")) for k in ("gaussian", "categorical")],
    "dense_and_toy": lambda: [dense_run(domains=("clean", "wild")), classification()],
    "two_dense_runs": lambda: [dense_run(domains=("clean", "wild"), name=name) for name in (None, "mine")],
}


if __name__ == "__main__":
    from epibench.report import write_run_page

    for scene_name, make in SCENES.items():
        print(write_run_page(make(), Path(sys.argv[1]) / f"{scene_name}.html"))
