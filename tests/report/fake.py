"""Made-up results of every command; as a command, write the pages of all scenes into a folder."""

import functools
import io
import itertools
import math
import random
import sys
from pathlib import Path, PurePath
from statistics import NormalDist, fmean
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image

from epibench import results as typed
from epibench.evaluation.scoring import NO_DOMAIN, ScoredStore, ScoreSettings, score_results
from epibench.evaluation.summary import per_draw, summarise, summarise_curves
from epibench.picture_files import EMBEDDED, PictureFile
from epibench.report.entries import Entry
from epibench.results import DomainFacts, Grid, PoolSize, Results, Score, Stat, Tally

NORMAL = NormalDist()
LEVELS, FRACTIONS = [i / 100 for i in range(1, 100)], [i / 100 for i in range(100)]
BINS = [0.05 + i / 10 for i in range(10)]
AXES = {"sparsification": FRACTIONS, "calibration": LEVELS, "reliability": BINS}
CITYSCAPES = """road sidewalk building wall fence pole light sign vegetation terrain sky
person rider car truck bus train motorcycle bicycle""".split()  # noqa: SIM905
HEX = "804080f423e846464666669cbe9999999999faaa1edcdc006b8e2398fb984682b4"
HEX += "dc143cff000000008e000046003c640050640000e6770b20"
COLOURS = [(*bytes.fromhex(HEX[i : i + 6]),) for i in range(0, len(HEX), 6)]
UNSEEN = 16  # a class that no domain holds
COMMON = ["road", "building", "sky", "vehicle"]  # of a domain with classes of its own; the last has no colour
COMMON_COLOURS = [COLOURS[0], COLOURS[2], COLOURS[10]]
BAD_TEXT = "<script>alert(1)</script>\"'&\x00\udc80"  # tries to leave its place
MEMBERS, DENSE_MEMBERS = (8, 16, 32, 64, 128, 256), (1, 2, 4, 8)  # of toy problems, and on images
VIEWS = list(itertools.product(("", "_gustafsson2020"), ("kl", "kl_reverse"), ("grid", "train")))
SINGLE = ("map", "ml")  # point estimates, which have no more than one member
LABELS = {"map": "MAP", "ml": "Maximum likelihood", "cyclical": "Cyclical SG-MCMC", "ensemble": "Ensembling"}
LABELS |= {"mc_dropout": "MC-dropout", "sgld": "SGLD", "sghmc": "SGHMC"}
# KL at the largest M, how much more at M = 8, and the relative spread between draws there.
REGRESSION = {"map": (4.1, 0.0, 0.4), "ml": (9.3, 0.0, 0.5), "ensemble": (0.298, 0.16, 0.5)}
REGRESSION |= {"mc_dropout": (0.95, 0.7, 0.6), "sgld": (0.31, 0.14, 0.5), "sghmc": (0.5, 0.2, 0.4)}
REGRESSION |= {"cyclical": (0.41, 0.25, 0.3)}
CLASSIFICATION = {"ensemble": (0.034, 0.055, 0.4), "mc_dropout": (0.121, 0.19, 0.45)}
CLASSIFICATION |= {"sgld": (0.14, 0.34, 0.7), "sghmc": (0.052, 0.5, 0.7)}
POOL = {"ensemble": (12, "random"), "mc_dropout": (4, "prefix"), "sghmc": (3, "spread")}  # networks or chains
QUALITY = {"ensemble": 0.0, "mc_dropout": 0.45, "sghmc": 0.2}
STREET = {"clean": 0.0, "wild-1": 1.0, "wild-3": 3.0, "wild": 5.0}
IMAGE_SIZE, SCALE = (128, 256), 1 / 256


class FakeDraw(NamedTuple):
    """One draw's metrics, and its curves by family and name."""

    metrics: dict
    curves: dict = {}  # noqa: RUF012


def tensor(values):
    """Numbers of draws; what is None becomes NaN."""
    array = np.array(values, dtype=object)
    return torch.from_numpy(array.astype(int if all(isinstance(one, int) for one in array.flat) else float))


def make_score(method, domain, made, **facts) -> Score:
    """A score of the draws for each M; facts: the other fields."""
    sets = [tuple(range(m)) for m, draws in made.items() for _ in draws]
    draws = [draw for of_m in made.values() for draw in of_m]
    values = {name: tensor([draw.metrics[name] for draw in draws]) for name in draws[0].metrics}
    curves = {
        family: {"x": tensor(AXES[family]), **{part: tensor([d.curves[family][part] for d in draws]) for part in parts}}
        for family, parts in draws[0].curves.items()
    }
    made = {"draws": per_draw(sets, values), "summary": summarise(sets, values)}
    made |= {"curves": summarise_curves(sets, curves), "settings": {"convention": "pooled"}}
    return Score(method=method, domain=domain, **{**made, **facts})


def entry(label, summary, index=0, floor=None, **parts) -> Entry:
    """A method with these metrics; parts: other fields of its score."""
    classes = {"classes": parts.pop("classes")} if "classes" in parts else {}
    facts = {"method": label, "domain": "", "settings": {}, "kind": "gaussian", "pool": PoolSize(64, 4, 4), **parts}
    return Entry(index, label, Score(summary=summary, **facts), floor=floor, **classes)


def sparsification(curve, oracle):
    return {"curve": curve, "oracle": oracle, "error": [c - o for c, o in zip(curve, oracle, strict=True)]}


def gaussian_draw(quality, m, rng) -> FakeDraw:
    """More members calibrate better, with a floor set by `quality`: 0 is the best, 1 the worst."""
    noise = rng.gauss(0, 0.03 / math.sqrt(m))
    spread = 0.55 + 0.38 * (1 - 1 / m) * (1.1 - quality) + noise  # predicted over true standard deviation
    coverage = [2 * NORMAL.cdf(NORMAL.inv_cdf((p + 1) / 2) * spread) - 1 for p in LEVELS]
    lengths = [2 * NORMAL.inv_cdf((p + 1) / 2) * spread * 0.9 for p in LEVELS]
    power = 0.42 + 0.1 * quality + 0.25 / m + noise / 3
    curve = [(1 - 0.97 * f) ** (0.9 - power) * (1 - 0.12 * math.sin(math.pi * f)) for f in FRACTIONS]
    ranked = sparsification(curve, [(1 - f) ** 0.85 * math.exp(-1.9 * f) for f in FRACTIONS])
    gaps = [c - p for c, p in zip(coverage, LEVELS, strict=True)]
    rmse = 1.83 + 0.34 * quality + 0.29 / m + noise
    metrics = {"ause": fmean(ranked["error"]), "ause_bound": 1.4e-4, "ause_standard_error": 1.1e-6}
    metrics |= {"auce": fmean(abs(g) for g in gaps) * 0.98, "auce_signed": fmean(gaps) * 0.98}
    metrics |= {"interval_length": 3.29 * spread * 0.9, "ence": abs(1 - spread) + 0.04}
    metrics |= {"rmse": rmse, "mae": 0.41 * rmse + noise / 4, "crps": 0.31 * rmse + noise / 5}
    metrics |= {"nll": 1.2 + 2.1 * (1 - spread) ** 2 + 0.4 / m, "nll_infinite": 0}
    calibration = {"coverage": coverage, "interval_length": lengths}
    return FakeDraw(metrics, {"sparsification": ranked, "calibration": calibration})


def categorical_draw(quality, m, rng, num_classes=19) -> FakeDraw:
    """The least confident bin is empty, as with many classes."""
    noise = rng.gauss(0, 0.006 / math.sqrt(m))
    over, better = 0.03 + 0.06 * quality + 0.07 / m + noise, 0.05 * quality + 0.06 / m - noise
    accuracy = [max(c - over * (1 + 0.4 * math.sin(8 * c)), 0.0) for c in BINS[1:9]]
    count = [int(30000 * (1 + 5 * c) * (1 + noise)) for c in BINS[1:9]]
    reliability = {"confidence": [None, *[c + 0.004 for c in BINS[1:9]], 0.983], "count": [0, *count, 7_200_000]}
    reliability["accuracy"] = [None, *accuracy, 0.983 - 0.35 * over]
    iou = [max(0.02, min(0.97, 0.9 - 0.7 * ((7 * k) % 19) / 19 - better)) for k in range(num_classes)]
    curve = [(1 - 0.98 * f) ** (1.4 - 0.5 * quality - 0.3 / m) for f in FRACTIONS]
    ranked, infinite = sparsification(curve, [(1 - f) * math.exp(-6 * f) for f in FRACTIONS]), quality > 0.8 and m == 1
    metrics = {"ause": fmean(ranked["error"]) + noise, "ause_bound": 2e-4, "ause_standard_error": 3e-6}
    metrics |= {"ece": 0.5 * over, "miou": fmean(iou), "iou_per_class": iou}
    metrics |= {"accuracy": 0.93 - 0.02 * quality - 0.02 / m + noise, "brier": 0.11 + 0.03 * quality + 0.02 / m - noise}
    metrics["nll"] = None if infinite else 0.24 + 0.08 * quality + 0.12 / m - noise
    metrics["nll_infinite"] = 1287 if infinite else 0
    return FakeDraw(metrics, {"sparsification": ranked, "reliability": reliability})


def run_results(**parts) -> Results:
    """Results of a run without numbers, but for the given parts."""
    facts = {"epibench": "0.1.0", "torch": "2.13.0+cpu", "python": "3.12.3", "commit": "3f2a91c", "device": "cpu"}
    facts |= {"created": "2026-11-15T12:00:00Z", "seconds": 431.7, "recipe": {}, "problem": "toy-regression"}
    return Results(**{**facts, "methods": {}, "domains": {}, "scores": [], **parts})


def score(results, method, domain) -> Score:
    """The score of a method on a domain."""
    found = results.score(method, domain)
    assert found is not None
    return found


def scored_file(path, *, kind="gaussian", quality=0.0, members=(1, 2, 4, 8, 16), draws=8, pool=33, **parts):
    """The score of a store; parts: method, domain, names and number of classes, and other fields."""
    rng, gaussian, size = random.Random(ascii(path)), kind == "gaussian", parts.pop("num_classes", 19)
    draw = gaussian_draw if gaussian else lambda *of: categorical_draw(*of, size)
    made = {m: [draw(quality, m, rng) for _ in range(draws if m < pool else 1)] for m in members}
    settings = {"convention": "pooled", "uncertainty": "total" if gaussian else "entropy"}
    facts = {"kind": kind, "unit": "m" if gaussian else None, "source": path, "pool": PoolSize(pool)}
    facts |= {"pixels": Tally(valid=9_000_000, masked=1_000_000), "settings": settings}
    facts |= {"overlap": {m: (m / pool if m > 1 else 0.0) for m in members}}
    method, domain = parts.pop("method", PurePath(path).stem), parts.pop("domain", "wild") or NO_DOMAIN
    names = parts.pop("class_names", None)
    return ScoredStore(make_score(method, domain, made, **{**facts, **parts}), names, [])


def results(*files, convention="pooled", in_domain=None) -> Results:
    """Results of `epibench score`."""
    return Results(**{**dict(score_results(files, ScoreSettings(), in_domain)), "convention": convention})


def two_gaussian(*domains, in_domain=None) -> Results:
    """The everyday scores: two methods; the later a domain, the larger its errors."""
    files = []
    for number, domain in enumerate(domains or ("wild",), start=1):
        for name, quality in (("ensemble", 0.0), ("mc_dropout", 0.9)):
            files.append(scored_file(f"preds/{name}.zarr", quality=quality, domain=domain))
            for metrics in files[-1].score.summary.values():
                metrics["rmse"].mean *= number
    return results(*files, in_domain=in_domain)


def three_categorical() -> Results:
    """Three methods with named classes, one with an infinite NLL."""
    about = {"kind": "categorical", "class_names": CITYSCAPES, "pool": 26}
    qualities = {"ensemble": 0.0, "sghmc": 0.4, "mc_dropout": 0.9}
    return results(*(scored_file(f"preds/{name}.zarr", quality=q, **about) for name, q in qualities.items()))


def single() -> Results:
    """One file, one M, one draw: dots, no lines, no std."""
    return results(scored_file("model.npz", domain=None, unit=None, members=(4,), draws=1, pool=4))


def crowded() -> Results:
    """Six files with long paths, many M, M up to the pool, and notes."""
    folder = "/mnt/experiments/2024-11-depth-completion/virtual-kitti-to-kitti/run-0007-resnet34/predictions"
    many, names = (*range(1, 13), 14, 16, 20, 24, 28, 32, 33), ["mc_dropout", "sgld", "sghmc", "cyclical"]
    files = [scored_file(f"{folder}/ensemble.zarr", members=(1, 2, 4, 8, 16, 32))]
    for i, name in enumerate([*names, "map_with_a_rather_long_name_of_its_own"], start=1):
        path = f"{folder}/{name}-{'x' * 20}.zarr"
        files.append(scored_file(path, method=name, quality=i / 5, members=many, draws=4))
    files[1].score.notes.append("12,034 pixels had a variance of 0 and count as covered only where the mean is exact.")
    files[2].score.pixels = Tally(valid=8_500_000, masked=1_000_000, skipped=500_000)
    return results(*files)


def mixed() -> Results:
    """Both kinds, one M for the classes, 150 class names, two domains."""
    names = [f"class name number {i}" for i in range(150)]
    classes = {"kind": "categorical", "class_names": names, "num_classes": 150, "members": (8,)}
    regression = [scored_file("a/ensemble.zarr"), scored_file("b/ensemble.zarr", domain="train", quality=0.1)]
    files = [scored_file("c/seg.zarr", method="ensemble", **classes)]
    files.append(scored_file("d/seg.zarr", method="sgld", quality=0.7, **classes))
    return results(*regression, *files, convention="gustafsson2020")


def undefined(one: Score) -> Score:
    """A score with every mean None."""
    for metrics in one.summary.values():
        for name, stat in metrics.items():
            none = [None] * len(stat.mean) if isinstance(stat.mean, list) else None
            metrics[name] = type(stat)(mean=none, std=None, n=stat.n)
    return one


def hostile_scores() -> Results:
    """Text that tries to leave its place, and every mean None."""
    file = scored_file(BAD_TEXT, method=BAD_TEXT, domain=BAD_TEXT, unit=BAD_TEXT, notes=[BAD_TEXT])
    named = file.score.model_dump()
    named["summary"][1][BAD_TEXT] = {"mean": 1.0, "std": 0.5, "n": 16}
    image, names = "</style><img src=x onerror=alert(1)>", [BAD_TEXT] * 19
    other = scored_file(BAD_TEXT, kind="categorical", class_names=names, members=(1, 2), method=image)
    undefined(other.score)
    return results(ScoredStore(Score(**named), None, []), other, convention=BAD_TEXT)


def toy_pool(method, m, kind, most):
    """The pool of a method on a toy problem, and the number of draws at an M, as in the paper's protocol."""
    if method == "ensemble":
        draws = 1024 // m if kind == "gaussian" else min(20, 1024 // m)
        return PoolSize(1024, None, 1024, "disjoint"), draws
    if method in SINGLE:
        return PoolSize(16, None, 16, "disjoint"), 16
    dropout = method.startswith("mc_dropout")
    return (PoolSize(30 * most, 30, 10, "prefix"), 30) if dropout else (PoolSize(15_360, 24, 24, "spread"), 24)


def kls_of(method, shape, kind, sizes, seed):
    """The KLs of a method on each region: they fall with M towards their limits."""
    rng, made = random.Random(f"{method}{seed}"), {"grid": {}, "train": {}}
    for convention, direction, region in VIEWS:
        factor = (1.0 if convention else 0.9 if kind == "gaussian" else 1.6) * (1.0 if region == "grid" else 0.09)
        factor *= 1.0 if direction == "kl" else 2.4 if kind == "gaussian" else 0.8
        for m in sizes:
            mean, sigma = factor * (shape[0] + shape[1] * (8 / m) ** 0.9), shape[2] * (8 / m) ** 0.35
            for draw in made[region].setdefault(m, [FakeDraw({}) for _ in range(toy_pool(method, m, kind, 1)[1])]):
                draw.metrics[direction + convention] = mean * math.exp(rng.gauss(0, sigma) - sigma**2 / 2)
    return made


def regression_pictures(methods):
    """Bands of two draws at two M, which fan out beyond the training region."""
    x = [round(-7 + 14 * i / 249, 4) for i in range(250)]

    def band(tilt, width):
        out = [max(abs(v) - 3, 0.0) for v in x]
        mean = [round(math.sin(v) + tilt * o, 4) for v, o in zip(x, out, strict=True)]
        return {"mean": mean, "std": [round(0.1 + width * o, 4) for o in out], "aleatoric_std": [0.1] * 250}

    true, sizes = band(0.0, 0.0)["mean"], {method: (1,) if method in SINGLE else (16, 64) for method in methods}
    parts = {"grid": {"x": x}, "truth": {"mean": true, "std": [0.1] * 250}, "reference": band(0.0, 0.5)}
    parts |= {"data": {"x": x[71:179], "y": true[71:179]}, "direct": {"mean": band(0.3, 0.0)["mean"]}}
    shown = {name: {m: [band(0.4 / m, 0.3), band(-0.4 / m, 0.2)] for m in of} for name, of in sizes.items()}
    return typed.ToyPictures(**parts, methods=shown)


def classification_pictures(methods):
    """Maps of two draws at two M; x1 varies fastest."""
    axis = [round(-6 + 12 * i / 59, 4) for i in range(60)]
    points = [(x1, x2) for x2 in axis for x1 in axis]

    def probs(shift):
        return {"probs": [round(1 / (1 + math.exp(math.hypot(*p) - 2.4 - shift)), 4) for p in points]}

    inside = [p for p in points if 0 < p[0] < 3 and abs(p[1]) < 3]
    data = {f"x{i + 1}": [p[i] for p in inside] for i in (0, 1)}
    data["class"], truth = ([int(math.hypot(*p) >= 2.4) for p in of] for of in (inside, points))
    parts = {"grid": {"x1": axis, "x2": axis}, "truth": {"class": truth}, "data": data, "reference": probs(0.0)}
    shown = {name: {m: [probs(4 / m), probs(-4 / m)] for m in (16, 64)} for name in methods}
    return typed.ToyPictures(**parts, methods=shown)


def reference_facts(kind):
    """A shipped reference with its noise floors; that of regression has not converged."""
    command, converged = "epibench reference toy-regression --chains 512", kind == "categorical"
    floors = {}
    for convention, factor in {"pooled": 1.0, "gustafsson2020": 0.7}.items():
        floor = factor * (0.0009 if converged else 0.018)
        regions = {"grid": floor, "train": floor / 20}
        floors[convention] = {"reference_to_method": regions, "method_to_reference": regions}
    words = f"{'converged' if converged else 'NOT converged'}: R-hat ≤ 1.05 at {100 if converged else 33} % of points"
    facts = {"notes": ["Two batches that started from different networks lie at 0.016 from each other."]}
    facts |= {"about": {"command": command, "num_chains": 512, "rhat": {"median": 1.004, "max": 1.31}}}
    facts |= {"converged": converged, "convergence": f"{words} (goal 95 %)"}
    return typed.ReferenceFacts(path="shipped", floor=floors, **facts)


def toy_run(problem="toy-regression", *, name=None, shapes=None, labels=None, members=MEMBERS, seed=0, **recipe):
    """The results of one run on a toy problem; recipe: more of it."""
    gaussian, scores, methods = problem == "toy-regression", [], {}
    kind, shapes = ("gaussian", shapes or REGRESSION) if gaussian else ("categorical", shapes or CLASSIFICATION)
    for i, (method, shape) in enumerate(shapes.items()):
        sizes, pool = (1,) if method in SINGLE else members, toy_pool(method, 1, kind, max(members))[0]
        for domain in ("inside", "outside"):
            rng, worse = random.Random(method + domain), min(shape[0], 1.0) + (0.9 if domain == "outside" else 0.0)
            draw = gaussian_draw if gaussian else lambda *of: categorical_draw(*of, 2)
            made = {m: [draw(worse, m, rng) for _ in range(6)] for m in sizes}
            for name_of_classes in ("miou", "iou_per_class"):
                for one in itertools.chain(*made.values()):
                    one.metrics.pop(name_of_classes, None)
            scores.append(make_score(method, domain, made, kind=kind, counted="points", pool=pool))
        for region, kls in kls_of(method, shape, kind, sizes, seed).items():
            scores.append(make_score(method, region, kls, kind=kind, counted="points", pool=pool))
        notes = (
            ["Snapshots are taken at the ends of epochs, from 75 % of the chain on."] if pool.plan == "spread" else []
        )
        cost = typed.Cost(parameters=282, train_seconds=12.3 * (i + 1), predict_seconds=0.41)
        facts = {"label": (labels or LABELS)[method], "method": method, "notes": notes, "cost": cost}
        methods[method] = typed.MethodFacts(**facts)
    roles = {"grid": "role unknown", "train": "in-domain", "inside": "in-domain", "outside": "shifted"}
    about = {"name": name or problem, "problem": problem, "seed": seed, "methods": [*shapes], "members": [*members]}
    about |= {"ensemble": {"num_networks": 1024, "optimizer": "adam", "learning_rate": 0.001}, **recipe}
    parts = {"recipe": about, "problem": problem, "methods": methods, "scores": scores}
    parts["toy"] = (regression_pictures if gaussian else classification_pictures)([*shapes])
    domains = {region: DomainFacts(label=region, role=role) for region, role in roles.items()}
    return run_results(**parts, domains=domains, reference=reference_facts(kind))


regression = functools.partial(toy_run, data={"path": "published_training_data.npz", "seed": 0})
classification = functools.partial(toy_run, "toy-classification", data={"path": None, "seed": 0})  # on data of our own
# Another optimiser, so that two runs can be compared.
momentum = functools.partial(
    toy_run, name="toy-regression-momentum", shapes={"ensemble": (0.7, 0.5, 0.6), "mc_dropout": (0.9, 1.4, 0.6)}
)


def dropout_rates() -> Results:
    """Variants of one method, in the quick variant of the recipe."""
    shapes = {"mc_dropout_5": (3.0, 9.0, 0.8), "mc_dropout_10": (1.1, 3.0, 0.6), "mc_dropout_20": (0.95, 0.7, 0.6)}
    rates = {"mc_dropout_5": 0.05, "mc_dropout_10": 0.1, "mc_dropout_20": 0.2}
    labels = {method: f"MC-dropout, p = {rate:g}" for method, rate in rates.items()}
    variants = {m: {"method": "mc_dropout", "label": "", "options": {"rate": r}} for m, r in rates.items()}
    about = {"shapes": shapes, "labels": labels, "members": (8, 16, 32), "variants": variants}
    return toy_run(name="toy-regression-dropout-quick", **about)


def bare(kl=True) -> Results:
    """One method, one M, an infinite KL or none, no reference, nothing else."""
    made = {1: [FakeDraw({f"{kl}{convention}": None for convention, kl, _ in VIEWS} if kl else {"nll": None})]}
    facts = {"kind": "gaussian", "counted": "points", "pool": PoolSize(16)}
    scores = [make_score("map", region, made, **facts) for region in ("grid", "train")]
    return run_results(methods={"map": typed.MethodFacts(label="MAP", method="map")}, scores=scores)


def toy_failed() -> Results:
    """A run whose only method failed."""
    return run_results(recipe={"name": "toy-regression"}, failed={"sgld": "the loss is not finite"})


def toy_hostile() -> Results:
    """Text that tries to leave its place, wherever a toy run has text."""
    made = toy_run(members=(8, 16)).model_dump()
    made["recipe"]["name"] = made["commit"] = made["device"] = BAD_TEXT
    made["recipe"][BAD_TEXT] = {BAD_TEXT: [BAD_TEXT]}
    made["methods"]["sgld"].update(label=BAD_TEXT, notes=[BAD_TEXT])
    made["reference"].update(path=BAD_TEXT, notes=[BAD_TEXT], about={BAD_TEXT: BAD_TEXT, "command": BAD_TEXT})
    return Results(**made)


def hardness(domain):
    """How much worse everything gets on a domain."""
    return 0.16 * STREET.get(domain, 5.0)


def dense_draws(method, domain, kind, members):
    """Draws for each M; those of one network share what is peculiar to it."""
    rng, hard, made = random.Random(method + domain + kind), hardness(domain), {m: [] for m in members}
    networks = [rng.gauss(0, 0.06) for _ in range(POOL[method][0])]
    for m, network in ((m, n) for m in members for n in range(8 if method == "ensemble" else len(networks))):
        worse = QUALITY[method] + hard + (0.0 if method == "ensemble" else networks[network])
        draw = gaussian_draw(worse, m, rng) if kind == "gaussian" else categorical_draw(worse, m, rng)
        if kind == "gaussian":
            for name in ("rmse", "mae", "crps"):
                draw.metrics[name] *= (1 + 1.6 * hard) / 2
        else:
            draw.metrics.update(per_class(draw.metrics["iou_per_class"], hard))
        made[m].append(draw)
    return made


def per_class(iou, hard):
    """The metrics of each class; the smaller a class, the more it loses, and one is never seen."""
    lost = [max(0.01, value - hard * 0.06 * (k % 7)) for k, value in enumerate(iou)]
    formulas = {"iou": lambda v: v, "accuracy": lambda v: v**0.6, "ause": lambda v: 0.1 + 0.2 * hard * (1 - v)}
    formulas |= {"ece": lambda v: 0.02 + 0.4 * hard * (1 - v), "brier": lambda v: 1.2 * (1 - v)}
    formulas |= {"nll": lambda v: 0.1 - 2 * math.log(v)}
    metrics = {f"{name}_per_class": [formula(value) for value in lost] for name, formula in formulas.items()}
    for values in metrics.values():
        values[UNSEEN] = None
    shares = [0.0 if k == UNSEEN else 0.3 * 0.75**k for k in range(len(iou))]
    return {**metrics, "miou": fmean(lost), "share_per_class": shares, "ause_per_class_bound": [1e-4] * len(iou)}


def dense_facts(method, members):
    """Cost grows with M; passes of one network share a half of it, its weights and its training."""
    number, images, training = POOL[method][0], {}, {}
    for m in members:
        passes, weights = ((m + 1) / 2, 1) if method == "mc_dropout" else (m, m)
        cost = {"seconds": 0.021 * m * (1 + 0.05 / m), "peak_bytes": int(3.1e8 + 4e6 * m)}
        cost |= {"flops": int(41_300_000_000 * passes), "weight_bytes": 4 * 25_932_418 * weights}
        images[m], n = typed.ImageCost(**cost), m if method == "ensemble" else 1
        training[m] = typed.TrainingCost(networks=n, seconds=410.0 * n, steps=4000 * n)
    cost = {"parameters": 25_932_418, "flops": 41_300_000_000, "image_size": [*IMAGE_SIZE]}
    cost = typed.Cost(**cost, train_seconds=410.0 * number, per_image=images, training=training)
    rng, steps = random.Random(method), [*range(100, 4001, 100)]
    losses = [[5.5 * (s / 100) ** -0.45 + rng.gauss(0, 0.06) for s in steps] for _ in range(number)]
    logs = [typed.TrainingLog(network=n, steps=steps, loss=loss) for n, loss in enumerate(losses)]
    return typed.MethodFacts(label=LABELS[method], method=method, cost=cost, training=logs)


def png(values) -> PictureFile:
    """An image as a PNG."""
    buffer = io.BytesIO()
    Image.fromarray(values).save(buffer, "png")
    return PictureFile.of(buffer.getvalue())


def grid(values) -> Grid:
    """Metres as counts in a 16-bit PNG."""
    return Grid(scale=SCALE, png=png(np.clip(values / SCALE, 0, 65535).round().astype(np.uint16)))


def pictures_on(domain, kind, methods, m, num_classes=19):
    """Two images, and predictions of methods: errors grow with depth or come in blotches; the uncertainty knows where.

    Depths fall towards the bottom, and classes come in stripes; both are unknown at the lower edge.
    """
    pictures, predicted = [], {method: [] for method in methods}
    for number, gaussian in ((0, kind == "gaussian"), (1, kind == "gaussian")):
        rows, columns = np.indices(IMAGE_SIZE)
        depth = np.where(rows < 120, 5.0 + 0.5 * (128 - rows) + 3 * np.sin(columns / 20 + number), 0.0)
        classes = np.where(rows < 114, (columns // 24 + number) % num_classes, 255).astype(np.uint8)
        rng = np.random.default_rng(number + 7)
        for method in methods:
            size = (0.02 + 0.05 * hardness(domain)) * (depth + 10) * (1 + QUALITY[method])
            wrong = np.sin((rows + columns) / 9) > 0.8 - 0.3 * QUALITY[method]
            if gaussian:
                mean = np.clip(np.where(depth > 0, depth, 60.0) + size * rng.standard_normal(IMAGE_SIZE), 0, 90)
                shown = {"mean": grid(mean), "std": grid(size)}
            else:
                known = np.where(classes == 255, 0, classes)
                chosen = np.where(wrong, (known + 1) % num_classes, known).astype(np.uint8)
                shown = {"predicted": png(chosen), "uncertainty": grid(0.1 + 1.5 * wrong)}
            predicted[method].append(typed.PredictedPicture(image=3 + number, M=m, **shown))
        sparse = grid(np.where(rng.random(IMAGE_SIZE) < 0.03, depth, 0.0)) if gaussian else None
        photo = png(rng.integers(0, 256, (*IMAGE_SIZE, 3)).astype(np.uint8))
        about = {"image": 3 + number, "height": 128, "width": 256, "photo": photo, "sparse_depth": sparse}
        pictures.append(typed.Picture(**about, target=grid(depth) if gaussian else png(classes)))
    return pictures, predicted


def dense_run(
    kind="gaussian", *, name=None, domains=tuple(STREET), methods=("ensemble", "mc_dropout"), members=DENSE_MEMBERS
):
    """The results of one run on images."""
    gaussian, facts, scores = kind == "gaussian", {}, []
    shown = {domain: pictures_on(domain, kind, methods, max(members)) for domain in domains}
    for domain in domains:
        severity, role = STREET.get(domain), "in-domain" if domain == "clean" else "shifted"
        label = (
            "street, clean" if domain == "clean" else f"street, wild (severity {severity:g})" if severity else domain
        )
        classes = {} if gaussian else {"class_names": CITYSCAPES, "class_colours": COLOURS}
        facts[domain] = DomainFacts(label=label, role=role, severity=severity, pictures=shown[domain][0], **classes)
    settings = {"precision": "32-true", "convention": "pooled", "uncertainty": "total" if gaussian else "entropy"}
    about = {"kind": kind, "unit": "m" if gaussian else None, "num_images": 64, "settings": settings}
    about["cost"] = typed.PassCost(forward_seconds=16.1, scoring_seconds=2.2)
    for method, domain in itertools.product(methods, domains):
        (number, plan), grouped = POOL[method], method != "ensemble"
        pool = PoolSize(number * (max(members) if grouped else 1), number if grouped else None, number, plan)
        more = {"pool": pool, "pixels": Tally(valid=1_537_024 if domain == "clean" else 651_264), **about}
        more["overlap"] = {m: m / 12 if not grouped and m > 1 else 0.0 for m in members}
        draws = dense_draws(method, domain, kind, members)
        scores.append(make_score(method, domain, draws, pictures=shown[domain][1][method], **more))
    problem = "depth-completion" if gaussian else "segmentation"
    recipe = {"name": name or f"street-{problem}", "problem": problem, "seed": 0, "members": [*members]}
    parts = {"methods": {method: dense_facts(method, members) for method in methods}, "problem": problem}
    return run_results(**parts, device="NVIDIA H200", seconds=5_312.0, recipe=recipe, domains=facts, scores=scores)


small = functools.partial(dense_run, domains=("clean", "wild"), members=(1, 2))
depth = dense_run  # two methods on a clean street and under three severities
segmentation = functools.partial(dense_run, "categorical", methods=("ensemble", "mc_dropout", "sghmc"))
# The segmentation that the paper shows numbers for.
cityscapes = functools.partial(
    dense_run, "categorical", name="cityscapes-segmentation", domains=("clean", "cityscapes"), members=(1, 2, 4)
)


def twice_evaluated() -> Results:
    """An older evaluation in another precision, of one method, with larger errors."""
    made = small()
    older = [one.model_copy(deep=True) for one in made.scores if one.method == "mc_dropout"]
    for one in older:
        one.settings["precision"] = "bf16"
        for metrics in one.summary.values():
            metrics["rmse"].mean *= 2
    return made.model_copy(update={"scores": [*made.scores, *older]})


def uncounted() -> Results:
    """Costs without operations, weights and training, as where they cannot be counted."""
    made = small()
    for facts in made.methods.values():
        facts.cost.training, facts.cost.flops = {}, None
        for cost in facts.cost.per_image.values():
            cost.flops = cost.weight_bytes = None
    return made


def kitti() -> Results:
    """A run that the paper shows numbers for."""
    made = dense_run(name="kitti-depth", domains=("clean", "kitti"), members=(1, 2, 4))
    made.domains["kitti"].label = "KITTI"
    for one in (one for one in made.scores if one.domain == "kitti"):
        for metrics in one.summary.values():
            metrics["ause"] = Stat(mean=0.066, std=0.008, n=8)
        for number, draw in enumerate(one.draws):
            draw.metrics["ause"] = 0.066 + (0.008 if number % 2 else -0.008)
    return made


def mapped() -> Results:
    """A domain that is scored on classes of its own."""
    made = dense_run("categorical", name="folder-segmentation", domains=("clean", "camvid"), members=(1, 2))
    facts = made.domains["camvid"]
    facts.label, facts.class_names, facts.class_colours = "CamVid", COMMON, COMMON_COLOURS
    facts.pictures, predicted = pictures_on("camvid", "categorical", [*made.methods], 2, len(COMMON))
    for one in (one for one in made.scores if one.domain == "camvid"):
        one.pictures = predicted[one.method]
        for stat in (stat for metrics in one.summary.values() for stat in metrics.values()):
            if isinstance(stat, typed.ClassStat):
                stat.mean, stat.std = stat.mean[: len(COMMON)], stat.std and stat.std[: len(COMMON)]
    return made


def partial() -> Results:
    """A run with holes: a method that failed on a domain, one draw, undefined metrics, no pictures, no cost."""
    made = small()
    made.scores.remove(score(made, "mc_dropout", "wild"))
    made.failed = {"mc_dropout": "CUDA out of memory"}
    for facts in made.methods.values():
        facts.cost, facts.training = None, []
    for facts in made.domains.values():
        facts.pictures = []
    for one in made.scores:
        one.pictures, one.overlap, one.draws, one.cost = [], {}, [], None
        one.curves = {} if one.method == "ensemble" else one.curves
    for metrics in made.scores[0].summary.values():
        for stat in metrics.values():
            stat.std, stat.n = None, 1
        metrics["auce"] = Stat(mean=None, std=None, n=1)
        del metrics["rmse"]
    return made


def damaged_pictures() -> Results:
    """Pictures that cannot be read, or lack a part."""
    made = small()
    first, second = made.domains["clean"].pictures
    no_png = PictureFile.of(b"not a PNG")
    first.photo, first.target, second.sparse_depth = no_png, Grid(scale=SCALE, png=no_png), None
    score(made, "ensemble", "clean").pictures[0].std = Grid(scale=SCALE, png=no_png)
    del score(made, "mc_dropout", "clean").pictures[1]
    made.domains["wild"].pictures = []
    return made


def damaged_class_pictures() -> Results:
    """Maps of classes that cannot be read, lack a part, differ in size, or hold classes that nothing is known of."""
    made = small("categorical")
    first, second = made.domains["clean"].pictures
    first.target, second.target = png(np.zeros((8, 9), np.uint8)), png(np.full(IMAGE_SIZE, 300, np.uint16))
    ensemble, dropout = (score(made, method, "clean").pictures for method in ("ensemble", "mc_dropout"))
    ensemble[0].predicted = png(np.zeros((*IMAGE_SIZE, 3), np.uint8))
    ensemble[1].predicted = png(np.full(IMAGE_SIZE, 254, np.uint8))
    dropout[1].predicted = png(np.full(IMAGE_SIZE, 40, np.uint8))
    dropout[0].uncertainty = dropout[1].uncertainty = None
    for facts in made.domains.values():
        facts.class_colours, facts.class_names = COLOURS[:5], CITYSCAPES[:7]
    made.domains["wild"].pictures = []
    return made


def dense_hostile(kind="gaussian") -> Results:
    """Text that tries to leave its place, wherever a run on images has text."""
    made = small(kind).model_dump(mode="json", context=EMBEDDED)
    made["recipe"]["name"] = made["domains"]["wild"]["label"] = BAD_TEXT
    made["methods"]["ensemble"].update(label=BAD_TEXT, notes=[BAD_TEXT])
    made["failed"] = {BAD_TEXT: BAD_TEXT}
    for one in made["scores"]:
        one["unit"] = BAD_TEXT if kind == "gaussian" else None
        for metrics in one["summary"].values() if kind != "gaussian" and one["method"] == "ensemble" else ():
            metrics[f"{BAD_TEXT}_per_class"] = metrics["iou_per_class"]
    for facts in made["domains"].values():
        facts["class_names"] = [BAD_TEXT] * len(COLOURS) if kind == "categorical" else None
    return Results.model_validate(made, context=EMBEDDED)


def dense_failed() -> Results:
    """A run whose only method failed."""
    made = small()
    return made.model_copy(update={"failed": {"ensemble": "CUDA out of memory"}, "methods": {}, "scores": []})


SCORES = ("two_gaussian", "three_categorical", "single", "crowded", "mixed", "hostile_scores")
SCORE_SCENES = {name: globals()[name] for name in SCORES}
NAMES = """regression classification dropout_rates bare toy_failed toy_hostile depth segmentation uncounted kitti
cityscapes mapped damaged_class_pictures partial twice_evaluated dense_failed damaged_pictures dense_hostile"""
SCENES = {name: lambda name=name: [globals()[name]()] for name in (*SCORE_SCENES, *NAMES.split())} | {
    "class_hostile": lambda: [dense_hostile("categorical")],
    "shifted_scores": lambda: [two_gaussian("day", "night", "fog", in_domain="day")],
    "no_kl": lambda: [bare(kl=False)],
    "samples": lambda: [results(scored_file("a.npz", members=(1,), counted="samples", num_images=9))],
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
