"""Houses, walls, fences, and the bridge that only wild has."""

from __future__ import annotations

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


def house(parts: Parts, chance: Chance, width: float, depth: float, height: float, novel: float = 0.0) -> None:
    """A house whose front faces −x; width along z. Low ones have a gable roof; novel: towers and balconies."""
    label = TRAIN_IDS["building"]
    colour = chance.pick(BRICK if chance.hit(0.25) else PLASTER)
    floor, pitch = chance.between(2.9, 3.5), chance.between(2.0, 3.2) * (1 + 0.4 * novel * (chance() - 0.3))
    share = chance.between(0.40, 0.60) + 0.3 * novel * (chance() - 0.3)
    # A whole number of storeys: the window rows end below the roof.
    height = max(1, round(height / floor)) * floor
    style = (pitch, floor, min(share, 0.85), chance())
    parts.box(
        (depth / 2, height / 2, 0), (depth / 2, height / 2, width / 2), Look(label, Material.FACADE, colour, style)
    )
    stone = Look(label, Material.PLAIN, tuple(0.75 * part for part in colour))  # type: ignore[arg-type]
    if height < 10 and chance.hit(0.7):
        roof = Look(label, Material.ROOF, chance.pick(TILES))
        rise = depth * chance.between(0.16, 0.28)
        parts.box(
            (depth / 2, height + rise / 2, 0), (depth / 2 + 0.4, rise / 2, width / 2 + 0.2), roof, (0.98, 0.0, 0.0)
        )
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
    height = chance.between(1.3, 2.6)
    colour = chance.pick((*BRICK, CONCRETE))
    look = Look(TRAIN_IDS["wall"], Material.MASONRY, colour, (0.25, 0.5, chance(), 0.0))
    parts.box((0, height / 2, 0), (0.15, height / 2, length / 2), look)
    coping = Look(TRAIN_IDS["wall"], Material.PLAIN, (0.4, 0.39, 0.36))
    parts.box((0, height + 0.04, 0), (0.2, 0.05, length / 2), coping)


def fence(parts: Parts, chance: Chance, length: float, novel: float = 0.0) -> None:
    """A fence along z: bars between posts, or planks; novel: closed boards on a building site."""
    label = TRAIN_IDS["fence"]
    kind, height = chance(), chance.between(1.0, 1.7)
    if kind < 0.45 * novel:
        boards = Look(
            label,
            Material.PLANKS,
            chance.pick(((0.35, 0.30, 0.2), (0.12, 0.25, 0.3), (0.5, 0.48, 0.42))),
            (1.25, 0.0, 0.0, 0.0),
        )
        parts.box((0, height * 0.7, 0), (0.04, height * 0.7, length / 2), boards)
        return
    wood = kind > 0.6
    colour = (0.33, 0.25, 0.16) if wood else (0.03, 0.06, 0.04)
    look = Look(label, Material.PLAIN, colour)
    parts.bars((0, height / 2, 0), (0, height / 2, length / 2), look, 0.16 if wood else 0.13, 0.62 if wood else 0.35)
    for post in range(int(length / 2.5) + 1):
        parts.box((0.02, height * 0.52, -length / 2 + post * 2.5), (0.05, height * 0.52, 0.05), look)


def bridge(parts: Parts, chance: Chance, half_span: float) -> None:
    """A bridge across the road; Cityscapes does not count bridges among its 19 classes."""
    height = chance.between(5.0, 6.2)
    look = Look(IGNORE, Material.MASONRY, CONCRETE, (1.2, 2.4, chance(), 0.0))
    parts.box((0, height + 0.6, 0), (half_span + 60, 0.6, 4.0), look)
    parts.box((0, height + 1.7, -3.8), (half_span + 60, 0.5, 0.1), Look(IGNORE, Material.PLAIN, (0.2, 0.22, 0.22)))
    for place in (1, 21, 41):
        for side in (-1, 1):
            parts.box((side * (half_span + place), height / 2, 0), (0.6, height / 2, 3.0), look)
