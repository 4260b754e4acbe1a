"""Arrays and random numbers for all parts of the street scenes."""

from __future__ import annotations

import operator
import zlib
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from epibench.errors import InputError

Array = npt.NDArray[Any]
Colour = tuple[float, float, float]
Vector = tuple[float, float, float]
T = TypeVar("T")


def check_whole(name: str, value: int, least: int = 0) -> int:
    """Return an integer, also NumPy's, as a Python int; raise an InputError for other values."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise InputError(f"street {name} {value}: give a whole number ≥ {least}")
    return number


def generator(seed: int, index: int, purpose: str) -> np.random.Generator:
    """Return random numbers for one purpose in one scene. Purposes are independent."""
    return np.random.default_rng([seed, index, zlib.crc32(purpose.encode())])


class Chance:
    """Random numbers one at a time, drawn in blocks: a generator takes a microsecond for each call."""

    BLOCK = 512

    def __init__(self, rng: np.random.Generator):
        self._rng = rng
        self._numbers: list[float] = []

    def __call__(self) -> float:
        """Uniform in [0, 1)."""
        if not self._numbers:
            self._numbers = self._rng.random(self.BLOCK).tolist()
        return self._numbers.pop()

    def between(self, low: float, high: float) -> float:
        """Uniform in [low, high)."""
        return low + (high - low) * self()

    def hit(self, probability: float) -> bool:
        """True with that probability."""
        return self() < probability

    def number(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return low + int(self() * (high - low + 1))

    def pick(self, choices: tuple[T, ...]) -> T:
        """Return one of them with equal probability."""
        return choices[int(self() * len(choices))]


def hash_cells(*cells: Array, seed: int = 0) -> Array:
    """Return a random number in [0, 1) for each cell of a lattice.

    It depends only on the integer coordinates of the cell and on the seed.
    """
    state = np.full(cells[0].shape, (seed * 0x9E3779B1 + 0x7F4A7C15) & 0xFFFFFFFF, np.uint32)
    for cell, factor in zip(cells, (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D), strict=False):
        state ^= cell.astype(np.int32).view(np.uint32) * np.uint32(factor)
        state ^= state >> np.uint32(15)
        state *= np.uint32(0x2C1B3C6D)
    state ^= state >> np.uint32(12)
    state *= np.uint32(0x297A2D39)
    chance: Array = (state >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)
    return chance


def smooth_noise(x: Array, y: Array, seed: int = 0) -> Array:
    """Return value noise in [0, 1).

    It is random at the points of a lattice of step 1, and linear in x and in y between them.
    """
    column, row = np.floor(x), np.floor(y)
    right, up = x - column, y - row
    column, row = column.astype(np.int32), row.astype(np.int32)
    low = hash_cells(column, row, seed=seed) * (1 - right) + hash_cells(column + 1, row, seed=seed) * right
    high = hash_cells(column, row + 1, seed=seed) * (1 - right) + hash_cells(column + 1, row + 1, seed=seed) * right
    noise: Array = low * (1 - up) + high * up
    return noise
