"""Passes of the evaluator against the bare network: ensembles, and MC-dropout, of the published networks.

    python benchmarks/evaluation.py                                     # on a GPU: about three minutes
    python benchmarks/evaluation.py --parts segmentation --images 20    # one part, fewer images
    python benchmarks/evaluation.py --tiny --device cpu                 # tries all of it, with small networks

`segmentation` and `depth` evaluate generated images end to end: files of weights are read with their checksums, loading
processes make the images, all members predict them, draws are scored. Networks have random weights, and all members
read one file: time does not depend on it. `dropout` compares passes with dropout with plain ones.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from epibench.data.batch import Batch, stack
from epibench.devices import let_memory_grow
from epibench.evaluation.loop import Evaluation
from epibench.evaluation.suite import SuiteSettings
from epibench.members.compiled import PLAIN, Speed
from epibench.members.draws import make_draws
from epibench.members.networks import NetworkPool
from epibench.members.on_images import NetworksOnImages
from epibench.methods import Member, MemberTable
from epibench.networks.deeplabv3 import DeepLabV3
from epibench.networks.depth_completion import DepthCompletion
from epibench.recipes.dense import SegmentationNetwork
from epibench.runs.checkpoints import load_tensors, save_tensors

PARTS = ("segmentation", "depth", "dropout")
RATE, PASSES, REPEATS = 0.5, 8, 10
CLASSES = 19


@dataclass(frozen=True)
class Case:
    """A network on images of one size."""

    name: str
    kind: str
    build: Callable[[], nn.Module]
    size: tuple[int, int]
    members: int

    @property
    def classes(self) -> int | None:
        return CLASSES if self.kind == "categorical" else None


@dataclass(frozen=True)
class Generated:
    """Samples of random numbers."""

    case: Case
    length: int

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Batch:
        noise, size = torch.Generator().manual_seed(index), self.case.size
        image = torch.randint(0, 256, (3, *size), generator=noise, dtype=torch.uint8)
        if self.case.classes is not None:
            classes = torch.randint(0, self.case.classes, size, generator=noise)
            return Batch({"image": image}, classes, torch.ones(size, dtype=torch.bool))
        depth = 80 * torch.rand(size, generator=noise)
        sparse = torch.where(torch.rand(size, generator=noise) < 0.04, depth, 0)
        return Batch({"image": image, "sparse_depth": sparse[None]}, depth, torch.rand(size, generator=noise) < 0.3)


class Bench:
    def __init__(self, options: argparse.Namespace):
        self.options, self.device = options, torch.device(options.device)
        self.cuda = self.device.type == "cuda"
        self.backend = "inductor" if self.cuda else "aot_eager"

    def case(self, name: str) -> Case:
        tiny = self.options.tiny
        depth: dict[str, Any] = {"width": 8, "blocks": (1, 1, 1, 1)} if tiny else {}
        small: dict[str, Any] = {"depth": 18, "width": 8, "head_width": 16} if tiny else {}
        published: dict[str, Any] = {**SegmentationNetwork.published, **small}
        cases = {
            "segmentation": ("categorical", lambda: DeepLabV3(CLASSES, **published), (1024, 2048), 26),
            "depth": ("gaussian", lambda: DepthCompletion(grey=True, image_max=255.0, **depth), (352, 1216), 33),
            "small": (
                "categorical",
                lambda: DeepLabV3(CLASSES, **{"depth": 34, "stem": "single", "head_width": 256, **small}),
                (360, 480),
                1,
            ),
        }
        kind, build, size, members = cases[name]
        return Case(name, kind, build, (64, 128), min(members, 4)) if tiny else Case(name, kind, build, size, members)

    def pool(self, case: Case, members: int, rate: float = 0.0, speed: Speed = PLAIN, **more: Any) -> NetworkPool:
        """Members that are networks, or passes of one network; their weights are read from a file."""
        passes = bool(rate)
        named = tuple(Member(0, 0, n) if passes else Member(n, 0) for n in range(members))
        table = MemberTable(named, "prefix" if passes else "random", (0,) * members if passes else None)
        file = Path(tempfile.gettempdir()) / f"epibench-{case.name}.safetensors"
        if not file.exists():
            save_tensors(file, case.build().state_dict(), {"fingerprint": case.name})

        def load(member: Member) -> dict[str, Tensor]:
            saved = load_tensors(file, case.name)
            assert saved is not None
            return saved.tensors

        given = {"device": self.device, "speed": speed, "loaded_at_once": self.options.workers, **more}
        return NetworkPool(case.kind, table, case.build, load, "ensemble", rate, **given)

    def milliseconds(self, work: Callable[[], object]) -> float:
        """The median; work is given to the GPU without waiting in between, as in an evaluation."""
        for _ in range(3):
            work()
        times = []
        for _ in range(3):
            self.wait()
            begun = time.perf_counter()
            for _ in range(REPEATS):
                work()
            self.wait()
            times.append(1000 * (time.perf_counter() - begun) / REPEATS)
        return statistics.median(times)

    def wait(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def inputs(self, case: Case) -> dict[str, Tensor]:
        return dict(stack([Generated(case, 1)[0]]).to(self.device).inputs)

    def bare(self, case: Case, precision: torch.dtype) -> float:
        """Milliseconds of a pass of one network by itself, as the evaluator prepares it."""
        pool = self.pool(case, 1, precision=precision)
        network, inputs = pool.network(pool.table.members[0]), self.inputs(case)
        with pool.predicting():
            return self.milliseconds(lambda: network(inputs))

    def bare_compiled(self, pool: NetworkPool, case: Case) -> float:
        """Milliseconds of a pass of the compiled network of a pool by itself, called as torch.compile gives it."""
        inputs = self.inputs(case)
        pool.outputs(inputs, slice(0, 1), range(1))
        assert pool.compiled is not None
        forward = getattr(pool.compiled.forward, "function", pool.compiled.forward)
        with pool.predicting():
            return self.milliseconds(lambda: forward(inputs))

    def passes(self, case: Case, rate: float, **more: Any) -> float:
        """Milliseconds of a pass of the pool, of several on one image: plain ones of one network, or with dropout."""
        pool, inputs = self.pool(case, PASSES if rate else 1, rate, **more), self.inputs(case)
        members = slice(0, pool.num_members)
        return self.milliseconds(lambda: pool.outputs(inputs, members, range(1))) / pool.num_members

    def fast(self) -> Speed:
        return Speed(self.backend, self.cuda and not self.options.no_graphs)

    def end_to_end(self, pool: NetworkPool, case: Case, bare: float) -> None:
        """All members on all images: the time of the first image, and of a pass in all others."""
        options, samples = self.options, Generated(case, self.options.images)
        sizes = [size for size in (1, 2, 4, 8, 16, 32) if size <= case.members]
        draws = make_draws(case.members, sizes, plan="random", max_draws=options.draws)
        uncertainty = "entropy" if case.classes else "total"
        settings = SuiteSettings(case.kind, "pooled", uncertainty, len(samples), case.classes)
        predictor = NetworksOnImages(pool, samples, 1, options.workers, num_classes=case.classes)
        evaluation, marks = Evaluation(predictor, draws, settings), list[tuple[float, int, float, float]]()
        begun = time.perf_counter()

        def after_portion(images: int) -> None:
            done = evaluation.done
            marks.append((time.perf_counter() - begun, done.images, done.forward_seconds, done.scoring_seconds))

        evaluation.run(after_portion)
        first, last = marks[0], marks[-1]
        begin = first if len(marks) > 1 else (0.0, 0, 0.0, 0.0)
        wall, images, forward, scoring = (end - start for start, end in zip(begin, last, strict=True))
        passes = images * case.members
        per_pass = 1000 * (wall - scoring) / passes
        print(
            f"  evaluator, {case.members} members, {len(draws.sets)} draws: first {first[1]} images {first[0]:.1f} s;\n"
            f"    then {images:.0f} images: a pass {1000 * forward / passes:.2f} ms on the device, {per_pass:.2f} ms "
            f"of all time but draws and metrics: {per_pass / bare:.3f} × bare\n"
            f"    draws and metrics {1000 * scoring / images:.1f} ms an image; {images / wall:.2f} images/s",
            flush=True,
        )


def ensembles(bench: Bench, name: str) -> None:
    case = bench.case(name)
    print(f"{name}, {case.size[0]}×{case.size[1]}", flush=True)
    plain, mixed = bench.bare(case, torch.float32), bench.bare(case, torch.bfloat16)
    print(f"  bare pass: float32 {plain:.2f} ms, bf16 {mixed:.2f} ms", flush=True)
    if bench.options.eager:
        bench.end_to_end(bench.pool(case, case.members), case, plain)
    else:
        begun = time.perf_counter()
        pool = bench.pool(case, case.members, precision=torch.bfloat16, speed=bench.fast())
        compiled = bench.bare_compiled(pool, case)
        seconds = time.perf_counter() - begun
        print(
            f"  bare pass: bf16 compiled {compiled:.2f} ms; to compile, record and time it {seconds:.0f} s", flush=True
        )
        bench.end_to_end(pool, case, compiled)


def dropout(bench: Bench) -> None:
    print(f"dropout after every place, {PASSES} passes: ms of a pass, and against a plain pass of the same kind")
    for name in ("small", "segmentation", "depth"):
        case = bench.case(name)
        for precision in (torch.float32, torch.bfloat16):
            for speed in (PLAIN, bench.fast()) if precision == torch.bfloat16 and name != "small" else (PLAIN,):
                plain, dropped = (bench.passes(case, rate, precision=precision, speed=speed) for rate in (0.0, RATE))
                how = f"{str(precision).removeprefix('torch.')}, {'compiled' if speed.any else 'eager'}"
                times = f"plain {plain:.2f}, dropout {dropped:.2f}, {dropped / plain:.2f} ×"
                print(f"  {name}, {case.size[0]}×{case.size[1]}, {how}: {times}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--images", type=int, default=101)
    parser.add_argument("--draws", type=int, default=8, help="at most so many for each M")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--eager", action="store_true", help="evaluate in float32, not compiled")
    parser.add_argument("--no-graphs", action="store_true", help="compiled, but without CUDA graphs")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    let_memory_grow()
    bench = Bench(options)
    for part in options.parts.split(","):
        begun = time.perf_counter()
        if part == "dropout":
            dropout(bench)
        else:
            ensembles(bench, part)
        print(f"  ({time.perf_counter() - begun:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
