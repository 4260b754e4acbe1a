"""The camera: intrinsics like KITTI's at any size, and its pose.

World axes: x to the right, y up, z along the road at the camera; metres. Camera axes: x right, y down, z forward.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass

import numpy as np

from epibench.errors import InputError
from epibench.street.arrays import Array

# KITTI, camera 2, rectified: 375 × 1242 pixels.
KITTI_WIDTH = 1242.0
KITTI_FOCAL = 721.5377
CENTRE = (0.4908, 0.4610)  # of the width and of the height
MIN_SIZE = (32, 64)
MAX_SIZE = (4096, 8192)


@dataclass(frozen=True)
class Camera:
    """The pose of a camera: angles in radians, to the right, up, and clockwise."""

    size: tuple[int, int]
    x: float = 0.0
    height: float = 1.65
    yaw: float = 0.0
    pitch: float = 0.0
    roll: float = 0.0

    @property
    def focal(self) -> float:
        """Focal length in pixels, with KITTI's field of view."""
        return KITTI_FOCAL * self.size[1] / KITTI_WIDTH

    @property
    def position(self) -> Array:
        """(3,) float64."""
        return np.array([self.x, self.height, 0.0])

    @property
    def axes(self) -> Array:
        """Directions in the world of one step right, down and forward: rows of (3, 3) float64."""
        cos, sin = math.cos, math.sin
        forward = (sin(self.yaw) * cos(self.pitch), sin(self.pitch), cos(self.yaw) * cos(self.pitch))
        level = (cos(self.yaw), 0.0, -sin(self.yaw))
        down = np.cross(level, forward)  # right × forward, in axes where y is up
        right = [cos(self.roll) * a + sin(self.roll) * b for a, b in zip(level, down, strict=True)]
        down_rolled = [cos(self.roll) * b - sin(self.roll) * a for a, b in zip(level, down, strict=True)]
        return np.array([right, down_rolled, forward])

    @property
    def columns(self) -> Array:
        """The slope of a ray to the right, per metre of depth, for every column, (width,) float64."""
        return (np.arange(self.size[1]) + 0.5 - CENTRE[0] * self.size[1]) / self.focal

    @property
    def rows(self) -> Array:
        """The slope of a ray downwards, per metre of depth, for every row, (height,) float64."""
        return (np.arange(self.size[0]) + 0.5 - CENTRE[1] * self.size[0]) / self.focal

    @property
    def matrix(self) -> Array:
        """The intrinsic matrix, for pixel centres at whole numbers, (3, 3) float64."""
        height, width = self.size
        return np.array(
            [[self.focal, 0, CENTRE[0] * width - 0.5], [0, self.focal, CENTRE[1] * height - 0.5], [0, 0, 1]]
        )

    def project(self, points: Array) -> Array:
        """Points of the world as (right per depth, down per depth, depth), (..., 3) float64."""
        seen = rotate(points - self.position, self.axes)
        seen[..., :2] /= np.where(np.abs(seen[..., 2:]) < 1e-9, 1e-9, seen[..., 2:])
        return seen


@dataclass(frozen=True)
class Rays:
    """The rays of a view: origin and direction are linear in (u, v), the picture's `columns` and `rows`.

    origin, direction: (3, 3) float64, the factors of u, of v and of 1 in rows. parallel: all rays have the same
    direction; otherwise all have the same origin, and depth is measured along the optical axis.
    """

    origin: Array
    direction: Array
    columns: Array
    rows: Array
    parallel: bool


def camera_rays(camera: Camera) -> Rays:
    """The rays of a camera."""
    origin = np.zeros((3, 3))
    origin[2] = camera.position
    return Rays(origin, camera.axes, camera.columns, camera.rows, parallel=False)


def rotate(vectors: Array, axes: Array) -> Array:
    """Components of the vectors along the axes, which are rows: without BLAS, whose sums differ between machines."""
    return np.stack([sum(vectors[..., k] * axes[i, k] for k in range(3)) for i in range(3)], -1)


def check_size(size: tuple[int, int]) -> tuple[int, int]:
    """Return height and width as Python ints; raise an InputError for impossible sizes."""
    try:
        height, width = (operator.index(length) for length in size)
    except (TypeError, ValueError):
        raise InputError(f"street size {size}: give a height and a width in whole pixels, as (256, 512)") from None
    if not (MIN_SIZE[0] <= height <= MAX_SIZE[0] and MIN_SIZE[1] <= width <= MAX_SIZE[1]):
        low, high = ("×".join(map(str, limit)) for limit in (MIN_SIZE, MAX_SIZE))
        raise InputError(f"street size {height}×{width}: give a height and width from {low} to {high}")
    return height, width
