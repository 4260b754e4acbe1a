"""Make a reference: run all batches, put their predictions together, say how well they agree."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from epibench import __version__
from epibench.data.sets.toy import ToyProblem
from epibench.errors import InputError
from epibench.reference.batches import run_batches
from epibench.reference.diagnostics import diagnose
from epibench.reference.predictions import HIDDEN, Reference, write_reference
from epibench.reference.settings import ReferenceSettings

Arrays = dict[str, npt.NDArray[Any]]


def make_reference(
    problem: ToyProblem,
    settings: ReferenceSettings,
    out: Path,
    command: str,
    device: str = "cpu",
    progress: Callable[[int, str], None] = lambda batch, words: None,
) -> Reference:
    """Sample and write a reference. Finished batches lie beside it until all are there: the same call goes on."""
    check_installed()
    folder = work_folder(out)
    batches = run_batches(problem, settings, folder, device, progress)
    reference = assemble(problem, settings, out, command, batches)
    write_reference(reference)
    shutil.rmtree(folder)
    return reference


def work_folder(out: Path) -> Path:
    """Where finished batches wait for the others."""
    return out.with_name(f"{out.stem}.batches")


def check_installed() -> None:
    """Say how to install what is missing."""
    missing = [name for name in ("jax", "numpyro", "arviz") if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(f"a reference needs {', '.join(missing)}: pip install 'epibench[reference]'")


def assemble(
    problem: ToyProblem, settings: ReferenceSettings, out: Path, command: str, batches: Sequence[Arrays]
) -> Reference:
    """One reference from all batches; its halves are the batches with even and with odd numbers."""
    rows = [pooled(batches), pooled(batches[::2]), pooled(batches[1::2])]
    values = {name: torch.from_numpy(np.stack([row[name] for row in rows])) for name in rows[0]}
    about = {
        "problem": problem.name,
        "command": command,
        "epibench": __version__,
        "prior_scale": settings.prior_scale,
        "hidden": list(HIDDEN),
        "members": int(sum(int(batch["members"]) for batch in batches)),
        "halves": "batches started from the prior, and from trained networks",
        "settings": asdict(settings),
        "diagnostics": diagnose(problem, batches, settings),
        "seconds": float(sum(float(batch["seconds"]) for batch in batches)),
    }
    return Reference(out, problem.kind, problem.grid, values, problem.train.inputs, problem.train.target, about)


def pooled(batches: Sequence[Arrays]) -> dict[str, npt.NDArray[np.float64]]:
    """The predictive of all members of some batches: `probs`, or the mean and the parts of the variance."""
    members = np.array([float(batch["members"]) for batch in batches])
    shares = members / members.sum()

    def average(name: str) -> npt.NDArray[np.float64]:
        found: npt.NDArray[np.float64] = sum(
            share * batch[name] / number for share, number, batch in zip(shares, members, batches, strict=True)
        )
        return found

    if "sum_probs" in batches[0]:
        probs = average("sum_probs")
        return {"probs": probs / probs.sum(-1, keepdims=True)}
    means = [batch["centre"] + batch["sum_mean"] / number for number, batch in zip(members, batches, strict=True)]
    mean = np.average(means, axis=0, weights=shares)
    within = average("sum_squares") - sum(
        share * np.square(batch["sum_mean"] / number)
        for share, number, batch in zip(shares, members, batches, strict=True)
    )
    between = sum(share * np.square(own - mean) for share, own in zip(shares, means, strict=True))
    return {
        "mean": mean,
        "epistemic": within + between,
        "aleatoric": average("sum_variance_clipped"),
    }
