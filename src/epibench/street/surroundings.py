"""Objects beside a road: houses, walls and fences, plants, lamps, signs and traffic lights."""

from __future__ import annotations

import math

from epibench.data.cityscapes_classes import TRAIN_IDS
from epibench.data.classes import IGNORE
from epibench.street.arrays import Chance, Colour
from epibench.street.parts import Look, Material, Parts

PLASTER: tuple[Colour, ...] = (
    (0.50, 0.46, 0.38), (0.42, 0.36, 0.28), (0.55, 0.54, 0.50), (0.34, 0.30, 0.27), (0.45, 0.30, 0.20),
    (0.40, 0.42, 0.44),
)  # fmt: skip
BRICK: tuple[Colour, ...] = ((0.28, 0.11, 0.07), (0.35, 0.18, 0.11), (0.30, 0.24, 0.17))
TILES: tuple[Colour, ...] = ((0.22, 0.07, 0.04), (0.10, 0.09, 0.09), (0.16, 0.10, 0.07))
CONCRETE = (0.36, 0.35, 0.33)
GREENS: tuple[Colour, ...] = ((0.06, 0.14, 0.03), (0.09, 0.18, 0.04), (0.05, 0.11, 0.035), (0.12, 0.17, 0.04))
AUTUMN: tuple[Colour, ...] = ((0.30, 0.16, 0.03), (0.28, 0.09, 0.03), (0.26, 0.22, 0.05))
BARK = (0.09, 0.065, 0.045)
GREY, GREEN = (0.22, 0.22, 0.23), (0.04, 0.07, 0.05)
SIGN_KINDS = 6  # see materials.py


def house(parts: Parts, chance: Chance, width: float, depth: float, height: float, novel: float = 0.0) -> None:
    """A house whose front faces −x; width along z. Low ones have a gable roof; novel: towers and balconies."""
    label = TRAIN_IDS["building"]
    colour = chance.pick(BRICK if chance.hit(0.25) else PLASTER)
    floor, pitch = chance.between(2.9, 3.5), chance.between(2.0, 3.2) * (1 + 0.4 * novel * (chance() - 0.3))
    share = chance.between(0.40, 0.60) + 0.3 * novel * (chance() - 0.3)
    # A whole number of storeys: the window rows end below the roof.
    height = max(1, round(height / floor)) * floor
    style = (pitch, floor, min(share, 0.85), chance())
    front = Look(label, Material.FACADE, colour, style)
    parts.box((depth / 2, height / 2, 0), (depth / 2, height / 2, width / 2), front)
    stone = Look(label, Material.PLAIN, tuple(0.75 * part for part in colour))  # type: ignore[arg-type]
    if height < 10 and chance.hit(0.7):
        roof = Look(label, Material.ROOF, chance.pick(TILES))
        rise = depth * chance.between(0.16, 0.28)
        eaves = (depth / 2 + 0.4, rise / 2, width / 2 + 0.2)
        parts.box((depth / 2, height + rise / 2, 0), eaves, roof, (0.98, 0.0, 0.0))
        parts.box((depth * 0.4, height + rise * 0.8, width * 0.2), (0.3, rise * 0.5, 0.3), stone)
    else:
        parts.box((depth / 2, height + 0.2, 0), (depth / 2 + 0.15, 0.25, width / 2 + 0.05), stone)
    if chance() < 0.3 * novel:
        tower = Look(label, Material.FACADE, chance.pick(PLASTER), (pitch, floor, share, chance()))
        parts.pillar((depth * 0.4, height * 0.65, -width * 0.3), (3.0, height * 0.65, 3.0), tower)
        parts.pillar((depth * 0.4, height * 1.3 + 1.5, -width * 0.3), (3.3, 1.5, 3.3), stone, 0.9)
    if chance() < 0.4 * novel:
        for storey in range(1, int(height / floor)):
            parts.box((-0.6, storey * floor, 0), (0.6, 0.08, width * 0.3), stone)
            rail = Look(label, Material.PLAIN, (0.05, 0.05, 0.05))
            parts.box((-1.15, storey * floor + 0.5, 0), (0.03, 0.45, width * 0.3), rail)


def wall(parts: Parts, chance: Chance, length: float) -> None:
    """A wall along z with a coping."""
    height, colour = chance.between(1.3, 2.6), chance.pick((*BRICK, CONCRETE))
    look = Look(TRAIN_IDS["wall"], Material.MASONRY, colour, (0.25, 0.5, chance()))
    parts.box((0, height / 2, 0), (0.15, height / 2, length / 2), look)
    coping = Look(TRAIN_IDS["wall"], Material.PLAIN, (0.4, 0.39, 0.36))
    parts.box((0, height + 0.04, 0), (0.2, 0.05, length / 2), coping)


def fence(parts: Parts, chance: Chance, length: float, novel: float = 0.0) -> None:
    """A fence along z: bars between posts, or planks; novel: closed boards on a building site."""
    label = TRAIN_IDS["fence"]
    kind, height = chance(), chance.between(1.0, 1.7)
    if kind < 0.45 * novel:
        colour = chance.pick(((0.35, 0.30, 0.2), (0.12, 0.25, 0.3), (0.5, 0.48, 0.42)))
        boards = Look(label, Material.PLANKS, colour, (1.25,))
        parts.box((0, height * 0.7, 0), (0.04, height * 0.7, length / 2), boards)
        return
    wood = kind > 0.6
    look = Look(label, Material.PLAIN, (0.33, 0.25, 0.16) if wood else (0.03, 0.06, 0.04))
    parts.bars((0, height / 2, 0), (0, height / 2, length / 2), look, 0.16 if wood else 0.13, 0.62 if wood else 0.35)
    for post in range(int(length / 2.5) + 1):
        parts.box((0.02, height * 0.52, -length / 2 + post * 2.5), (0.05, height * 0.52, 0.05), look)


def bridge(parts: Parts, chance: Chance, half_span: float) -> None:
    """A bridge across the road; Cityscapes does not count bridges among its 19 classes."""
    height = chance.between(5.0, 6.2)
    look = Look(IGNORE, Material.MASONRY, CONCRETE, (1.2, 2.4, chance()))
    parts.box((0, height + 0.6, 0), (half_span + 60, 0.6, 4.0), look)
    parts.box((0, height + 1.7, -3.8), (half_span + 60, 0.5, 0.1), Look(IGNORE, Material.PLAIN, (0.2, 0.22, 0.22)))
    for distance in (1, 21, 41):
        for side in (-1, 1):
            parts.box((side * (half_span + distance), height / 2, 0), (0.6, height / 2, 3.0), look)


def _leaves(chance: Chance, novel: float) -> Look:
    colour = chance.pick(AUTUMN if chance() < 0.35 * novel else GREENS)
    return Look(TRAIN_IDS["vegetation"], Material.FOLIAGE, colour, (chance(),))


def tree(parts: Parts, chance: Chance, scale: float = 1.0, novel: float = 0.0, clumps: int = 7) -> None:
    """Add a broad-leaved tree with `clumps` clumps of leaves; novel: a conifer, or a tree without leaves."""
    kind = chance()
    if kind < 0.3 * novel:
        return conifer(parts, chance, scale)
    if kind < 0.55 * novel:
        return bare_tree(parts, chance, scale)
    trunk, height = chance.between(1.6, 2.8) * scale, chance.between(5.0, 9.0) * scale
    reach = chance.between(0.28, 0.40) * height
    bark = Look(TRAIN_IDS["vegetation"], Material.PLAIN, BARK)
    parts.pillar((0, height * 0.3, 0), (0.16 * scale, height * 0.3, 0.16 * scale), bark, 0.4)
    leaves = _leaves(chance, novel)
    middle, crown = (trunk + height) / 2, (height - trunk) / 2
    parts.ellipsoid((0, middle, 0), (reach * 0.8, crown * 0.85, reach * 0.8), leaves, 0.9)
    for clump in range(clumps):
        angle = 2 * math.pi * (clump + chance()) / clumps
        size = chance.between(0.40, 0.62) * reach
        distance, level = reach * chance.between(0.45, 0.75), middle + crown * chance.between(-0.55, 0.65)
        centre = (distance * math.cos(angle), level, distance * math.sin(angle))
        parts.ellipsoid(centre, (size, size * 0.85, size), leaves, 0.9)
    return None


def conifer(parts: Parts, chance: Chance, scale: float) -> None:
    """A conifer: cones above each other."""
    height = chance.between(6.0, 11.0) * scale
    reach = height * chance.between(0.18, 0.26)
    parts.pillar((0, 0.6, 0), (0.15, 0.6, 0.15), Look(TRAIN_IDS["vegetation"], Material.PLAIN, BARK))
    look = Look(TRAIN_IDS["vegetation"], Material.FOLIAGE, (0.03, 0.08, 0.035), (chance(),))
    for tier in range(4):
        low, size, half = 0.8 + (height - 1.0) * 0.2 * tier, 1 - 0.2 * tier, height * 0.17
        parts.pillar((0, low + half, 0), (reach * size, half, reach * size), look, 0.95)


def bare_tree(parts: Parts, chance: Chance, scale: float) -> None:
    """A tree in winter: a trunk and branches that fork."""
    bark = Look(TRAIN_IDS["vegetation"], Material.PLAIN, BARK)
    height = chance.between(5.0, 8.0) * scale
    parts.pillar((0, height * 0.3, 0), (0.15 * scale, height * 0.3, 0.15 * scale), bark, 0.5)
    for number in range(7):
        angle, rise = 2.4 * number + chance(), height * (0.32 + 0.045 * number)
        reach = height * chance.between(0.14, 0.26)
        end = (reach * math.cos(angle), rise + height * chance.between(0.18, 0.34), reach * math.sin(angle))
        parts.tube((0, rise, 0), end, 0.05 * scale, bark)
        for side in (-0.8, 0.8):
            fork = (reach * 0.6 * math.cos(angle + side), height * 0.16, reach * 0.6 * math.sin(angle + side))
            parts.tube(end, (end[0] + fork[0], end[1] + fork[1], end[2] + fork[2]), 0.025 * scale, bark)


def bush(parts: Parts, chance: Chance, scale: float = 1.0, novel: float = 0.0) -> None:
    """A bush of two to four clumps."""
    leaves = _leaves(chance, novel)
    for _ in range(chance.number(2, 4)):
        size = chance.between(0.45, 0.95) * scale
        centre = (chance.between(-0.7, 0.7) * scale, size * 0.6, chance.between(-0.9, 0.9) * scale)
        parts.ellipsoid(centre, (size, size * 0.85, size), leaves, 0.6)


def hedge(parts: Parts, chance: Chance, length: float) -> None:
    """A clipped hedge along z."""
    height = chance.between(0.9, 1.9)
    parts.box((0, height / 2, 0), (0.4, height / 2, length / 2), _leaves(chance, 0.0), (0.1, 0.0, 0.0))


def woods(parts: Parts, chance: Chance, width: float, height: float) -> None:
    """The edge of a wood, across z."""
    leaves = _leaves(chance, 0.0)
    number = max(2, int(width / (height * 0.7)))
    for clump in range(number):
        size = height * chance.between(0.42, 0.62)
        x = (clump + 0.5 + chance.between(-0.3, 0.3)) / number * width - width / 2
        parts.ellipsoid((x, size * 0.75, chance.between(-3, 3)), (size, size, size), leaves, 0.7)


def pole(parts: Parts, chance: Chance, height: float, radius: float = 0.07) -> None:
    """A bare pole."""
    look = Look(TRAIN_IDS["pole"], Material.PLAIN, chance.pick((GREY, GREEN, (0.12, 0.12, 0.12))))
    parts.pillar((0, height / 2, 0), (radius, height / 2, radius), look, 0.3)


def lamp(parts: Parts, chance: Chance, towards: float) -> tuple[float, float]:
    """Add a street lamp with an arm along x, towards the road.

    Returns the reach and the height of its light.
    """
    height, reach = chance.between(5.5, 8.5), chance.between(0.9, 1.9) * towards
    look = Look(TRAIN_IDS["pole"], Material.PLAIN, GREY)
    parts.pillar((0, height / 2, 0), (0.09, height / 2, 0.09), look, 0.4)
    parts.tube((0, height - 0.1, 0), (reach, height + 0.15, 0), 0.045, look)
    head = Look(TRAIN_IDS["pole"], Material.LAMP, (0.75, 0.68, 0.5))
    parts.box((reach, height + 0.12, 0), (0.35, 0.07, 0.14), head, (0.2, 0.2, 0.2))
    return reach, height


def sign(parts: Parts, chance: Chance, novel: float = 0.0) -> None:
    """A traffic sign on a pole, facing −z; novel: a large board on two poles."""
    if chance() < 0.1 * novel:
        for side in (-1.2, 1.2):
            parts.tube((side, 0, 0.08), (side, 3.6, 0.08), 0.07, Look(TRAIN_IDS["pole"], Material.PLAIN, GREY))
        board = Look(TRAIN_IDS["traffic sign"], Material.SIGN, (0.04, 0.12, 0.45), (5.0, chance()))
        parts.box((0, 2.8, 0), (1.7, 0.8, 0.04), board)
        return
    height, kind = chance.between(2.2, 2.8), chance.number(0, SIGN_KINDS - 2)
    pole(parts, chance, height + 0.3, 0.045)
    look = Look(TRAIN_IDS["traffic sign"], Material.SIGN, (0.6, 0.6, 0.6), (float(kind), chance()))
    if kind in (0, 1):  # prohibitions and orders are round
        parts.disc((0, height, -0.07), 0.36, 0.04, look, facing="z")
    elif kind == 2:  # a warning is a triangle: a box that tapers to nothing
        parts.box((0, height, -0.07), (0.42, 0.37, 0.02), look, (1.0, 0.0, 0.0))
    else:
        parts.box((0, height, -0.07), (0.34, 0.34 if kind == 3 else 0.22, 0.02), look)
    if chance.hit(0.25):
        plate = Look(TRAIN_IDS["traffic sign"], Material.SIGN, (0.6, 0.6, 0.6), (4.0, 0.3))
        parts.box((0, height - 0.55, -0.06), (0.32, 0.13, 0.015), plate)


def traffic_light(parts: Parts, chance: Chance, arm: float, state: int) -> None:
    """Add a traffic light facing −z.

    arm: overhang of a second one, 0 for none; state: 0 red … 2 green.
    """
    look = Look(TRAIN_IDS["traffic light"], Material.SIGNALS, (0.03, 0.035, 0.03), (float(state),))
    tall, post = 5.2 if arm else 2.6, Look(TRAIN_IDS["pole"], Material.PLAIN, GREY)
    parts.pillar((0, tall / 2, 0), (0.08, tall / 2, 0.08), post, 0.2)
    parts.box((0, 2.75, -0.2), (0.17, 0.48, 0.13), look)
    if arm:
        parts.tube((0, tall - 0.05, 0), (arm, tall + 0.1, 0), 0.06, post)
        parts.box((arm, tall - 0.1, -0.16), (0.17, 0.48, 0.13), look)


def bin_or_cone(parts: Parts, chance: Chance) -> None:
    """Add an object without a class in Cityscapes' 19: a bin, or a cone of a building site."""
    if chance.hit(0.5):
        colour = chance.pick(((0.05, 0.15, 0.07), (0.05, 0.08, 0.2), (0.08, 0.08, 0.08)))
        parts.box((0, 0.5, 0), (0.3, 0.5, 0.3), Look(IGNORE, Material.PLAIN, colour))
        return
    parts.pillar((0, 0.38, 0), (0.19, 0.38, 0.19), Look(IGNORE, Material.PLAIN, (0.6, 0.12, 0.02)), 0.85)
    parts.pillar((0, 0.42, 0), (0.13, 0.07, 0.13), Look(IGNORE, Material.PLAIN, (0.7, 0.7, 0.7)), 0.35)


def bollard(parts: Parts, chance: Chance) -> None:
    """A low post at the kerb."""
    look = Look(TRAIN_IDS["pole"], Material.PLAIN, (0.03, 0.03, 0.03))
    parts.pillar((0, 0.45, 0), (0.07, 0.45, 0.07), look)
    parts.pillar((0, 0.8, 0), (0.075, 0.05, 0.075), Look(TRAIN_IDS["pole"], Material.PLAIN, (0.65, 0.65, 0.65)))
