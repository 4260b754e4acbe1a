"""How the learning rate, and the temperature of the noise, change over a training run."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple


class Pace(NamedTuple):
    """The learning rate of a step, and how much of the posterior's noise it adds (0: none, 1: all)."""

    rate: float
    temperature: float = 1.0


Schedule = Callable[[int, int], Pace]  # (step from 1, number of steps) -> pace


def constant(rate: float) -> Schedule:
    """The same rate throughout."""
    return lambda step, total: Pace(rate)


def poly(rate: float, power: float = 0.9) -> Schedule:
    """α₀(1 − t/T)^power: down to 0 at the last step."""
    return lambda step, total: Pace(rate * (1 - step / total) ** power)


def cyclical(rate: float, num_cycles: int, exploration: float) -> Schedule:
    """Cosine cycles; the first part of each explores without noise (Zhang et al. 2019, Equation 1 and Algorithm 1)."""

    def pace(step: int, total: int) -> Pace:
        length = math.ceil(total / num_cycles)
        position = ((step - 1) % length) / length
        return Pace(rate / 2 * (math.cos(math.pi * position) + 1), 0.0 if position < exploration else 1.0)

    return pace
