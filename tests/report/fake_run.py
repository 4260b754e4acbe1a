"""Results that look like those of `epibench run` on toy problems; as a command, write the pages of several scenes.

python tests/report/fake_run.py OUT_FOLDER
"""

import itertools
import math
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fake_results import BAD_TEXT, FakeDraw, categorical_draw, curves_of, draws_of, gaussian_draw, stat, summary_of

from epibench.results import KL, Columns, Cost, MethodFacts, ReferenceFacts, RunResults, Stat, ToyPictures

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
SHAPES = {"toy-regression": REGRESSION, "toy-classification": CLASSIFICATION}
VIEWS = list(itertools.product(CONVENTIONS, DIRECTIONS, REGIONS))


def run_results(**parts: Any) -> RunResults:
    """Results of a run without numbers, but for the given parts."""
    facts = {
        "epibench": "0.1.0",
        "torch": "2.13.0+cpu",
        "python": "3.12.3",
        "commit": "3f2a91c",
        "device": "cpu",
        "created": "2026-11-15T12:00:00Z",
        "seconds": 431.7,
        "changes": [],
        "recipe": {},
        "problem": "toy-regression",
        "kind": "gaussian",
    }
    empty: dict[str, Any] = {part: {} for part in ("methods", "summary", "curves", "draws", "cost", "pictures")}
    return RunResults(**{**facts, **empty, **parts})


def method_facts(method: str, label: str, members: int) -> MethodFacts:
    """What a run says about a method."""
    notes = []
    if method in SINGLE:
        pool = {"num_members": 16, "num_groups": None, "plan": "disjoint", "num_networks": 16}
    elif method == "ensemble":
        pool = {"num_members": 1024, "num_groups": None, "plan": "disjoint", "num_networks": 1024}
    elif method.startswith("mc_dropout"):
        pool = {"num_members": 30 * members, "num_groups": 30, "plan": "prefix", "num_networks": 10}
    else:
        pool = {"num_members": 24 * 640, "num_groups": 24, "plan": "spread", "num_networks": 24}
        notes = ["Snapshots are taken at the ends of epochs, from 75 % of the chain on."]
    return MethodFacts(label=label, method=method, notes=notes, **pool)


def tree(leaves: dict[tuple[str, str, str], Any]) -> dict[str, Any]:
    """What there is for each view, by convention, direction and region."""
    branches: dict[str, Any] = {}
    for (convention, direction, region), leaf in leaves.items():
        branches.setdefault(convention, {}).setdefault(direction, {})[region] = leaf
    return branches


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


def kl_draws_of(
    method: str, shape: tuple[float, float, float], kind: str, members: tuple[int, ...], seed: int
) -> dict[tuple[str, str, str], dict[int, list[float]]]:
    """All draws of a method at each M, for each view."""
    rng = random.Random(f"{method}{seed}")
    scales = {"pooled": 0.9 if kind == "gaussian" else 1.6, "gustafsson2020": 1.0}
    turned = {"reference_to_method": 1.0, "method_to_reference": 2.4 if kind == "gaussian" else 0.8}
    inner = {"grid": 1.0, "train": 0.09}
    draws = {}
    for view in VIEWS:
        factor = scales[view[0]] * turned[view[1]] * inner[view[2]]
        of_view = (shape[0] * scales[view[0]] * turned[view[1]] * inner[view[2]], shape[1] * factor, shape[2])
        sizes = sizes_of(method, members)
        draws[view] = {m: kl_values(of_view, m, num_draws(method, m, kind), rng) for m in sizes}
    return draws


def made_on(method: str, quality: float, kind: str, domain: str, members: tuple[int, ...]) -> dict[int, list[FakeDraw]]:
    """Draws of a method on one domain."""
    rng = random.Random(method + domain)
    worse = quality + (0.9 if domain == "outside" else 0.0)
    made = {}
    for m in sizes_of(method, members):
        made[m] = [
            gaussian_draw(worse, m, rng) if kind == "gaussian" else categorical_draw(worse, m, rng, 2) for _ in range(6)
        ]
        for draw in made[m]:
            for name in ("miou", "iou_per_class"):
                draw.metrics.pop(name, None)
    return made


def regression_pictures(methods: list[str]) -> ToyPictures:
    """Bands of two draws at two M, which fan out beyond the training region."""
    x = [round(-7 + 14 * i / 249, 4) for i in range(250)]

    def band(tilt: float, width: float) -> Columns:
        out = [max(abs(v) - 3, 0.0) for v in x]
        mean = [round(math.sin(v) + tilt * o, 4) for v, o in zip(x, out, strict=True)]
        return {"mean": [*mean], "std": [round(0.1 + width * o, 4) for o in out], "aleatoric_std": [0.1 for _ in x]}

    sizes = {method: sizes_of(method, (16, 64)) for method in methods}
    return ToyPictures(
        grid={"x": [*x]},
        truth={"mean": band(0.0, 0.0)["mean"], "std": [0.1 for _ in x]},
        data={"x": [*x[71:179]], "y": band(0.0, 0.0)["mean"][71:179]},
        reference=band(0.0, 0.5),
        direct={"mean": band(0.3, 0.0)["mean"]},
        methods={name: {m: [band(0.4 / m, 0.3), band(-0.4 / m, 0.2)] for m in of} for name, of in sizes.items()},
    )


def classification_pictures(methods: list[str]) -> ToyPictures:
    """Maps of two draws at two M; x1 varies fastest."""
    axis = [round(-6 + 12 * i / 59, 4) for i in range(60)]
    points = [(x1, x2) for x2 in axis for x1 in axis]

    def probs(shift: float) -> Columns:
        return {"probs": [round(1 / (1 + math.exp(math.hypot(*p) - 2.4 - shift)), 4) for p in points]}

    shown = [p for p in points if 0 < p[0] < 3 and abs(p[1]) < 3]
    return ToyPictures(
        grid={"x1": [*axis], "x2": [*axis]},
        truth={"class": [int(math.hypot(*p) >= 2.4) for p in points]},
        data={
            "x1": [p[0] for p in shown],
            "x2": [p[1] for p in shown],
            "class": [int(math.hypot(*p) >= 2.4) for p in shown],
        },
        reference=probs(0.0),
        methods={name: {m: [probs(4 / m), probs(-4 / m)] for m in (16, 64)} for name in methods},
    )


def reference_facts(kind: str) -> ReferenceFacts:
    """A shipped reference with its noise floors."""
    size, factors = 0.018 if kind == "gaussian" else 0.0009, {"pooled": 1.0, "gustafsson2020": 0.7}
    return ReferenceFacts(
        path="shipped",
        about={
            "command": "epibench reference toy-regression --set reference.num_chains=512",
            "num_chains": 512,
            "rhat": {"median": 1.004, "max": 1.31},
            "seeds": [0, 1, 2, 3],
        },
        floor=tree({view: size * factors[view[0]] / (1 if view[2] == "grid" else 20) for view in VIEWS}),
        notes=["Two batches that started from different networks lie at 0.016 from each other."],
        converged=kind == "categorical",
        convergence={
            "gaussian": "NOT converged: R-hat ≤ 1.05 at 33 % of points (goal 95 %)",
            "categorical": "converged: R-hat ≤ 1.05 at 100 % of points (goal 95 %)",
        }[kind],
    )


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
) -> RunResults:
    """The results of one run."""
    kind = "gaussian" if problem == "toy-regression" else "categorical"
    shapes = shapes or SHAPES[problem]
    labels = {**LABELS, **(labels or {})}
    draws = {method: kl_draws_of(method, shape, kind, members, seed) for method, shape in shapes.items()}
    made = {
        method: {d: made_on(method, min(shape[0], 1.0), kind, d, members) for d in ("inside", "outside")}
        for method, shape in shapes.items()
    }
    return run_results(
        recipe={
            "name": name or problem,
            "problem": problem,
            "seed": seed,
            "methods": list(shapes),
            "members": list(members),
            "data": {"path": data_path, "seed": seed},
            "reference": {"path": None},
            "ensemble": {"num_networks": 1024, "num_epochs": 150, "optimizer": "adam", "learning_rate": 0.001},
            "variants": variants or {},
        },
        problem=problem,
        kind=kind,
        methods={method: method_facts(method, labels[method], max(members)) for method in shapes},
        summary={method: {d: summary_of(one) for d, one in by.items()} for method, by in made.items()},
        curves={method: {d: curves_of(one) for d, one in by.items()} for method, by in made.items()},
        draws={method: {d: draws_of(one) for d, one in by.items()} for method, by in made.items()},
        kl={
            method: tree({view: {m: stat(values) for m, values in of_m.items()} for view, of_m in by.items()})
            for method, by in draws.items()
        },
        kl_draws={method: tree(by) for method, by in draws.items()},
        reference=reference_facts(kind),
        pictures=(regression_pictures if kind == "gaussian" else classification_pictures)(list(shapes)),
        cost={
            method: Cost(parameters=282, train_seconds=12.3 * (i + 1), predict_seconds=0.41)
            for i, method in enumerate(shapes)
        },
    )


def kl_leaf(results: RunResults, method: str, view: Any) -> dict[int, Stat]:
    """A method's KLs in one view."""
    return results.kl[method][view.convention][view.direction][view.region]


def regression() -> RunResults:
    """The everyday page."""
    return run(data_path="published_training_data.npz")


def classification() -> RunResults:
    """The other problem, on data of our own."""
    return run("toy-classification")


def momentum() -> RunResults:
    """Another optimiser, so that two runs can be compared."""
    shapes = {"ensemble": (0.7, 0.5, 0.6), "mc_dropout": (0.9, 1.4, 0.6)}
    return run(name="toy-regression-momentum", shapes=shapes)


def dropout_rates() -> RunResults:
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


def bare() -> RunResults:
    """One method, one M, an infinite KL, no reference, nothing else."""
    infinite: KL = tree({view: {1: Stat(mean=None, std=None, n=1)} for view in VIEWS})
    return run_results(methods={"map": method_facts("map", "MAP", 1)}, kl={"map": infinite})


def failed() -> RunResults:
    """A run whose only method failed."""
    return run_results(
        recipe={"name": "toy-regression", "methods": ["sgld"]}, failed={"sgld": "the loss is not finite"}
    )


def hostile() -> RunResults:
    """Text that tries to leave its place, wherever a run has text."""
    made = run(members=(8, 16)).model_dump()
    made["recipe"]["name"] = made["commit"] = made["device"] = BAD_TEXT
    made["recipe"][BAD_TEXT] = {BAD_TEXT: [BAD_TEXT]}
    made["methods"]["sgld"].update(label=BAD_TEXT, notes=[BAD_TEXT])
    made["reference"].update(path=BAD_TEXT, notes=[BAD_TEXT], about={BAD_TEXT: BAD_TEXT, "command": BAD_TEXT})
    return RunResults(**made)


SCENES: dict[str, Callable[[], list[RunResults]]] = {
    "regression": lambda: [regression()],
    "classification": lambda: [classification()],
    "dropout_rates": lambda: [dropout_rates()],
    "two_runs": lambda: [regression(), momentum()],
    "two_problems": lambda: [regression(), classification()],
    "bare": lambda: [bare()],
    "failed": lambda: [failed()],
    "hostile": lambda: [hostile()],
}


if __name__ == "__main__":
    from epibench.report import write_run_page

    for scene_name, scene in SCENES.items():
        print(write_run_page(scene(), Path(sys.argv[1]) / scene_name / "report.html"))
