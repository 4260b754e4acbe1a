"""What stands on pavements: poles, lamps, signs, traffic lights, and things without a class."""

from __future__ import annotations

from epibench.data.cityscapes_classes import TRAIN_IDS
from epibench.data.classes import IGNORE
from epibench.street.arrays import Chance
from epibench.street.parts import Look, Material, Parts

GREY, GREEN = (0.22, 0.22, 0.23), (0.04, 0.07, 0.05)
SIGN_KINDS = 6  # see materials.py


def pole(parts: Parts, chance: Chance, height: float, radius: float = 0.07) -> None:
    """A bare pole."""
    colour = chance.pick((GREY, GREEN, (0.12, 0.12, 0.12)))
    look = Look(TRAIN_IDS["pole"], Material.PLAIN, colour)
    parts.pillar((0, height / 2, 0), (radius, height / 2, radius), look, 0.3)


def lamp(parts: Parts, chance: Chance, towards: float) -> tuple[float, float]:
    """A street lamp with an arm along x, towards the road; returns the reach and the height of its light."""
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
        board = Look(TRAIN_IDS["traffic sign"], Material.SIGN, (0.04, 0.12, 0.45), (5.0, chance(), 0.0, 0.0))
        parts.box((0, 2.8, 0), (1.7, 0.8, 0.04), board)
        return
    height, kind = chance.between(2.2, 2.8), chance.number(0, SIGN_KINDS - 2)
    pole(parts, chance, height + 0.3, 0.045)
    look = Look(TRAIN_IDS["traffic sign"], Material.SIGN, (0.6, 0.6, 0.6), (float(kind), chance(), 0.0, 0.0))
    if kind in (0, 1):  # prohibitions and orders are round
        parts.disc((0, height, -0.07), 0.36, 0.04, look, facing="z")
    elif kind == 2:  # a warning is a triangle: a box that tapers to nothing
        parts.box((0, height, -0.07), (0.42, 0.37, 0.02), look, (1.0, 0.0, 0.0))
    else:
        parts.box((0, height, -0.07), (0.34, 0.34 if kind == 3 else 0.22, 0.02), look)
    if chance.hit(0.25):
        parts.box(
            (0, height - 0.55, -0.06),
            (0.32, 0.13, 0.015),
            Look(TRAIN_IDS["traffic sign"], Material.SIGN, (0.6, 0.6, 0.6), (4.0, 0.3, 0.0, 0.0)),
        )


def traffic_light(parts: Parts, chance: Chance, arm: float, state: int) -> None:
    """A traffic light facing −z; arm: how far a second one hangs over the road, if not 0; state: 0 red … 2 green."""
    label = TRAIN_IDS["traffic light"]
    look = Look(label, Material.SIGNALS, (0.03, 0.035, 0.03), (float(state), 0.0, 0.0, 0.0))
    tall = 5.2 if arm else 2.6
    post = Look(TRAIN_IDS["pole"], Material.PLAIN, GREY)
    parts.pillar((0, tall / 2, 0), (0.08, tall / 2, 0.08), post, 0.2)
    parts.box((0, 2.75, -0.2), (0.17, 0.48, 0.13), look)
    if arm:
        parts.tube((0, tall - 0.05, 0), (arm, tall + 0.1, 0), 0.06, post)
        parts.box((arm, tall - 0.1, -0.16), (0.17, 0.48, 0.13), look)


def bin_or_cone(parts: Parts, chance: Chance) -> None:
    """A thing that has no class in Cityscapes' 19: a bin, or a cone of a building site."""
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
