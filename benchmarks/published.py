"""The paper's two dense recipes at their published size, on street scenes that are exported in the official layouts.

    python benchmarks/published.py depth|segmentation [--steps 300] [--member-steps 4] [--images 4] [--jobs 4]

PNG files are written, decoded, augmented, and trained and evaluated on, as `epibench run` does it. First one network
alone, in parts (`--steps 0` leaves that out): how fast batches are loaded, how fast the GPU takes steps on a batch that
is there, and both together. Then the whole recipe with all of its networks, each trained for a few steps, on a few
images of each domain at their published size. `--tiny` tries all of it on a CPU, with small networks on small scenes.
"""

from __future__ import annotations

import argparse
import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from epibench.console import ConsoleReporter
from epibench.data.batch import Batch
from epibench.data.loading import Stream, batches
from epibench.recipes import DenseRecipe, apply_settings, find_recipe
from epibench.results import Results
from epibench.runs.folder import RunFolder
from epibench.runs.image_training import large_training, open_training_data
from epibench.runs.machine import Machine, Run
from epibench.runs.run import train_and_evaluate
from epibench.street import StreetDataset
from epibench.street.export import LAYOUTS, save
from epibench.training.network import NetworkKeys, train_network
from epibench.training.state import LogRow, TrainingCallbacks

RECIPES = {"depth": "kitti-depth", "segmentation": "cityscapes-segmentation"}
VIDEOS = 50
FEWEST_STEPS = 60
PUBLISHED_STEPS = {"ensemble": 40_000, "depth": 40_000, "segmentation": 60_000}
PUBLISHED_IMAGES = {"kitti": 1000, "virtual-kitti": 2330, "cityscapes": 500, "synscapes": 500}


def write_scenes(
    layout: str, folder: Path, size: tuple[int, int], count: int, seed: int, part: int, parts: int
) -> None:
    """One process's share of an export: whole scenes, which are then found there."""
    scenes = StreetDataset("depth", "clean", length=count, seed=seed, size=size)
    for index in range(part, count, parts):
        frame = scenes.frame(index)
        for path, content in LAYOUTS[layout](index, "val").items():
            save(content(frame), folder / path)


def make_folders(options: argparse.Namespace, root: Path) -> None:
    """The data sets of the recipe, drawn by all cores."""
    small, images = options.tiny, options.images
    frame, kitti, street = ((64, 128), (64, 128), (64, 128)) if small else ((375, 1242), (352, 1216), (1024, 2048))
    wanted: dict[str, tuple[str, tuple[int, int], int]] = {
        "depth": {"virtual_kitti": ("virtual_kitti", frame, 2 * VIDEOS), "kitti": ("kitti", kitti, images)},
        "segmentation": {"synscapes": ("synscapes", street, 32 + images), "cityscapes": ("cityscapes", street, images)},
    }[options.problem]
    cores = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(cores) as pool:
        jobs = [
            pool.submit(write_scenes, layout, root / name, size, count, seed, part, cores)
            for seed, (name, (layout, size, count)) in enumerate(wanted.items())
            for part in range(cores)
        ]
        for job in jobs:
            job.result()


def make_recipe(options: argparse.Namespace, root: Path) -> DenseRecipe:
    """The published recipe on these folders, with a few steps for each network."""
    settings = [f"data.root={root}", f"training.epoch_steps={options.member_steps}"]
    settings += [f"{method}.num_epochs=1" for method in ("ensemble", "mc_dropout")]
    if options.precision:
        settings += [f"training.precision={options.precision}"]
    if options.problem == "segmentation":
        settings += ["network.backbone_weights=null"]
        for key in ("data.train", "data.domains.synscapes"):
            settings += [f"{key}.selection=random", f"{key}.num_train=32", f"{key}.num_val={options.images}"]
    else:
        settings += ['data.domains={"kitti": {"kind": "kitti"}}']
    if options.tiny:
        settings += ["network.width=8", "training.crop=[32, 32]"]
        settings += ["network.depth=18", "network.head_width=16"] if options.problem == "segmentation" else []
        settings += ["data.train.crop=null", "data.domains.kitti.crop=null"] if options.problem == "depth" else []
    recipe = apply_settings(find_recipe(RECIPES[options.problem]), settings)
    assert isinstance(recipe, DenseRecipe)
    return recipe


def step_seconds(
    recipe: DenseRecipe, options: argparse.Namespace, method: str, device: torch.device
) -> dict[str, float]:
    """Seconds of a training step of one network: loading alone, the device alone, and both."""
    samples = open_training_data(recipe)
    longer = apply_settings(recipe, [f"training.epoch_steps={options.steps}"])
    assert isinstance(longer, DenseRecipe)
    weights = recipe.training.class_weights
    assert weights != "rare"  # the published ones are numbers
    training = large_training(longer, method, samples, device, weights)
    keys, workers = NetworkKeys.of(0, method, 0), Machine.of(device, None).workers
    stream, size = Stream(samples, training.augment, keys.order, keys.change), training.batch_size

    seconds = {}
    loading = batches(stream, range(options.steps // 2 * size), size, workers)
    first = next(loading)
    begun, count = time.perf_counter(), 0
    for _ in loading:
        count += 1
    seconds["loading"] = (time.perf_counter() - begun) / max(1, count)

    class Ready:
        """The first batch's samples, again and again."""

        def __len__(self) -> int:
            return size

        def __getitem__(self, index: int) -> Any:
            inputs = {name: values[index] for name, values in first.inputs.items()}
            return Batch(inputs, first.target[index], first.valid[index])

    for part, given, change in (("device", Ready(), lambda sample, key: sample), ("both", samples, training.augment)):
        marks: dict[int, float] = {}

        def note(row: LogRow, marks: dict[int, float] = marks) -> None:
            marks[row.step] = time.perf_counter()

        run = replace(training, samples=given, augment=change)
        train_network(
            run,
            keys,
            device,
            None,
            TrainingCallbacks(log=note),
            0 if part == "device" else workers,
        )
        steps = sorted(marks)
        start, end = steps[len(steps) // 3], steps[-1]
        seconds[part] = (marks[end] - marks[start]) / max(1, end - start)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problem", choices=tuple(RECIPES))
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--member-steps", type=int, default=4)
    parser.add_argument("--images", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--precision", default="")
    parser.add_argument("--only-steps", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("published"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    if 0 < options.steps < FEWEST_STEPS:
        parser.error(
            f"--steps {options.steps}: take 0, or {FEWEST_STEPS} and more, of which the first third does not count"
        )
    device, root = torch.device(options.device), options.out / "data"
    begun = time.perf_counter()
    make_folders(options, root)
    print(f"scenes written in {time.perf_counter() - begun:.0f} s", flush=True)
    recipe = make_recipe(options, root)
    for method in ("ensemble", "mc_dropout") if options.steps else ():
        seconds = step_seconds(recipe, options, method, device)
        size, hours = recipe.method(method).batch_size, seconds["both"] / 3600
        steps = PUBLISHED_STEPS[options.problem if method == "mc_dropout" else "ensemble"]
        print(
            f"{method}: a step of {size} crops: loading alone {1e3 * seconds['loading']:.1f} ms, device alone "
            f"{1e3 * seconds['device']:.1f} ms, together {1e3 * seconds['both']:.1f} ms; {steps:,} steps would take "
            f"{steps * hours:.2f} h (extrapolated)",
            flush=True,
        )
    if not options.only_steps:
        # For a few steps each, networks load their data themselves: to start a loading process takes longer.
        machine = Machine(device, options.jobs, workers=0)
        results = train_and_evaluate(Run(recipe, RunFolder(options.out / "run"), machine, ConsoleReporter()))
        print_evaluation(results)


def print_evaluation(results: Results) -> None:
    """Seconds of an image for the members, and for draws and metrics, on every domain."""
    for score in results.scores:
        assert score.cost is not None
        images = score.num_images or 1
        members, scoring = score.cost.forward_seconds / images, score.cost.scoring_seconds / images
        hours = (members + scoring) * PUBLISHED_IMAGES[score.domain] / 3600
        print(
            f"{score.method} on {score.domain}: {score.pool.num_members} members, {len(score.draws)} draws, "
            f"{images} images: members {members:.2f} s, draws and metrics {scoring:.2f} s an image; "
            f"{PUBLISHED_IMAGES[score.domain]:,} images would take {hours:.2f} h (extrapolated)"
        )
    for method, facts in results.methods.items():
        if (cost := facts.cost) is not None:
            print(f"{method}: {cost.parameters:,} parameters, one image of {cost.image_size}: {cost.per_image}")


if __name__ == "__main__":
    main()
