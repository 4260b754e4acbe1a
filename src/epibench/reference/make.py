"""Make a reference: run all batches, put their predictions together, say how well they agree."""

from __future__ import annotations

import importlib
import importlib.util
import json
import shutil
import warnings
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
from epibench.reference.predictions import Reference, write_reference
from epibench.reference.settings import HIDDEN, ReferenceSettings

Array = npt.NDArray[Any]
Arrays = dict[str, Array]

OUTPUTS = {"gaussian": ("mean", "log_variance"), "categorical": ("probability",)}
R_HAT_LIMIT = 1.05


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
        mean_over_members: npt.NDArray[np.float64] = sum(
            share * batch[name] / number for share, number, batch in zip(shares, members, batches, strict=True)
        )
        return mean_over_members

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
    return {"mean": mean, "epistemic": within + between, "aleatoric": average("sum_variance_clipped")}


def diagnose(problem: ToyProblem, batches: Sequence[Arrays], settings: ReferenceSettings) -> dict[str, Any]:
    """What is known about convergence, as plain data: all chains of all batches together, then batch by batch."""
    inside = problem.inside.numpy()[batches[0]["trace_points"]]
    report: dict[str, Any] = {"traced_points": len(inside), "traced_points_inside": int(inside.sum())}
    for number, output in enumerate(OUTPUTS[problem.kind]):
        traces = np.concatenate([batch["trace"][number] for batch in batches])
        report[output] = {
            region: summary(traces[:, :, points]) for region, points in (("train", inside), ("outside", ~inside))
        }
    report["batches"] = [batch_summary(number, batch, settings) for number, batch in enumerate(batches)]
    return report


def summary(traces: Array) -> dict[str, float]:
    """R-hat and effective sample size over grid points. traces: (chain, draw, point)."""
    r_hat, size = r_hat_and_size(traces)
    return {
        "r_hat_median": float(np.median(r_hat)),
        "r_hat_95": float(np.quantile(r_hat, 0.95)),
        "r_hat_max": float(r_hat.max()),
        "r_hat_within_limit": float(np.mean(r_hat <= R_HAT_LIMIT)),
        "ess_median": float(np.median(size)),
        "ess_min": float(size.min()),
    }


def r_hat_and_size(traces: Array) -> tuple[Array, Array]:
    """Rank-normalised split R-hat and bulk effective sample size of each point (Vehtari et al. 2021)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its coming refactoring
        arviz: Any = importlib.import_module("arviz")
        data = arviz.convert_to_dataset({"prediction": traces.astype(np.float64)})
        return arviz.rhat(data)["prediction"].values, arviz.ess(data)["prediction"].values


def batch_summary(number: int, batch: Arrays, settings: ReferenceSettings) -> dict[str, Any]:
    """Energies and trees of one batch."""
    low, middle, high = np.quantile(batch["energy"], (0.05, 0.5, 0.95))
    draws = settings.nuts.samples * settings.chains
    first, last = batch["energy_first_and_last"]
    return {
        "start": "prior" if number % 2 == 0 else "trained",
        "energy_5": float(low),
        "energy_median": float(middle),
        "energy_95": float(high),
        "energy_first_third": float(first),
        "energy_last_third": float(last),
        "divergences": float(batch["diverging"].sum() / draws),
        "full_trees": float(batch["saturated"].sum() / draws),
        "acceptance": float(batch["acceptance"].mean()),
        "step_size": float(batch["step_size"]),
        "seconds": float(batch["seconds"]),
        "start_seconds": float(batch["start_seconds"]),
        **json.loads(str(batch["origin"])),
    }
