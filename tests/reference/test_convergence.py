"""The verdict on a reference: the share of traced points whose chains agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from epibench.reference.predictions import Reference, load_reference, shipped_reference


def made_with(about: dict[str, Any], kind: str = "gaussian") -> Reference:
    return Reference(Path("made.npz"), kind, torch.zeros(1, 1), {}, about=about)


def diagnostics(**shares: tuple[float, float]) -> dict[str, Any]:
    """Of 75 points inside and 25 outside of the training region, by the name of the output."""
    outputs = {
        name: {"train": {"r_hat_within_limit": inside}, "outside": {"r_hat_within_limit": outside}}
        for name, (inside, outside) in shares.items()
    }
    return {"diagnostics": {"traced_points": 100, "traced_points_inside": 75, **outputs}}


@pytest.mark.parametrize(
    ("mean", "log_variance", "verdict"),
    [
        ((1.0, 1.0), (1.0, 1.0), "converged: R-hat ≤ 1.05 at 100 % of points (goal 95 %)"),
        ((1.0, 0.8), (1.0, 1.0), "converged: R-hat ≤ 1.05 at 95 % of points (goal 95 %)"),
        ((1.0, 0.796), (1.0, 1.0), "NOT converged: R-hat ≤ 1.05 at 94 % of points (goal 95 %)"),
        ((1.0, 1.0), (0.02, 0.0), "NOT converged: R-hat ≤ 1.05 at 1 % of points (goal 95 %)"),
    ],
)
def test_the_output_with_the_smallest_share_decides(
    mean: tuple[float, float], log_variance: tuple[float, float], verdict: str
) -> None:
    assert made_with(diagnostics(mean=mean, log_variance=log_variance)).convergence == verdict


@pytest.mark.parametrize("about", [{}, {"diagnostics": 3}, diagnostics(mean=(1.0, 1.0))])
def test_without_r_hat_of_every_output_convergence_is_unknown(about: dict[str, Any]) -> None:
    reference = made_with(about)
    assert (reference.converged, reference.convergence.partition(":")[0]) == (None, "convergence unknown")


@pytest.mark.parametrize(("name", "converged"), [("toy-classification", True), ("toy-regression", False)])
def test_of_the_shipped_references_classification_has_converged(name: str, converged: bool) -> None:
    assert load_reference(shipped_reference(name)).converged is converged


def test_chains_that_never_move_have_no_r_hat() -> None:
    make = pytest.importorskip("epibench.reference.make")
    pytest.importorskip("arviz")
    found = make.summary(np.ones((4, 8, 3)))
    assert json.loads(json.dumps(found, allow_nan=False))["r_hat_within_limit"] == 0
