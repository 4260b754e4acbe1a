"""People and vehicles, each built around the point where it stands, facing z."""

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
PAINTS: tuple[Colour, ...] = (
    (0.60, 0.60, 0.60), (0.75, 0.76, 0.78), (0.30, 0.31, 0.33), (0.04, 0.04, 0.05), (0.09, 0.10, 0.12),
    (0.35, 0.03, 0.03), (0.04, 0.09, 0.28), (0.10, 0.20, 0.35), (0.30, 0.27, 0.22), (0.06, 0.16, 0.10),
)  # fmt: skip
BRIGHT_PAINTS: tuple[Colour, ...] = ((0.7, 0.45, 0.02), (0.05, 0.35, 0.45), (0.6, 0.15, 0.02), (0.35, 0.5, 0.08))
TYRE, DARK, STEEL = (0.02, 0.02, 0.02), (0.03, 0.03, 0.035), (0.25, 0.25, 0.26)
LORRY_PAINTS: tuple[Colour, ...] = ((0.7, 0.7, 0.68), (0.45, 0.05, 0.04), (0.06, 0.15, 0.4), (0.5, 0.4, 0.1))
BUS_PAINTS: tuple[Colour, ...] = ((0.65, 0.45, 0.05), (0.5, 0.05, 0.05), (0.7, 0.7, 0.65), (0.08, 0.25, 0.4))


def pedestrian(parts: Parts, chance: Chance, novel: float = 0.0) -> None:
    """Add a person who stands or walks; novel: with an umbrella, or a child."""
    label = TRAIN_IDS["person"]
    height = chance.between(1.55, 1.88) * (0.68 if chance() < 0.15 * novel else 1.0)
    scale, stride = height / 1.75, chance.between(0.02, 0.36)
    clothed = (TOPS, TROUSERS, SKIN, HAIR)
    top, legs, skin, hair = (Look(label, Material.PLAIN, chance.pick(colours)) for colours in clothed)
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
    """Add a person on a saddle at a height of 0.95 m, with the hands at a bar in front."""
    label = TRAIN_IDS["rider"]
    top, legs, skin = (Look(label, Material.PLAIN, chance.pick(colours)) for colours in (TOPS, TROUSERS, SKIN))
    material, colours = (Material.PAINT, TOPS) if helmet or chance.hit(0.5) else (Material.PLAIN, HAIR)
    cap = Look(label, material, chance.pick(colours))
    neck = (0.0, 0.98 + 0.56 * math.cos(lean), -0.25 + 0.9 * math.sin(lean) + 0.1)
    parts.tube((0.0, 0.98, -0.25), neck, 0.155, top)
    for side in (-1, 1):
        knee, foot = (side * 0.13, 0.72 + 0.12 * side, 0.12), (side * 0.12, 0.32 + 0.12 * side, -0.04)
        parts.tube((side * 0.09, 0.95, -0.24), knee, 0.08, legs)
        parts.tube(knee, foot, 0.06, legs)
        parts.tube((side * 0.19, neck[1] - 0.06, neck[2]), (side * 0.24, 1.06, 0.32), 0.05, top)
    head = (0.0, neck[1] + 0.19, neck[2] + 0.06)
    size = 0.13 if helmet else 0.105
    parts.ellipsoid(head, (0.10, 0.13, 0.115), skin)
    parts.ellipsoid((0.0, head[1] + 0.045, head[2] - 0.02), (size, size, size + 0.02), cap)


def wheels(parts: Parts, label: int, radius: float, half_width: float, along: tuple[float, ...]) -> None:
    """A pair of wheels at each point along z."""
    look = Look(label, Material.WHEEL, TYRE)
    for z in along:
        for side in (-1, 1):
            parts.disc((side * (half_width - 0.1), radius, z), radius, 0.24, look)


def car(parts: Parts, chance: Chance, novel: float = 0.0) -> None:
    """Add a saloon, an estate, a hatchback, an off-roader or a small van.

    novel: with a chance of a load on the roof.
    """
    label = TRAIN_IDS["car"]
    kind = chance.pick(("saloon", "saloon", "estate", "hatchback", "off-roader", "van"))
    paint = chance.pick(PAINTS if chance.hit(0.95 - 0.2 * novel) else BRIGHT_PAINTS)
    length, width = chance.between(4.2, 4.8), chance.between(1.7, 1.85)
    belt, roof, radius = chance.between(0.82, 0.92), chance.between(1.40, 1.50), 0.32
    back, front, front_slope, rear_slope = {
        "saloon": (0.14, 0.30, 0.45, 0.42),
        "estate": (0.02, 0.30, 0.36, 0.12),
        "hatchback": (0.02, 0.27, 0.42, 0.24),
        "off-roader": (0.02, 0.28, 0.28, 0.08),
        "van": (0.00, 0.16, 0.30, 0.03),
    }[kind]
    if kind in ("off-roader", "van"):
        belt, roof, radius = belt + 0.14, roof + (0.28 if kind == "off-roader" else 0.45), 0.36
    length -= 0.5 if kind == "hatchback" else 0.0
    half, wide = length / 2, width / 2
    body = Look(label, Material.CAR_BODY, paint, (chance(),))
    low, sill = 0.22, 0.50
    lower = Look(label, Material.CAR_BODY, paint, (0.0, 0.0, 1.0))
    parts.box((0, (low + sill) / 2, 0), (wide, (sill - low) / 2, half), lower)
    parts.box((0, (sill + belt) / 2, 0), (wide, (belt - sill) / 2, half), body, (0.05, 0.10, 0.05))
    start, end = -half + back * length + 0.04, half - front * length
    cabin = Look(label, Material.CAR_CABIN, paint, (chance(),))
    taper = (0.17, 2 * front_slope * 0.9, 2 * rear_slope * 0.9) if kind != "van" else (0.08, 0.5, 0.05)
    middle, half_height = (start + end) / 2, (roof - belt) / 2
    parts.box((0, (belt + roof) / 2, middle), (wide * 0.95, half_height, (end - start) / 2), cabin, taper)
    wheels(parts, label, radius, wide, (half - 0.85, -half + 0.8))
    mirror = Look(label, Material.PLAIN, paint)
    for side in (-1, 1) if parts.is_near else ():
        parts.box((side * (wide + 0.08), belt + 0.08, end - 0.35), (0.10, 0.07, 0.05), mirror)
    if chance() < 0.2 * novel:
        load = Look(label, Material.PLAIN, DARK)
        parts.box((0, roof + 0.2, middle - 0.1), (0.4, 0.17, 0.8), load, (0.3, 0.3, 0.3))


def lorry(parts: Parts, chance: Chance, novel: float = 0.0) -> None:
    """A lorry with a box; novel: with a tank, or an open bed."""
    label = TRAIN_IDS["truck"]
    paint, cargo = chance.pick(LORRY_PAINTS), chance.pick(LORRY_PAINTS)
    length, height, wide = chance.between(6.5, 9.5), chance.between(3.0, 3.7), 1.22
    half, bed = length / 2, (length - 2.1) / 2
    cab = Look(label, Material.COACH, paint, (0.52, 0.92, 1.9, 0.2))
    parts.box((0, 0.75 + 1.0, half - 0.95), (wide, 1.15, 0.95), cab, (0.05, 0.22, 0.0))
    parts.box((0, 0.55, half - 0.9), (wide, 0.3, 0.95), Look(label, Material.CAR_BODY, DARK, (chance(),)))
    parts.box((0, 0.75, -0.4), (0.45, 0.15, half - 0.6), Look(label, Material.PLAIN, DARK))
    rear, kind = -half + bed, chance()
    if kind < 0.4 * novel:  # a tank
        tank = Look(label, Material.PAINT, (0.7, 0.71, 0.72))
        parts.ellipsoid((0, 2.0, rear), (1.2, 1.1, bed), tank)
        parts.box((0, 1.0, rear), (1.1, 0.12, bed), Look(label, Material.PLAIN, STEEL))
    elif kind < 0.75 * novel:  # an open bed with a load
        side = Look(label, Material.PLANKS, (0.35, 0.25, 0.15), (0.3,))
        parts.box((0, 1.3, rear), (wide, 0.4, bed), side)
        load = Look(label, Material.PLAIN, (0.45, 0.35, 0.2))
        parts.box((0, 2.0, rear), (wide * 0.8, 0.45, (length - 2.8) / 2), load, (0.3, 0.3, 0.3))
    else:
        box = Look(label, Material.COACH, cargo, (2.0, 2.0, 1.0, 0.8))
        parts.box((0, (0.95 + height) / 2, rear), (wide + 0.03, (height - 0.95) / 2, bed), box)
    parts.box((0, 0.62, -half + 0.05), (wide, 0.12, 0.05), Look(label, Material.CAR_BODY, DARK, (chance(), 1.0)))
    wheels(parts, label, 0.5, wide, (half - 1.2, -half + 1.1, -half + 2.2))


def bus(parts: Parts, chance: Chance, novel: float = 0.0) -> None:
    """A bus; novel: with two decks."""
    label = TRAIN_IDS["bus"]
    paint = chance.pick(BUS_PAINTS)
    half, wide, double = chance.between(5.0, 6.2), 1.26, chance() < 0.6 * novel
    low, top = 0.35, 3.1
    look = Look(label, Material.COACH, paint, (0.40, 0.86, 1.45, 0.5))
    parts.box((0, (low + top) / 2, 0), (wide, (top - low) / 2, half), look, (0.04, 0.03, 0.0))
    if double:
        deck = Look(label, Material.COACH, paint, (0.2, 0.8, 1.45, 0.5))
        parts.box((0, top + 0.6, 0), (wide * 0.98, 0.65, half * 0.99), deck)
    for z, is_rear in ((half + 0.01 - 0.04, 0.0), (-half - 0.01 + 0.04, 1.0)):
        lights = Look(label, Material.CAR_BODY, DARK, (chance(), is_rear))
        parts.box((0, 0.62, z), (wide, 0.2, 0.05), lights)
    wheels(parts, label, 0.48, wide, (half - 2.4, -half + 2.8))


def train(parts: Parts, chance: Chance, novel: float = 0.0) -> None:
    """Two or three coaches of a tram; novel: with narrow ends."""
    label = TRAIN_IDS["train"]
    paint = chance.pick(((0.5, 0.04, 0.05), (0.7, 0.7, 0.7), (0.10, 0.3, 0.15)))
    length, taper = chance.between(7.0, 9.0), 0.35 * novel
    coaches = chance.number(2, 3)
    for number in range(coaches):
        z = (number - (coaches - 1) / 2) * (length * 2 + 0.5)
        look = Look(label, Material.COACH, paint, (0.45, 0.84, 1.7, 0.5))
        front, rear = taper * (number == coaches - 1), taper * (number == 0)
        parts.box((0, 2.0, z), (1.35, 1.55, length), look, (0.05, front * 0.3, rear * 0.3))
        parts.box((0, 0.35, z), (1.1, 0.25, length - 0.8), Look(label, Material.PLAIN, DARK))


def bicycle(parts: Parts, chance: Chance, ridden: bool, novel: float = 0.0) -> None:
    """A bicycle with its frame of tubes; novel: with a box for loads in front."""
    label = TRAIN_IDS["bicycle"]
    colours = ((0.5, 0.05, 0.05), (0.03, 0.1, 0.4), (0.02, 0.02, 0.02), (0.05, 0.3, 0.1))
    frame = Look(label, Material.PLAIN, chance.pick(colours))
    tyre = Look(label, Material.PLAIN, TYRE)
    radius, base = 0.35, 0.54
    for z in (-base, base):
        parts.ring((0, radius, z), radius, 0.055, tyre)
        if parts.is_near:
            parts.disc((0, radius, z), 0.05, 0.1, tyre)
    pedals, saddle, head = (0, 0.30, -0.08), (0, 0.88, -0.24), (0, 0.86, 0.38)
    for start, end in (((0, radius, -base), pedals), (pedals, saddle), (saddle, head), (head, pedals),
                       ((0, radius, -base), saddle), (head, (0, radius, base)), (head, (0, 1.02, 0.34))):  # fmt: skip
        parts.tube(start, end, 0.025, frame)
    parts.box((0, 0.95, -0.26), (0.07, 0.035, 0.13), tyre, (0.0, 0.5, 0.0))
    parts.tube((-0.28, 1.02, 0.30), (0.28, 1.02, 0.30), 0.02, tyre)
    if chance() < 0.5 * novel:
        parts.box((0, 0.62, 0.85), (0.3, 0.28, 0.4), Look(label, Material.PLANKS, (0.4, 0.3, 0.15)))
    if ridden:
        cyclist(parts, chance, lean=0.22)


def motorcycle(parts: Parts, chance: Chance, ridden: bool, novel: float = 0.0) -> None:
    """A motorcycle; novel: a scooter with a shield."""
    label = TRAIN_IDS["motorcycle"]
    colours = ((0.5, 0.03, 0.03), (0.03, 0.03, 0.04), (0.05, 0.12, 0.45), (0.6, 0.6, 0.1))
    paint = Look(label, Material.PAINT, chance.pick(colours))
    dark = Look(label, Material.PLAIN, DARK)
    radius, base = 0.31, 0.70
    for z in (-base, base):
        parts.disc((0, radius, z), radius, 0.14, Look(label, Material.WHEEL, TYRE))
    parts.box((0, 0.48, 0.0), (0.16, 0.20, 0.42), Look(label, Material.PLAIN, STEEL))
    parts.box((0, 0.78, 0.18), (0.17, 0.14, 0.32), paint, (0.3, 0.4, 0.2))
    parts.box((0, 0.80, -0.42), (0.14, 0.07, 0.38), dark, (0.1, 0.1, 0.4))
    parts.tube((0, radius, base), (0, 0.98, 0.48), 0.05, dark)
    parts.tube((-0.36, 1.02, 0.42), (0.36, 1.02, 0.42), 0.025, dark)
    parts.box((0, 0.86, 0.60), (0.11, 0.10, 0.06), Look(label, Material.LAMP, (0.8, 0.8, 0.7)))
    parts.box((0, 0.74, -0.84), (0.09, 0.05, 0.03), Look(label, Material.LAMP, (0.7, 0.02, 0.02)))
    if chance() < 0.6 * novel:
        parts.box((0, 0.72, 0.55), (0.24, 0.38, 0.05), paint, (0.2, 0.0, 0.0))
    if ridden:
        cyclist(parts, chance, lean=0.30, helmet=True)
