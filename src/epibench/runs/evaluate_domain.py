"""Evaluate a method on one domain, or go on where its evaluation stopped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from epibench.errors import InputError
from epibench.evaluation.dense import DomainPass, Observer, Progress
from epibench.members.draws import Draws
from epibench.conventions import check_uncertainty
from epibench.evaluation.suite import SuiteSettings
from epibench.runs.dense_data import DomainData
from epibench.runs.dense_run import DenseRun
from epibench.runs.gallery import Gallery, evenly
from epibench.runs.store_observer import StoreObserver, largest_size
from epibench.runs.tensors import load_tensors, save_tensors
from epibench.runs.train_method import Trained
from epibench.members.networks import NetworkPool
from epibench.recipes.dense import DenseRecipe
from epibench.recipes.settings import fixed
from epibench.evaluation.summary import per_draw, summarise, summarise_curves
from epibench.files import read_json, write_json
from epibench.results import DomainResults, Picture, PredictedPicture
from epibench.training.pacing import Pacer



@dataclass(frozen=True)
class Fitted:
    """A method whose networks are trained: its members, and the draws that are evaluated."""

    name: str
    trained: Trained
    pool: NetworkPool
    draws: Draws

    def stamp(self, recipe: DenseRecipe, *more: Any) -> str:
        """A key of everything that decides its numbers, and of what else is given."""
        weights = [each.stamp for each in self.trained.files]
        text = json.dumps([fixed(recipe.model_dump(mode="json")), self.draws.sets, weights, *more], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def evaluate_domain(run: DenseRun, fitted: Fitted, domain: str) -> DomainResults:
    """Every draw of a method on a domain: found in the folder, or evaluated to the end."""
    recipe, name, draws, data = run.recipe, fitted.name, fitted.draws, run.data.domains[domain]
    samples = data.samples
    ended = run.folder.path / "evaluation" / name / f"{domain}.json"
    stamp = fitted.stamp(recipe, recipe.data.domains[domain].version, len(samples))
    store = run.folder.path / "predictions" / name / f"{domain}.zarr"
    unfinished = ended.with_suffix(".unfinished.safetensors")
    if recipe.evaluation.store and not store.exists():  # what was written of it is gone, if anything was
        ended.unlink(missing_ok=True)
        unfinished.unlink(missing_ok=True)
    known = read_json(ended)
    if known is not None and known.pop("stamp", None) == stamp:
        run.reporter.say(f"{name} on {domain}: evaluated already")
        return DomainResults.model_validate(known)
    gallery = Gallery(
        evenly(recipe.evaluation.pictures, len(samples)),
        draws.sets[draws.of_size(draws.sizes[-1])[0]],
        recipe.likelihood,
    )
    observers: list[Observer] = [gallery]
    if recipe.evaluation.store:
        size = largest_size(samples, run.machine.workers, run.reporter)
        observers.append(StoreObserver(store, recipe, name, domain, fitted.pool, data, size))
    todo = DomainPass(
        fitted.pool,
        draws,
        suite_settings(recipe, data),
        samples,
        recipe.evaluation.batch_size,
        run.machine.workers,
        observers,
        data.groups,
    )
    carry_out(run, todo, f"{name} on {domain}", unfinished, stamp)
    for observer in observers:
        observer.close()
    results = DomainResults(**numbers_of(todo), pictures=pictures_of(name, gallery))
    write_json(ended, {"stamp": stamp, **results.model_dump(mode="json")})
    unfinished.unlink(missing_ok=True)
    return results


def carry_out(run: DenseRun, todo: DomainPass, name: str, saved: Path, stamp: str) -> None:
    """Go through all images that are left."""
    resume_pass(todo, saved, stamp)
    with run.reporter.step(f"evaluate {name}", len(todo.samples), todo.done.images) as advance:
        try:
            todo.run(saver(todo, saved, stamp, advance))
        except InputError:
            raise
        except ValueError as error:  # what a broken network predicts is not finite
            raise InputError(f"{name}: {error}; has a network gone astray? Look at its loss") from None
    if not todo.done.pixels:
        raise InputError(f"{name}: no image has a pixel whose target is known; there is nothing to evaluate")


def numbers_of(done: DomainPass) -> dict[str, Any]:
    """What a pass has found out, and how long it took."""
    values, curves = done.results()
    sets, progress = done.draws.sets, done.done
    return {
        "num_images": progress.images,
        "num_pixels": progress.pixels,
        "summary": summarise(sets, values),
        "curves": summarise_curves(sets, curves),
        "draws": per_draw(sets, values),
        "cost": {"forward_seconds": progress.forward_seconds, "scoring_seconds": progress.scoring_seconds},
    }


def pictures_of(method: str, gallery: Gallery) -> list[Picture]:
    """The images that a gallery has kept, with what one method predicts."""
    found = []
    for picture in gallery.pictures().values():
        predicted = {key: picture.pop(key) for key in PredictedPicture.model_fields if key in picture}
        found.append(Picture(**picture, methods={method: PredictedPicture(**predicted)}))
    return found


def suite_settings(recipe: DenseRecipe, data: DomainData) -> SuiteSettings:
    """All metrics of the kind, streamed."""
    kind, options = recipe.likelihood, recipe.evaluation
    return SuiteSettings(
        kind,
        options.convention,
        check_uncertainty(kind, options.uncertainty),
        exact=False,
        num_images=len(data.samples),
        num_classes=None if data.classes is None else data.classes.num_classes,
    )


def resume_pass(todo: DomainPass, saved: Path, stamp: str) -> None:
    """Go on from what was saved of a pass, if there is anything."""
    found = load_tensors(saved, stamp)
    if found is not None:
        done = Progress(
            int(found.number("images")),
            int(found.number("pixels")),
            found.number("forward_seconds"),
            found.number("scoring_seconds"),
        )
        try:
            todo.load_state(found.tensors, done)
        except KeyError as error:
            raise found.complaint(f"it lacks {error}") from None


def saver(todo: DomainPass, saved: Path, stamp: str, advance: Callable[[int], None]) -> Callable[[int], None]:
    """What is done after a shard: tell, and now and then save."""
    pacer = Pacer()

    def after_shard(images: int) -> None:
        advance(images)
        if todo.done.images < len(todo.samples) and pacer.due():
            with pacer:
                save_tensors(saved, todo.state(), {"stamp": stamp, **asdict(todo.done)})

    return after_shard
