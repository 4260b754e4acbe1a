"""A scene: everything that stands there, before it is looked at."""

from __future__ import annotations

import math
from dataclasses import dataclass

from epibench.street.arrays import Vector
from epibench.street.camera import Camera
from epibench.street.ground import Ground
from epibench.street.parts import PartTable


@dataclass(frozen=True)
class Markings:
    """What is painted on the road. lines: (offset, length of gaps or 0); zebra: arc lengths; stop: of a line across."""

    lines: tuple[tuple[float, float], ...]
    zebra: tuple[float, float] = (math.inf, math.inf)
    stop: float = math.inf
    yellow: bool = False
    wear: float = 0.0


@dataclass(frozen=True)
class Scene:
    """What stands where. sun: the direction towards it; lamps: where street lamps shine from."""

    parts: PartTable
    ground: Ground
    markings: Markings
    camera: Camera
    sun: Vector
    lamps: tuple[Vector, ...]
    seed: int
