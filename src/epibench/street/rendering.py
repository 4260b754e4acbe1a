"""From parts to pixels: the nearest surface in every pixel, its depth, normal and class.

Every part is drawn within the rectangle of the picture that holds it, nearest first; a pixel keeps the largest inverse
depth. Surfaces are numbered part · FACES + face; the ground and the sky have numbers below zero. Shadows are the same
parts drawn with the parallel rays of the sun, as a map of how far these get.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from epibench.street.arrays import Array, hash_cells
from epibench.street.camera import Camera, rotate
from epibench.street.geometry import (
    BOX_FACES,
    FACES,
    FRONT,
    REAR,
    Planes,
    Quadrics,
    Rays,
    camera_rays,
    corners,
    ellipsoid_depths,
    panel_depths,
    plane_depths,
    solid_planes,
)
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
SHADOW_BIAS = 0.05  # metres that a surface does not shade itself
SUN_DISTANCE = 300.0
EYE = 1.65  # about the height of the camera


@dataclass(frozen=True)
class Surfaces:
    """What the camera sees. depth: z-depth in metres, 0 for the sky; surface: its numbers; both (height, width)."""

    depth: Array
    surface: Array
    planes: Planes
    corners: Array


@dataclass(frozen=True)
class Rectangle:
    """Rows and columns of the picture that hold a part."""

    top: int
    bottom: int
    left: int
    right: int


@dataclass
class Canvas:
    """The picture as it is drawn. nearness: the largest w so far; surface: whose it is."""

    rays: Rays
    nearness: Array
    surface: Array

    def window(self, part: Rectangle) -> tuple[Array, Array, Array, Array]:
        """Views of nearness and surface, and the rows and columns there."""
        rows, columns = slice(part.top, part.bottom), slice(part.left, part.right)
        return (
            self.nearness[rows, columns],
            self.surface[rows, columns],
            self.rays.rows[rows],
            self.rays.columns[columns],
        )


def render(parts: PartTable, ground: Ground, camera: Camera) -> Surfaces:
    """The nearest surface in every pixel."""
    rays = camera_rays(camera)
    canvas = Canvas(rays, np.zeros(camera.size, np.float32), np.full(camera.size, SKY, np.int32))
    # Above the horizon there is no ground: with some roll, it is highest in a corner.
    horizon = (rays.direction[0, 1] * rays.columns[[0, -1]] + rays.direction[2, 1]) / -rays.direction[1, 1]
    first = int(np.searchsorted(rays.rows, horizon.min()))
    hits = meet_ground(ground, rays, first)
    canvas.nearness[first:] = hits.inverse_depth
    canvas.surface[first:] = np.where(hits.inverse_depth > 0, GROUND - hits.material.astype(np.int32), SKY)
    outline = corners(parts)
    seen = camera.project(outline)
    rectangles = visible(seen, rays)
    nearest = 1 / np.maximum(seen[..., 2].min(1), NEAR)
    planes = solid_planes(parts)
    draw(parts, planes, canvas, rectangles, nearest)
    depth = np.zeros(camera.size, np.float32)
    np.divide(1, canvas.nearness, out=depth, where=canvas.nearness > 0)
    return Surfaces(depth, canvas.surface, planes, outline)


def visible(seen: Array, rays: Rays) -> dict[int, Rectangle]:
    """The rectangles of those parts that are in the picture, nearest first.

    seen: corners as (right per depth, down per depth, depth). Where a part reaches behind the camera, it is cut at
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
    chosen = zip(*(edge[inside].tolist() for edge in (top, bottom, left, right)), strict=True)
    return {part: Rectangle(*edges) for part, edges in zip(inside.tolist(), chosen, strict=True)}


def _cut(seen: Array) -> Array:
    position = np.concatenate((seen[:, :2] * seen[:, 2:], seen[:, 2:]), 1)
    before, behind = position[position[:, 2] > NEAR], position[position[:, 2] <= NEAR]
    share = (before[:, None, 2] - NEAR) / (before[:, None, 2] - behind[None, :, 2])
    cut: Array = (before[:, None] + share[..., None] * (behind[None] - before[:, None])).reshape(-1, 3)
    return cut[:, :2] / NEAR


def draw(parts: PartTable, planes: Planes, canvas: Canvas, rectangles: dict[int, Rectangle], nearest: Array) -> None:
    """Draw the parts of these rectangles onto the canvas; nearest: the largest w that each can have."""
    depths, enters = plane_depths(planes, canvas.rays)
    # Faces where rays enter come first, then those where they leave: slices are cheaper than choices.
    used = np.where(parts.shape == Shape.PRISM, FACES, BOX_FACES)
    faces = np.argsort(np.where(np.arange(FACES) < used[:, None], ~enters, 2), axis=1, kind="stable")
    depths = np.take_along_axis(depths, faces[..., None], 1)
    numbers = (np.arange(len(parts))[:, None] * FACES + faces).astype(np.int32)
    counts = (enters & (np.arange(FACES) < used[:, None])).sum(1).tolist()
    round_parts = np.flatnonzero((parts.shape == Shape.ELLIPSOID) | (parts.shape == Shape.LEAVES))
    quadrics = ellipsoid_depths(parts, round_parts, canvas.rays)
    flat_parts = np.flatnonzero(parts.shape >= Shape.RING)
    panels = panel_depths(parts, flat_parts, canvas.rays)
    row_of = dict(zip(round_parts.tolist(), range(len(round_parts)), strict=True))
    row_of |= dict(zip(flat_parts.tolist(), range(len(flat_parts)), strict=True))
    shapes, limits = parts.shape.tolist(), nearest.tolist()
    for part, rectangle in rectangles.items():
        shape = shapes[part]
        if canvas.nearness[rectangle.top : rectangle.bottom, rectangle.left : rectangle.right].min() >= limits[part]:
            continue  # hidden by what is drawn already
        if shape in (Shape.BOX, Shape.PRISM):
            total = BOX_FACES if shape == Shape.BOX else FACES
            draw_solid(canvas, rectangle, depths[part, :total], counts[part], numbers[part])
        elif shape in (Shape.ELLIPSOID, Shape.LEAVES):
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
        return  # whose shadow it is does not matter
    np.copyto(surface, numbers[0], where=hit)
    for face in range(1, count):
        np.copyto(surface, numbers[face], where=hit & (entering[face] == w))


def draw_ellipsoid(
    canvas: Canvas, rectangle: Rectangle, parts: PartTable, part: int, quadrics: Quadrics, row: int
) -> None:
    """Draw an ellipsoid; at a ragged outline, only some pieces of the size of leaves."""
    nearness, surface, rows, columns = canvas.window(rectangle)
    form, near = quadrics.inside[row], quadrics.near[row]
    by_row = (form[1, 1] * rows + 2 * form[1, 2]) * rows + form[2, 2]
    by_column = (form[0, 0] * columns + 2 * form[0, 2]) * columns
    inside = (by_row[:, None] + by_column + (2 * form[0, 1] * rows)[:, None] * columns).astype(np.float32)
    root = np.sqrt(np.maximum(inside, 0))
    scale = quadrics.scale[row]
    w = root / np.float32(scale)
    w += ((near[1] * rows + near[2]) / scale).astype(np.float32)[:, None] + (near[0] / scale * columns).astype(
        np.float32
    )
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
    """How much a surface must face the camera to be there: random for each piece, 0 to the part's raggedness."""
    direction = rays.direction
    far = 1 / (w * LEAF)
    cells = [
        np.floor((direction[0, k] * u + direction[1, k] * v + direction[2, k]) * far + rays.origin[2, k] / LEAF)
        for k in range(3)
    ]
    chance = hash_cells(*cells, seed=part)
    return np.float32(parts.taper[part, 0]) * chance * chance


def draw_panel(canvas: Canvas, rectangle: Rectangle, parts: PartTable, part: int, forms: Array) -> None:
    """Draw a ring or a fence of bars; forms: (3, 3), see `panel_depths`."""
    nearness, surface, rows, columns = canvas.window(rectangle)
    w, x, y = (
        (form[1] * rows + form[2]).astype(np.float32)[:, None] + (form[0] * columns).astype(np.float32)
        for form in forms
    )
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
        rail = (height > 1 - 2 * RAIL) & (height < 1)
        hit &= rail | (position - np.floor(position) < share)
    np.copyto(nearness, w, where=hit)
    np.copyto(surface, np.int32(part * FACES), where=hit)


def ground_material(surface: Array) -> Array:
    """The material of the ground or sky for surfaces below zero."""
    return np.where(surface == SKY, Material.SKY, GROUND - surface)


@dataclass(frozen=True)
class ShadowMap:
    """How far the rays of the sun get: depth, (cell, cell); axes: rows across, across and along the rays."""

    depth: Array
    axes: Array
    middle: Array
    cell: float

    def lit(self, position: Array, normal: Array) -> Array:
        """1 where the sun shines, 0 in the shade; position, normal: (3, pixel).

        Looked up a little above the surface: its own cells are too coarse to tell it from itself.
        """
        position = position + normal * np.float32(1.5 * self.cell)
        axes, middle = self.axes.astype(np.float32), self.middle.astype(np.float32)
        away = [position[k] - middle[k] for k in range(3)]
        u, v, t = (axes[row, 0] * away[0] + axes[row, 1] * away[1] + axes[row, 2] * away[2] for row in range(3))
        # Scattered by a cell, so that edges are soft instead of jagged.
        scatter = hash_cells(np.arange(len(u), dtype=np.int32))
        u, v = u + (scatter - 0.5) * np.float32(self.cell), v + (scatter * 57 % 1 - 0.5) * np.float32(self.cell)
        size = self.depth.shape[0]
        column = ((u + SHADOW_REACH) / self.cell).astype(np.int32)
        row = ((v + SHADOW_REACH) / self.cell).astype(np.int32)
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
    direction = np.array([np.zeros(3), np.zeros(3), along])
    rays = Rays(origin, direction, cells, cells, parallel=True)
    canvas = Canvas(rays, np.full((len(cells), len(cells)), -np.inf, np.float32), np.zeros((len(cells),) * 2, np.int32))
    seen = rotate(surfaces.corners - middle, axes)
    seen[..., 2] += SUN_DISTANCE
    casts = _casts(scene.parts, cell).tolist()
    rectangles = {part: rectangle for part, rectangle in visible(seen, rays).items() if casts[part]}
    draw(scene.parts, surfaces.planes, canvas, rectangles, -seen[..., 2].min(1))
    return ShadowMap(-canvas.nearness - np.float32(SUN_DISTANCE), axes, middle, cell)


def _casts(parts: PartTable, cell: float) -> Array:
    """Parts that are large enough for a shadow of several cells; flat ones are too thin, single clumps hardly count."""
    single = (parts.shape == Shape.LEAVES) & (parts.half[:, 0] < 5 * cell)
    casts: Array = (np.sort(parts.half, axis=1)[:, 1] > cell * 0.5) & (parts.shape < Shape.RING) & ~single
    return casts


@dataclass(frozen=True)
class Pixels:
    """position: (3, pixel), in the world; surface, depth, footprint (size of a pixel there, in metres): (pixel,)."""

    parts: PartTable
    surface: Array
    position: Array
    depth: Array
    footprint: Array

    @cached_property
    def part(self) -> Array:
        """Row in the table of parts."""
        part: Array = self.surface // FACES
        return part

    @cached_property
    def face(self) -> Array:
        """Face of the part."""
        face: Array = self.surface - self.part * FACES
        return face

    @cached_property
    def colour(self) -> Array:
        """The part's colour, (pixel, 3) float32."""
        return self.parts.colour.astype(np.float32)[self.part]

    @cached_property
    def half(self) -> Array:
        """Half of the part's size, (3, pixel) float32."""
        return self.parts.half.astype(np.float32).T[:, self.part]

    @cached_property
    def taper(self) -> Array:
        """How the part tapers, (3, pixel) float32."""
        return self.parts.taper.astype(np.float32).T[:, self.part]

    @cached_property
    def style(self) -> Array:
        """The part's style, (4, pixel) float32."""
        return self.parts.style.astype(np.float32).T[:, self.part]

    @cached_property
    def local(self) -> Array:
        """Position in the part's own axes, from its centre, in metres, (3, pixel) float32."""
        away = self.position - self.parts.centre.astype(np.float32).T[:, self.part]
        axes = self.parts.axes.astype(np.float32)[self.part]
        return np.stack([sum(axes[:, row, k] * away[k] for k in range(3)) for row in range(3)])

    @cached_property
    def on_end(self) -> Array:
        """Whether the face is the front or the rear of a box."""
        ends: Array = (self.face == FRONT) | (self.face == REAR)
        return ends

    @cached_property
    def level(self) -> Array:
        """Height on the part: 0 at its foot, 1 at its top."""
        level: Array = (self.local[1] / self.half[1] + 1) / 2
        return level

    @cached_property
    def sideways(self) -> tuple[Array, Array]:
        """Position along an upright face, in metres from its middle, and half the face's width there."""
        side, front, rear = self.taper * self.level
        along = np.where(self.on_end, self.local[0], self.local[2])
        ends = np.where(self.local[2] > 0, 1 - front, 1 - rear)
        return along, np.where(self.on_end, self.half[0] * (1 - side), self.half[2] * ends)

    def sharpness(self, size: Array | float) -> Array:
        """1 where a pattern of that size is resolved by the pixels, falling to 0 where it is not."""
        return np.clip(size / self.footprint / 2 - 0.75, 0, 1).astype(np.float32)

    def flattened(self) -> Pixels:
        """The same with the footprint on the ground, where pixels far away are long: depth / camera height times."""
        longer = self.footprint * np.maximum(self.depth / np.float32(EYE), 1)
        return dataclasses.replace(self, footprint=longer)
