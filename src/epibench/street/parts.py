"""The parts of objects, and their assembly.

A part is a solid (a box that may taper, or an eight-sided prism), an ellipsoid, or a flat panel with a pattern of
holes. Objects have their own axes, x to their right, y up, z to their front, and `Parts.at` places them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from epibench.street.arrays import Array, Colour, Vector

DETAIL = 30.0  # metres


class Shape(IntEnum):
    """The kinds of parts."""

    BOX = 0
    PRISM = 1
    ELLIPSOID = 2
    LEAVES = 3  # an ellipsoid with a ragged outline
    RING = 4  # a flat ring: a wheel
    BARS = 5  # a flat rectangle of upright bars between two rails


class Material(IntEnum):
    """The look of a surface: each material has a function in materials.py."""

    SKY, ROAD, PAVING, GRASS, KERB = range(5)
    PLAIN, PAINT, CAR_BODY, CAR_CABIN, COACH, WHEEL, FACADE, MASONRY, ROOF, FOLIAGE = range(5, 15)
    SIGN, SIGNALS, LAMP, PLANKS = range(15, 19)


@dataclass(frozen=True)
class Look:
    """Class, material and colour (linear, 0 to 1) of a part.

    style: up to four numbers that its material reads.
    """

    label: int
    material: Material
    colour: Colour
    style: tuple[float, ...] = ()


@dataclass(frozen=True)
class PartTable:
    """All parts of a scene, one row each.

    shape, label, material: (part,) ints; centre, half, taper, colour: (part, 3); style: (part, 4);
    axes: (part, 3, 3), the part's own x, y and z in rows. taper: how much narrower a box is at its top, as shares
    of half its width (each side), and of half its length (front, rear).
    """

    shape: Array
    centre: Array
    half: Array
    axes: Array
    taper: Array
    colour: Array
    style: Array
    label: Array
    material: Array

    def __len__(self) -> int:
        return len(self.shape)


class Parts:
    """A growing list of parts; `at` sets the place of the next object."""

    def __init__(self) -> None:
        self._rows: list[tuple[float, ...]] = []
        self._position = (0.0, 0.0, 0.0)
        self._turn = (1.0, 0.0)
        self._turned: dict[tuple[float, ...], list[float]] = {}

    def at(self, x: float, z: float, yaw: float = 0.0, y: float = 0.0) -> Parts:
        """Start an object at (x, y, z) that faces the direction (sin yaw, 0, cos yaw)."""
        self._position = (x, y, z)
        self._turn = (math.cos(yaw), math.sin(yaw))
        self._turned = {}
        return self

    @property
    def is_near(self) -> bool:
        """Whether small parts of the object are rendered: farther away they are a pixel or two."""
        return self._position[0] ** 2 + self._position[2] ** 2 < DETAIL**2

    def box(self, centre: Vector, half: Vector, look: Look, taper: Vector = (0.0, 0.0, 0.0)) -> None:
        """A box; taper: (each side, front, rear)."""
        self._add(Shape.BOX, centre, half, _UPRIGHT, look, taper)

    def pillar(self, centre: Vector, half: Vector, look: Look, taper: float = 0.0) -> None:
        """An upright prism; taper 1 makes it a cone."""
        self._add(Shape.PRISM, centre, half, _UPRIGHT, look, (taper, 0.0, 0.0))

    def disc(self, centre: Vector, radius: float, thickness: float, look: Look, facing: str = "x") -> None:
        """A thin prism whose flat sides face sideways (x) or forward (z)."""
        axes = _SIDEWAYS if facing == "x" else _FORWARD
        self._add(Shape.PRISM, centre, (radius, thickness / 2, radius), axes, look, (0.0, 0.0, 0.0))

    def tube(self, start: Vector, end: Vector, radius: float, look: Look) -> None:
        """A thin bar from one point to another."""
        along = tuple(b - a for a, b in zip(start, end, strict=True))
        length = math.sqrt(sum(a * a for a in along))
        y = tuple(a / length for a in along)
        # Any direction across is suitable unless it is along the tube.
        x = (y[1], -y[0], 0.0) if abs(y[2]) < 0.9 else (0.0, y[2], -y[1])
        size = math.sqrt(sum(a * a for a in x))
        x = (x[0] / size, x[1] / size, x[2] / size)
        z = (x[1] * y[2] - x[2] * y[1], x[2] * y[0] - x[0] * y[2], x[0] * y[1] - x[1] * y[0])
        centre = tuple((a + b) / 2 for a, b in zip(start, end, strict=True))
        self._add(Shape.BOX, centre, (radius, length / 2, radius), (*x, *y, *z), look, (0.0, 0.0, 0.0))

    def ellipsoid(self, centre: Vector, half: Vector, look: Look, ragged: float = 0.0) -> None:
        """Add an ellipsoid; ragged: share of its outline that is broken up into leaves, 0 to 1."""
        shape = Shape.LEAVES if ragged > 0 else Shape.ELLIPSOID
        self._add(shape, centre, half, _UPRIGHT, look, (ragged, 0.0, 0.0))

    def ring(self, centre: Vector, radius: float, width: float, look: Look) -> None:
        """A flat ring that faces sideways."""
        self._add(Shape.RING, centre, (radius, 1.0, radius), _SIDEWAYS, look, (1 - width / radius, 0.0, 0.0))

    def bars(self, centre: Vector, half: Vector, look: Look, step: float, share: float) -> None:
        """Add a fence that faces sideways: rails, and bars at every `step` that cover this share of it."""
        self._add(Shape.BARS, centre, (half[2], 1.0, half[1]), _FENCE, look, (step, share, 0.0))

    def _add(
        self, shape: Shape, centre: tuple[float, ...], half: Vector, axes: tuple[float, ...], look: Look, taper: Vector
    ) -> None:
        cos, sin = self._turn
        x, y, z = centre
        position = (self._position[0] + cos * x + sin * z, self._position[1] + y, self._position[2] - sin * x + cos * z)
        if (turned := self._turned.get(axes)) is None:
            turned = self._turned[axes] = [
                number
                for row in (axes[:3], axes[3:6], axes[6:])
                for number in (cos * row[0] + sin * row[2], row[1], -sin * row[0] + cos * row[2])
            ]
        numbers = (*look.style, *[0.0] * (4 - len(look.style)), shape, look.label, look.material)
        self._rows.append((*position, *half, *turned, *taper, *look.colour, *numbers))

    def table(self) -> PartTable:
        """All parts as arrays."""
        rows = np.array(self._rows, np.float64).reshape(-1, 28)
        centre, half, axes, taper, colour, style, numbers = np.split(rows, (3, 6, 15, 18, 21, 25), axis=1)
        shape, label, material = numbers.T.astype(np.int32)
        return PartTable(shape, centre, half, axes.reshape(-1, 3, 3), taper, colour, style, label, material)


# A part's own axes, in rows, in the axes of its object; a prism stands along its y, a ring lies across its y.
_UPRIGHT = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)
_SIDEWAYS = (0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0)
_FORWARD = (1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0)
_FENCE = (0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0)
