"""Weights of classes in the training loss, from the frequencies of classes in the training data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from epibench.data.batch import Samples
from epibench.data.loading import InOrder, batches
from epibench.errors import InputError
from epibench.files import fingerprint, read_json, write_json
from epibench.progress import Reporter
from epibench.recipes import DenseRecipe
from epibench.runs.domains import classes_of

SMALLEST_SHARE = 1e-4  # is added to every share, so that a class of a few pixels does not dominate


def count_classes(samples: Samples, num_classes: int, workers: int, reporter: Reporter) -> list[int]:
    """Return the number of valid pixels of each class."""
    counts = torch.zeros(num_classes, dtype=torch.int64)
    with reporter.step("count classes", len(samples)) as advance:
        for batch in batches(InOrder(samples), range(len(samples)), 1, workers):
            counts += torch.bincount(batch.target[batch.valid], minlength=num_classes)
            advance(1)
    return [int(count) for count in counts]


def rare_weights(counts: Sequence[int]) -> tuple[float, ...]:
    """Return 1 / √share of each class, 0 for an absent class.

    The weights are scaled to a mean of 1 over pixels.
    """
    shares = np.asarray(counts, np.float64) / max(1, sum(counts))
    weights = np.where(shares > 0, (shares + SMALLEST_SHARE) ** -0.5, 0.0)
    return tuple(float(weight) for weight in weights / max((weights * shares).sum(), 1e-300))


def counts_file(members: Path) -> Path:
    """Return the file of the class counts of a run."""
    return members / "class_counts.json"


def prepare_weights(recipe: DenseRecipe, members: Path, samples: Samples, workers: int, reporter: Reporter) -> None:
    """Count the classes of the training data if the weights are `rare`. Counts of the same data version are kept."""
    if recipe.training.class_weights == "rare" and _known_counts(recipe, members) is None:
        counts = count_classes(samples, classes_of(samples).num_classes, workers, reporter)
        content = {"version": recipe.data.train.version, "counts": counts}
        write_json(counts_file(members), {**content, "checksum": fingerprint(content)})


def _known_counts(recipe: DenseRecipe, members: Path) -> list[int] | None:
    """Return the saved class counts; None if they are missing, damaged or of another data version."""
    known = read_json(counts_file(members)) or {}
    checksum = known.pop("checksum", None)
    intact = checksum == fingerprint(known) and known.get("version") == recipe.data.train.version
    return known["counts"] if intact else None


def class_weights(recipe: DenseRecipe, members: Path) -> tuple[float, ...] | None:
    """Return the class weights: the recipe's numbers, or weights from the saved class counts if it says `rare`."""
    given = recipe.training.class_weights
    if given != "rare":
        return given
    counts = _known_counts(recipe, members)
    if counts is None:
        raise InputError(f"{counts_file(members)}: is missing or damaged; run the same command again")
    return rare_weights(counts)
