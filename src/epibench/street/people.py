"""People on foot and on two wheels."""

from __future__ import annotations

import math

from epibench.data.cityscapes_classes import TRAIN_IDS
from epibench.street.arrays import Chance, Colour
from epibench.street.parts import Look, Material, Parts

SKIN: tuple[Colour, ...] = ((0.52, 0.34, 0.25), (0.42, 0.25, 0.17), (0.26, 0.14, 0.09), (0.12, 0.06, 0.04))
HAIR: tuple[Colour, ...] = ((0.02, 0.015, 0.01), (0.08, 0.04, 0.02), (0.25, 0.16, 0.07), (0.3, 0.3, 0.3))
TOPS: tuple[Colour, ...] = (
    (0.05, 0.06, 0.10), (0.35, 0.04, 0.04), (0.5, 0.5, 0.48), (0.04, 0.14, 0.30), (0.06, 0.18, 0.08),
    (0.45, 0.30, 0.05), (0.02, 0.02, 0.02), (0.25, 0.22, 0.18),
)  # fmt: skip
TROUSERS: tuple[Colour, ...] = ((0.03, 0.04, 0.09), (0.02, 0.02, 0.02), (0.18, 0.15, 0.11), (0.10, 0.11, 0.13))


def pedestrian(parts: Parts, chance: Chance, novel: float = 0.0) -> None:
    """Somebody who stands or walks; novel: with an umbrella, or a child."""
    label = TRAIN_IDS["person"]
    height = chance.between(1.55, 1.88) * (0.68 if chance() < 0.15 * novel else 1.0)
    scale, stride = height / 1.75, chance.between(0.02, 0.36)
    top, legs = Look(label, Material.PLAIN, chance.pick(TOPS)), Look(label, Material.PLAIN, chance.pick(TROUSERS))
    skin, hair = Look(label, Material.PLAIN, chance.pick(SKIN)), Look(label, Material.PLAIN, chance.pick(HAIR))
    shoe = Look(label, Material.PLAIN, (0.02, 0.02, 0.02))
    for side in (-1, 1):
        foot, hip = side * stride * scale, (side * 0.09 * scale, 0.88 * scale, 0.0)
        parts.tube((side * 0.10 * scale, 0.06, foot), hip, 0.075 * scale, legs)
        if parts.is_near:
            parts.box((side * 0.10 * scale, 0.045, foot + 0.06), (0.05, 0.045, 0.13 * scale), shoe)
        hand = (side * 0.27 * scale, 0.80 * scale, -side * stride * scale * 0.8)
        parts.tube((side * 0.22 * scale, 1.40 * scale, 0), hand, 0.052 * scale, top)
        if parts.is_near:
            parts.ellipsoid(hand, (0.05, 0.07, 0.05), skin)
    if chance.hit(0.3):  # a coat or a skirt
        parts.box((0, 0.72 * scale, 0), (0.22 * scale, 0.22 * scale, 0.16 * scale), top, (0.2, 0.1, 0.1))
    # Wider at the shoulders than at the hips: two boxes that taper towards each other.
    parts.box((0, 1.18 * scale, 0), (0.215 * scale, 0.30 * scale, 0.125 * scale), top, (0.08, 0.1, 0.1))
    parts.box((0, 1.475 * scale, 0), (0.19 * scale, 0.03 * scale, 0.10 * scale), top, (0.5, 0.3, 0.3))
    parts.ellipsoid((0, 1.63 * scale, 0.01), (0.095 * scale, 0.125 * scale, 0.11 * scale), skin)
    parts.ellipsoid((0, 1.665 * scale, -0.02), (0.105 * scale, 0.105 * scale, 0.115 * scale), hair)
    if chance.hit(0.25):
        bag = Look(label, Material.PLAIN, chance.pick(TOPS))
        parts.box((0, 1.22 * scale, -0.2 * scale), (0.15 * scale, 0.22 * scale, 0.09 * scale), bag, (0.1, 0.0, 0.2))
    if chance() < 0.4 * novel:
        canopy = Look(label, Material.PLAIN, chance.pick(((0.4, 0.03, 0.05), (0.02, 0.02, 0.02), (0.05, 0.2, 0.4))))
        parts.pillar((0, 2.0 * scale, 0.1), (0.55, 0.13, 0.55), canopy, 0.9)
        parts.tube((0.2, 1.1 * scale, 0.15), (0, 2.0 * scale, 0.1), 0.02, shoe)


def cyclist(parts: Parts, chance: Chance, lean: float, helmet: bool = False) -> None:
    """Somebody on a saddle at a height of 0.95 m, with the hands at a bar in front."""
    label = TRAIN_IDS["rider"]
    top, legs = Look(label, Material.PLAIN, chance.pick(TOPS)), Look(label, Material.PLAIN, chance.pick(TROUSERS))
    skin = Look(label, Material.PLAIN, chance.pick(SKIN))
    cap = (
        Look(label, Material.PAINT, chance.pick(TOPS))
        if helmet or chance.hit(0.5)
        else Look(label, Material.PLAIN, chance.pick(HAIR))
    )
    hip = (0.0, 0.98, -0.25)
    neck = (0.0, 0.98 + 0.56 * math.cos(lean), -0.25 + 0.9 * math.sin(lean) + 0.1)
    parts.tube(hip, neck, 0.155, top)
    for side in (-1, 1):
        knee, foot = (side * 0.13, 0.72 + 0.12 * side, 0.12), (side * 0.12, 0.32 + 0.12 * side, -0.04)
        parts.tube((side * 0.09, 0.95, -0.24), knee, 0.08, legs)
        parts.tube(knee, foot, 0.06, legs)
        shoulder = (side * 0.19, neck[1] - 0.06, neck[2])
        parts.tube(shoulder, (side * 0.24, 1.06, 0.32), 0.05, top)
    head = (0.0, neck[1] + 0.19, neck[2] + 0.06)
    size = 0.13 if helmet else 0.105
    parts.ellipsoid(head, (0.10, 0.13, 0.115), skin)
    parts.ellipsoid((0.0, head[1] + 0.045, head[2] - 0.02), (size, size, size + 0.02), cap)
