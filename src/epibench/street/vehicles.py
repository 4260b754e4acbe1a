"""Cars, lorries, buses, trams and two-wheelers, each built around the place where it stands, facing z."""

from __future__ import annotations

from epibench.data.cityscapes_classes import TRAIN_IDS
from epibench.street.arrays import Chance, Colour
from epibench.street.parts import Look, Material, Parts
from epibench.street.people import cyclist

PAINTS: tuple[Colour, ...] = (
    (0.60, 0.60, 0.60), (0.75, 0.76, 0.78), (0.30, 0.31, 0.33), (0.04, 0.04, 0.05), (0.09, 0.10, 0.12),
    (0.35, 0.03, 0.03), (0.04, 0.09, 0.28), (0.10, 0.20, 0.35), (0.30, 0.27, 0.22), (0.06, 0.16, 0.10),
)  # fmt: skip
BRIGHT_PAINTS: tuple[Colour, ...] = ((0.7, 0.45, 0.02), (0.05, 0.35, 0.45), (0.6, 0.15, 0.02), (0.35, 0.5, 0.08))
TYRE, DARK, STEEL = (0.02, 0.02, 0.02), (0.03, 0.03, 0.035), (0.25, 0.25, 0.26)
LORRY_PAINTS: tuple[Colour, ...] = ((0.7, 0.7, 0.68), (0.45, 0.05, 0.04), (0.06, 0.15, 0.4), (0.5, 0.4, 0.1))
BUS_PAINTS: tuple[Colour, ...] = ((0.65, 0.45, 0.05), (0.5, 0.05, 0.05), (0.7, 0.7, 0.65), (0.08, 0.25, 0.4))


def wheels(parts: Parts, label: int, radius: float, half_width: float, places: tuple[float, ...]) -> None:
    """A pair of wheels at each of the places along z."""
    look = Look(label, Material.WHEEL, TYRE)
    for z in places:
        for side in (-1, 1):
            parts.disc((side * (half_width - 0.1), radius, z), radius, 0.24, look)


def car(parts: Parts, chance: Chance, novel: float = 0.0) -> None:
    """A saloon, an estate, a hatchback, an off-roader or a small van; novel: with a chance of a load on the roof."""
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
    if kind == "hatchback":
        length -= 0.5
    half, wide = length / 2, width / 2
    body = Look(label, Material.CAR_BODY, paint, (chance(), 0.0, 0.0, 0.0))
    low, sill = 0.22, 0.50
    lower = Look(label, Material.CAR_BODY, paint, (0.0, 0.0, 1.0, 0.0))
    parts.box((0, (low + sill) / 2, 0), (wide, (sill - low) / 2, half), lower)
    parts.box((0, (sill + belt) / 2, 0), (wide, (belt - sill) / 2, half), body, (0.05, 0.10, 0.05))
    start, end = -half + back * length + 0.04, half - front * length
    cabin = Look(label, Material.CAR_CABIN, paint, (chance(), 0.0, 0.0, 0.0))
    parts.box(
        (0, (belt + roof) / 2, (start + end) / 2),
        (wide * 0.95, (roof - belt) / 2, (end - start) / 2),
        cabin,
        (0.17, 2 * front_slope * 0.9, 2 * rear_slope * 0.9) if kind != "van" else (0.08, 0.5, 0.05),
    )
    wheels(parts, label, radius, wide, (half - 0.85, -half + 0.8))
    mirror = Look(label, Material.PLAIN, paint)
    for side in (-1, 1) if parts.is_near else ():
        parts.box((side * (wide + 0.08), belt + 0.08, end - 0.35), (0.10, 0.07, 0.05), mirror)
    if chance() < 0.2 * novel:
        parts.box(
            (0, roof + 0.2, (start + end) / 2 - 0.1),
            (0.4, 0.17, 0.8),
            Look(label, Material.PLAIN, DARK),
            (0.3, 0.3, 0.3),
        )


def lorry(parts: Parts, chance: Chance, novel: float = 0.0) -> None:
    """A lorry with a box; novel: with a tank, or an open bed."""
    label = TRAIN_IDS["truck"]
    paint, cargo = chance.pick(LORRY_PAINTS), chance.pick(LORRY_PAINTS)
    length, height, wide = chance.between(6.5, 9.5), chance.between(3.0, 3.7), 1.22
    half = length / 2
    cab = Look(label, Material.COACH, paint, (0.52, 0.92, 1.9, 0.2))
    parts.box((0, 0.75 + 1.0, half - 0.95), (wide, 1.15, 0.95), cab, (0.05, 0.22, 0.0))
    parts.box((0, 0.55, half - 0.9), (wide, 0.3, 0.95), Look(label, Material.CAR_BODY, DARK, (chance(), 0.0, 0.0, 0.0)))
    parts.box((0, 0.75, -0.4), (0.45, 0.15, half - 0.6), Look(label, Material.PLAIN, DARK))
    rear = -half + (length - 2.1) / 2
    kind = chance()
    if kind < 0.4 * novel:  # a tank
        tank = Look(label, Material.PAINT, (0.7, 0.71, 0.72))
        parts.ellipsoid((0, 2.0, rear), (1.2, 1.1, (length - 2.1) / 2), tank)
        parts.box((0, 1.0, rear), (1.1, 0.12, (length - 2.1) / 2), Look(label, Material.PLAIN, STEEL))
    elif kind < 0.75 * novel:  # an open bed with a load
        side = Look(label, Material.PLANKS, (0.35, 0.25, 0.15), (0.3, 0.0, 0.0, 0.0))
        parts.box((0, 1.3, rear), (wide, 0.4, (length - 2.1) / 2), side)
        load = Look(label, Material.PLAIN, (0.45, 0.35, 0.2))
        parts.box((0, 2.0, rear), (wide * 0.8, 0.45, (length - 2.8) / 2), load, (0.3, 0.3, 0.3))
    else:
        box = Look(label, Material.COACH, cargo, (2.0, 2.0, 1.0, 0.8))
        parts.box((0, (0.95 + height) / 2, rear), (wide + 0.03, (height - 0.95) / 2, (length - 2.1) / 2), box)
    parts.box(
        (0, 0.62, -half + 0.05), (wide, 0.12, 0.05), Look(label, Material.CAR_BODY, DARK, (chance(), 1.0, 0.0, 0.0))
    )
    wheels(parts, label, 0.5, wide, (half - 1.2, -half + 1.1, -half + 2.2))


def bus(parts: Parts, chance: Chance, novel: float = 0.0) -> None:
    """A bus; novel: with two decks."""
    label = TRAIN_IDS["bus"]
    paint = chance.pick(BUS_PAINTS)
    half, wide, double = chance.between(5.0, 6.2), 1.26, chance() < 0.6 * novel
    top = 3.1
    look = Look(label, Material.COACH, paint, (0.40, 0.86, 1.45, 0.5))
    parts.box((0, (0.35 + top) / 2, 0), (wide, (top - 0.35) / 2, half), look, (0.04, 0.03, 0.0))
    if double:
        parts.box(
            (0, top + 0.6, 0),
            (wide * 0.98, 0.65, half * 0.99),
            Look(label, Material.COACH, paint, (0.2, 0.8, 1.45, 0.5)),
        )
    for z in (half + 0.01, -half - 0.01):
        lights = Look(label, Material.CAR_BODY, DARK, (chance(), 0.0 if z > 0 else 1.0, 0.0, 0.0))
        parts.box((0, 0.62, z - (0.04 if z > 0 else -0.04)), (wide, 0.2, 0.05), lights)
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
        ends = (0.05, taper if number == coaches - 1 else 0.0, taper if number == 0 else 0.0)
        parts.box((0, 2.0, z), (1.35, 1.55, length), look, (ends[0], ends[1] * 0.3, ends[2] * 0.3))
        parts.box((0, 0.35, z), (1.1, 0.25, length - 0.8), Look(label, Material.PLAIN, DARK))


def bicycle(parts: Parts, chance: Chance, ridden: bool, novel: float = 0.0) -> None:
    """A bicycle with its frame of tubes; novel: with a box for loads in front."""
    label = TRAIN_IDS["bicycle"]
    frame = Look(
        label, Material.PLAIN, chance.pick(((0.5, 0.05, 0.05), (0.03, 0.1, 0.4), (0.02, 0.02, 0.02), (0.05, 0.3, 0.1)))
    )
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
    paint = Look(
        label, Material.PAINT, chance.pick(((0.5, 0.03, 0.03), (0.03, 0.03, 0.04), (0.05, 0.12, 0.45), (0.6, 0.6, 0.1)))
    )
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
