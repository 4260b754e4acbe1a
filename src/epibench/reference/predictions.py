"""A reference posterior predictive on the grid, with its two halves, as a small file.

Reading it needs no sampler.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from epibench.conventions import CONVENTIONS
from epibench.data.sets.toy import ToyProblem, in_region, read_arrays
from epibench.errors import InputError
from epibench.files import replacing
from epibench.metrics.divergence import DIRECTIONS, REGIONS, divergences
from epibench.reference.settings import HIDDEN, OUTPUTS, R_HAT_LIMIT, SHARE_GOAL

Array = npt.NDArray[Any]

# Row 0 of every array of predictions is of all chains; rows 1 and 2 are of two disjoint halves.
WHOLE, HALVES = 0, (1, 2)
GAUSSIAN = ("mean", "aleatoric", "epistemic")
# Training data from another machine may differ in the last bits of a sine.
TOLERANCE = 1e-5
REMEDY = "make one with epibench reference NAME, or set reference.path=shipped or null"


@dataclass(frozen=True)
class Reference:
    """Predictions on a grid.

    A file of other origin has only predictions.

    Args:
        path: File of the reference.
        kind: Kind of the predictions.
        inputs: Grid points.
        values: Arrays (whole and halves, point, …) by name: see `GAUSSIAN`, or `probs`.
        train_inputs: Inputs of the training data.
        train_target: Targets of the training data.
        about: Facts about settings and convergence.
        notes: Notes for pages.
    """

    path: Path
    kind: str
    inputs: Tensor
    values: dict[str, Tensor]
    train_inputs: Tensor | None = None
    train_target: Tensor | None = None
    about: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def predictive(self, row: int = WHOLE) -> dict[str, Tensor]:
        """Return `mean`, `aleatoric`, `epistemic` and `variance`, (point,), or `probs`, (point, class), in float64."""
        values = {name: value[row] for name, value in self.values.items()}
        if self.kind == "gaussian":
            values["variance"] = values["aleatoric"] + values["epistemic"]
        return values

    def halves(self) -> tuple[dict[str, Tensor], dict[str, Tensor]] | None:
        """Return the predictives of two disjoint halves of the chains; None if they are unknown."""
        if len(next(iter(self.values.values()))) == 1:
            return None
        first, second = (self.predictive(row) for row in HALVES)
        return first, second

    @cached_property
    def inside(self) -> Tensor:
        """Which grid points lie in the training region, (point,) bool."""
        return in_region("toy-regression" if self.kind == "gaussian" else "toy-classification", self.inputs)

    @cached_property
    def share_converged(self) -> float | None:
        """The share of traced points with R-hat within the limit, of the worst output; None: unknown."""
        try:
            diagnostics = self.about["diagnostics"]
            inside, points = diagnostics["traced_points_inside"], diagnostics["traced_points"]
            parts = {"train": inside / points, "outside": 1 - inside / points}
            outputs = [diagnostics[output] for output in OUTPUTS[self.kind]]
            return float(min(sum(parts[at] * each[at]["r_hat_within_limit"] for at in parts) for each in outputs))
        except (KeyError, TypeError, ValueError, ZeroDivisionError):
            return None

    @property
    def converged(self) -> bool | None:
        """Whether the share of traced points reaches the goal; None: unknown."""
        return None if self.share_converged is None else self.share_converged >= SHARE_GOAL

    @property
    def convergence(self) -> str:
        """The verdict on convergence, with its numbers."""
        if self.share_converged is None:
            return "convergence unknown: the file has no R-hat"
        share = math.floor(100 * self.share_converged + 1e-9)  # 94.9 % is shown as 94 %, below the goal
        numbers = f"R-hat ≤ {R_HAT_LIMIT} at {share} % of points (goal {100 * SHARE_GOAL:.0f} %)"
        return f"{'converged' if self.converged else 'NOT converged'}: {numbers}"

    def floor(self) -> dict[str, dict[str, dict[str, float | None]]]:
        """Return the KL between the halves, by convention, direction and region. The first half is the reference."""
        halves = self.halves()
        if halves is None:
            return {each: {direction: dict.fromkeys(REGIONS) for direction in DIRECTIONS} for each in CONVENTIONS}
        drawn = {name: value[None] for name, value in halves[1].items()}
        floors: dict[str, dict[str, dict[str, float | None]]] = {}
        for convention in CONVENTIONS:
            trees = divergences(halves[0], drawn, self.inside, convention)
            floors[convention] = {name: {at: kl.item() for at, kl in tree.items()} for name, tree in trees.items()}
        return floors


def shipped_reference(name: str) -> Path:
    """Return the shipped reference file of a toy problem."""
    return Path(str(resources.files("epibench.reference") / "shipped" / f"{name}.npz"))


def write_reference(reference: Reference) -> None:
    """Write the file of a reference atomically."""
    arrays: dict[str, Array] = {name: value.numpy().astype(np.float32) for name, value in reference.values.items()}
    arrays["inputs"] = reference.inputs.numpy()
    for name in ("train_inputs", "train_target"):
        if (value := getattr(reference, name)) is not None:
            arrays[name] = value.numpy()
    with replacing(reference.path) as stream:
        np.savez_compressed(stream, allow_pickle=False, about=np.array(json.dumps(reference.about)), **arrays)


def load_reference(path: Path) -> Reference:
    """Read a reference, or a file with only `x` and `mean` and `variance`, or `probs`, as published."""
    arrays = read_arrays(path, REMEDY)
    try:
        return _foreign(path, arrays) if "about" not in arrays else _own(path, arrays)
    except KeyError as error:
        held = ", ".join(arrays) or "nothing"
        raise InputError(f"{path}: no array {error} in this reference; it holds {held}. Fix: {REMEDY}.") from None


def _own(path: Path, arrays: Mapping[str, Array]) -> Reference:
    try:
        about = json.loads(str(arrays["about"]), parse_constant=_refuse)
        if not isinstance(about, dict):
            raise ValueError("not an object")
    except (ValueError, RecursionError):
        raise InputError(f"{path}: its array 'about' is not a JSON object. Fix: {REMEDY}.") from None
    kind = "categorical" if "probs" in arrays else "gaussian"
    names = ("probs",) if kind == "categorical" else GAUSSIAN
    values = {name: _finite(path, name, arrays[name]) for name in names}
    inputs = _finite(path, "inputs", arrays["inputs"]).float()
    train_inputs, train_target = (_finite(path, name, arrays[name]) for name in ("train_inputs", "train_target"))
    return Reference(path, kind, inputs, values, train_inputs, train_target, about)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _foreign(path: Path, arrays: Mapping[str, Array]) -> Reference:
    inputs = _finite(path, "x", arrays["x"]).float()
    inputs = inputs[:, None] if inputs.ndim == 1 else inputs
    note = "It does not say how it was made: neither its training data nor its convergence can be checked."
    if "probs" in arrays:
        values = {"probs": _finite(path, "probs", arrays["probs"])[None]}
        return Reference(path, "categorical", inputs, values, notes=(note,))
    mean, variance = (_finite(path, name, arrays[name])[None] for name in ("mean", "variance"))
    aleatoric = _finite(path, "aleatoric", arrays["aleatoric"])[None] if "aleatoric" in arrays else variance
    values = {"mean": mean, "aleatoric": aleatoric, "epistemic": variance - aleatoric}
    return Reference(path, "gaussian", inputs, values, notes=(note,))


def _finite(path: Path, name: str, array: Array) -> Tensor:
    if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
        raise InputError(f"{path}: '{name}' must hold finite numbers")
    return torch.from_numpy(array.astype(np.float64))


def check_fits(
    reference: Reference, problem: ToyProblem, prior_scale: float = 1.0, hidden: tuple[int, ...] = HIDDEN
) -> None:
    """Raise an InputError for a reference of another problem: other grid, training data, prior or network."""
    path, without = reference.path, "or set reference.path=null"
    if reference.kind != problem.kind or not _alike(reference.inputs, problem.grid):
        raise InputError(f"{path}: a reference for another grid than that of {problem.name}. Fix: {REMEDY}.")
    _check_values(reference)
    if hidden != HIDDEN:
        raise InputError(f"{path}: of networks with hidden {list(HIDDEN)}, not {list(hidden)}; set reference.path=null")
    if reference.train_inputs is None or reference.train_target is None:
        return  # its notes report that it cannot be checked
    pairs = ((reference.train_inputs, problem.train.inputs), (reference.train_target, problem.train.target))
    if not all(_alike(own, given) for own, given in pairs):
        command = f"epibench reference {problem.name} with --data or --data-seed"
        raise InputError(f"{path}: made from other training data than these; make one with {command}, {without}")
    made = reference.about.get("prior_scale", prior_scale)
    if made != prior_scale:
        command = f"epibench reference {problem.name} --prior-scale {prior_scale}"
        raise InputError(f"{path}: made with prior_scale {made}, not {prior_scale}; make one with {command}, {without}")


def _check_values(reference: Reference) -> None:
    """Raise an InputError for invalid predictions."""
    path, points = reference.path, len(reference.inputs)
    rows = {value.shape[:1] for value in reference.values.values()}
    for name, value in reference.values.items():
        if value.shape[1:] != ((points, 2) if name == "probs" else (points,)) or rows not in ({(1,)}, {(3,)}):
            raise InputError(f"{path}: '{name}' has shape {tuple(value.shape)}, for {points} grid points")
    predicted = reference.predictive()
    if "probs" in predicted:
        if (predicted["probs"] < 0).any() or ((predicted["probs"].sum(1) - 1).abs() > 1e-3).any():
            raise InputError(f"{path}: 'probs' must be 0 or more, and sum to 1 over classes")
    elif (predicted["variance"] <= 0).any() or min(float(predicted[n].min()) for n in ("aleatoric", "epistemic")) < 0:
        raise InputError(f"{path}: the variance must be greater than 0 everywhere, and its parts not less than 0")


def _alike(first: Tensor, second: Tensor) -> bool:
    return first.shape == second.shape and torch.allclose(first.double(), second.double(), atol=TOLERANCE)
