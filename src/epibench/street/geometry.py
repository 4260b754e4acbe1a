"""Exact intersection of rays with parts, as functions that are linear or quadratic in pixel coordinates.

A ray of the camera is o + t·d(u, v), where d = u·right + v·down + forward, so that t is the z-depth. Inverse depth
w = 1/t is then linear in (u, v) on a plane. With the camera outside of a plane of a solid, rays enter the solid there
at w; with the camera inside, they leave. A ray hits the solid if it leaves after it has entered:
min over entering planes of w ≥ max over leaving planes of w, and the smallest entering w > 0 is the inverse depth.

Parallel rays of the sun are o(u, v) + t·d. There t is linear, and −t takes the place of w.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from epibench.street.arrays import Array
from epibench.street.camera import Camera, rotate
from epibench.street.parts import PartTable, Shape

BOX_FACES, PRISM_SIDES = 6, 8
RIGHT, LEFT, TOP, BOTTOM, FRONT, REAR = range(BOX_FACES)
FACES = PRISM_SIDES + 2  # rows kept for each part


@dataclass(frozen=True)
class Rays:
    """The rays of a view: origin and direction are linear in (u, v), which are `columns` and `rows` of the picture.

    origin, direction: (3, 3) float64, the factors of u, of v and of 1 in rows. parallel: the direction is the same for
    all; otherwise the origin is, and depth is measured along the optical axis.
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


@dataclass(frozen=True)
class Planes:
    """The planes of all solids in the world: normal · x + offset ≤ 0 inside.

    normal: (part, FACES, 3); offset: (part, FACES). Unused rows have normal 0 and offset −1: everything is inside.
    """

    normal: Array
    offset: Array


def solid_planes(parts: PartTable) -> Planes:
    """The planes of boxes and prisms; other parts have none."""
    normal = np.zeros((len(parts), FACES, 3))
    reach = np.ones((len(parts), FACES))
    box, prism = parts.shape == Shape.BOX, parts.shape == Shape.PRISM
    normal[box, :BOX_FACES], reach[box, :BOX_FACES] = _unit_box_planes(parts.taper[box])
    normal[prism], reach[prism] = _unit_prism_planes(parts.taper[prism, 0])
    normal /= parts.half[:, None, :]
    world = sum(normal[:, :, k, None] * parts.axes[:, None, k, :] for k in range(3))
    assert isinstance(world, np.ndarray)
    length = np.sqrt(_dot(world, world))
    length[length == 0] = 1
    world /= length[..., None]
    return Planes(world, -_dot(world, parts.centre[:, None, :]) - reach / length)


def corners(parts: PartTable) -> Array:
    """Points whose convex hull holds the part, (part, 16, 3) float64."""
    unit = np.empty((len(parts), 2 * PRISM_SIDES, 3))
    box, prism = parts.shape == Shape.BOX, parts.shape == Shape.PRISM
    unit[:, :8] = unit[:, 8:] = _CUBE
    side, front, rear = parts.taper[box].T
    tops = np.stack((1 - side, np.ones_like(side), 1 - front, 1 - rear), -1)
    tops = tops[:, None, :]
    scaled = np.where(_CUBE[:, 1:2] > 0, _CUBE * np.where(_CUBE[:, 2:] > 0, tops[..., :3], tops[..., (0, 1, 3)]), _CUBE)
    unit[box, :8] = unit[box, 8:] = scaled
    shrink = 1 - parts.taper[prism, 0][:, None, None]
    unit[prism] = np.where(_COLUMN[:, 1:2] > 0, _COLUMN * np.concatenate((shrink, shrink**0, shrink), -1), _COLUMN)
    unit[parts.shape >= Shape.RING, :, 1] = 0
    local = unit * parts.half[:, None, :]
    return parts.centre[:, None] + sum(local[..., k, None] * parts.axes[:, None, k, :] for k in range(3))


def plane_depths(planes: Planes, rays: Rays) -> tuple[Array, Array]:
    """Factors of (u, v, 1) in w for every plane, (part, FACES, 3), and whether rays enter there, (part, FACES) bool."""
    if rays.parallel:
        along = _dot(planes.normal, rays.direction[2])
        along = np.where(np.abs(along) < 1e-12, -1e-12, along)
        start = rotate(planes.normal, rays.origin)
        start[..., 2] += planes.offset
        return start / along[..., None], along < 0
    outside = _dot(planes.normal, rays.origin[2]) + planes.offset
    outside = np.where(np.abs(outside) < 1e-9, 1e-9, outside)
    return -rotate(planes.normal, rays.direction) / outside[..., None], outside > 0


@dataclass(frozen=True)
class Quadrics:
    """Ellipsoids: w = (near(u, v) + √(inside(u, v))) / scale.

    near: (part, 3), factors of (u, v, 1); inside: (part, 3, 3), a quadratic form in (u, v, 1), positive on the part,
    whose root is `facing` for the ray to the centre and 0 at the outline.
    """

    near: Array
    inside: Array
    scale: Array
    facing: Array


def ellipsoid_depths(parts: PartTable, chosen: Array, rays: Rays) -> Quadrics:
    """Where rays first meet the chosen ellipsoids, as spheres of radius 1 in their own axes.

    |o + t·d| = 1 has the smaller root 1/t = (−o·d + √s)/(o·o − 1), where s = d·d − |o × d|².
    """
    axes = parts.axes[chosen] / parts.half[chosen][:, :, None]

    start = _in_axes(rays.origin, axes)
    start[:, 2] -= _dot(axes, parts.centre[chosen][:, None, :])
    direction = _in_axes(rays.direction, axes)
    if rays.parallel:
        constant, varying = direction[:, 2], start
        inside = -_products(np.cross(varying, constant[:, None, :]))
        inside[:, 2, 2] += _dot(constant, constant)
        square = _dot(constant, constant)
        return Quadrics(_dot(varying, constant[:, None, :]), inside, square, np.sqrt(square))
    constant, varying = start[:, 2], direction
    inside = _products(varying) - _products(np.cross(varying, constant[:, None, :]))
    square = _dot(constant, constant)
    depth = np.abs(_dot(parts.centre[chosen] - rays.origin[2], rays.direction[2]))
    return Quadrics(-_dot(varying, constant[:, None, :]), inside, square - 1, np.sqrt(square) / np.maximum(depth, 1e-9))


def panel_depths(parts: PartTable, chosen: Array, rays: Rays) -> Array:
    """Factors of (u, v, 1) in w and in w times the coordinates on the panel, in its half sizes, (part, 3, 3)."""
    axes, half = parts.axes[chosen], parts.half[chosen]
    start = rays.origin[2] - parts.centre[chosen]
    direction = _in_axes(rays.direction, axes)
    height = _dot(axes[:, 1], start)
    depth = -direction[:, :, 1] / np.where(np.abs(height) < 1e-6, 1e-6, height)[:, None]
    across = [(direction[:, :, k] + _dot(axes[:, k], start)[:, None] * depth) / half[:, k, None] for k in (0, 2)]
    return np.stack((depth, *across), 1)


def _unit_box_planes(taper: Array) -> tuple[Array, Array]:
    side, front, rear = taper.T / 2
    normal = np.zeros((len(taper), BOX_FACES, 3))
    normal[:, RIGHT, 0], normal[:, LEFT, 0] = 1, -1
    normal[:, TOP, 1], normal[:, BOTTOM, 1] = 1, -1
    normal[:, FRONT, 2], normal[:, REAR, 2] = 1, -1
    reach = np.ones((len(taper), BOX_FACES))
    for face, slope in ((RIGHT, side), (LEFT, side), (FRONT, front), (REAR, rear)):
        normal[:, face, 1] = slope
        reach[:, face] = 1 - slope
    return normal, reach


def _unit_prism_planes(taper: Array) -> tuple[Array, Array]:
    normal = np.zeros((len(taper), FACES, 3))
    reach = np.ones((len(taper), FACES))
    apothem = math.cos(math.pi / PRISM_SIDES)
    for side in range(PRISM_SIDES):
        angle = 2 * math.pi * side / PRISM_SIDES
        normal[:, side, 0], normal[:, side, 2] = math.cos(angle), math.sin(angle)
        normal[:, side, 1] = apothem * taper / 2
        reach[:, side] = apothem * (1 - taper / 2)
    normal[:, PRISM_SIDES, 1], normal[:, PRISM_SIDES + 1, 1] = 1, -1
    return normal, reach


def _in_axes(vectors: Array, axes: Array) -> Array:
    """Components of each vector along the axes of each part, (part, vector, 3)."""
    return sum(vectors[None, :, None, k] * axes[:, None, :, k] for k in range(3))  # type: ignore[return-value]


def _products(forms: Array) -> Array:
    """Σ over the last axis of form_i · form_j, (part, 3, 3)."""
    return sum(forms[:, :, None, k] * forms[:, None, :, k] for k in range(3))  # type: ignore[return-value]


def _dot(a: Array, b: Array) -> Array:
    dot: Array = a[..., 0] * b[..., 0] + a[..., 1] * b[..., 1] + a[..., 2] * b[..., 2]
    return dot


_CUBE = np.array([[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)])
_COLUMN = np.array(
    [
        [math.cos((side + 0.5) * math.pi / 4), y, math.sin((side + 0.5) * math.pi / 4)]
        for side in range(PRISM_SIDES)
        for y in (-1.0, 1.0)
    ]
)
