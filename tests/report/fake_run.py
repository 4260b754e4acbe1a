"""Results dicts that look like those of `epibench run`; as a command, write the pages of several scenes.

python tests/report/fake_run.py OUT_FOLDER
"""

import copy
import math
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fake_results import BINS, FRACTIONS, LEVELS, categorical_draw, gaussian_draw, stat

MEMBERS = (8, 16, 32, 64, 128, 256)
CONVENTIONS = ("pooled", "gustafsson2020")
DIRECTIONS = ("reference_to_method", "method_to_reference")
REGIONS = ("grid", "train")
SINGLE = ("map", "ml")  # point estimates, which have no more than one member
LABELS = {
    "map": "MAP",
    "ml": "Maximum likelihood",
    "cyclical": "Cyclical SG-MCMC",
    "ensemble": "Ensembling",
    "mc_dropout": "MC-dropout",
    "sgld": "SGLD",
    "sghmc": "SGHMC",
}
# KL at the largest M, how much more at M = 8, and the relative spread between draws there.
REGRESSION = {
    "map": (4.1, 0.0, 0.4),
    "ml": (9.3, 0.0, 0.5),
    "ensemble": (0.298, 0.16, 0.5),
    "mc_dropout": (0.95, 0.7, 0.6),
    "sgld": (0.31, 0.14, 0.5),
    "sghmc": (0.5, 0.2, 0.4),
    "cyclical": (0.41, 0.25, 0.3),
}
CLASSIFICATION = {
    "ensemble": (0.034, 0.055, 0.4),
    "mc_dropout": (0.121, 0.19, 0.45),
    "sgld": (0.14, 0.34, 0.7),
    "sghmc": (0.052, 0.5, 0.7),
}
AXES = {"sparsification": FRACTIONS, "calibration": LEVELS, "reliability": BINS}


def method_info(method: str, label: str, members: int) -> dict[str, Any]:
    """What a run says about a method."""
    if method in SINGLE:
        return {"label": label, "num_members": 16, "num_groups": None, "plan": "disjoint", "num_networks": 16}
    if method == "ensemble":
        return {"label": label, "num_members": 1024, "num_groups": None, "plan": "disjoint", "num_networks": 1024}
    if method.startswith("mc_dropout"):
        return {"label": label, "num_members": 30 * members, "num_groups": 30, "plan": "prefix", "num_networks": 10}
    return {
        "label": label,
        "num_members": 24 * 640,
        "num_groups": 24,
        "plan": "spread",
        "num_networks": 24,
        "notes": ["Snapshots are taken at the ends of epochs, from 75 % of the chain on."],
    }


def sizes_of(method: str, members: tuple[int, ...]) -> tuple[int, ...]:
    return (1,) if method in SINGLE else members


def num_draws(method: str, m: int, kind: str) -> int:
    """Draws per M, as in the paper's protocol."""
    if method in SINGLE:
        return 16
    if method == "ensemble":
        return 1024 // m if kind == "gaussian" else min(20, 1024 // m)
    return 30 if method.startswith("mc_dropout") else 24


def kl_values(shape: tuple[float, float, float], m: int, n: int, rng: random.Random) -> list[float]:
    """Draws of a KL that falls with M towards its limit."""
    limit, extra, spread = shape
    mean = limit + extra * (8 / m) ** 0.9
    sigma = spread * (8 / m) ** 0.35
    return [mean * math.exp(rng.gauss(0, sigma) - sigma**2 / 2) for _ in range(n)]


def kl_of(
    method: str, shape: tuple[float, float, float], kind: str, members: tuple[int, ...], seed: int
) -> dict[str, Any]:
    """All draws of a method: {convention: {direction: {region: {M: values}}}}."""
    rng = random.Random(f"{method}{seed}")
    members = sizes_of(method, members)
    scales = {"pooled": 0.9 if kind == "gaussian" else 1.6, "gustafsson2020": 1.0}
    turned = {"reference_to_method": 1.0, "method_to_reference": 2.4 if kind == "gaussian" else 0.8}
    inner = {"grid": 1.0, "train": 0.09}
    return {
        convention: {
            direction: {
                region: {
                    str(m): kl_values(
                        (
                            shape[0] * scales[convention] * turned[direction] * inner[region],
                            shape[1] * scales[convention] * turned[direction] * inner[region],
                            shape[2],
                        ),
                        m,
                        num_draws(method, m, kind),
                        rng,
                    )
                    for m in members
                }
                for region in REGIONS
            }
            for direction in DIRECTIONS
        }
        for convention in CONVENTIONS
    }


def deep_map(change: Callable[[Any], Any], tree: Any, depth: int) -> Any:
    return change(tree) if depth == 0 else {key: deep_map(change, branch, depth - 1) for key, branch in tree.items()}


def metrics_of(method: str, quality: float, kind: str, domain: str, members: tuple[int, ...]) -> dict[str, Any]:
    """Summary and curves of a method on one domain."""
    rng = random.Random(method + domain)
    members = sizes_of(method, members)
    worse = quality + (0.9 if domain == "outside" else 0.0)
    made = {
        m: [
            gaussian_draw(worse, m, rng) if kind == "gaussian" else categorical_draw(worse, m, rng, 2) for _ in range(6)
        ]
        for m in members
    }
    for draws in made.values():
        for draw in draws:
            draw["metrics"].pop("miou", None)
            draw["metrics"].pop("iou_per_class", None)
    summary = {
        str(m): {name: stat([d["metrics"][name] for d in ds]) for name in ds[0]["metrics"]} for m, ds in made.items()
    }
    curves: dict[str, Any] = {}
    for name, parts in made[members[0]][0]["curves"].items():
        of_m = {
            str(m): {
                part: {k: v for k, v in stat([d["curves"][name][part] for d in ds]).items() if k != "n"}
                for part in parts
            }
            for m, ds in made.items()
        }
        curves[name] = {"x": AXES[name], "M": of_m}
    return {"summary": summary, "curves": curves}


def rounded(values: list[float], digits: int = 4) -> list[float]:
    return [round(value, digits) for value in values]


def gaussian_picture(x: list[float], tilt: float, width: float, ripple: float) -> dict[str, list[float]]:
    """A predictive that follows the truth inside [−3, 3] and fans out beyond it."""
    mean, std, aleatoric = [], [], []
    for value in x:
        out = max(abs(value) - 3, 0.0)
        edge = math.copysign(min(abs(value), 3), value)
        mean.append(math.sin(edge) + tilt * out * math.copysign(1, value) + ripple * math.sin(5 * value))
        noise = 0.15 / (1 + math.exp(-value))
        aleatoric.append(noise)
        std.append(math.hypot(noise, width * out**1.3 + 0.01))
    return {"mean": rounded(mean), "std": rounded(std), "aleatoric_std": rounded(aleatoric)}


def regression_pictures(methods: list[str]) -> dict[str, Any]:
    rng = random.Random(4)
    x = [-7 + 14 * i / 249 for i in range(250)]
    train = [rng.uniform(-3, 3) for _ in range(1000)]
    looks = {"ensemble": (0.1, 0.5, 0.01), "sgld": (0.05, 0.42, 0.01), "sghmc": (-0.1, 0.32, 0.03)}
    shown = {}
    for method in methods:
        tilt, width, ripple = looks.get(method, (0.4, 0.12, 0.05))
        shown[method] = {
            str(m): [
                gaussian_picture(x, tilt + rng.gauss(0, 0.8 / m), width, ripple * 16 / m + rng.gauss(0, 0.01))
                for _ in range(2)
            ]
            for m in sizes_of(method, (16, 64))
        }
    return {
        "grid": {"x": rounded(x)},
        "truth": {
            "mean": rounded([math.sin(v) for v in x]),
            "std": rounded([0.15 / (1 + math.exp(-v)) for v in x]),
        },
        "data": {
            "x": rounded(train),
            "y": rounded([math.sin(v) + rng.gauss(0, 0.15 / (1 + math.exp(-v))) for v in train]),
        },
        "reference": gaussian_picture(x, 0.0, 0.55, 0.0),
        "direct": {"mean": gaussian_picture(x, 0.3, 0.0, 0.02)["mean"]},
        "methods": shown,
    }


def probability_map(axis: list[float], sharpness: float, shift: float) -> list[float]:
    """Class 0 near the origin where there is data, undecided to the left of it; x1 varies fastest."""
    values = []
    for x2 in axis:
        for x1 in axis:
            known = 1 / (1 + math.exp(-1.5 * (x1 + 0.4 + shift)))
            far = 1 / (1 + 0.02 * (x1**2 + x2**2))
            logit = sharpness * (2.4 - math.hypot(x1, x2)) * far * known
            values.append(1 / (1 + math.exp(-logit)))
    return rounded(values)


def classification_pictures(methods: list[str]) -> dict[str, Any]:
    rng = random.Random(5)
    axis = [-6 + 12 * i / 59 for i in range(60)]
    points = [(rng.uniform(0, 3), rng.uniform(-3, 3)) for _ in range(1040)]
    looks = {"ensemble": (4.5, 0.4), "sgld": (6.0, 0.8), "sghmc": (5.0, 0.2)}
    return {
        "grid": {"x1": rounded(axis), "x2": rounded(axis)},
        "truth": {"class": [int(math.hypot(x1, x2) >= 2.4) for x2 in axis for x1 in axis]},
        "data": {
            "x1": rounded([p[0] for p in points]),
            "x2": rounded([p[1] for p in points]),
            "class": [int(math.hypot(*p) >= 2.4) for p in points],
        },
        "reference": {"probs": probability_map(axis, 4.0, 0.0)},
        "methods": {
            method: {
                str(m): [
                    {
                        "probs": probability_map(
                            axis,
                            looks.get(method, (9.0, 1.5))[0],
                            looks.get(method, (9.0, 1.5))[1] + rng.gauss(0, 6 / m),
                        )
                    }
                    for _ in range(2)
                ]
                for m in (16, 64)
            }
            for method in methods
        },
    }


def reference_info(kind: str) -> dict[str, Any]:
    size = 0.018 if kind == "gaussian" else 0.0009
    floor = {
        convention: {direction: {"grid": size * factor, "train": size * factor / 20} for direction in DIRECTIONS}
        for convention, factor in zip(CONVENTIONS, (1.0, 0.7), strict=True)
    }
    return {
        "path": "shipped",
        "about": {
            "command": "epibench reference toy-regression --set reference.num_chains=512",
            "num_chains": 512,
            "num_samples": 1000,
            "rhat": {"median": 1.004, "share_below_1.05_inside": 0.982, "max": 1.31},
            "ess": {"median": 8123.4, "min": 212.9},
            "divergences": 17,
            "seeds": [0, 1, 2, 3],
        },
        "floor": floor,
        "notes": ["Two batches that started from different networks lie at 0.016 from each other."],
    }


def run(
    problem: str = "toy-regression",
    *,
    name: str | None = None,
    shapes: dict[str, tuple[float, float, float]] | None = None,
    labels: dict[str, str] | None = None,
    members: tuple[int, ...] = MEMBERS,
    data_path: str | None = None,
    variants: dict[str, Any] | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """The results of one run."""
    kind = "gaussian" if problem == "toy-regression" else "categorical"
    shapes = shapes or (REGRESSION if kind == "gaussian" else CLASSIFICATION)
    labels = {**LABELS, **(labels or {})}
    draws = {method: kl_of(method, shape, kind, members, seed) for method, shape in shapes.items()}
    scored = {
        method: {
            domain: metrics_of(method, min(shape[0], 1.0), kind, domain, members) for domain in ("inside", "outside")
        }
        for method, shape in shapes.items()
    }
    pictures = regression_pictures if kind == "gaussian" else classification_pictures
    return {
        "version": 1,
        "epibench": "0.1.0",
        "torch": "2.13.0+cpu",
        "python": "3.12.3",
        "commit": "3f2a91c",
        "device": "cpu",
        "seconds": 431.7,
        "created": "2026-11-15T12:00:00Z",
        "recipe": {
            "name": name or problem,
            "problem": problem,
            "seed": seed,
            "methods": list(shapes),
            "members": list(members),
            "prior_scale": 1.0,
            "data": {"path": data_path, "seed": seed},
            "reference": {"path": None},
            "ensemble": {"num_networks": 1024, "num_epochs": 150, "optimizer": "adam", "learning_rate": 0.001},
            "sgld": {"num_chains": 24, "num_epochs": 38400, "learning_rate": 0.01},
            "variants": variants or {},
        },
        "problem": problem,
        "kind": kind,
        "methods": {method: method_info(method, labels[method], max(members)) for method in shapes},
        "summary": {m: {d: part["summary"] for d, part in by.items()} for m, by in scored.items()},
        "curves": {m: {d: part["curves"] for d, part in by.items()} for m, by in scored.items()},
        "draws": {},
        "kl": {method: deep_map(stat, tree, 4) for method, tree in draws.items()},
        "kl_draws": draws,
        "reference": reference_info(kind),
        "pictures": pictures(list(shapes)),
        "cost": {
            method: {"parameters": 282, "train_seconds": 12.3 * (i + 1), "predict_seconds": 0.41}
            for i, method in enumerate(shapes)
        },
    }


def regression() -> dict[str, Any]:
    """The everyday page."""
    return run(data_path="published_training_data.npz")


def classification() -> dict[str, Any]:
    """The other problem, on data of our own."""
    return run("toy-classification")


def momentum() -> dict[str, Any]:
    """Another optimiser, so that two runs can be compared."""
    shapes = {"ensemble": (0.7, 0.5, 0.6), "mc_dropout": (0.9, 1.4, 0.6)}
    return run(name="toy-regression-momentum", shapes=shapes)


def dropout_rates() -> dict[str, Any]:
    """Variants of one method, in the quick variant of the recipe."""
    shapes = {"mc_dropout_5": (3.0, 9.0, 0.8), "mc_dropout_10": (1.1, 3.0, 0.6), "mc_dropout_20": (0.95, 0.7, 0.6)}
    rates = {"mc_dropout_5": 0.05, "mc_dropout_10": 0.1, "mc_dropout_20": 0.2}
    return run(
        name="toy-regression-dropout-quick",
        shapes=shapes,
        labels={method: f"MC-dropout, p = {rate:g}" for method, rate in rates.items()},
        members=(8, 16, 32),
        variants={m: {"method": "mc_dropout", "label": "", "options": {"rate": r}} for m, r in rates.items()},
    )


def bare() -> dict[str, Any]:
    """A run that stopped early: one method, one M, infinite KL, no reference, nothing else."""
    made = run(shapes={"map": (1.0, 0.1, 0.1)}, labels={"map": "MAP"}, members=(1,))
    tree = {
        c: {d: {r: {"1": {"mean": None, "std": None, "n": 1}} for r in REGIONS} for d in DIRECTIONS}
        for c in CONVENTIONS
    }
    kept = {key: made[key] for key in ("version", "recipe", "problem", "kind")}
    return {**kept, "methods": {"map": {"label": "MAP"}}, "kl": {"map": tree}, "reference": None}


def hostile() -> dict[str, Any]:
    """Text that tries to leave its place, wherever a run has text."""
    bad = "<script>alert(1)</script>\"'&\x00\udc80"
    made = copy.deepcopy(run(members=(8, 16)))
    made["recipe"]["name"] = made["commit"] = made["device"] = bad
    made["recipe"][bad] = {bad: [bad]}
    made["methods"]["sgld"].update(label=bad, notes=[bad])
    made["reference"].update(path=bad, notes=[bad], about={bad: bad, "command": bad})
    return made


SCENES: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "regression": lambda: [regression()],
    "classification": lambda: [classification()],
    "dropout_rates": lambda: [dropout_rates()],
    "two_runs": lambda: [regression(), momentum()],
    "two_problems": lambda: [regression(), classification()],
    "bare": lambda: [bare()],
    "hostile": lambda: [hostile()],
}


if __name__ == "__main__":
    from epibench.report import write_run_page

    for scene_name, scene in SCENES.items():
        print(write_run_page(scene(), Path(sys.argv[1]) / scene_name / "report.html"))
