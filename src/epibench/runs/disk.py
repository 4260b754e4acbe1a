"""Check of the disk space for a run on images."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

import torch

from epibench.errors import InputError
from epibench.recipes import DenseRecipe
from epibench.runs.checks import RunStep
from epibench.runs.domains import ImageData
from epibench.runs.image_training import network_as_trained
from epibench.runs.machine import Run
from epibench.runs.train_job import jobs_of, waves

STORED_BYTES = 4  # of a number in a prediction store


def check_disk(run: Run, data: ImageData, steps: Sequence[RunStep]) -> str:
    """Return how much disk space the missing weights, states and stores need.

    Raises:
        InputError: Less than that is free.
    """
    recipe, needed = run.recipe, {"networks": 0, "predictions": 0}
    assert isinstance(recipe, DenseRecipe)
    levels = waves(recipe, dict.fromkeys(recipe.methods), together=True) if "train" in steps else []
    for name, networks in (pair for level in levels for pair in level.items()):
        method, network = recipe.method(name), network_as_trained(recipe, name, data.num_classes)
        weights = sum(each.nbytes for each in network.state_dict().values())
        jobs = [job for job in jobs_of(run, name) if networks is None or {*job.networks} & {*networks}]
        files = [job.files for job in jobs if job.files.failure() is None]
        missing = sum(not each.weights(number).exists() for each in files for number in range(len(each.keep)))
        unfitted = sum(not each.posterior(number).exists() for each in files for number in each.networks)
        unfinished = min(run.machine.jobs, sum(not each.weights(len(each.keep) - 1).exists() for each in files))
        copies = 1 + len(method.rule.start(torch.empty(2)))  # parameters, and the state of the rule
        # A new state is written before the last one is removed.
        needed["networks"] += int((missing + method.fitted_size * unfitted + 2 * copies * unfinished) * weights)
    for domain in recipe.data.domains if "evaluate" in steps and recipe.evaluation.store else ():
        samples = data.domain(domain).samples
        pixels = len(samples) * samples[0].target.numel() * (data.num_classes or 2)
        for name in recipe.methods:
            method = recipe.method(name)
            store = run.folder.path / "predictions" / name / f"{domain}.zarr"
            stored = sum(file.stat().st_size for file in store.rglob("*") if file.is_file())
            members = len(method.members(range(method.num_trained)).members)
            needed["predictions"] += max(0, members * pixels * STORED_BYTES - stored)
    place = run.folder.path.absolute()
    free = shutil.disk_usage(next(each for each in (place, *place.parents) if each.exists())).free
    total = sum(needed.values())
    parts = ", ".join(f"{what} {size / 1e6:,.0f} MB" for what, size in needed.items() if size) or "nothing more"
    about = f"about {total / 1e6:,.0f} MB are needed ({parts}), {free / 1e6:,.0f} MB are free"
    if total > free:
        raise InputError(f"disk: {about}. Fix: give another --out, or make room.")
    return about
