"""The two toy problems of the paper (Section 4.1, Appendix B), from a seed or a file.

Regression: x uniform in [−3, 3]; y ~ N(sin x, σ²(x)), σ(x) = 0.15 / (1 + e^(−x)). Classification: points uniform in
[−3, 3]²; class 0 within a distance of 2.4 from the origin, class 1 beyond; training has only points with x₁ > 0.
"""

from __future__ import annotations

import lzma
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from epibench.data.batch import Points
from epibench.errors import InputError
from epibench.results import RADIUS, TRAIN_REGION

if TYPE_CHECKING:
    from torch import Tensor

ToyName = Literal["toy-regression", "toy-classification"]
Array = npt.NDArray[np.float64]

# Exceptions of a damaged, encrypted or foreign .npz; NotImplementedError is a RuntimeError.
READ_ERRORS = (OSError, ValueError, TypeError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error, lzma.LZMAError)
NUM_TRAIN = {"toy-regression": 1000, "toy-classification": 1040}
GRID_SIDE = {"toy-regression": 1000, "toy-classification": 60}


@dataclass(frozen=True)
class ToyProblem:
    """A toy problem: its training data, and the grid on which predictions are compared."""

    name: ToyName
    train: Points

    @property
    def kind(self) -> str:
        """The kind of predictions."""
        return "gaussian" if self.name == "toy-regression" else "categorical"

    @property
    def grid(self) -> Tensor:
        """The points of the grid, (point, feature).

        They are 1,000 points of [−7, 7], or 60 × 60 points of [−6, 6]² with x₁ varying fastest.
        """
        import torch

        side = GRID_SIDE[self.name]
        if self.name == "toy-regression":
            return torch.linspace(-7, 7, side)[:, None]
        axis = torch.linspace(-6, 6, side)
        return torch.stack((axis.repeat(side), axis.repeat_interleave(side)), 1)

    @property
    def inside(self) -> Tensor:
        """Which grid points lie in the training region, (point,) bool."""
        return in_region(self.name, self.grid)


def make_toy(name: ToyName, seed: int = 0, path: Path | None = None) -> ToyProblem:
    """Return a toy problem with training data from a seed or from an `.npz` file."""
    if name not in get_args(ToyName):
        raise InputError(f"toy problem '{name}' is unknown; there are {', '.join(get_args(ToyName))}")
    return ToyProblem(name, sample(name, "train", NUM_TRAIN[name], seed) if path is None else read_data(name, path))


def sample(name: ToyName, region: Literal["train", "grid"], num_points: int, seed: int) -> Points:
    """Return fresh points with true targets, from the training region or from the grid's region."""
    import torch

    regression = name == "toy-regression"
    rng = np.random.default_rng([seed, 0 if regression else 1, 0 if region == "train" else 1])
    if regression:
        reach = 3.0 if region == "train" else 7.0
        x = rng.uniform(-reach, reach, num_points)
        y = true_mean(x) + true_std(x) * rng.standard_normal(num_points)
        return Points(torch.from_numpy(x[:, None]).float(), torch.from_numpy(y).float())
    reach = 3.0 if region == "train" else 6.0
    points = rng.uniform(-reach, reach, (num_points, 2))
    if region == "train":
        points[:, 0] = np.abs(points[:, 0])  # the generator is symmetric; training has only x₁ > 0
    inputs = torch.from_numpy(points).float()
    return Points(inputs, true_class(inputs))


def true_mean(x: Array) -> Array:
    """Return the mean of the regression problem."""
    mean: Array = np.sin(x)
    return mean


def true_std(x: Array) -> Array:
    """Return the standard deviation of the regression problem."""
    std: Array = 0.15 / (1 + np.exp(-x))
    return std


def true_class(inputs: Tensor) -> Tensor:
    """Return the class of each point of the classification problem, (point,) int64."""
    return (inputs.square().sum(1) >= RADIUS**2).long()


def in_region(name: ToyName, inputs: Tensor) -> Tensor:
    """Return which points lie in the training region."""
    import torch

    sides = TRAIN_REGION[name]
    return torch.stack([(low <= x) & (x <= high) for x, (low, high) in zip(inputs.T, sides, strict=True)]).all(0)


def read_data(name: ToyName, path: Path) -> Points:
    """Read training data from an `.npz` with `x` and `y`, or `regression_x`, `classification_x` and so on."""
    import torch

    prefix = name.removeprefix("toy-")
    arrays = read_arrays(path, "give another file as data.path, or null for generated data")
    inputs_and_targets = []
    for axis in "xy":
        known = f"{prefix}_{axis}" if f"{prefix}_{axis}" in arrays else axis
        if known not in arrays:
            there = ", ".join(arrays) or "nothing"
            raise InputError(f"{path}: no array '{axis}' or '{prefix}_{axis}'; it holds {there}")
        inputs_and_targets.append(arrays[known])
    x, y = inputs_and_targets
    features = 1 if name == "toy-regression" else 2
    points = x[:, None] if x.ndim == 1 and features == 1 else x
    if points.ndim != 2 or points.shape[1] != features or y.shape != x.shape[:1] or len(y) == 0:
        raise InputError(
            f"{path}: {name} needs inputs of shape (point, {features}) and targets of shape (point,), "
            f"not {x.shape} and {y.shape}"
        )
    for array, word in ((x, "inputs"), (y, "targets")):
        if array.dtype.kind not in "fiu" or not (np.abs(array.astype(np.float64)) <= np.finfo(np.float32).max).all():
            raise InputError(f"{path}: the {word} must be finite numbers")
    inputs = torch.from_numpy(points.astype(np.float32))
    if name == "toy-regression":
        return Points(inputs, torch.from_numpy(y.astype(np.float32)))
    if not np.isin(y, (0, 1)).all():
        raise InputError(f"{path}: the classes must be 0 and 1")
    return Points(inputs, torch.from_numpy(y.astype(np.int64)))


def read_arrays(path: Path, remedy: str) -> dict[str, npt.NDArray[Any]]:
    """Return all arrays of an `.npz` file, without executing its content."""
    try:
        with path.open("rb") as stream:
            # NumPy's message for a file that is no zip is about pickled objects.
            if not zipfile.is_zipfile(stream):
                raise zipfile.BadZipFile("cut off, or no .npz file at all")
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as file:
                return {name: np.asarray(file[name]) for name in file.files}
    except FileNotFoundError:
        raise InputError(f"{path}: no such file. Fix: {remedy}.") from None
    except READ_ERRORS as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: not a readable .npz file of plain arrays ({reason}). Fix: {remedy}.") from None
