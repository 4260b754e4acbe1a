"""Evaluate a method on one domain, or go on where its evaluation stopped."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from epibench.data.loading import Samples
from epibench.errors import InputError
from epibench.evaluation.dense import DomainPass, Progress
from epibench.evaluation.draws import Draws
from epibench.evaluation.suite import SuiteSettings, check_uncertainty
from epibench.execution.gallery import Gallery, evenly
from epibench.execution.networks import Machine
from epibench.execution.reporter import Reporter
from epibench.execution.run_folder import RunFolder
from epibench.execution.store_observer import StoreObserver
from epibench.execution.tensors import load_tensors, save_tensors
from epibench.methods.network_pool import NetworkPool
from epibench.recipes.dense import DenseRecipe
from epibench.recipes.settings import fixed
from epibench.results import per_draw, read_json, summarise, summarise_curves, without_members, write_json

SAVE_SECONDS = 20.0


def evaluate_domain(
    name: str,
    domain: str,
    recipe: DenseRecipe,
    pool: NetworkPool,
    draws: Draws,
    samples: Samples,
    folder: RunFolder,
    machine: Machine,
    reporter: Reporter,
) -> dict[str, Any]:
    """Every draw of a method on a domain: found in the folder, or evaluated to the end."""
    ended = folder.path / "evaluation" / f"{name}.{domain}.json"
    stamp = stamp_of(recipe, draws)
    if (known := read_json(ended)) is not None and known.get("stamp") == stamp:
        reporter.say(f"{name} on {domain}: evaluated already")
        return known
    largest = draws.sets[draws.of_size(draws.sizes[-1])[0]]
    gallery = Gallery(evenly(recipe.evaluation.pictures, len(samples)), largest)
    observers: list[Any] = [gallery]
    if recipe.evaluation.store:
        observers.append(
            StoreObserver(folder.path / "predictions" / f"{name}-{domain}.zarr", recipe, name, domain, pool, samples)
        )
    run = DomainPass(
        pool, draws, suite_settings(recipe, samples), samples, recipe.evaluation.batch_size, machine.workers, observers
    )
    saved = ended.with_suffix(".unfinished.safetensors")
    resume_pass(run, saved, stamp)
    with reporter.step(f"evaluate {name} on {domain}", len(samples), run.done.images) as advance:
        try:
            run.run(saver(run, saved, stamp, advance))
        except InputError:
            raise
        except ValueError as error:  # what a broken network predicts is not finite
            raise InputError(f"{name} on {domain}: {error}; lower {recipe.setting(name, 'learning_rate')}") from None
    if not run.done.pixels:
        raise InputError(f"{domain}: no image has a pixel whose target is known; there is nothing to evaluate")
    for observer in observers:
        observer.close()
    values, curves = run.results()
    results = {
        "stamp": stamp,
        "num_images": run.done.images,
        "num_pixels": run.done.pixels,
        "summary": summarise(draws.sets, values),
        "curves": summarise_curves(draws.sets, curves),
        "draws": without_members(per_draw(draws.sets, values)),
        "pictures": list(gallery.pictures().values()),
        "cost": {"forward_seconds": run.done.forward_seconds, "scoring_seconds": run.done.scoring_seconds},
    }
    write_json(ended, results)
    saved.unlink(missing_ok=True)
    return results


def suite_settings(recipe: DenseRecipe, samples: Samples) -> SuiteSettings:
    """All metrics of the kind, streamed."""
    kind, options = recipe.likelihood, recipe.evaluation
    return SuiteSettings(
        kind, options.convention, check_uncertainty(kind, options.uncertainty), exact=False, num_images=len(samples)
    )


def stamp_of(recipe: DenseRecipe, draws: Draws) -> str:
    """A key of everything that decides an evaluation."""
    text = json.dumps([fixed(recipe.model_dump(mode="json")), draws.sets], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def resume_pass(run: DomainPass, saved: Path, stamp: str) -> None:
    """Go on from what was saved of a pass, if there is anything."""
    found = load_tensors(saved, stamp)
    if found is not None:
        done = Progress(
            int(found.number("images")),
            int(found.number("pixels")),
            found.number("forward_seconds"),
            found.number("scoring_seconds"),
        )
        run.load_state(found.tensors, done)


def saver(run: DomainPass, saved: Path, stamp: str, advance: Callable[[int], None]) -> Callable[[int], None]:
    """What is done after a shard: tell, and now and then save."""
    last = time.perf_counter()

    def after_shard(images: int) -> None:
        nonlocal last
        advance(images)
        if time.perf_counter() - last > SAVE_SECONDS and run.done.images < len(run.samples):
            save_tensors(saved, run.state(), {"stamp": stamp, **asdict(run.done)})
            last = time.perf_counter()

    return after_shard
