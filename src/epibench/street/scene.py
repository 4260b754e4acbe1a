"""A scene before rendering: its parts, its ground, road markings, camera and sun.

The ground is a road that is straight or bends, a road that crosses it, kerbs, and bands of paving and grass. The
road's centre line is a circle of curvature κ through the origin. A point has an offset from it (to the right) and lies
at an arc length along it. With q = x − κ(x² + z²)/2 the offset is 2q / (1 + √(1 − 2κq)), also for κ → 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from epibench.street.arrays import Array, Vector
from epibench.street.camera import Camera, Rays
from epibench.street.parts import Material, PartTable

BISECTIONS = 14  # a kerb is found to 2⁻¹⁴ of the way through its height


@dataclass(frozen=True)
class Ground:
    """half_width: offset of the kerbs. bands: strips beside the road, each from its neighbour's end to its own.

    A band's end is counted from the kerb. crossing: arc length where another road crosses, and half its width.
    """

    curvature: float
    half_width: float
    kerb: float
    bands: tuple[tuple[float, Material], ...]
    crossing: float = math.inf
    crossing_half_width: float = 0.0

    def point(self, along: float, offset: float) -> tuple[float, float, float]:
        """(x, z) of a point on the ground, and the direction of the road there."""
        angle = self.curvature * along
        if abs(self.curvature) < 1e-9:
            return offset, along, 0.0
        radius = 1 / self.curvature
        x = radius * (1 - math.cos(angle)) + offset * math.cos(angle)
        return x, radius * math.sin(angle) - offset * math.sin(angle), angle

    def offset(self, x: Array, z: Array) -> Array:
        """Distance from the centre line, positive to the right."""
        if self.curvature == 0:
            return x
        curvature = np.float32(self.curvature)
        q = x - curvature / 2 * (x * x + z * z)
        offset: Array = 2 * q / (1 + np.sqrt(np.maximum(1 - 2 * curvature * q, 0)))
        return offset

    def along(self, x: Array, z: Array) -> Array:
        """Arc length along the centre line."""
        if self.curvature == 0:
            return z
        curvature = np.float32(self.curvature)
        return np.arctan2(curvature * z, 1 - curvature * x) / curvature

    def off_road(self, x: Array, z: Array) -> Array:
        """Positive off the road, negative on it."""
        distance: Array = np.abs(self.offset(x, z)) - np.float32(self.half_width)
        if math.isinf(self.crossing):
            return distance
        across = np.abs(self.along(x, z) - np.float32(self.crossing)) - np.float32(self.crossing_half_width)
        return np.minimum(distance, across)

    def material(self, x: Array, z: Array, off_road: Array) -> Array:
        """The material at each point, uint8."""
        ends, materials = zip(*self.bands, strict=True)
        beyond = np.abs(self.offset(x, z)) - np.float32(self.half_width)
        band = np.searchsorted(np.array(ends[:-1], np.float32), beyond)
        return np.where(off_road > 0, np.array(materials, np.uint8)[band], np.uint8(Material.ROAD))


def meet_ground(ground: Ground, rays: Rays, first_row: int = 0) -> tuple[Array, Array]:
    """Return inverse depth and material where camera rays meet the ground, from a row of the picture downwards.

    Both are (height, width); an inverse depth of 0 means none. A ray that meets the plane of the pavement off the road
    ends there. Other rays continue to the road, or, if they leave the road's outline before, end on the face of the
    kerb.
    """
    rows = rays.rows[first_row:]
    x, y, z = ((rays.direction[1, k] * rows[:, None] + rays.direction[0, k] * rays.columns + rays.direction[2, k])
               .astype(np.float32) for k in range(3))  # fmt: skip
    eye = rays.origin[2].astype(np.float32)
    down = np.maximum(-y, np.float32(1e-9))
    high, low = down / (eye[1] - np.float32(ground.kerb)), down / eye[1]

    def beyond(w: Array, where: Array | slice = slice(None)) -> Array:
        return ground.off_road(eye[0] + x[where] / w, eye[2] + z[where] / w)

    sunk = beyond(high) <= 0
    off_road = np.where(sunk, np.float32(-1), np.float32(1))
    w = np.where(sunk, low, high)
    face = np.flatnonzero(sunk)
    face = face[beyond(low.ravel()[face], np.unravel_index(face, sunk.shape)) > 0]  # type: ignore[arg-type]
    x_face, z_face = x.ravel()[face], z.ravel()[face]
    near, far = high.ravel()[face], low.ravel()[face]
    for _ in range(BISECTIONS):
        middle = (near + far) / 2
        past = ground.off_road(eye[0] + x_face / middle, eye[2] + z_face / middle) > 0
        near, far = np.where(past, near, middle), np.where(past, middle, far)
    w.ravel()[face] = far
    material = ground.material(eye[0] + x / w, eye[2] + z / w, off_road)
    material.ravel()[face] = Material.KERB
    w[y >= 0] = 0
    return w, material


@dataclass(frozen=True)
class Markings:
    """Road markings. lines: (offset, length of gaps or 0); zebra: arc lengths; stop: arc length of a stop line."""

    lines: tuple[tuple[float, float], ...]
    zebra: tuple[float, float] = (math.inf, math.inf)
    stop: float = math.inf
    yellow: bool = False
    wear: float = 0.0


@dataclass(frozen=True)
class Scene:
    """The content of a scene. sun: direction towards it; lamps: positions of lit street lamps."""

    parts: PartTable
    ground: Ground
    markings: Markings
    camera: Camera
    sun: Vector
    lamps: tuple[Vector, ...]
    seed: int
