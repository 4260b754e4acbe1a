"""The LiDAR, and sparse depth and semi-dense targets from its scans.

A scanner like KITTI's (64 beams: 32 from +2° to −8.3° and 32 from −8.8° to −24.3°, a return every 0.17°) stands 8 cm
above and 27 cm behind the camera, and up to half a metre beside it. Smaller pictures have fewer beams and returns, both
in proportion to the root of their area. So the share of pixels stays about the same: 64 beams at 375 × 1242 pixels, 34
at 256 × 512, 17 at 128 × 256.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from epibench.street.arrays import Array
from epibench.street.camera import CENTRE, Camera
from epibench.street.domains import Conditions

MAX_DEPTH = 80.0
CLEAN_SHARE = 0.05
BEAMS = 64
KITTI_AREA = 375 * 1242
STEP = math.radians(0.1728)
ABOVE, BEHIND, ASIDE = 0.08, 0.27, 0.5  # the last one is the largest, to either side
NEAREST, LEVELS = 0.25, 48  # inverse depth at which beams begin, and number of their steps, at KITTI's size
SPREAD = math.radians(42)  # to either side
RANGE_NOISE = 0.02  # metres
EDGE = 0.1  # how far inverse depth bends at an edge, as a share of it
SCANS = 11  # scans of a semi-dense target


@dataclass(frozen=True)
class Returns:
    """Pixels that were hit and their depth, (return,)."""

    row: Array
    column: Array
    depth: Array


def density(size: tuple[int, int]) -> float:
    """Return beams and returns per beam, as a share of KITTI's."""
    return min(1.0, math.sqrt(size[0] * size[1] / KITTI_AREA))


def beam_angles(size: tuple[int, int], shift: float = 0.0) -> Array:
    """Return elevations in radians, from above: the real scanner's, or fewer with the same spread. shift: in beams."""
    upper, lower = np.linspace(2.0, -8.33, BEAMS // 2), np.linspace(-8.83, -24.33, BEAMS // 2)
    number = max(4, round(BEAMS * density(size)))
    beams = np.linspace(0, BEAMS - 1, number) + shift * BEAMS / number
    return np.radians(np.interp(beams, np.arange(BEAMS), np.concatenate((upper, lower))))


@dataclass(frozen=True)
class Beams:
    """The camera's view of beams, (beam,) float32: pixels at infinity, and shift for each unit of inverse depth."""

    row: Array
    column: Array
    row_shift: Array
    column_shift: Array

    def pixels(self, nearness: Array | float) -> tuple[Array, Array]:
        """Return row and column of the beams' points at an inverse depth, also outside of the picture."""
        row = np.floor(self.row + self.row_shift * nearness).astype(np.int32)
        return row, np.floor(self.column + self.column_shift * nearness).astype(np.int32)


def make_beams(camera: Camera, rng: np.random.Generator, turns: int = 1, aside: float = 0.0) -> Beams:
    """Return turns of the scanner, which stands `aside` metres right of the camera.

    Each turn is from another position, so that its lines lie between the lines of other turns.
    """
    step = STEP / density(camera.size)
    shifts = rng.uniform(-0.5, 0.5, turns) if turns > 1 else np.zeros(1)
    elevation = np.concatenate([beam_angles(camera.size, shift) for shift in shifts])
    # Every beam fires at its own moment of the turn.
    azimuth = np.arange(-SPREAD, SPREAD, step) + step * rng.uniform(size=(len(elevation), 1))
    right = np.tan(azimuth.astype(np.float32))
    up = np.tan(elevation).astype(np.float32)[:, None] * np.sqrt(1 + right * right)
    # The scanner stands level, the camera looks up or down.
    ahead = math.cos(camera.pitch) + up * math.sin(camera.pitch)
    u = (right / ahead).ravel()
    v = ((math.sin(camera.pitch) - up * math.cos(camera.pitch)) / ahead).ravel()
    # At depth z, (z + BEHIND) is the distance along the scanner's axis.
    return Beams(
        row=v * camera.focal + CENTRE[1] * camera.size[0],
        column=u * camera.focal + CENTRE[0] * camera.size[1],
        row_shift=(v * BEHIND - ABOVE) * camera.focal,
        column_shift=(u * BEHIND + aside) * camera.focal,
    )


def scan(depth: Array, beams: Beams) -> Returns:
    """Return the returns of beams on surfaces that the camera sees, without edges.

    The depth at the beam's expected pixel gives a new expected pixel, where the depth is read again. A scanner close to
    the camera is then within a pixel, except at edges.
    """
    nearness = _inverse(depth)
    met = np.full(beams.row.shape, 1 / 20, np.float32)
    for _ in range(2):
        row, column = beams.pixels(met)
        seen = _seen(nearness, row, column)
        met = np.where(seen > 0, seen, met)
    return _hits(row, column, _seen(depth, row, column))


def scan_past_edges(depth: Array, beams: Beams, strength: float, rng: np.random.Generator) -> Returns:
    """Return the returns of beams at their first surface.

    A beam that passes the edge of a near surface returns the depth beside the edge. The camera sees the near surface in
    that pixel: with a probability of 1 − strength, the near depth is returned instead.
    """
    nearness = _inverse(depth)
    met, beside = _first_met(nearness, beams)
    for _ in range(2):
        row, column = beams.pixels(met)
        seen = _seen(nearness, row, column)
        settled = np.abs(seen - met) <= EDGE * met
        met = np.where(seen > 0, seen, met)
    row, column = beams.pixels(np.where(settled, met, beside))
    seen_depth = _seen(depth, row, column)
    passed = ~settled & (seen_depth > 0) & (rng.random(met.shape) < strength)
    beyond = 1 / np.maximum(beside, np.float32(1e-6))
    return _hits(row, column, np.where(passed, np.maximum(seen_depth, beyond), seen_depth))


def _first_met(nearness: Array, beams: Beams) -> tuple[Array, Array]:
    """Return two inverse depths per beam: of the surface that it meets, and of the one beside it.

    A beam meets the first surface that it reaches or passes behind. The surface in view one step earlier is beside it.
    No surface: 0.
    """
    met = beside = before = np.zeros(beams.row.shape, np.float32)
    for level in np.linspace(NEAREST, 0, round(LEVELS * density(nearness.shape)), dtype=np.float32):
        seen = _seen(nearness, *beams.pixels(level))
        first = (met == 0) & (seen >= level)
        met, beside = np.where(first, seen, met), np.where(first, before, beside)
        before = seen
    return met, beside


def _hits(row: Array, column: Array, depth: Array) -> Returns:
    """Return the returns of beams on surfaces within reach."""
    hit = (depth > 0) & (depth < MAX_DEPTH)
    return Returns(row[hit], column[hit], depth[hit])


def drop_out(returns: Returns, returned: Array, strength: float, rng: np.random.Generator) -> Returns:
    """Remove returns from dark, glassy and far surfaces."""
    echo = returned[returns.row, returns.column]
    dim = 1 - np.clip(echo * 9, 0, 1) * np.clip(1.25 - returns.depth / 110, 0, 1)
    kept = rng.random(len(echo)) >= strength * (0.02 + 0.65 * dim)
    return Returns(returns.row[kept], returns.column[kept], returns.depth[kept])


def mixed_depth(returns: Returns, depth: Array, strength: float, rng: np.random.Generator) -> Array:
    """Return depth with range noise; some returns at edges get the neighbour's depth, or one between.

    In pixel coordinates inverse depth is linear on planes, also on a road at a grazing angle. An edge is where a
    neighbour deviates from the line through the return and the pixel on the other side.
    """
    count = len(returns.row)
    down, right = rng.integers(-1, 2, count), rng.integers(-1, 2, count)
    other = _looked_up(depth, returns.row + down, returns.column + right)
    opposite = _looked_up(depth, returns.row - down, returns.column - right)
    here, there, back = (_inverse(values) for values in (returns.depth, other, opposite))
    # Of two neighbours on a line, the more different one is across the edge.
    edge = (np.abs(there + back - 2 * here) > EDGE * here) & (np.abs(there - here) > np.abs(back - here))
    share = np.where(rng.random(count) < 0.5, 1.0, rng.random(count)).astype(np.float32)
    mixed = edge & (other > 0) & (rng.random(count) < 0.5 * strength)
    noise = RANGE_NOISE * strength * rng.standard_normal(count)
    measured = np.where(mixed, returns.depth + share * (other - returns.depth), returns.depth) + noise
    return measured.astype(np.float32)


def in_reach(returns: Returns) -> Returns:
    """Remove returns that errors move beyond 80 m, or nearer than 0.5 m."""
    kept = returns.depth <= MAX_DEPTH
    return Returns(returns.row[kept], returns.column[kept], np.maximum(returns.depth[kept], np.float32(0.5)))


def onto(returns: Returns, size: tuple[int, int]) -> Array:
    """Return depth in pixels, 0 without a return. Of several returns in a pixel, the nearest counts."""
    order = np.argsort(-returns.depth, kind="stable")
    picture = np.zeros(size, np.float32)
    picture[returns.row[order], returns.column[order]] = returns.depth[order]
    return picture


def sparse_depth(
    depth: Array, returned: Array, camera: Camera, conditions: Conditions, rng: np.random.Generator
) -> Array:
    """Return the input of depth completion, (height, width).

    In clean it is 5 % of the valid pixels, otherwise a scan.
    """
    strength = conditions["lidar"]
    if not strength:
        candidates = np.flatnonzero((depth > 0) & (depth <= MAX_DEPTH))
        chosen = rng.permutation(candidates)[: round(CLEAN_SHARE * len(candidates))]
        picture = np.zeros(depth.size, np.float32)
        picture[chosen] = depth.ravel()[chosen]
        return picture.reshape(depth.shape)
    beams = make_beams(camera, rng, aside=rng.uniform(-ASIDE, ASIDE))
    returns = drop_out(scan_past_edges(depth, beams, strength, rng), returned, strength, rng)
    measured = replace(returns, depth=mixed_depth(returns, depth, strength, rng))
    return onto(in_reach(measured), depth.shape)


def target_depth(
    depth: Array, returned: Array, camera: Camera, conditions: Conditions, rng: np.random.Generator
) -> Array:
    """Return the target of depth completion, (height, width).

    In clean it is all depths up to 80 m, otherwise combined scans.
    """
    strength = conditions["target"]
    if not strength:
        return np.where(depth <= MAX_DEPTH, depth, np.float32(0))
    together = drop_out(scan(depth, make_beams(camera, rng, SCANS)), returned, 0.6, rng)
    picture = onto(_accumulated(together, depth, strength, rng), depth.shape)
    # Pixels that differ much from their surroundings are dropped: edges of objects have gaps.
    picture[(_relative_range(depth) > 0.15) & (rng.random(depth.shape) < 0.75)] = 0
    return picture


def _accumulated(returns: Returns, depth: Array, strength: float, rng: np.random.Generator) -> Returns:
    """Add the errors of scans from other positions: a common scale, noise growing with depth, some mixed returns."""
    count = len(returns.row)
    scale = 1 + 0.002 * strength * rng.standard_normal()
    noise = strength * (0.012 + 0.0015 * returns.depth) * rng.standard_normal(count)
    measured = replace(returns, depth=(returns.depth * scale + noise).astype(np.float32))
    stray = rng.random(count) < 0.02 * strength
    # Mixed returns use the exact depth: measurement errors would look like edges.
    return in_reach(replace(measured, depth=np.where(stray, mixed_depth(returns, depth, 1.0, rng), measured.depth)))


def _looked_up(depth: Array, row: Array, column: Array) -> Array:
    looked_up: Array = depth[np.clip(row, 0, depth.shape[0] - 1), np.clip(column, 0, depth.shape[1] - 1)]
    return looked_up


def _seen(picture: Array, row: Array, column: Array) -> Array:
    """Return the picture's values at the pixels, 0 outside of it."""
    height, width = picture.shape
    # As unsigned numbers, negative ones are large.
    inside = (row.view(np.uint32) < height) & (column.view(np.uint32) < width)
    looked_up: Array = picture.ravel()[np.where(inside, row * width + column, 0)] * inside
    return looked_up


def _inverse(depth: Array) -> Array:
    """1 / depth, 0 for none."""
    return np.where(depth > 0, 1 / np.maximum(depth, np.float32(1e-6)), np.float32(0))


def _relative_range(depth: Array) -> Array:
    """Return the relative variation of depth among a pixel and its four neighbours."""
    safe = np.where(depth > 0, depth, np.float32(200))
    low, high = safe.copy(), safe.copy()
    for ahead, back in ((np.s_[1:], np.s_[:-1]), (np.s_[:, 1:], np.s_[:, :-1])):
        for one, other in ((ahead, back), (back, ahead)):
            low[one] = np.minimum(low[one], safe[other])
            high[one] = np.maximum(high[one], safe[other])
    spread: Array = (high - low) / low
    return spread
