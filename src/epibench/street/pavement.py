"""How the ground looks: asphalt with markings, paving, grass and kerbs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from epibench.street.arrays import Array, hash_cells, smooth_noise
from epibench.street.materials import Appearance, Setting, blend, grain, tinted
from epibench.street.parts import Material
from epibench.street.pixels import Pixels

ASPHALT, LINE, YELLOW = tinted((0.105, 0.105, 0.11)), tinted((0.62, 0.62, 0.60)), tinted((0.60, 0.42, 0.06))
PAVING, GRASS, KERB = tinted((0.30, 0.285, 0.265)), tinted((0.085, 0.14, 0.03)), tinted((0.36, 0.35, 0.33))
DASH = 3.0  # metres that a dash of a broken line is long


def road(pixels: Pixels, setting: Setting) -> Appearance:
    """Asphalt; lines along the road, a zebra and a line to stop at."""
    x, _, z = pixels.place
    ground = setting.scene.ground
    offset, along = ground.offset(x, z), ground.along(x, z)
    stone = ASPHALT * grain(pixels.flattened(), setting, x, z, 0.75)
    if setting.texture:
        patched = smooth_noise(offset * 0.16, along * 0.08, setting.scene.seed + 9) > 1 - 0.3 * setting.texture
        stone = np.where(patched[:, None], stone * np.float32(1 - 0.35 * setting.texture), stone)
        tracks = np.abs(np.abs(offset) - 1.75) - 0.75
        stone *= (1 - 0.12 * setting.texture * (np.abs(tracks) < 0.25))[:, None].astype(np.float32)
    marked = _markings(pixels, setting, offset, along)
    painted = np.flatnonzero(marked)
    worn = smooth_noise(x[painted] * 4, z[painted] * 4, setting.scene.seed + 4)
    share = marked[painted] * (1 - np.float32(setting.scene.markings.wear) * worn)
    colour = stone * np.float32(1 - 0.45 * setting.wet)
    colour[painted] = blend(share, YELLOW if setting.scene.markings.yellow else LINE, colour[painted])
    return Appearance(colour, gloss=np.float32(0.5 * setting.wet))


def _markings(pixels: Pixels, setting: Setting, offset: Array, along: Array) -> Array:
    """The share of each pixel that is painted: a line that is thinner than a pixel covers a part of it."""
    markings, ground = setting.scene.markings, setting.scene.ground
    half = np.maximum(0.07, pixels.footprint * 0.5)
    painted = np.zeros(len(offset), np.float32)
    for line, gap in markings.lines:
        there = np.abs(offset - np.float32(line)) < half
        if gap:
            cycle = along / np.float32(DASH + gap)
            there &= cycle - np.floor(cycle) < DASH / (DASH + gap)
        np.maximum(painted, there * (0.07 / half), out=painted)
    inside = (offset > ground.left + 0.2) & (offset < ground.right - 0.2)
    off_crossing = np.abs(along - ground.crossing) > ground.crossing_half_width
    painted *= inside & off_crossing & ((along < markings.zebra[0] - 0.5) | (along > ground.crossing))
    stripes = offset - np.floor(offset)
    painted[inside & (along > markings.zebra[0]) & (along < markings.zebra[1]) & (stripes < 0.5)] = 1
    lane = offset * setting.scene.camera.x > 0
    painted[inside & lane & (np.abs(along - markings.stop) < np.maximum(0.2, pixels.footprint))] = 1
    return painted


def paving(pixels: Pixels, setting: Setting) -> Appearance:
    """Slabs with joints."""
    x, _, z = pixels.place
    ground = setting.scene.ground
    u, v = ground.offset(x, z) / 0.6, ground.along(x, z) / 0.6
    column, row = np.floor(u), np.floor(v)
    shade = 0.92 + 0.16 * hash_cells(column, row, seed=setting.scene.seed)
    shade = np.where((u - column < 0.05) | (v - row < 0.05), np.float32(0.72), shade)
    flat = pixels.flattened()
    factor = 1 + (shade - 1) * flat.sharpness(0.5)
    dark = np.float32(1 - 0.35 * setting.wet)
    return Appearance(
        PAVING * factor[:, None] * grain(flat, setting, x, z, 0.5) * dark, gloss=np.float32(0.3 * setting.wet)
    )


def grass(pixels: Pixels, setting: Setting) -> Appearance:
    """Grass, with lighter and darker tufts."""
    x, _, z = pixels.place
    tufts = (hash_cells(np.floor(x * 7), np.floor(z * 7), seed=2) - 0.5) * pixels.flattened().sharpness(0.2)
    patches = smooth_noise(x * 0.5, z * 0.5, setting.scene.seed) - 0.5
    factor = 1 + (0.3 + 0.4 * setting.texture) * tufts + (0.25 + 0.5 * setting.texture) * patches
    dry = np.float32(0.5 * setting.texture) * np.clip(
        2 * smooth_noise(x * 0.11, z * 0.11, setting.scene.seed + 6) - 0.8, 0, 1
    )
    return Appearance(blend(dry, tinted((0.20, 0.16, 0.08)), GRASS * factor[:, None].astype(np.float32)))


def kerb(pixels: Pixels, setting: Setting) -> Appearance:
    """The face of the kerb."""
    return Appearance(np.repeat(KERB * np.float32(0.8), len(pixels.surface), 0))


GROUND_MATERIALS: dict[Material, Callable[[Pixels, Setting], Appearance]] = {
    Material.ROAD: road,
    Material.PAVING: paving,
    Material.GRASS: grass,
    Material.KERB: kerb,
}
