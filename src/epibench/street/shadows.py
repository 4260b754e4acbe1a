"""Shadows: the scene seen from the sun, as a map of how far its rays get."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from epibench.street.arrays import Array, hash_cells
from epibench.street.camera import rotate
from epibench.street.geometry import Rays
from epibench.street.parts import PartTable, Shape
from epibench.street.rendering import Canvas, Surfaces, draw, visible
from epibench.street.scene import Scene

FINEST, COARSEST = 0.12, 0.30  # metres of a cell of the map
REACH = 30.0  # metres from its middle to its edges
AHEAD = 27.0  # where its middle is
BIAS = 0.05  # metres that a surface does not shade itself
FAR = 300.0


@dataclass(frozen=True)
class ShadowMap:
    """How far the rays of the sun get: depth, (cell, cell); axes: rows across, across and along the rays."""

    depth: Array
    axes: Array
    middle: Array
    cell: float

    def lit(self, place: Array, normal: Array) -> Array:
        """1 where the sun shines, 0 in the shade; place, normal: (3, pixel).

        Looked up a little above the surface: its own cells are too coarse to tell it from itself.
        """
        place = place + normal * np.float32(1.5 * self.cell)
        axes, middle = self.axes.astype(np.float32), self.middle.astype(np.float32)
        away = [place[k] - middle[k] for k in range(3)]
        u, v, t = (axes[row, 0] * away[0] + axes[row, 1] * away[1] + axes[row, 2] * away[2] for row in range(3))
        # Scattered by a cell, so that edges are soft instead of jagged.
        scatter = hash_cells(np.arange(len(u), dtype=np.int32))
        u, v = u + (scatter - 0.5) * np.float32(self.cell), v + (scatter * 57 % 1 - 0.5) * np.float32(self.cell)
        size = self.depth.shape[0]
        column = ((u + REACH) / self.cell).astype(np.int32)
        row = ((v + REACH) / self.cell).astype(np.int32)
        known = (column >= 0) & (column < size) & (row >= 0) & (row < size)
        reached = self.depth.ravel()[np.where(known, row * size + column, 0)]
        return np.where(known & (t > reached + np.float32(BIAS)), np.float32(0), np.float32(1))


def cast_shadows(scene: Scene, surfaces: Surfaces) -> ShadowMap:
    """Draw the parts with the parallel rays of the sun."""
    along = -np.array(scene.sun)
    across = np.array([along[2], 0.0, -along[0]]) / math.hypot(along[0], along[2])
    axes = np.array([across, np.cross(along, across), along])
    x, z, _ = scene.ground.point(AHEAD, 0.0)
    middle = np.array([x, 0.0, z])
    cell = min(max(80 / scene.camera.size[1], FINEST), COARSEST)
    cells = np.arange(-REACH, REACH, cell) + cell / 2
    origin = np.array([axes[0], axes[1], middle - FAR * along])
    direction = np.array([np.zeros(3), np.zeros(3), along])
    rays = Rays(origin, direction, cells, cells, parallel=True)
    canvas = Canvas(rays, np.full((len(cells), len(cells)), -np.inf, np.float32), np.zeros((len(cells),) * 2, np.int32))
    seen = rotate(surfaces.corners - middle, axes)
    seen[..., 2] += FAR
    casts = _casts(scene.parts, cell).tolist()
    rectangles = {part: rectangle for part, rectangle in visible(seen, rays).items() if casts[part]}
    draw(scene.parts, surfaces.planes, canvas, rectangles, -seen[..., 2].min(1))
    return ShadowMap(-canvas.nearness - np.float32(FAR), axes, middle, cell)


def _casts(parts: PartTable, cell: float) -> Array:
    """Parts that are large enough for a shadow of several cells; flat ones are too thin, single clumps hardly count."""
    single = (parts.shape == Shape.LEAVES) & (parts.half[:, 0] < 5 * cell)
    casts: Array = (np.sort(parts.half, axis=1)[:, 1] > cell * 0.5) & (parts.shape < Shape.RING) & ~single
    return casts
