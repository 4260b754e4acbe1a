"""Results dicts that look like those of `epibench run` on dense problems; as a command, write the pages of scenes.

python tests/report/fake_dense_run.py OUT_FOLDER
"""

import base64
import copy
import io
import random
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import fake_run
import numpy as np
from fake_results import BINS, CITYSCAPES, FRACTIONS, LEVELS, categorical_draw, gaussian_draw, stat
from PIL import Image

from epibench.street import StreetDataset, make_domain

MEMBERS = (1, 2, 4, 8)
POOL = {"ensemble": 12, "mc_dropout": 4, "sghmc": 3}  # networks or chains
LABELS = {"ensemble": "Ensembling", "mc_dropout": "MC-dropout", "sghmc": "SGHMC"}
QUALITY = {"ensemble": 0.0, "mc_dropout": 0.45, "sghmc": 0.2}
STREET = {"clean": 0.0, "wild-1": 1.0, "wild-3": 3.0, "wild": 5.0}
AXES = {"sparsification": FRACTIONS, "calibration": LEVELS, "reliability": BINS}
IMAGE_SIZE = (128, 256)
SCALE = 1 / 256
COLOURS = [
    list(bytes.fromhex(colour))
    for colour in """804080 f423e8 464646 66669c be9999 999999 faaa1e dcdc00 6b8e23 98fb98 4682b4
    dc143c ff0000 00008e 000046 003c64 005064 0000e6 770b20""".split()  # noqa: SIM905
]
UNSEEN = 16  # a class that no domain holds
COMMON = ["road", "building", "sky", "vehicle"]  # of a domain with classes of its own; the last has no colour
COMMON_COLOURS = COLOURS[:1] + COLOURS[2:3] + COLOURS[10:11]
TO_COMMON = {0: 0, 1: 0, 2: 1, 10: 2, 13: 3, 14: 3, 15: 3}


def domain_info(name: str) -> dict[str, Any]:
    """What a run says about a domain."""
    severity = STREET.get(name)
    label = "street, clean" if name == "clean" else f"street, wild (severity {severity:g})" if severity else name
    shape = {"num_images": 64, "num_pixels": 1_537_024 if name == "clean" else 651_264}
    return {"label": label, "role": "in-domain" if name == "clean" else "shifted", "severity": severity, **shape}


def method_info(method: str, members: tuple[int, ...]) -> dict[str, Any]:
    """What a run says about a method: sets of networks, or passes of each network."""
    about = {"label": LABELS[method], "method": method, "num_networks": POOL[method], "notes": []}
    if method == "ensemble":
        return {**about, "num_members": POOL[method], "num_groups": None, "plan": "random"}
    grouped = {"num_members": POOL[method] * max(members), "num_groups": POOL[method]}
    return {**about, **grouped, "plan": "prefix" if method == "mc_dropout" else "spread"}


def hardness(domain: str) -> float:
    """How much worse everything gets on a domain."""
    severity = STREET.get(domain)
    return 0.8 if severity is None else 0.16 * severity


def draws_of(method: str, domain: str, kind: str, members: tuple[int, ...]) -> dict[int, list[dict[str, Any]]]:
    """Draws for each M; those of one network share what is peculiar to it."""
    rng = random.Random(method + domain + kind)
    networks = [rng.gauss(0, 0.06) for _ in range(POOL[method])]
    made = {}
    for m in members:
        found = []
        for network in range(8 if method == "ensemble" else POOL[method]):
            worse = QUALITY[method] + hardness(domain) + (0.0 if method == "ensemble" else networks[network])
            draw = gaussian_draw(worse, m, rng) if kind == "gaussian" else categorical_draw(worse, m, rng, 19)
            if kind == "gaussian":
                grown = 1 + 1.6 * hardness(domain)
                for name in ("rmse", "mae", "crps", "crps_gaussian", "interval_score"):
                    draw["metrics"][name] *= grown / 2
            else:
                draw["metrics"].update(per_class(draw["metrics"]["iou_per_class"], hardness(domain)))
            found.append(draw)
        made[m] = found
    return made


def per_class(iou: list[float], hard: float) -> dict[str, Any]:
    """What a draw says of each class; the smaller a class, the more it loses, and one is never seen."""
    lost = [max(0.01, value - hard * 0.06 * (k % 7)) for k, value in enumerate(iou)]
    found: dict[str, Any] = {
        "iou_per_class": lost,
        "miou": sum(lost) / len(lost),
        "accuracy_per_class": [value**0.6 for value in lost],
        "ause_per_class": [0.1 + 0.2 * hard * (1 - value) for value in lost],
        "ause_per_class_bound": [1e-4 for _ in lost],
        "ece_per_class": [0.02 + 0.4 * hard * (1 - value) for value in lost],
        "brier_per_class": [1.2 * (1 - value) for value in lost],
        "nll_per_class": [0.1 - 2 * np.log(value) for value in lost],
        "share_per_class": [0.3 * 0.75**k for k in range(len(iou))],
    }
    if len(iou) == len(COLOURS):
        for name in found.keys() - {"miou", "share_per_class"}:
            found[name][UNSEEN] = None
        found["share_per_class"][UNSEEN] = 0.0
    return found


def summary_of(made: dict[int, list[dict[str, Any]]]) -> dict[str, Any]:
    return {
        str(m): {name: stat([d["metrics"][name] for d in ds]) for name in ds[0]["metrics"]} for m, ds in made.items()
    }


def curves_of(made: dict[int, list[dict[str, Any]]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for family, parts in next(iter(made.values()))[0]["curves"].items():
        of_m = {}
        for m, ds in made.items():
            stats = {part: stat([d["curves"][family][part] for d in ds]) for part in parts}
            of_m[str(m)] = {part: {"mean": s["mean"], "std": s["std"]} for part, s in stats.items()}
        found[family] = {"x": AXES[family], "M": of_m}
    return found


def cost_of(method: str, domains: list[str], members: tuple[int, ...]) -> dict[str, Any]:
    """Cost grows with M; dropout and chains run one network, or keep one at a time."""
    each = {"ensemble": 0.021, "mc_dropout": 0.023, "sghmc": 0.021}[method]
    seconds = {m: each * m * (1 + 0.05 / m) for m in members}
    return {
        "parameters": 25_932_418,
        "flops": 41_300_000_000,
        "image_size": list(IMAGE_SIZE),
        "train_seconds": 410.0 * POOL[method],
        "per_image": {str(m): {"seconds": s, "peak_bytes": int(3.1e8 + 4e6 * m)} for m, s in seconds.items()},
        "evaluation": {domain: {"forward_seconds": 16.1, "scoring_seconds": 2.2} for domain in domains},
    }


def png_text(values: np.ndarray) -> str:
    """An image as base64 of a PNG."""
    buffer = io.BytesIO()
    Image.fromarray(values).save(buffer, "png")
    return base64.b64encode(buffer.getvalue()).decode()


def grid(values: np.ndarray) -> dict[str, Any]:
    """Metres as counts in a 16-bit PNG."""
    return {"scale": SCALE, "png": png_text(np.clip(values / SCALE, 0, 65535).round().astype(np.uint16))}


@cache
def street_frames(domain: str) -> tuple[Any, ...]:
    world = make_domain("clean") if domain == "clean" else make_domain("wild", STREET.get(domain, 5.0))
    dataset = StreetDataset("depth", world, length=2, size=IMAGE_SIZE)
    return tuple(dataset.frame(i) for i in range(2))


def smooth_noise(rng: np.random.Generator, cell: int) -> np.ndarray:
    """Noise in blotches, as networks err."""
    height, width = IMAGE_SIZE
    coarse = rng.standard_normal((height // cell + 1, width // cell + 1)).astype(np.float32)
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


def pictures_of(domain: str, methods: list[str], m: int) -> list[dict[str, Any]]:
    """Predictions made from the target: errors grow with depth, and the std follows them more or less."""
    found = []
    for number, frame in enumerate(street_frames(domain)):
        rng = np.random.default_rng(number + 7)
        truth = np.where(frame.depth > 0, frame.depth, 70.0)
        of_method = {}
        for method in methods:
            trouble = np.abs(smooth_noise(rng, 16)) * (0.4 + hardness(domain))
            size = 0.02 * truth * (0.3 + trouble)
            mean = np.clip(truth + size * (rng.standard_normal(IMAGE_SIZE) + smooth_noise(rng, 8)), 0, 90)
            std = size * (1.2 - 0.5 * QUALITY[method]) * (1 + 0.3 * smooth_noise(rng, 12) ** 2)
            of_method[method] = {"M": m, "mean": grid(mean), "std": grid(std)}
        found.append(
            {
                "image": 3 + number,
                "height": IMAGE_SIZE[0],
                "width": IMAGE_SIZE[1],
                "photo": png_text(frame.image),
                "sparse_depth": grid(frame.sparse_depth),
                "target": grid(frame.target_depth),
                "methods": of_method,
            }
        )
    return found


def class_pictures_of(domain: str, methods: list[str], m: int, common: bool = False) -> list[dict[str, Any]]:
    """Predictions made from the labels: wrong in blotches, about which the entropy knows something."""
    found = []
    for number, frame in enumerate(street_frames(domain)):
        rng = np.random.default_rng(number + 11)
        target = np.full(256, 255, np.uint8)
        target[: len(COLOURS)] = [TO_COMMON.get(k, 255) if common else k for k in range(len(COLOURS))]
        truth = target[frame.labels]
        truth[-14:, 60:200] = 255  # the car that carries the camera has no label
        num_classes = len(COMMON) if common else len(COLOURS)
        of_method = {}
        for method in methods:
            trouble = smooth_noise(rng, 12) + 0.4 * hardness(domain)
            shifted = np.roll(np.where(truth == 255, 2, truth), (6, -9), (0, 1))
            wrong = trouble > 1.1 - 0.3 * QUALITY[method]
            predicted = np.where(wrong, shifted, np.where(truth == 255, 0, truth)).astype(np.uint8)
            entropy = np.log(num_classes) * 0.7 / (1 + np.exp(-3 * (trouble - 1.1 + 0.2 * smooth_noise(rng, 8))))
            of_method[method] = {"M": m, "predicted": png_text(predicted), "uncertainty": grid(entropy)}
        size = {"height": IMAGE_SIZE[0], "width": IMAGE_SIZE[1]}
        shown = {"photo": png_text(frame.image), "target": png_text(truth), "methods": of_method}
        found.append({"image": 3 + number, **size, **shown})
    return found


def training_of(method: str) -> list[dict[str, Any]]:
    rng = random.Random(method)
    steps = list(range(100, 4001, 100))
    return [
        {"network": n, "steps": steps, "loss": [5.5 * (s / 100) ** -0.45 + rng.gauss(0, 0.06) for s in steps]}
        for n in range(POOL[method])
    ]


def run(
    kind: str = "gaussian",
    *,
    name: str | None = None,
    domains: tuple[str, ...] = tuple(STREET),
    methods: tuple[str, ...] = ("ensemble", "mc_dropout"),
    members: tuple[int, ...] = MEMBERS,
) -> dict[str, Any]:
    """The results of one run on a dense problem."""
    problem = "depth-completion" if kind == "gaussian" else "segmentation"
    pictures = {"gaussian": pictures_of, "categorical": class_pictures_of}
    made = {m: {d: draws_of(m, d, kind, members) for d in domains} for m in methods}
    overlaps = {m: {str(k): k / 12 if m == "ensemble" and k > 1 else 0.0 for k in members} for m in methods}
    return {
        "version": 1,
        "epibench": "0.1.0",
        "torch": "2.13.0+cpu",
        "python": "3.12.3",
        "commit": "3f2a91c",
        "device": "NVIDIA H200",
        "created": "2026-11-15T12:00:00Z",
        "seconds": 5_312.0,
        "recipe": {
            "name": name or f"street-{problem}",
            "problem": problem,
            "about": "Train on clean street scenes, evaluate on wild ones.",
            "seed": 0,
            "methods": list(methods),
            "members": list(members),
            "draws": 8,
            "training": {"num_steps": 4000, "batch_size": 16, "learning_rate": 1e-4},
            "train": {"name": "street", "domain": "clean", "length": 20000},
        },
        "changes": [],
        "problem": problem,
        "kind": kind,
        "unit": "m" if kind == "gaussian" else None,
        "class_names": None if kind == "gaussian" else CITYSCAPES,
        "class_colours": None if kind == "gaussian" else COLOURS,
        "domains": {domain: domain_info(domain) for domain in domains},
        "methods": {method: method_info(method, members) for method in methods},
        "summary": {m: {d: summary_of(draws) for d, draws in by.items()} for m, by in made.items()},
        "curves": {m: {d: curves_of(draws) for d, draws in by.items()} for m, by in made.items()},
        "draws": {
            m: {
                d: [{"M": size, "metrics": draw["metrics"]} for size, ds in draws.items() for draw in ds]
                for d, draws in by.items()
            }
            for m, by in made.items()
        },
        "overlap": overlaps,
        "cost": {method: cost_of(method, list(domains), members) for method in methods},
        "training": {method: training_of(method) for method in methods},
        "pictures": {d: pictures[kind](d, list(methods), max(members)) for d in domains},
        "failed": {},
    }


def depth() -> dict[str, Any]:
    """The everyday page: two methods on a clean street and under three severities."""
    return run()


def segmentation() -> dict[str, Any]:
    """Classes instead of depths, three methods."""
    return run("categorical", methods=("ensemble", "mc_dropout", "sghmc"))


def kitti() -> dict[str, Any]:
    """A run that the paper shows numbers for."""
    made = run(name="kitti-depth", domains=("clean", "kitti"), members=(1, 2, 4))
    for method in made["summary"].values():
        for metrics in method["kitti"].values():
            metrics["ause"] = {"mean": 0.066, "std": 0.008, "n": 8}
    made["domains"]["kitti"]["label"] = "KITTI"
    return made


def cityscapes() -> dict[str, Any]:
    """The segmentation that the paper shows numbers for."""
    return run("categorical", name="cityscapes-segmentation", domains=("clean", "cityscapes"), members=(1, 2, 4))


def mapped() -> dict[str, Any]:
    """A domain that is scored on classes of its own."""
    made = copy.deepcopy(run("categorical", name="folder-segmentation", domains=("clean", "camvid"), members=(1, 2)))
    made["domains"]["camvid"].update(label="CamVid", class_names=COMMON, class_colours=COMMON_COLOURS)
    made["pictures"]["camvid"] = class_pictures_of("camvid", ["ensemble", "mc_dropout"], 2, common=True)
    for of_method in made["summary"].values():
        for stats in of_method["camvid"].values():
            for name, one in stats.items():
                if name.endswith("_per_class"):
                    one.update({part: one[part] and one[part][: len(COMMON)] for part in ("mean", "std")})
    return made


def partial() -> dict[str, Any]:
    """A run with holes: a method that failed on a domain, one draw, undefined metrics, no pictures, no cost."""
    made = copy.deepcopy(run(domains=("clean", "wild"), members=(1, 2)))
    del made["summary"]["mc_dropout"]["wild"]
    del made["pictures"], made["cost"], made["training"], made["overlap"]
    made["curves"]["ensemble"] = None
    made["draws"] = {}
    made["failed"] = {"mc_dropout": "CUDA out of memory"}
    for stats in made["summary"]["ensemble"]["clean"].values():
        for one in stats.values():
            one.update(std=None, n=1)
        stats["auce"] = {"mean": None, "std": None, "n": 1}
        stats["rmse"] = None
    return made


def damaged_pictures() -> dict[str, Any]:
    """Pictures that cannot be read, or lack a part."""
    made = copy.deepcopy(run(domains=("clean", "wild"), members=(1, 2)))
    first, second = made["pictures"]["clean"]
    first["photo"] = "no picture"
    first["target"] = None
    first["methods"]["ensemble"]["std"] = {"scale": SCALE, "png": base64.b64encode(b"not a PNG").decode()}
    del second["sparse_depth"], second["methods"]["mc_dropout"]
    made["pictures"]["wild"] = None
    return made


def damaged_class_pictures() -> dict[str, Any]:
    """Maps of classes that cannot be read, lack a part, differ in size, or hold classes that nothing is known of."""
    made = copy.deepcopy(run("categorical", domains=("clean", "wild"), members=(1, 2)))
    first, second = made["pictures"]["clean"]
    first["target"] = png_text(np.zeros((8, 9), np.uint8))
    first["methods"]["ensemble"]["predicted"] = png_text(np.zeros((*IMAGE_SIZE, 3), np.uint8))
    first["methods"]["mc_dropout"]["uncertainty"] = "no grid"
    second["target"] = png_text(np.full(IMAGE_SIZE, 300, np.uint16))
    second["methods"]["ensemble"]["predicted"] = png_text(np.full(IMAGE_SIZE, 254, np.uint8))
    second["methods"]["mc_dropout"] = {"M": None, "predicted": png_text(np.full(IMAGE_SIZE, 40, np.uint8))}
    made["class_colours"] = [*COLOURS[:5], None, [1, 2], "red", [300, 0, 0]]
    made["class_names"] = CITYSCAPES[:7]
    made["pictures"]["wild"] = "none"
    return made


def hostile() -> dict[str, Any]:
    """Text that tries to leave its place, wherever a dense run has text."""
    bad = "<script>alert(1)</script>\"'&\x00\udc80"
    made = copy.deepcopy(run(domains=("clean", "wild"), members=(1, 2)))
    made["recipe"]["name"] = made["unit"] = bad
    made["domains"]["wild"].update(label=bad, role=bad)
    made["methods"]["ensemble"].update(label=bad, notes=[bad])
    made["pictures"]["clean"][0].update(photo=bad, image=bad)
    made["failed"] = {bad: bad}
    return made


def class_hostile() -> dict[str, Any]:
    """Text that tries to leave its place, where only classes have text."""
    bad = "<script>alert(1)</script>\"'&\x00\udc80"
    made = copy.deepcopy(run("categorical", domains=("clean", "wild"), members=(1, 2)))
    made["class_names"] = [bad] * len(COLOURS)
    made["class_colours"] = [[bad, bad, bad], bad, {bad: bad}]
    for stats in made["summary"]["ensemble"]["wild"].values():
        stats[f"{bad}_per_class"] = stats["iou_per_class"]
    return made


SCENES: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "depth": lambda: [depth()],
    "segmentation": lambda: [segmentation()],
    "kitti": lambda: [kitti()],
    "cityscapes": lambda: [cityscapes()],
    "mapped": lambda: [mapped()],
    "damaged_class_pictures": lambda: [damaged_class_pictures()],
    "class_hostile": lambda: [class_hostile()],
    "depth_and_segmentation": lambda: [run(kind, domains=("clean", "wild")) for kind in ("gaussian", "categorical")],
    "partial": lambda: [partial()],
    "damaged_pictures": lambda: [damaged_pictures()],
    "dense_hostile": lambda: [hostile()],
    "dense_and_toy": lambda: [run(domains=("clean", "wild")), fake_run.classification()],
    "two_dense_runs": lambda: [run(domains=("clean", "wild")), run(name="mine", domains=("clean", "wild"))],
}


if __name__ == "__main__":
    from epibench.report import write_run_page

    for scene_name, scene in SCENES.items():
        print(write_run_page(scene(), Path(sys.argv[1]) / scene_name / "report.html"))
