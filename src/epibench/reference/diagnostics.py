"""Has it converged? R-hat and effective sample size of the predictions (ArviZ), energies, divergences, full trees."""

from __future__ import annotations

import importlib
import json
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from epibench.data.sets.toy import ToyProblem
from epibench.reference.settings import ReferenceSettings

Array = npt.NDArray[Any]
Arrays = dict[str, Array]

OUTPUTS = {"gaussian": ("mean", "log_variance"), "categorical": ("probability",)}
R_HAT_LIMIT = 1.05


def diagnose(problem: ToyProblem, batches: Sequence[Arrays], settings: ReferenceSettings) -> dict[str, Any]:
    """What is known about convergence, as plain data: all chains of all batches together, then batch by batch."""
    inside = problem.inside.numpy()[batches[0]["trace_points"]]
    found: dict[str, Any] = {"traced_points": len(inside), "traced_points_inside": int(inside.sum())}
    for number, output in enumerate(OUTPUTS[problem.kind]):
        traces = np.concatenate([batch["trace"][number] for batch in batches])
        found[output] = {
            region: summary(traces[:, :, points]) for region, points in (("train", inside), ("outside", ~inside))
        }
    found["batches"] = [batch_summary(number, batch, settings) for number, batch in enumerate(batches)]
    return found


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
