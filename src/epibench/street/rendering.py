"""From parts to pixels: the nearest surface in every pixel, its depth, normal and class.

Every part is drawn within the rectangle of the picture that holds it, nearest first; a pixel keeps the largest inverse
depth. Surfaces are numbered part · FACES + face; the ground and the sky have numbers below zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from epibench.street.arrays import Array, hash_cells
from epibench.street.camera import Camera
from epibench.street.geometry import (
    BOX_FACES,
    FACES,
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
from epibench.street.ground import Ground, meet_ground
from epibench.street.parts import Material, PartTable, Shape

NEAR = 0.3
SKY = -1
GROUND = -2  # the ground of material m is surface GROUND − m
LEAF = 0.22  # the size of the pieces at a ragged outline, in metres
RAIL = 0.06  # the share of a fence's half height that its upper and lower rail take


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
        places = np.nonzero(hit)
        if not len(places[0]):
            return
        facing = root[places] / np.float32(quadrics.facing[row])
        hit[places] = facing >= _leaf_holes(canvas.rays, parts, part, rows[places[0]], columns[places[1]], w[places])
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
