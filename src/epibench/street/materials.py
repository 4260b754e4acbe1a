"""Appearance of surfaces: one function for each material, from positions on a part to colour, light and gloss."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from epibench.street.arrays import Array, hash_cells, smooth_noise
from epibench.street.parts import Material, PartTable
from epibench.street.rendering import BOTTOM, FACES, FRONT, PRISM_SIDES, REAR, TOP
from epibench.street.scene import Scene

EYE = 1.65  # about the height of the camera


@dataclass(frozen=True)
class Setting:
    """Facts about the scene for materials.

    texture: 0 (even colours) to 1; night: share of lit windows and lamps.
    """

    scene: Scene
    texture: float
    night: float
    wet: float


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
        """Return 1 if the pixels resolve a pattern of this size, falling to 0 otherwise."""
        return np.clip(size / self.footprint / 2 - 0.75, 0, 1).astype(np.float32)

    def flattened(self) -> Pixels:
        """Return the pixels with the footprint on the ground, longer by depth / camera height."""
        return dataclasses.replace(self, footprint=self.footprint * np.maximum(self.depth / np.float32(EYE), 1))


@dataclass
class Appearance:
    """colour: reflected share of light, (pixel, 3); light: emitted; gloss: mirrored share."""

    colour: Array
    light: Array | float = 0.0
    gloss: Array | float | np.float32 = 0.0


def tinted(*colours: tuple[float, float, float]) -> Array:
    """Colours as an array, (colour, 3) float32."""
    return np.array(colours, np.float32)


def grain(pixels: Pixels, setting: Setting, u: Array, v: Array, amount: float) -> Array:
    """A factor around 1, (pixel, 1): fine grain and broad stains, both by the level of texture."""
    seed = setting.scene.seed
    if setting.texture == 0:
        return np.ones((len(u), 1), np.float32)
    fine = (hash_cells(np.floor(u * 14), np.floor(v * 14), seed=seed) - 0.5) * pixels.sharpness(0.1)
    middle = (smooth_noise(u * 2.1, v * 2.1, seed + 2) - 0.5) * pixels.sharpness(0.6)
    broad = smooth_noise(u * 0.3, v * 0.3, seed + 1) - 0.5
    factor: Array = 1 + np.float32(amount * setting.texture) * (0.7 * fine + 0.5 * middle + 0.6 * broad)
    return factor[:, None]


def blend(share: Array, over: Array, under: Array) -> Array:
    """`over` in that share, `under` in the rest; share: (pixel,)."""
    mixed: Array = under + share[:, None].astype(np.float32) * (over - under)
    return mixed


def plain(pixels: Pixels, setting: Setting) -> Appearance:
    """One colour."""
    return Appearance(pixels.colour)


def paint(pixels: Pixels, setting: Setting) -> Appearance:
    """One colour, polished."""
    return Appearance(pixels.colour, gloss=np.full(len(pixels.surface), 0.25, np.float32))


GLASS_COLOUR = tinted((0.02, 0.025, 0.03))


def car_body(pixels: Pixels, setting: Setting) -> Appearance:
    """Paint with lights, grille, plate and doors. style: (number, 1 for a rear only, 1 for the part below lights)."""
    colour, light = pixels.colour.copy(), np.zeros_like(pixels.colour)
    x, z, level = np.abs(pixels.local[0]), pixels.local[2], pixels.level
    width, length = pixels.half[0], pixels.half[2]
    lower = pixels.style[2] > 0.5
    colour[lower & (level < 0.45)] *= 0.35  # bumper and sill
    front, rear = (pixels.face == FRONT) & (pixels.style[1] < 0.5), pixels.face == REAR
    lamp = ~lower & (x > 0.62 * width) & (x < 0.95 * width) & (level > 0.25) & (level < 0.85)
    colour[front & lamp], colour[rear & lamp] = (0.75, 0.75, 0.7), (0.45, 0.015, 0.01)
    light[front & lamp] = np.float32(0.15 + 2.5 * setting.night) * tinted((1.0, 0.95, 0.8))
    light[rear & lamp] = np.float32(0.12 + 1.2 * setting.night) * tinted((1.0, 0.04, 0.02))
    colour[front & ~lower & (x < 0.5 * width) & (level > 0.15) & (level < 0.7)] = (0.02, 0.02, 0.02)
    plate = (x < 0.26) & np.where(rear, ~lower & (level > 0.2) & (level < 0.55), lower & (level > 0.5) & (level < 0.95))
    colour[plate & (front | rear) & (length > 0.5)] = (0.6, 0.6, 0.55)
    doors = (np.abs(z + 0.1 * length) < 0.02) | (np.abs(z - 0.42 * length) < 0.02)
    colour[doors & ~pixels.on_end & (pixels.face < TOP) & (length > 1)] *= 0.45
    return Appearance(colour, light, np.where(lower, 0.08, 0.22).astype(np.float32))


def car_cabin(pixels: Pixels, setting: Setting) -> Appearance:
    """Windows all around between pillars, and a roof."""
    along, half = pixels.sideways
    edge = np.minimum(half - np.abs(along), 0.3)
    glass = (pixels.face != TOP) & (edge > 0.09) & (pixels.level > 0.06) & (pixels.level < 0.90)
    glass &= pixels.on_end | (np.abs(along + 0.1 * pixels.half[2]) > 0.05)
    colour = np.where(glass[:, None], GLASS_COLOUR, pixels.colour)
    return Appearance(colour, gloss=np.where(glass, 0.75, 0.22).astype(np.float32))


def coach(pixels: Pixels, setting: Setting) -> Appearance:
    """A side with a band of windows. style: (lower and upper edge as shares of the height, step, stripe)."""
    along, half = pixels.sideways
    low, high, step, stripe = pixels.style
    edge = half - np.abs(along)
    band = (pixels.level > low) & (pixels.level < high) & (edge > 0.12) & (pixels.face != TOP) & (pixels.face != BOTTOM)
    count = np.maximum(np.round(2 * half / step), 1)
    cell = (along / half + 1) / 2 * count
    pillar = (np.abs(cell - np.round(cell)) < 0.05) & ~pixels.on_end
    glass = band & ~pillar
    colour = pixels.colour.copy()
    lined = (pixels.level > 0.22) & (pixels.level < 0.30) & (stripe > 0.4) & (pixels.face != TOP)
    colour[lined] = 0.6 * colour[lined] ** 2 + 0.02
    seam = (np.abs(cell - np.round(cell)) < 0.03) & (low > 1) & ~pixels.on_end
    colour[seam] *= 0.7
    colour[glass] = GLASS_COLOUR
    inside = np.float32(0.5 * setting.night) * glass[:, None] * tinted((1.0, 0.9, 0.7)) * (stripe > 0.4)[:, None]
    return Appearance(colour, inside, np.where(glass, 0.7, 0.15).astype(np.float32))


def wheel(pixels: Pixels, setting: Setting) -> Appearance:
    """A tyre with a rim."""
    distance = (pixels.local[0] ** 2 + pixels.local[2] ** 2) / pixels.half[0] ** 2
    spokes = np.abs(pixels.local[0] * pixels.local[2]) > 0.12 * pixels.half[0] ** 2 * distance
    rim = (distance < 0.42) & (pixels.face >= PRISM_SIDES)
    spokes |= (distance < 0.06) | (distance > 0.34)
    metal = np.where(spokes[:, None], tinted((0.4, 0.4, 0.42)), np.float32(0.06))
    return Appearance(np.where(rim[:, None], metal, pixels.colour))


class Bays:
    """A façade divided into a whole number of bays in a row.

    column, row, number of the house: (pixel,). u: distance from the bay's middle; v: height in it; is_shop: on the
    ground floor of half of the houses. style: (width of a bay, height of a storey, share of windows, number).
    """

    def __init__(self, pixels: Pixels):
        along, half = pixels.sideways
        count = np.maximum(np.round(2 * half / pixels.style[0]), 1)
        cell, floor = (along / half + 1) / 2 * count, (pixels.local[1] + pixels.half[1]) / pixels.style[1]
        self.column, self.row = np.floor(cell), np.floor(floor)
        self.u, self.v = np.abs(cell - self.column - 0.5), floor - self.row
        self.house = (pixels.style[3] * 4096).astype(np.int32)
        self.is_shop = (self.row == 0) & (self.house > 2048)


def facade(pixels: Pixels, setting: Setting) -> Appearance:
    """Rows of windows, a base, doors or shops below."""
    bays, share, sharp = Bays(pixels), pixels.style[2], pixels.sharpness(pixels.style[0])
    u, v, shop = bays.u, bays.v, bays.is_shop
    height = pixels.local[1] + pixels.half[1]
    wall = pixels.colour * grain(pixels, setting, pixels.sideways[0] + 31 * pixels.style[3], height, 0.5)
    window = (u < np.where(shop, 0.42, share / 2)) & (v > np.where(shop, 0.12, 0.28)) & (v < np.where(shop, 0.72, 0.80))
    frame = (u < share / 2 + 0.05) & (v > 0.23) & (v < 0.84) & ~shop & ~window
    cross = (u < 0.02) | (np.abs(v - 0.6) < 0.02)
    chance = hash_cells(bays.column + 512 * bays.house, bays.row, seed=setting.scene.seed)
    pane = tinted((0.035, 0.045, 0.06)) * (0.5 + 1.4 * chance)[:, None]
    pane = np.where((cross & ~shop)[:, None], np.float32(0.35), pane)
    front = np.where(frame[:, None], np.minimum(wall * 1.35 + 0.05, 0.8), wall)
    front = np.where(window[:, None], pane, front)
    add_ground_floor(front, bays, height)
    # Too far away for single windows: their mean.
    colour = blend(sharp, front, wall * (1 - 0.39 * share)[:, None])
    flat_roof = (pixels.face == TOP) & (pixels.taper[0] == 0)
    colour = np.where(flat_roof[:, None], wall * 0.5, colour)
    glass = window & ~cross
    gloss = (0.45 * glass * sharp).astype(np.float32)
    if not setting.night:
        return Appearance(colour, gloss=gloss)
    lit = glass & (hash_cells(bays.column, bays.row + bays.house, seed=11) < 0.38)
    light = (setting.night * 0.9 * lit * (0.4 + 0.6 * chance))[:, None].astype(np.float32) * tinted((1.0, 0.72, 0.38))
    return Appearance(colour, light, gloss)


def add_ground_floor(front: Array, bays: Bays, height: Array) -> None:
    """Doors in some bays, a board above each shop, and a darker base."""
    door = (bays.row == 0) & ~bays.is_shop & (hash_cells(bays.column, bays.house, seed=7) < 0.25)
    front[door & (bays.u < 0.25) & (bays.v < 0.7)] = (0.10, 0.05, 0.03)
    board = bays.is_shop & (bays.v > 0.76) & (bays.v < 0.95) & (bays.u < 0.45)
    front[board] = np.stack([0.08 + 0.4 * hash_cells(bays.house[board], seed=part) for part in range(3)], -1)
    front[height < 0.5] *= 0.6


def masonry(pixels: Pixels, setting: Setting) -> Appearance:
    """Courses of bricks or slabs with joints. style: (course height, brick length)."""
    along, _ = pixels.sideways
    high, long = pixels.style[0], pixels.style[1]
    row = np.floor(pixels.local[1] / high)
    shifted = along / long + 0.5 * (row - 2 * np.floor(row / 2))
    joint = (pixels.local[1] / high - row < 0.12) | (shifted - np.floor(shifted) < 0.06)
    brick = 0.8 + 0.4 * hash_cells(row, np.floor(shifted), seed=setting.scene.seed)
    factor = 1 + (np.where(joint, np.float32(0.7), brick) - 1) * pixels.sharpness(high)
    return Appearance(pixels.colour * factor[:, None] * grain(pixels, setting, along, pixels.local[1], 0.4))


def roof(pixels: Pixels, setting: Setting) -> Appearance:
    """Rows of tiles along the slope."""
    rows = pixels.local[1] * 5
    shade = 1 - 0.25 * ((rows - np.floor(rows)) < 0.3) * pixels.sharpness(0.3)
    factor = grain(pixels, setting, pixels.local[2], pixels.local[1] * 2, 0.5)
    return Appearance(pixels.colour * shade[:, None].astype(np.float32) * factor)


def planks(pixels: Pixels, setting: Setting) -> Appearance:
    """Upright planks. style: (width,)."""
    along, _ = pixels.sideways
    cell = along / np.maximum(pixels.style[0], 0.12)
    shade = 0.85 + 0.3 * hash_cells(np.floor(cell), seed=3) - 0.4 * (cell - np.floor(cell) < 0.06)
    return Appearance(pixels.colour * (1 + (shade - 1) * pixels.sharpness(0.25))[:, None].astype(np.float32))


def foliage(pixels: Pixels, setting: Setting) -> Appearance:
    """Leaves: light and dark pieces, darker below. style: (number,)."""
    x, y, z = pixels.position
    twigs = hash_cells(np.floor(x * 3.3), np.floor(y * 3.3), np.floor(z * 3.3), seed=5) - 0.5
    leaves = hash_cells(np.floor(x * 11), np.floor(y * 11), np.floor(z * 11), seed=6) - 0.5
    contrast = np.float32(0.45 + 0.55 * setting.texture)
    depth = 0.70 + 0.40 * np.clip(pixels.level, 0, 1)
    factor = depth * (1 + contrast * (0.35 * twigs * pixels.sharpness(0.3) + 0.8 * leaves * pixels.sharpness(0.09)))
    return Appearance(pixels.colour * factor[:, None].astype(np.float32))


RED, WHITE, BLUE, BLACK = (0.5, 0.01, 0.015), (0.72, 0.72, 0.72), (0.02, 0.09, 0.42), (0.02, 0.02, 0.02)


def sign(pixels: Pixels, setting: Setting) -> Appearance:
    """Signs by style[0]: 0 prohibition, 1 order, 2 warning, 3 square, 4 plate with text, 5 large board."""
    kind, number = np.round(pixels.style[0]), pixels.style[1]
    turned = (kind == 0) | (kind == 1)  # discs stand along their z
    u = np.abs(pixels.local[0]) / pixels.half[0]
    v = np.where(turned, pixels.local[2] / pixels.half[2], pixels.local[1] / pixels.half[1])
    radius = u * u + v * v
    lines = v * 1.6 + number
    text = np.where(kind >= 4, lines - np.floor(lines) < 0.45, np.abs(v) < 0.45) & (u < np.where(kind >= 4, 0.8, 0.25))
    blue = ((kind == 1) | (kind == 3) | (kind == 5))[:, None]
    colour = np.where(blue, tinted(BLUE), tinted(WHITE))
    colour = np.where(text[:, None], np.where(blue, tinted(WHITE), tinted(BLACK)), colour)
    slope = 1 - pixels.level  # half the width of a triangle, as a share
    rim = ((kind == 0) & (radius > 0.48)) | ((kind == 2) & ((u > slope - 0.22) | (v < -0.75)))
    colour = np.where(rim[:, None], tinted(RED), colour)
    shown = np.where(turned, pixels.face == PRISM_SIDES + 1, pixels.face == REAR)
    return Appearance(np.where(shown[:, None], colour, np.float32(0.25)), gloss=0.05)


SIGNAL_COLOURS = tinted((1.0, 0.03, 0.02), (1.0, 0.45, 0.02), (0.05, 0.9, 0.35))


def signals(pixels: Pixels, setting: Setting) -> Appearance:
    """Three lenses, one of them lit. style: (which,)."""
    height = pixels.local[1] / pixels.half[1] * 1.5  # lenses at 1, 0 and −1
    lens = np.clip(np.round(1 - height), 0, 2).astype(np.int64)
    distance = ((height - (1 - lens)) / 1.5 * pixels.half[1]) ** 2 + pixels.local[0] ** 2
    # A lens that is smaller than a pixel is still visible.
    round_lens = (distance < 0.115**2) | (pixels.footprint > 0.12)
    lit = round_lens & (lens == np.round(pixels.style[0])) & (pixels.face == REAR)
    colour = np.where((round_lens & (pixels.face == REAR))[:, None], SIGNAL_COLOURS[lens] * 0.06, pixels.colour)
    return Appearance(colour, SIGNAL_COLOURS[lens] * lit[:, None] * np.float32(0.9))


def lamp(pixels: Pixels, setting: Setting) -> Appearance:
    """A lamp in its own colour, lit at night."""
    return Appearance(pixels.colour, pixels.colour * np.float32(0.15 + 3.5 * setting.night))


ASPHALT, LINE, YELLOW = tinted((0.105, 0.105, 0.11)), tinted((0.62, 0.62, 0.60)), tinted((0.60, 0.42, 0.06))
PAVING, GRASS, KERB = tinted((0.30, 0.285, 0.265)), tinted((0.085, 0.14, 0.03)), tinted((0.36, 0.35, 0.33))
DASH = 3.0  # metres that a dash of a broken line is long


def road(pixels: Pixels, setting: Setting) -> Appearance:
    """Asphalt; lines along the road, a zebra and a line to stop at."""
    x, _, z = pixels.position
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
    """Return the painted share of each pixel: a line thinner than a pixel covers a part of it."""
    markings, ground = setting.scene.markings, setting.scene.ground
    half = np.maximum(0.07, pixels.footprint * 0.5)
    painted = np.zeros(len(offset), np.float32)
    for line, gap in markings.lines:
        there = np.abs(offset - np.float32(line)) < half
        if gap:
            cycle = along / np.float32(DASH + gap)
            there &= cycle - np.floor(cycle) < DASH / (DASH + gap)
        np.maximum(painted, there * (0.07 / half), out=painted)
    inside = np.abs(offset) < ground.half_width - 0.2
    off_crossing = np.abs(along - ground.crossing) > ground.crossing_half_width
    painted *= inside & off_crossing & ((along < markings.zebra[0] - 0.5) | (along > ground.crossing))
    stripes = offset - np.floor(offset)
    painted[inside & (along > markings.zebra[0]) & (along < markings.zebra[1]) & (stripes < 0.5)] = 1
    lane = offset * setting.scene.camera.x > 0
    painted[inside & lane & (np.abs(along - markings.stop) < np.maximum(0.2, pixels.footprint))] = 1
    return painted


def paving(pixels: Pixels, setting: Setting) -> Appearance:
    """Slabs with joints."""
    x, _, z = pixels.position
    ground = setting.scene.ground
    u, v = ground.offset(x, z) / 0.6, ground.along(x, z) / 0.6
    column, row = np.floor(u), np.floor(v)
    shade = 0.92 + 0.16 * hash_cells(column, row, seed=setting.scene.seed)
    shade = np.where((u - column < 0.05) | (v - row < 0.05), np.float32(0.72), shade)
    flat = pixels.flattened()
    factor = 1 + (shade - 1) * flat.sharpness(0.5)
    dark = np.float32(1 - 0.35 * setting.wet)
    colour = PAVING * factor[:, None] * grain(flat, setting, x, z, 0.5) * dark
    return Appearance(colour, gloss=np.float32(0.3 * setting.wet))


def grass(pixels: Pixels, setting: Setting) -> Appearance:
    """Grass, with lighter and darker tufts."""
    x, _, z = pixels.position
    tufts = (hash_cells(np.floor(x * 7), np.floor(z * 7), seed=2) - 0.5) * pixels.flattened().sharpness(0.2)
    patches = smooth_noise(x * 0.5, z * 0.5, setting.scene.seed) - 0.5
    factor = 1 + (0.3 + 0.4 * setting.texture) * tufts + (0.25 + 0.5 * setting.texture) * patches
    bare = np.clip(2 * smooth_noise(x * 0.11, z * 0.11, setting.scene.seed + 6) - 0.8, 0, 1)
    dry = np.float32(0.5 * setting.texture) * bare
    return Appearance(blend(dry, tinted((0.20, 0.16, 0.08)), GRASS * factor[:, None].astype(np.float32)))


def kerb(pixels: Pixels, setting: Setting) -> Appearance:
    """The face of the kerb."""
    return Appearance(np.repeat(KERB * np.float32(0.8), len(pixels.surface), 0))


# Each material is painted by the function of its name.
MATERIALS: dict[Material, Callable[[Pixels, Setting], Appearance]] = {
    Material[paints.__name__.upper()]: paints
    for paints in (plain, paint, car_body, car_cabin, coach, wheel, facade, masonry, roof, foliage, sign, signals, lamp,
                   planks, road, paving, grass, kerb)
}  # fmt: skip
