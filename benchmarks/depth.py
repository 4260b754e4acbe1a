"""The published depth network at its published sizes: training steps, and one-pass evaluation of all draws.

    python benchmarks/depth.py [--device cuda] [--members 33] [--images 16] [--width 32]

Networks have random weights: time does not depend on them. Targets are known for 30 % of the pixels, as in KITTI.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import torch

from epibench.data.augment import Augment
from epibench.data.batch import Batch
from epibench.evaluation.loop import Evaluation
from epibench.evaluation.suite import SuiteSettings
from epibench.likelihoods import gaussian
from epibench.members.draws import make_draws
from epibench.members.networks import NetworkPool
from epibench.members.on_images import NetworksOnImages
from epibench.methods import Member, MemberTable
from epibench.networks.depth_completion import DepthCompletion
from epibench.training.network import NetworkKeys, NetworkTraining, train_network
from epibench.training.rules import Adam, constant
from epibench.training.state import LogRow, TrainingCallbacks

KITTI = (352, 1216)
TRAIN_STEPS, TRAIN_MEMBERS, DROPOUT_NETWORKS, PASSES = 40_000, 33, 16, 32
SIZES = (1, 2, 4, 8, 16, 32)
FRAMES = 1000 + 2330  # of KITTI, and of Virtual KITTI for validation


@dataclass(frozen=True)
class Random:
    """Samples of random numbers."""

    length: int
    size: tuple[int, int]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Batch:
        noise = torch.Generator().manual_seed(index)
        target = 80 * torch.rand(self.size, generator=noise)
        sparse = torch.where(torch.rand(self.size, generator=noise) < 0.04, target, 0)
        image = torch.randint(0, 256, (3, *self.size), generator=noise, dtype=torch.uint8)
        valid = torch.rand(self.size, generator=noise) < 0.3
        return Batch({"image": image, "sparse_depth": sparse[None]}, target, valid)


def training_speed(options: argparse.Namespace, compiled: bool, dropout: float = 0.0) -> float:
    """Seconds of a training step, batches of 4 crops of 352 × 352."""
    device = torch.device(options.device)
    crop = (352, 352) if options.device == "cuda" else (64, 64)
    training = NetworkTraining(
        build=lambda: DepthCompletion(options.width, grey=True),
        loss=gaussian.image_loss,
        samples=Random(64, crop),
        augment=Augment(None),
        rule=Adam(),
        schedule=constant(1e-5),
        num_epochs=1,
        epoch_steps=options.steps,
        batch_size=4,
        keep=(),
        dropout=dropout,
        channels_last=device.type == "cuda",
        compile=compiled,
        precision="bf16-mixed" if device.type == "cuda" else "32-true",
    )
    marks: dict[int, float] = {}

    def note(row: LogRow) -> None:
        marks[row.step] = time.perf_counter()

    train_network(
        training, NetworkKeys.of(0, "ensemble", 0), device, None, TrainingCallbacks(log=note), options.workers
    )
    first, last = sorted(marks)[len(marks) // 2 - 1], max(marks)
    return (marks[last] - marks[first]) / (last - first)


def evaluation_speed(options: argparse.Namespace, precision: torch.dtype, passes: int = 1) -> tuple[float, float, int]:
    """Seconds of an image for the members, and for drawing and scoring; and the number of draws."""
    device = torch.device(options.device)
    networks = options.members if passes == 1 else 1

    def build() -> DepthCompletion:
        return DepthCompletion(options.width, grey=True)

    members = tuple(Member(network, 0, number) for network in range(networks) for number in range(passes))
    table = MemberTable(members, "random" if passes == 1 else "prefix", None if passes == 1 else (0,) * passes)
    pool = NetworkPool(
        "gaussian",
        table,
        build,
        lambda member: build().state_dict(),
        "ensemble",
        rate=0.0 if passes == 1 else 0.5,
        device=device,
        precision=precision,
    )
    sizes = [size for size in SIZES if size <= len(members)]
    draws = make_draws(len(members), sizes, plan=table.plan, max_draws=options.draws, group=table.group)
    samples = Random(options.images, KITTI if options.device == "cuda" else (64, 128))
    settings = SuiteSettings("gaussian", "pooled", "total", num_images=len(samples))
    for _ in range(2):  # the first time loads weights and chooses algorithms
        evaluation = Evaluation(NetworksOnImages(pool, samples, options.batch, options.workers), draws, settings)
        evaluation.run()
    done = evaluation.done
    return done.forward_seconds / len(samples), done.scoring_seconds / len(samples), len(draws.sets)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--members", type=int, default=33)
    parser.add_argument("--draws", type=int, default=20, help="at most so many for each M")
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--compile", action="store_true", help="also train with torch.compile")
    options = parser.parse_args()
    network = DepthCompletion(options.width, grey=True)
    print(f"{sum(each.numel() for each in network.parameters()):,} parameters, on {options.device}")
    step = training_speed(options, compiled=False)
    with_dropout = training_speed(options, compiled=False, dropout=0.5)
    print(f"training: {1 / step:.1f} steps/s; with dropout {1 / with_dropout:.1f} steps/s")
    if options.compile:
        print(f"training with torch.compile: {1 / training_speed(options, compiled=True):.1f} steps/s")
    hours = (TRAIN_MEMBERS * step + DROPOUT_NETWORKS * with_dropout) * TRAIN_STEPS / 3600
    for precision in (torch.float32, torch.bfloat16):
        forward, scoring, draws = evaluation_speed(options, precision)
        passes, dropout_scoring, _ = evaluation_speed(options, precision, PASSES)
        name = str(precision).removeprefix("torch.")
        print(
            f"evaluation in {name}: {1 / (forward + scoring):.2f} images/s with {options.members} members and {draws} "
            f"draws; members {1000 * forward:.0f} ms, draws and metrics {1000 * scoring:.0f} ms "
            f"({scoring / forward:.1%})\n  {PASSES} dropout passes of one network: {1000 * passes:.0f} ms, their draws "
            f"and metrics {1000 * dropout_scoring:.0f} ms"
        )
        evaluation = FRAMES * (forward + scoring + DROPOUT_NETWORKS * (passes + dropout_scoring)) / 3600
        if options.device == "cuda":  # elsewhere sizes are smaller than the published ones
            hours_of = f"{hours:.0f} h of training, {evaluation:.1f} h of evaluating {FRAMES:,} frames"
            print(f"  the whole experiment: {hours_of}")


if __name__ == "__main__":
    main()
