"""Training on a GPU: how near it comes to the rate of steps on a batch that is already there, and networks at once.

    python benchmarks/training.py [--steps 80] [--recipes folder-segmentation street-depth-large] [--at-once 1 2 3]

For each recipe, one network: steps/s on one batch that lies on the GPU; with loading and augmentation as `epibench run`
has them, once the decoded images are in memory, and the share of the first; as a first network has it, that decodes;
with augmentation by loading processes; and the seconds until the first step. Then several networks at once, each in a
process of its own, all on one memory of decoded images. Scenes are drawn first, by all cores: `--images` of them, for
the folder as PNG files of 720×960. `--profile` says where the time of a step goes. `--tiny` tries it all on a CPU.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from epibench.data.batch import Batch, Samples
from epibench.data.decoded import SHARE, DecodedMemory, DecodedSamples
from epibench.free_memory import free_memory
from epibench.parallel import silenced_torch_threads
from epibench.recipes import DenseRecipe, apply_settings, find_recipe
from epibench.runs.image_training import large_training, open_training_data
from epibench.runs.machine import Machine
from epibench.street import StreetDataset
from epibench.training.network import NetworkKeys, _Run  # its steps are measured one by one

RECIPES = ("folder-segmentation", "street-depth-large")
WARM_UP = 12


def draw(index: int, cache: Path, folder: Path, tiny: bool) -> None:
    """A scene for both recipes: kept for depth, and as an enlarged image with labels."""
    scene = StreetDataset("depth", "clean", index + 1, size=size_of(tiny), cache=cache).frame(index)
    size = (96, 64) if tiny else (960, 720)
    bicubic, nearest = Image.Resampling.BICUBIC, Image.Resampling.NEAREST
    images = {"images": (scene.image, bicubic), "labels": (scene.labels, nearest)}
    for name, (pixels, method) in images.items():
        (folder / "train" / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).resize(size, method).save(folder / "train" / name / f"{index:04d}.png")


def size_of(tiny: bool) -> tuple[int, int]:
    return (32, 64) if tiny else (256, 512)


def make_recipe(name: str, options: argparse.Namespace, root: Path) -> DenseRecipe:
    settings = [f"training.epoch_steps={10 * options.steps}", "training.log=none", f"data.cache={root / 'cache'}"]
    if name == "folder-segmentation":
        settings += [f"data.root={root / 'folder'}", "training.class_weights=null"]
        settings += ["data.train.classes=cityscapes-train-ids"]
    else:
        settings += [f"data.train.num_images={options.images}", f"data.train.size={list(size_of(options.tiny))}"]
    if options.tiny:
        settings += ["training.crop=[32, 32]", "ensemble.batch_size=4", "training.augment=device"]
        settings += ["network.width=8", *(["network.depth=18"] if name == "folder-segmentation" else [])]
    recipe = apply_settings(find_recipe(name), [*settings, *options.set])
    assert isinstance(recipe, DenseRecipe)
    return recipe


class Measured:
    """One network of a recipe, whose steps are measured."""

    def __init__(self, recipe: DenseRecipe, device: torch.device, memory: DecodedMemory | None, network: int = 0):
        samples: Samples = open_training_data(recipe)
        if memory is not None:
            samples = DecodedSamples(samples, memory)
        self.training = large_training(recipe, "ensemble", samples, device)
        self.run = _Run(self.training, NetworkKeys.of(0, "ensemble", network), device, None)

    def seconds(self, given: Iterator[Batch], steps: int, warm_up: int = WARM_UP) -> float:
        """Seconds of a step."""
        for batch in itertools.islice(given, warm_up):
            self.run.take_step(batch)
        wait(self.run.device)
        begun = time.perf_counter()
        for batch in itertools.islice(given, steps):
            self.run.take_step(batch)
        wait(self.run.device)
        return (time.perf_counter() - begun) / steps


def seconds_of(batches: Iterator[Batch], device: torch.device, number: int) -> float:
    """Seconds of a batch, of which nothing is made."""
    for _ in itertools.islice(batches, 4 * WARM_UP):  # also what was loaded ahead
        pass
    wait(device)
    begun = time.perf_counter()
    for _ in itertools.islice(batches, number):
        pass
    wait(device)
    return (time.perf_counter() - begun) / number


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def one_network(recipe: DenseRecipe, options: argparse.Namespace, device: torch.device, memory: DecodedMemory) -> None:
    """Rates of one network, with data that is there and as it is loaded."""
    workers, steps = options.workers or Machine.of(device, None).workers, options.steps
    measured = Measured(recipe, device, memory)
    size, images = measured.training.batch_size, len(measured.training.samples)
    print(f"\n{recipe.name}: batch {size}, {images} images, {workers} loading processes")
    begun = time.perf_counter()
    round_of_all = measured.run.batches(workers)
    batch = next(round_of_all)
    for _ in itertools.islice(round_of_all, images // size):
        pass
    print(f"  {'all images decoded':44} {time.perf_counter() - begun:7.2f} s")
    there = 1 / measured.seconds(itertools.repeat(batch), steps)
    print(f"  {'a batch that is there':44} {there:7.2f} steps/s")
    begun = time.perf_counter()
    batches = measured.run.batches(workers)
    first = next(batches)
    start = time.perf_counter() - begun
    rate = 1 / measured.seconds(itertools.chain([first], batches), steps)
    print(
        f"  {'decoded images in memory':44} {rate:7.2f} steps/s  {rate / there:6.1%}  first batch after {start:.2f} s"
    )
    batches = measured.run.batches(workers)
    alone = 1 / seconds_of(batches, device, steps)
    print(f"  {'    its loading and augmentation alone':44} {alone:7.2f} steps/s")
    check_same(measured, workers)
    again = Measured(apply_cpu(recipe), device, None)
    rate = 1 / again.seconds(again.run.batches(workers), steps // 2)
    print(f"  {'augmented and decoded by loading processes':44} {rate:7.2f} steps/s  {rate / there:6.1%}")
    if options.profile:
        profile(measured, workers)


def check_same(measured: Measured, workers: int) -> None:
    """Batches that processes load are those that are loaded without them."""
    digests = []
    for number in (workers, 0):
        given = itertools.islice(measured.run.batches(number), 20)
        digests.append([float(each.target.double().sum() + each.inputs["image"].double().sum()) for each in given])
    assert digests[0] == digests[1], "loading processes change batches"


def apply_cpu(recipe: DenseRecipe) -> DenseRecipe:
    changed = apply_settings(recipe, ["training.augment=cpu"])
    assert isinstance(changed, DenseRecipe)
    return changed


def profile(measured: Measured, workers: int) -> None:
    """Where the time of a step goes: seconds of the GPU's kernels, and of the calls that launch them."""
    from torch.profiler import ProfilerActivity, profile

    batches = measured.run.batches(workers)
    measured.seconds(batches, 5)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        seconds = measured.seconds(batches, 20, 0)
    events = seen.key_averages()
    # An operation and its kernels are events of their own, each with the kernels' time.
    on_gpu = (event for event in events if event.device_type.name == "CUDA")
    kernels = sum(event.self_device_time_total for event in on_gpu) / 20 / 1e3
    calls = sum(event.self_cpu_time_total for event in events) / 20 / 1e3
    launches = sum(event.count for event in events if "LaunchKernel" in event.key) / 20
    per_step = f"{1e3 * seconds:.1f} ms, of kernels {kernels:.1f} ms, of the host {calls:.1f} ms"
    print(f"  profiled, a step: {per_step}, {launches:.0f} launches")
    print(events.table(sort_by="self_cuda_time_total", row_limit=12, max_name_column_width=60))


def at_once(
    number: int, options: argparse.Namespace, recipe: DenseRecipe, memory: DecodedMemory, barrier: Any
) -> float:
    """Steps/s of one of several networks, while the others are trained as well."""
    device = torch.device(options.device)
    workers = options.workers or Machine.of(device, barrier.parties).workers
    with silenced_torch_threads():
        measured = Measured(recipe, device, memory, number)
        batches = measured.run.batches(workers)
        measured.seconds(batches, 2)
        barrier.wait()
        return 1 / measured.seconds(batches, options.steps, 0)


def _serve(number: int, answers: Any, **arguments: Any) -> None:
    answers.put(at_once(number, **arguments))


def several_networks(recipe: DenseRecipe, options: argparse.Namespace, memory: DecodedMemory) -> None:
    """All steps/s of several networks in processes of their own."""
    context = multiprocessing.get_context("spawn")
    alone = None
    for number in options.at_once:
        answers, barrier = context.Queue(), context.Barrier(number)
        arguments = {"options": options, "recipe": recipe, "memory": memory, "barrier": barrier}
        processes = [context.Process(target=_serve, args=(n, answers), kwargs=arguments) for n in range(number)]
        for process in processes:
            process.start()
        rates = [answers.get(timeout=120) for _ in processes]
        for process in processes:
            process.join()
        alone = alone or sum(rates)
        print(f"  {number} at once: {sum(rates):7.2f} steps/s in all  {sum(rates) / alone:.2f} ×", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--images", type=int, default=128)
    parser.add_argument("--recipes", nargs="*", default=RECIPES)
    parser.add_argument("--at-once", nargs="*", type=int, default=[1, 2, 3])
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--set", nargs="*", default=[])
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    root = options.out or Path(tempfile.mkdtemp())
    begun = time.perf_counter()
    work = partial(draw, cache=root / "cache", folder=root / "folder", tiny=options.tiny)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=context) as executor:
        list(executor.map(work, range(options.images)))
    print(f"{options.images} scenes drawn in {time.perf_counter() - begun:.0f} s", flush=True)
    for name in options.recipes:
        recipe = make_recipe(name, options, root)
        memory = DecodedMemory(free_memory() // SHARE)
        with silenced_torch_threads():
            one_network(recipe, options, torch.device(options.device), memory)
        print(f"  decoded images take {memory.used / 2**20:.0f} MiB", flush=True)
        several_networks(recipe, options, memory)


if __name__ == "__main__":
    main()
