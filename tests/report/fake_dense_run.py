"""Results that look like those of `epibench run` on dense problems; as a command, write the pages of scenes.

python tests/report/fake_dense_run.py OUT_FOLDER
"""

import base64
import io
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_run
import numpy as np
from fake_results import (
    BAD_TEXT,
    CITYSCAPES,
    FakeDraw,
    categorical_draw,
    curves_of,
    draws_of,
    gaussian_draw,
    summary_of,
)
from PIL import Image

from epibench.results import (
    RGB,
    ClassStat,
    Cost,
    DomainFacts,
    Grid,
    ImageCost,
    MethodFacts,
    PassCost,
    Picture,
    PredictedPicture,
    RunResults,
    Stat,
    TrainingCost,
    TrainingLog,
)

MEMBERS = (1, 2, 4, 8)
POOL = {"ensemble": 12, "mc_dropout": 4, "sghmc": 3}  # networks or chains
PLANS = {"ensemble": "random", "mc_dropout": "prefix", "sghmc": "spread"}
QUALITY = {"ensemble": 0.0, "mc_dropout": 0.45, "sghmc": 0.2}
STREET = {"clean": 0.0, "wild-1": 1.0, "wild-3": 3.0, "wild": 5.0}
IMAGE_SIZE = (128, 256)
SCALE = 1 / 256
COLOURS: list[RGB] = [
    (*bytes.fromhex(colour),)  # type: ignore[misc]
    for colour in """804080 f423e8 464646 66669c be9999 999999 faaa1e dcdc00 6b8e23 98fb98 4682b4
    dc143c ff0000 00008e 000046 003c64 005064 0000e6 770b20""".split()  # noqa: SIM905
]
UNSEEN = 16  # a class that no domain holds
COMMON = ["road", "building", "sky", "vehicle"]  # of a domain with classes of its own; the last has no colour
COMMON_COLOURS = [COLOURS[0], COLOURS[2], COLOURS[10]]


def domain_facts(name: str) -> DomainFacts:
    """What a run says about a domain."""
    severity = STREET.get(name)
    label = "street, clean" if name == "clean" else f"street, wild (severity {severity:g})" if severity else name
    pixels = 1_537_024 if name == "clean" else 651_264
    role = "in-domain" if name == "clean" else "shifted"
    return DomainFacts(label=label, role=role, severity=severity, num_images=64, num_pixels=pixels)


def method_facts(method: str, members: tuple[int, ...]) -> MethodFacts:
    """What a run says about a method: sets of networks, or passes of each network."""
    grouped = method != "ensemble"
    return MethodFacts(
        label=fake_run.LABELS[method],
        method=method,
        num_networks=POOL[method],
        num_members=POOL[method] * (max(members) if grouped else 1),
        num_groups=POOL[method] if grouped else None,
        plan=PLANS[method],
    )


def hardness(domain: str) -> float:
    """How much worse everything gets on a domain."""
    severity = STREET.get(domain)
    return 0.8 if severity is None else 0.16 * severity


def made_on(method: str, domain: str, kind: str, members: tuple[int, ...]) -> dict[int, list[FakeDraw]]:
    """Draws for each M; those of one network share what is peculiar to it."""
    rng = random.Random(method + domain + kind)
    networks = [rng.gauss(0, 0.06) for _ in range(POOL[method])]
    made: dict[int, list[FakeDraw]] = {}
    for m in members:
        made[m] = []
        for network in range(8 if method == "ensemble" else POOL[method]):
            worse = QUALITY[method] + hardness(domain) + (0.0 if method == "ensemble" else networks[network])
            draw = gaussian_draw(worse, m, rng) if kind == "gaussian" else categorical_draw(worse, m, rng, 19)
            if kind == "gaussian":
                for name in ("rmse", "mae", "crps", "crps_gaussian", "interval_score"):
                    draw.metrics[name] *= (1 + 1.6 * hardness(domain)) / 2
            else:
                draw.metrics.update(per_class(draw.metrics["iou_per_class"], hardness(domain)))
            made[m].append(draw)
    return made


def per_class(iou: list[float], hard: float) -> dict[str, Any]:
    """What a draw says of each class; the smaller a class, the more it loses, and one is never seen."""
    lost = [max(0.01, value - hard * 0.06 * (k % 7)) for k, value in enumerate(iou)]
    metrics: dict[str, Any] = {
        "iou_per_class": lost,
        "miou": sum(lost) / len(lost),
        "accuracy_per_class": [value**0.6 for value in lost],
        "ause_per_class": [0.1 + 0.2 * hard * (1 - value) for value in lost],
        "ause_per_class_bound": [1e-4 for _ in lost],
        "ece_per_class": [0.02 + 0.4 * hard * (1 - value) for value in lost],
        "brier_per_class": [1.2 * (1 - value) for value in lost],
        "nll_per_class": [0.1 - 2 * float(np.log(value)) for value in lost],
        "share_per_class": [0.3 * 0.75**k for k in range(len(iou))],
    }
    for name in metrics.keys() - {"miou", "share_per_class"}:
        metrics[name] = [None if k == UNSEEN else value for k, value in enumerate(metrics[name])]
    metrics["share_per_class"][UNSEEN] = 0.0
    return metrics


def cost_of(method: str, domains: tuple[str, ...], members: tuple[int, ...]) -> Cost:
    """Cost grows with M; passes of one network share a half of it, its weights and its training."""
    seconds = {m: 0.021 * m * (1 + 0.05 / m) for m in members}
    passes = {m: (m + 1) / 2 if method == "mc_dropout" else m for m in members}
    networks = {m: m if method == "ensemble" else 1 for m in members}
    weights = {m: 1 if method == "mc_dropout" else m for m in members}
    return Cost(
        parameters=25_932_418,
        flops=41_300_000_000,
        image_size=list(IMAGE_SIZE),
        train_seconds=410.0 * POOL[method],
        per_image={
            m: ImageCost(
                seconds=seconds[m],
                peak_bytes=int(3.1e8 + 4e6 * m),
                flops=int(41_300_000_000 * passes[m]),
                weight_bytes=4 * 25_932_418 * weights[m],
            )
            for m in members
        },
        evaluation={domain: PassCost(forward_seconds=16.1, scoring_seconds=2.2) for domain in domains},
        training={m: TrainingCost(networks=n, seconds=410.0 * n, steps=4000 * n) for m, n in networks.items()},
    )


def png_text(values: np.ndarray) -> str:
    """An image as base64 of a PNG."""
    buffer = io.BytesIO()
    Image.fromarray(values).save(buffer, "png")
    return base64.b64encode(buffer.getvalue()).decode()


def grid(values: np.ndarray) -> Grid:
    """Metres as counts in a 16-bit PNG."""
    return Grid(scale=SCALE, png=png_text(np.clip(values / SCALE, 0, 65535).round().astype(np.uint16)))


def scene(number: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """Depths that fall towards the bottom and classes in stripes, both unknown at the lower edge."""
    rows, columns = np.indices(IMAGE_SIZE)
    depth = np.where(rows < 120, 5.0 + 0.5 * (128 - rows) + 3 * np.sin(columns / 20 + number), 0.0)
    classes = np.where(rows < 114, columns // 24 + number, 255).astype(np.uint8)
    return depth, classes, np.random.default_rng(number + 7)


def pictures_on(domain: str, kind: str, methods: tuple[str, ...], m: int, num_classes: int = 19) -> list[Picture]:
    """Two images; errors grow with depth or come in blotches, and the uncertainty knows where."""
    pictures = []
    for number in range(2):
        depth, classes, rng = scene(number)
        predicted = {}
        for method in methods:
            size = (0.02 + 0.05 * hardness(domain)) * (depth + 10) * (1 + QUALITY[method])
            wrong = np.sin(np.indices(IMAGE_SIZE).sum(0) / 9) > 0.8 - 0.3 * QUALITY[method]
            if kind == "gaussian":
                mean = np.clip(np.where(depth > 0, depth, 60.0) + size * rng.standard_normal(IMAGE_SIZE), 0, 90)
                predicted[method] = PredictedPicture(M=m, mean=grid(mean), std=grid(size))
            else:
                known = np.where(classes == 255, 0, classes) % num_classes
                chosen = np.where(wrong, (known + 1) % num_classes, known).astype(np.uint8)
                entropy = grid(0.1 + 1.5 * wrong)
                predicted[method] = PredictedPicture(M=m, predicted=png_text(chosen), uncertainty=entropy)
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
                methods=predicted,
            )
        )
    return pictures


def training_of(method: str) -> list[TrainingLog]:
    rng, steps = random.Random(method), list(range(100, 4001, 100))
    return [
        TrainingLog(network=n, steps=steps, loss=[5.5 * (s / 100) ** -0.45 + rng.gauss(0, 0.06) for s in steps])
        for n in range(POOL[method])
    ]


def run(
    kind: str = "gaussian",
    *,
    name: str | None = None,
    domains: tuple[str, ...] = tuple(STREET),
    methods: tuple[str, ...] = ("ensemble", "mc_dropout"),
    members: tuple[int, ...] = MEMBERS,
) -> RunResults:
    """The results of one run on a dense problem."""
    problem = "depth-completion" if kind == "gaussian" else "segmentation"
    made = {method: {d: made_on(method, d, kind, members) for d in domains} for method in methods}
    return fake_run.run_results(
        device="NVIDIA H200",
        seconds=5_312.0,
        recipe={"name": name or f"street-{problem}", "problem": problem, "seed": 0, "members": list(members)},
        problem=problem,
        kind=kind,
        unit="m" if kind == "gaussian" else None,
        class_names=None if kind == "gaussian" else CITYSCAPES,
        class_colours=None if kind == "gaussian" else COLOURS,
        domains={domain: domain_facts(domain) for domain in domains},
        methods={method: method_facts(method, members) for method in methods},
        summary={method: {d: summary_of(one) for d, one in by.items()} for method, by in made.items()},
        curves={method: {d: curves_of(one) for d, one in by.items()} for method, by in made.items()},
        draws={method: {d: draws_of(one) for d, one in by.items()} for method, by in made.items()},
        overlap={name: {m: m / 12 if name == "ensemble" and m > 1 else 0.0 for m in members} for name in methods},
        cost={method: cost_of(method, domains, members) for method in methods},
        training={method: training_of(method) for method in methods},
        pictures={domain: pictures_on(domain, kind, methods, max(members)) for domain in domains},
    )


def small(kind: str = "gaussian") -> RunResults:
    """Two domains, two M."""
    return run(kind, domains=("clean", "wild"), members=(1, 2))


def images(results: RunResults, domain: str) -> list[Picture]:
    """The pictures of a domain."""
    assert isinstance(results.pictures, dict)
    return results.pictures[domain]


def depth() -> RunResults:
    """The everyday page: two methods on a clean street and under three severities."""
    return run()


def segmentation() -> RunResults:
    """Classes instead of depths, three methods."""
    return run("categorical", methods=("ensemble", "mc_dropout", "sghmc"))


def earlier() -> RunResults:
    """Results of a version that counted no operations over M, no weights and no training."""
    made = small()
    for cost in made.cost.values():
        per_image = {m: ImageCost(seconds=one.seconds, peak_bytes=one.peak_bytes) for m, one in cost.per_image.items()}
        cost.per_image, cost.training = per_image, {}
    return made


def kitti() -> RunResults:
    """A run that the paper shows numbers for."""
    made = run(name="kitti-depth", domains=("clean", "kitti"), members=(1, 2, 4))
    for name, method in made.summary.items():
        for metrics in method["kitti"].values():
            metrics["ause"] = Stat(mean=0.066, std=0.008, n=8)
        for number, draw in enumerate(made.draws[name]["kitti"]):
            draw.metrics["ause"] = 0.066 + (0.008 if number % 2 else -0.008)
    made.domains["kitti"].label = "KITTI"
    return made


def cityscapes() -> RunResults:
    """The segmentation that the paper shows numbers for."""
    return run("categorical", name="cityscapes-segmentation", domains=("clean", "cityscapes"), members=(1, 2, 4))


def mapped() -> RunResults:
    """A domain that is scored on classes of its own."""
    made = run("categorical", name="folder-segmentation", domains=("clean", "camvid"), members=(1, 2))
    facts = made.domains["camvid"]
    facts.label, facts.class_names, facts.class_colours = "CamVid", COMMON, COMMON_COLOURS
    assert isinstance(made.pictures, dict)
    made.pictures["camvid"] = pictures_on("camvid", "categorical", ("ensemble", "mc_dropout"), 2, len(COMMON))
    for of_method in made.summary.values():
        for metrics in of_method["camvid"].values():
            for one in metrics.values():
                if isinstance(one, ClassStat):
                    one.mean, one.std = one.mean[: len(COMMON)], one.std and one.std[: len(COMMON)]
    return made


def partial() -> RunResults:
    """A run with holes: a method that failed on a domain, one draw, undefined metrics, no pictures, no cost."""
    made = small()
    del made.summary["mc_dropout"]["wild"], made.curves["ensemble"]
    made.pictures, made.cost, made.training, made.overlap, made.draws = {}, {}, {}, {}, {}
    made.failed = {"mc_dropout": "CUDA out of memory"}
    for metrics in made.summary["ensemble"]["clean"].values():
        for one in metrics.values():
            one.std, one.n = None, 1
        metrics["auce"] = Stat(mean=None, std=None, n=1)
        del metrics["rmse"]
    return made


def damaged_pictures() -> RunResults:
    """Pictures that cannot be read, or lack a part."""
    made = small()
    first, second = images(made, "clean")
    first.photo = "no picture"
    first.target = Grid(scale=SCALE, png="*")
    first.methods["ensemble"].std = Grid(scale=SCALE, png=base64.b64encode(b"not a PNG").decode())
    second.sparse_depth = None
    del second.methods["mc_dropout"]
    images(made, "wild").clear()
    return made


def damaged_class_pictures() -> RunResults:
    """Maps of classes that cannot be read, lack a part, differ in size, or hold classes that nothing is known of."""
    made = small("categorical")
    first, second = images(made, "clean")
    first.target = png_text(np.zeros((8, 9), np.uint8))
    first.methods["ensemble"].predicted = png_text(np.zeros((*IMAGE_SIZE, 3), np.uint8))
    first.methods["mc_dropout"].uncertainty = None
    second.target = png_text(np.full(IMAGE_SIZE, 300, np.uint16))
    second.methods["ensemble"].predicted = png_text(np.full(IMAGE_SIZE, 254, np.uint8))
    second.methods["mc_dropout"] = PredictedPicture(M=2, predicted=png_text(np.full(IMAGE_SIZE, 40, np.uint8)))
    made.class_colours, made.class_names = COLOURS[:5], CITYSCAPES[:7]
    images(made, "wild").clear()
    return made


def hostile(kind: str = "gaussian") -> RunResults:
    """Text that tries to leave its place, wherever a dense run has text."""
    made = small(kind).model_dump()
    made["recipe"]["name"] = BAD_TEXT
    made["domains"]["wild"]["label"] = made["unit"] = BAD_TEXT
    made["methods"]["ensemble"].update(label=BAD_TEXT, notes=[BAD_TEXT])
    made["failed"] = {BAD_TEXT: BAD_TEXT}
    if kind == "gaussian":
        made["pictures"]["clean"][0]["photo"] = BAD_TEXT
    else:
        made["class_names"] = [BAD_TEXT] * len(COLOURS)
        for metrics in made["summary"]["ensemble"]["wild"].values():
            metrics[f"{BAD_TEXT}_per_class"] = metrics["iou_per_class"]
    return RunResults(**made)


def failed() -> RunResults:
    """A run whose only method failed."""
    made = small()
    for part in (made.methods, made.summary, made.curves, made.draws, made.cost, made.training, made.overlap):
        part.clear()
    return made.model_copy(update={"pictures": {}, "failed": {"ensemble": "CUDA out of memory"}})


SCENES: dict[str, Callable[[], list[RunResults]]] = {
    "depth": lambda: [depth()],
    "segmentation": lambda: [segmentation()],
    "earlier": lambda: [earlier()],
    "kitti": lambda: [kitti()],
    "cityscapes": lambda: [cityscapes()],
    "mapped": lambda: [mapped()],
    "damaged_class_pictures": lambda: [damaged_class_pictures()],
    "class_hostile": lambda: [hostile("categorical")],
    "depth_and_segmentation": lambda: [run(kind, domains=("clean", "wild")) for kind in ("gaussian", "categorical")],
    "partial": lambda: [partial()],
    "dense_failed": lambda: [failed()],
    "damaged_pictures": lambda: [damaged_pictures()],
    "dense_hostile": lambda: [hostile()],
    "dense_and_toy": lambda: [run(domains=("clean", "wild")), fake_run.classification()],
    "two_dense_runs": lambda: [run(domains=("clean", "wild")), run(name="mine", domains=("clean", "wild"))],
}


if __name__ == "__main__":
    from epibench.report import write_run_page

    for scene_name, make in SCENES.items():
        print(write_run_page(make(), Path(sys.argv[1]) / scene_name / "report.html"))
