"""One ray at a time against every part, in float64: slow, plain, and written without the renderer's algebra."""

import math

import numpy as np

from epibench.street.arrays import hash_cells
from epibench.street.parts import Shape
from epibench.street.rendering import LEAF, RAIL


def cast(scene):
    """Depth and part of every pixel; part −1: the ground, −2: the sky."""
    camera = scene.camera
    u, v = np.meshgrid(camera.columns, camera.rows)
    right, down, forward = camera.axes
    rays = u[..., None] * right + v[..., None] * down + forward
    depth, part = ground_depth(scene.ground, camera.position, rays)
    for number in range(len(scene.parts)):
        found = part_depth(scene.parts, number, camera.position, rays, camera)
        nearer = found < depth
        depth[nearer], part[nearer] = found[nearer], number
    return depth, part


def ground_depth(ground, eye, rays):
    depth = np.full(rays.shape[:2], np.inf)
    part = np.full(rays.shape[:2], -2)
    for place in np.ndindex(*depth.shape):
        ray = rays[place]
        if ray[1] >= 0:
            continue
        high, low = (eye[1] - ground.kerb) / -ray[1], eye[1] / -ray[1]

        def off(t, ray=ray):
            x, z = eye[0] + t * ray[0], eye[2] + t * ray[2]
            return float(ground.off_road(np.float64(x), np.float64(z)))

        part[place] = -1
        if off(high) > 0:
            depth[place] = high
        elif off(low) <= 0:
            depth[place] = low
        else:
            for _ in range(50):
                middle = (high + low) / 2
                high, low = (high, middle) if off(middle) > 0 else (middle, low)
            depth[place] = low
    return depth, part


def part_depth(parts, number, eye, rays, camera):
    axes, half, taper = parts.axes[number], parts.half[number], parts.taper[number]
    start = axes @ (eye - parts.centre[number]) / half
    ray = np.einsum("ij,...j->...i", axes, rays) / half
    shape = parts.shape[number]
    if shape in (Shape.BOX, Shape.PRISM):
        return polyhedron(start, ray, box_planes(taper) if shape == Shape.BOX else prism_planes(taper[0]))
    if shape in (Shape.ELLIPSOID, Shape.LEAVES):
        return ellipsoid(parts, number, start, ray, eye, rays, camera)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = -start[1] / ray[..., 1]
        x, y = (start[k] + t * ray[..., k] for k in (0, 2))
        if shape == Shape.RING:
            inside = (np.hypot(x, y) <= 1) & (np.hypot(x, y) >= taper[0])
        else:
            position = x * half[0] / taper[0]
            rail = np.abs(y) > 1 - 2 * RAIL
            inside = (np.abs(x) <= 1) & (np.abs(y) <= 1) & (rail | (position - np.floor(position) < taper[1]))
    return np.where(inside & (t > 0), t, np.inf)


def box_planes(taper):
    side, front, rear = taper
    return [
        *((s, side / 2, 0, 1 - side / 2) for s in (1, -1)),
        (0, 1, 0, 1),
        (0, -1, 0, 1),
        (0, front / 2, 1, 1 - front / 2),
        (0, rear / 2, -1, 1 - rear / 2),
    ]


def prism_planes(taper):
    apothem = math.cos(math.pi / 8)
    sides = [
        (math.cos(k * math.pi / 4), apothem * taper / 2, math.sin(k * math.pi / 4), apothem * (1 - taper / 2))
        for k in range(8)
    ]
    return [*sides, (0, 1, 0, 1), (0, -1, 0, 1)]


def polyhedron(start, ray, planes):
    enter, leave = np.zeros(ray.shape[:2]), np.full(ray.shape[:2], np.inf)
    for x, y, z, reach in planes:
        along = x * ray[..., 0] + y * ray[..., 1] + z * ray[..., 2]
        gap = reach - (x * start[0] + y * start[1] + z * start[2])
        with np.errstate(divide="ignore", invalid="ignore"):
            t = gap / along
        enter = np.where(along < 0, np.maximum(enter, t), enter)
        leave = np.where(along > 0, np.minimum(leave, t), leave)
        leave = np.where((along == 0) & (gap < 0), -1, leave)
    # From inside nothing is seen.
    return np.where((enter <= leave) & (enter > 0), enter, np.inf)


def ellipsoid(parts, number, start, ray, eye, rays, camera):
    a, b, c = (ray**2).sum(-1), (ray * start).sum(-1), (start**2).sum() - 1
    inside = b**2 - a * c
    with np.errstate(invalid="ignore"):
        t = (-b - np.sqrt(inside)) / a
    hit = (inside > 0) & (t > 0)
    if parts.shape[number] == Shape.LEAVES:
        cells = [np.floor((eye[k] + np.where(hit, t, 1) * rays[..., k]) / LEAF) for k in range(3)]
        chance = hash_cells(*cells, seed=number)
        centre_depth = camera.project(parts.centre[number])[2]
        facing = np.sqrt(np.maximum(inside, 0)) / (math.sqrt(c + 1) / centre_depth)
        hit &= facing >= parts.taper[number, 0] * chance**2
    return np.where(hit, t, np.inf)
