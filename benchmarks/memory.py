"""How far the memory that is estimated before a run is from what it takes, for training steps on a CPU.

    python benchmarks/memory.py                  # four recipes, a process each: two minutes on two cores

A process builds a network as a training does, notes its resident memory, takes three steps, and notes the peak. The
estimate is that of `epibench run`: weights, gradients and optimiser, and a step tried on tensors without content.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch

from epibench.data.batch import stack
from epibench.likelihoods import LIKELIHOODS
from epibench.parallel import silenced_torch_threads
from epibench.recipes import RECIPES, DenseRecipe, apply_settings
from epibench.runs.domains import ImageData
from epibench.runs.dry_run import step_memory
from epibench.runs.image_training import augment_of, large_training
from epibench.runs.needs import LIBRARIES
from epibench.training.network import NetworkKeys, _Run

CASES = {
    "street-segmentation-large": [],
    "street-depth-large": ["ensemble.batch_size=4"],
    "kitti-depth": ["ensemble.batch_size=2", "training.crop=[192,192]"],
    "cityscapes-segmentation": ["ensemble.batch_size=2", "training.crop=[192,192]", "network.backbone_weights=null"],
}
STREET = 'data.train={"kind": "street", "num_images": 8, "size": [256, 512]}'
STEPS = 3


def resident(field: str) -> int:
    """Bytes of this process: `VmRSS`, or the most so far, `VmHWM`."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) * 1024


def measure(name: str) -> None:
    """Print the estimate and the measured memory of a recipe's training, in MB."""
    recipe = apply_settings(RECIPES[name], [STREET, *CASES[name]])
    assert isinstance(recipe, DenseRecipe)
    data, method = ImageData(recipe), recipe.method("ensemble")
    loss, build = LIKELIHOODS[recipe.likelihood].image_loss, recipe.builder(data.num_classes)
    sample = augment_of(recipe)(data.train[0], 0)
    estimated = step_memory(build, loss, sample, method.batch_size) * LIBRARIES
    before = resident("VmRSS")
    training = large_training(recipe, "ensemble", data.train, torch.device("cpu"))
    with silenced_torch_threads():
        run = _Run(training, NetworkKeys.of(0, "ensemble", 0), torch.device("cpu"), None)
        exact = sum(each.nbytes for each in (run.flat.values, run.flat.gradient, *run.rule_state.values()))
        batch = stack([augment_of(recipe)(data.train[number], number) for number in range(method.batch_size)])
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak begins anew
        for _ in range(STEPS):
            run.take_step(batch)
    measured = resident("VmHWM") - before
    share = (exact + estimated) / measured
    print(f"| {name} | {exact / 1e6:,.0f} | {estimated / 1e6:,.0f} | {measured / 1e6:,.0f} | {share:.2f} |", flush=True)


def main() -> None:
    """Every case in a process of its own."""
    if len(sys.argv) > 1:
        measure(sys.argv[1])
        return
    print("| recipe | weights, gradients, optimiser / MB | a step / MB | measured / MB | estimate / measured |")
    print("|---|---|---|---|---|", flush=True)
    for name in CASES:
        subprocess.run([sys.executable, __file__, name], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


if __name__ == "__main__":
    main()
