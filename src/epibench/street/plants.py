"""Trees, bushes and hedges; their outlines are ragged, and label and depth follow them."""

from __future__ import annotations

import math

from epibench.data.cityscapes_classes import TRAIN_IDS
from epibench.street.arrays import Chance, Colour
from epibench.street.parts import Look, Material, Parts

GREENS: tuple[Colour, ...] = ((0.06, 0.14, 0.03), (0.09, 0.18, 0.04), (0.05, 0.11, 0.035), (0.12, 0.17, 0.04))
AUTUMN: tuple[Colour, ...] = ((0.30, 0.16, 0.03), (0.28, 0.09, 0.03), (0.26, 0.22, 0.05))
BARK = (0.09, 0.065, 0.045)


def _leaves(chance: Chance, novel: float) -> Look:
    colour = chance.pick(AUTUMN if chance() < 0.35 * novel else GREENS)
    return Look(TRAIN_IDS["vegetation"], Material.FOLIAGE, colour, (chance(), 0.0, 0.0, 0.0))


def tree(parts: Parts, chance: Chance, scale: float = 1.0, novel: float = 0.0, clumps: int = 7) -> None:
    """A broad-leaved tree with so many clumps of leaves; novel: a conifer, or a tree without leaves."""
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
    look = Look(TRAIN_IDS["vegetation"], Material.FOLIAGE, (0.03, 0.08, 0.035), (chance(), 0.0, 0.0, 0.0))
    for tier in range(4):
        low, size = 0.8 + (height - 1.0) * 0.2 * tier, 1 - 0.2 * tier
        half = height * 0.17
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
            tip = (end[0] + fork[0], end[1] + fork[1], end[2] + fork[2])
            parts.tube(end, tip, 0.025 * scale, bark)


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
        centre = (
            (clump + 0.5 + chance.between(-0.3, 0.3)) / number * width - width / 2,
            size * 0.75,
            chance.between(-3, 3),
        )
        parts.ellipsoid(centre, (size, size, size), leaves, 0.7)
