"""From parts to pixels: the nearest surface in every pixel, its depth, normal and class.

A ray of the camera is o + t·d(u, v), where d = u·right + v·down + forward, so that t is the z-depth. Inverse depth
w = 1/t is then linear in (u, v) on a plane. With the camera outside of a plane of a solid, rays enter the solid there
at w; with the camera inside, they leave. A ray hits the solid if it leaves after it has entered:
min over entering planes of w ≥ max over leaving planes of w, and the smallest entering w > 0 is the inverse depth.

Every part is drawn within the rectangle of the picture that holds it, nearest first; a pixel keeps the largest inverse
depth. Surfaces are numbered part · FACES + face; the ground and the sky have numbers below zero. Shadows are the same
parts drawn with the parallel rays of the sun, o(u, v) + t·d, as a map of how far these get: there t is linear, and −t
takes the place of w.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from epibench.street.arrays import Array, hash_cells
from epibench.street.camera import Camera, Rays, camera_rays, rotate
from epibench.street.parts import Material, PartTable, Shape
from epibench.street.scene import Ground, Scene, meet_ground

NEAR = 0.3
SKY = -1
GROUND = -2  # the ground of material m is surface GROUND − m
LEAF = 0.22  # the size of the pieces at a ragged outline, in metres
RAIL = 0.06  # the share of a fence's half height that its upper and lower rail take
FINEST_CELL, COARSEST_CELL = 0.12, 0.30  # metres of a cell of the shadow map
SHADOW_REACH = 30.0  # metres from its middle to its edges
SHADOW_AHEAD = 27.0  # metres from the camera to its middle
SHADOW_BIAS = 0.05  # metres within which a surface does not shade itself
SUN_DISTANCE = 300.0
BOX_FACES, PRISM_SIDES = 6, 8
RIGHT, LEFT, TOP, BOTTOM, FRONT, REAR = range(BOX_FACES)
FACES = PRISM_SIDES + 2  # rows kept for each part
Rectangle = tuple[slice, slice]  # the rows and columns of the picture that hold a part


@dataclass(frozen=True)
class Planes:
    """The planes of all solids in the world: normal · x + offset ≤ 0 inside.

    normal: (part, FACES, 3); offset: (part, FACES). Unused rows have normal 0 and offset −1: everything is inside.
    """

    normal: Array
    offset: Array


def solid_planes(parts: PartTable) -> Planes:
    """The planes of boxes and prisms; other parts have none."""
    normal, reach = np.zeros((len(parts), FACES, 3)), np.ones((len(parts), FACES))
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
    tops = np.stack((1 - side, np.ones_like(side), 1 - front, 1 - rear), -1)[:, None, :]
    scaled = np.where(_CUBE[:, 1:2] > 0, _CUBE * np.where(_CUBE[:, 2:] > 0, tops[..., :3], tops[..., (0, 1, 3)]), _CUBE)
    unit[box, :8] = unit[box, 8:] = scaled
    shrink = 1 - parts.taper[prism, 0][:, None, None]
    unit[prism] = np.where(_COLUMN[:, 1:2] > 0, _COLUMN * np.concatenate((shrink, shrink**0, shrink), -1), _COLUMN)
    unit[parts.shape >= Shape.RING, :, 1] = 0
    local = unit * parts.half[:, None, :]
    return parts.centre[:, None] + sum(local[..., k, None] * parts.axes[:, None, k, :] for k in range(3))


def plane_depths(planes: Planes, rays: Rays) -> tuple[Array, Array]:
    """Return the factors of (u, v, 1) in w for every plane, (part, FACES, 3).

    The second result tells whether rays enter there, (part, FACES) bool.
    """
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
    """Return where rays first meet the chosen ellipsoids, as spheres of radius 1 in their own axes.

    |o + t·d| = 1 has the smaller root 1/t = (−o·d + √s)/(o·o − 1), where s = d·d − |o × d|².
    """
    axes = parts.axes[chosen] / parts.half[chosen][:, :, None]
    start = _in_axes(rays.origin, axes)
    start[:, 2] -= _dot(axes, parts.centre[chosen][:, None, :])
    direction = _in_axes(rays.direction, axes)
    if rays.parallel:
        constant, varying = direction[:, 2], start
        inside = -_products(np.cross(varying, constant[:, None, :]))
        square = _dot(constant, constant)
        inside[:, 2, 2] += square
        return Quadrics(_dot(varying, constant[:, None, :]), inside, square, np.sqrt(square))
    constant, varying = start[:, 2], direction
    inside = _products(varying) - _products(np.cross(varying, constant[:, None, :]))
    square = _dot(constant, constant)
    depth = np.abs(_dot(parts.centre[chosen] - rays.origin[2], rays.direction[2]))
    return Quadrics(-_dot(varying, constant[:, None, :]), inside, square - 1, np.sqrt(square) / np.maximum(depth, 1e-9))


def panel_depths(parts: PartTable, chosen: Array, rays: Rays) -> Array:
    """Return factors of (u, v, 1), (part, 3, 3).

    They give w, and w times the two coordinates on the panel in its half sizes.
    """
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
    for axis, (ahead, behind) in enumerate(((RIGHT, LEFT), (TOP, BOTTOM), (FRONT, REAR))):
        normal[:, ahead, axis], normal[:, behind, axis] = 1, -1
    reach = np.ones((len(taper), BOX_FACES))
    for face, slope in ((RIGHT, side), (LEFT, side), (FRONT, front), (REAR, rear)):
        normal[:, face, 1] = slope
        reach[:, face] = 1 - slope
    return normal, reach


def _unit_prism_planes(taper: Array) -> tuple[Array, Array]:
    normal, reach = np.zeros((len(taper), FACES, 3)), np.ones((len(taper), FACES))
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
_EDGES = [(side + 0.5) * math.pi / 4 for side in range(PRISM_SIDES)]
_COLUMN = np.array([[math.cos(edge), y, math.sin(edge)] for edge in _EDGES for y in (-1.0, 1.0)])


@dataclass(frozen=True)
class Surfaces:
    """The visible surfaces. depth: z-depth in metres, 0 for the sky; surface: their numbers; both (height, width)."""

    depth: Array
    surface: Array
    planes: Planes
    corners: Array


@dataclass
class Canvas:
    """The picture during rendering. nearness: the largest w so far; surface: its number."""

    rays: Rays
    nearness: Array
    surface: Array

    def window(self, part: Rectangle) -> tuple[Array, Array, Array, Array]:
        """Views of nearness and surface, and the rows and columns there."""
        return self.nearness[part], self.surface[part], self.rays.rows[part[0]], self.rays.columns[part[1]]


def render(parts: PartTable, ground: Ground, camera: Camera) -> Surfaces:
    """The nearest surface in every pixel."""
    rays = camera_rays(camera)
    canvas = Canvas(rays, np.zeros(camera.size, np.float32), np.full(camera.size, SKY, np.int32))
    # Above the horizon there is no ground: with some roll, it is highest in a corner.
    horizon = (rays.direction[0, 1] * rays.columns[[0, -1]] + rays.direction[2, 1]) / -rays.direction[1, 1]
    first = int(np.searchsorted(rays.rows, horizon.min()))
    canvas.nearness[first:], material = meet_ground(ground, rays, first)
    canvas.surface[first:] = np.where(canvas.nearness[first:] > 0, GROUND - material.astype(np.int32), SKY)
    outline, planes = corners(parts), solid_planes(parts)
    seen = camera.project(outline)
    draw(parts, planes, canvas, visible(seen, rays), 1 / np.maximum(seen[..., 2].min(1), NEAR))
    depth = np.zeros(camera.size, np.float32)
    np.divide(1, canvas.nearness, out=depth, where=canvas.nearness > 0)
    return Surfaces(depth, canvas.surface, planes, outline)


def visible(seen: Array, rays: Rays) -> dict[int, Rectangle]:
    """Return the rectangles of the parts in the picture, nearest first.

    seen: corners as (right per depth, down per depth, depth). A part that reaches behind the camera is cut at
    `NEAR`: the cut's corners lie on the lines between corners before and behind.
    """
    ahead = seen[..., 2] > NEAR
    low = np.where(ahead[..., None], seen[..., :2], np.inf).min(1)
    high = np.where(ahead[..., None], seen[..., :2], -np.inf).max(1)
    for part in np.flatnonzero(ahead.any(1) & ~ahead.all(1)):
        cut = _cut(seen[part])
        low[part] = np.minimum(low[part], cut.min(0))
        high[part] = np.maximum(high[part], cut.max(0))
    left, right = np.searchsorted(rays.columns, (low[:, 0], high[:, 0]))
    top, bottom = np.searchsorted(rays.rows, (low[:, 1], high[:, 1]))
    inside = np.flatnonzero((right > left) & (bottom > top))
    inside = inside[np.argsort(seen[inside, :, 2].min(1), kind="stable")]
    return {part: (slice(top[part], bottom[part]), slice(left[part], right[part])) for part in inside.tolist()}


def _cut(seen: Array) -> Array:
    position = np.concatenate((seen[:, :2] * seen[:, 2:], seen[:, 2:]), 1)
    before, behind = position[position[:, 2] > NEAR], position[position[:, 2] <= NEAR]
    share = (before[:, None, 2] - NEAR) / (before[:, None, 2] - behind[None, :, 2])
    cut: Array = (before[:, None] + share[..., None] * (behind[None] - before[:, None])).reshape(-1, 3)
    return cut[:, :2] / NEAR


def draw(parts: PartTable, planes: Planes, canvas: Canvas, rectangles: dict[int, Rectangle], nearest: Array) -> None:
    """Draw the parts of these rectangles onto the canvas; nearest: the largest w that each can have."""
    depths, enters = plane_depths(planes, canvas.rays)
    # Faces where rays enter come first, then faces where they leave: slices are cheaper than choices.
    used = np.where(parts.shape == Shape.PRISM, FACES, BOX_FACES)
    faces = np.argsort(np.where(np.arange(FACES) < used[:, None], ~enters, 2), axis=1, kind="stable")
    depths = np.take_along_axis(depths, faces[..., None], 1)
    numbers = (np.arange(len(parts))[:, None] * FACES + faces).astype(np.int32)
    counts = (enters & (np.arange(FACES) < used[:, None])).sum(1).tolist()
    round_parts = np.flatnonzero((parts.shape == Shape.ELLIPSOID) | (parts.shape == Shape.LEAVES))
    quadrics = ellipsoid_depths(parts, round_parts, canvas.rays)
    flat_parts = np.flatnonzero(parts.shape >= Shape.RING)
    panels = panel_depths(parts, flat_parts, canvas.rays)
    row_of = {part: row for chosen in (round_parts, flat_parts) for row, part in enumerate(chosen.tolist())}
    shapes, limits = parts.shape.tolist(), nearest.tolist()
    for part, rectangle in rectangles.items():
        if canvas.nearness[rectangle].min() >= limits[part]:
            continue  # hidden by nearer parts
        if shapes[part] in (Shape.BOX, Shape.PRISM):
            draw_solid(canvas, rectangle, depths[part, : used[part]], counts[part], numbers[part])
        elif shapes[part] in (Shape.ELLIPSOID, Shape.LEAVES):
            draw_ellipsoid(canvas, rectangle, parts, part, quadrics, row_of[part])
        elif not canvas.rays.parallel:
            draw_panel(canvas, rectangle, parts, part, panels[row_of[part]])


def draw_solid(canvas: Canvas, rectangle: Rectangle, depths: Array, count: int, numbers: Array) -> None:
    """Draw a box or a prism. depths: (face, 3), the `count` faces where rays enter first; numbers: of the surfaces."""
    if not count:
        return  # the camera is inside
    nearness, surface, rows, columns = canvas.window(rectangle)
    by_row = (depths[:, 1:2] * rows + depths[:, 2:]).astype(np.float32)
    by_column = (depths[:, 0:1] * columns).astype(np.float32)
    entering = by_row[:count, :, None] + by_column[:count, None, :]
    w = entering[0] if count == 1 else np.minimum.reduce(entering)
    hit = w > nearness
    hit &= w >= np.maximum.reduce(by_row[count:, :, None] + by_column[count:, None, :])
    np.copyto(nearness, w, where=hit)
    if canvas.rays.parallel:
        return  # the part of a shadow does not matter
    np.copyto(surface, numbers[0], where=hit)
    for face in range(1, count):
        np.copyto(surface, numbers[face], where=hit & (entering[face] == w))


def draw_ellipsoid(canvas: Canvas, where: Rectangle, parts: PartTable, part: int, quadrics: Quadrics, row: int) -> None:
    """Draw an ellipsoid; at a ragged outline, only some pieces of the size of leaves."""
    nearness, surface, rows, columns = canvas.window(where)
    form, near = quadrics.inside[row], quadrics.near[row]
    by_row = (form[1, 1] * rows + 2 * form[1, 2]) * rows + form[2, 2]
    by_column = (form[0, 0] * columns + 2 * form[0, 2]) * columns
    inside = (by_row[:, None] + by_column + (2 * form[0, 1] * rows)[:, None] * columns).astype(np.float32)
    root = np.sqrt(np.maximum(inside, 0))
    scale = quadrics.scale[row]
    w = root / np.float32(scale)
    by_row, by_column = (near[1] * rows + near[2]) / scale, near[0] / scale * columns
    w += by_row.astype(np.float32)[:, None] + by_column.astype(np.float32)
    hit = (inside > 0) & (w > nearness)
    if parts.shape[part] == Shape.LEAVES and not canvas.rays.parallel:
        drawn = np.nonzero(hit)
        if not len(drawn[0]):
            return
        facing = root[drawn] / np.float32(quadrics.facing[row])
        hit[drawn] = facing >= _leaf_holes(canvas.rays, parts, part, rows[drawn[0]], columns[drawn[1]], w[drawn])
    np.copyto(nearness, w, where=hit)
    np.copyto(surface, np.int32(part * FACES), where=hit)


def _leaf_holes(rays: Rays, parts: PartTable, part: int, v: Array, u: Array, w: Array) -> Array:
    """Return how much a leaf must face the camera to exist.

    It is random for each piece, from 0 to the part's raggedness.
    """
    right, down, forward = rays.direction
    far = 1 / (w * LEAF)
    cells = ((right[k] * u + down[k] * v + forward[k]) * far + rays.origin[2, k] / LEAF for k in range(3))
    chance = hash_cells(*map(np.floor, cells), seed=part)
    return np.float32(parts.taper[part, 0]) * chance * chance


def draw_panel(canvas: Canvas, rectangle: Rectangle, parts: PartTable, part: int, forms: Array) -> None:
    """Draw a ring or a fence of bars; forms: (3, 3), see `panel_depths`."""
    nearness, surface, rows, columns = canvas.window(rectangle)
    by_row = (forms[:, 1:2] * rows + forms[:, 2:]).astype(np.float32)
    w, x, y = by_row[:, :, None] + (forms[:, :1] * columns).astype(np.float32)[:, None, :]
    hit = w > nearness
    if parts.shape[part] == Shape.RING:
        distance = x * x + y * y
        hit &= (distance <= w * w) & (distance >= np.float32(parts.taper[part, 0]) ** 2 * w * w)
    else:
        hit &= (np.abs(x) <= w) & (np.abs(y) <= w)
        step, share = parts.taper[part, :2]
        safe = np.where(hit, w, np.float32(1))
        position = x / safe * np.float32(parts.half[part, 0] / step)
        height = np.abs(y / safe)
        hit &= ((height > 1 - 2 * RAIL) & (height < 1)) | (position - np.floor(position) < share)
    np.copyto(nearness, w, where=hit)
    np.copyto(surface, np.int32(part * FACES), where=hit)


def ground_material(surface: Array) -> Array:
    """The material of the ground or sky for surfaces below zero."""
    return np.where(surface == SKY, Material.SKY, GROUND - surface)


@dataclass(frozen=True)
class ShadowMap:
    """How far the rays of the sun reach.

    depth: (cell, cell); axes: rows across, across and along the rays.
    """

    depth: Array
    axes: Array
    middle: Array
    cell: float

    def lit(self, position: Array, normal: Array) -> Array:
        """Return 1 in sunlight, 0 in the shade; position, normal: (3, pixel).

        Points are moved a little above the surface: coarse cells would make a surface shade itself.
        """
        position = position + normal * np.float32(1.5 * self.cell)
        axes, middle = self.axes.astype(np.float32), self.middle.astype(np.float32)
        away = [position[k] - middle[k] for k in range(3)]
        u, v, t = (axes[row, 0] * away[0] + axes[row, 1] * away[1] + axes[row, 2] * away[2] for row in range(3))
        # Scattered by a cell, so that edges are soft instead of jagged.
        scatter = hash_cells(np.arange(len(u), dtype=np.int32))
        u, v = u + (scatter - 0.5) * np.float32(self.cell), v + (scatter * 57 % 1 - 0.5) * np.float32(self.cell)
        size = self.depth.shape[0]
        column, row = (((at + SHADOW_REACH) / self.cell).astype(np.int32) for at in (u, v))
        known = (column >= 0) & (column < size) & (row >= 0) & (row < size)
        reached = self.depth.ravel()[np.where(known, row * size + column, 0)]
        return np.where(known & (t > reached + np.float32(SHADOW_BIAS)), np.float32(0), np.float32(1))


def cast_shadows(scene: Scene, surfaces: Surfaces) -> ShadowMap:
    """Draw the parts with the parallel rays of the sun."""
    along = -np.array(scene.sun)
    across = np.array([along[2], 0.0, -along[0]]) / math.hypot(along[0], along[2])
    axes = np.array([across, np.cross(along, across), along])
    x, z, _ = scene.ground.point(SHADOW_AHEAD, 0.0)
    middle = np.array([x, 0.0, z])
    cell = min(max(80 / scene.camera.size[1], FINEST_CELL), COARSEST_CELL)
    cells = np.arange(-SHADOW_REACH, SHADOW_REACH, cell) + cell / 2
    origin = np.array([axes[0], axes[1], middle - SUN_DISTANCE * along])
    rays = Rays(origin, np.array([np.zeros(3), np.zeros(3), along]), cells, cells, parallel=True)
    size = (len(cells), len(cells))
    canvas = Canvas(rays, np.full(size, -np.inf, np.float32), np.zeros(size, np.int32))
    seen = rotate(surfaces.corners - middle, axes)
    seen[..., 2] += SUN_DISTANCE
    # Parts that are large enough for a shadow of several cells; flat ones are too thin, single clumps hardly count.
    shape, half = scene.parts.shape, scene.parts.half
    casts = (np.sort(half, axis=1)[:, 1] > cell * 0.5) & (shape < Shape.RING)
    casts &= (shape != Shape.LEAVES) | (half[:, 0] >= 5 * cell)
    rectangles = {part: rectangle for part, rectangle in visible(seen, rays).items() if casts[part]}
    draw(scene.parts, surfaces.planes, canvas, rectangles, -seen[..., 2].min(1))
    return ShadowMap(-canvas.nearness - np.float32(SUN_DISTANCE), axes, middle, cell)
