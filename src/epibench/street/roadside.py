"""What stands beside the road: houses, plants, fences, lamps, signs, people; and what closes the view far away."""

from __future__ import annotations

import math
from dataclasses import dataclass

from epibench.street import buildings, furniture, people, plants, vehicles
from epibench.street.arrays import Chance, Vector
from epibench.street.ground import Ground
from epibench.street.parts import Parts

REACH = 125.0  # how far along the road things stand
CLEAR = 2.0  # metres at a crossing that stay free


@dataclass(frozen=True)
class Roadside:
    """One side of the road. Distances from the middle: kerb, pavement's begin, pavement's end, house fronts."""

    ground: Ground
    side: int
    kerb: float
    begin: float
    end: float
    front: float
    kind: str
    houses: tuple[float, float]
    people: float
    near: bool

    def free(self, along: float, half: float = 0.0) -> bool:
        """Whether that stretch is not on the road that crosses."""
        return abs(along - self.ground.crossing) > self.ground.crossing_half_width + half + CLEAR

    def place(self, parts: Parts, along: float, offset: float, turn: float = 0.0) -> Parts:
        """Begin an object there, at the height of the pavement or of the road; turn 0 faces along the road."""
        x, z, angle = self.ground.point(along, self.side * offset)
        return parts.at(x, z, angle + turn, self.ground.kerb if offset >= self.kerb else 0.0)


def fill_roadside(parts: Parts, side: Roadside, chance: Chance, novel: float, lamps: list[Vector]) -> None:
    """Everything on one side of the road."""
    add_houses(parts, side, chance, novel)
    add_plants(parts, side, chance, novel)
    add_boundary(parts, side, chance, novel)
    add_lamps(parts, side, chance, lamps)
    add_signs(parts, side, chance, novel)
    add_people(parts, side, chance, novel)
    add_backdrop(parts, side, chance, novel)


def add_houses(parts: Parts, side: Roadside, chance: Chance, novel: float) -> None:
    """Rows of houses in town, single houses in a suburb, hardly any in the country."""
    turn = 0.0 if side.side > 0 else math.pi
    town = side.kind == "town"
    along = chance.between(-6, 3)
    height = chance.between(*side.houses)
    while along < REACH:
        width, depth = (chance.between(9, 22), 12.0) if town else (chance.between(8, 14), chance.between(8, 11))
        height = chance.between(*side.houses) if chance.hit(0.7) else height
        width, along = fit_to_crossing(side, along, width)
        middle = along + width / 2
        if side.kind != "country" or chance.hit(0.12):
            spot = side.place(parts, middle, side.front + (0.0 if town else chance.between(0, 2.5)), turn)
            buildings.house(spot, chance, width, depth, height, novel)
        gap = (0.0 if chance.hit(0.8) else chance.between(2, 6)) if town else chance.between(4, 14)
        along += width + gap


def fit_to_crossing(side: Roadside, along: float, width: float) -> tuple[float, float]:
    """Width and begin of a house that ends at the corner of the road that crosses, or begins behind it."""
    margin = side.ground.crossing_half_width + (side.end - side.kerb)
    before, behind = side.ground.crossing - margin, side.ground.crossing + margin
    if along + width <= before or along >= behind:
        return width, along
    return (before - along, along) if before - along >= 6 else (width, behind)


def add_plants(parts: Parts, side: Roadside, chance: Chance, novel: float) -> None:
    """Trees along the kerb and in gardens, bushes, a wood in the country."""
    if chance.hit({"town": 0.55, "suburb": 0.75, "country": 0.7}[side.kind]):
        along, step = chance.between(5, 14), chance.between(7, 16)
        offset = (side.kerb + 0.9) if side.kind != "country" else side.kerb + chance.between(2.5, 5)
        while along < REACH * 0.8:
            if side.free(along, 2):
                spot, clumps = side.place(parts, along, offset, chance() * 6), 8 if along < 35 else 5
                plants.tree(spot, chance, chance.between(0.75, 1.0), novel, clumps)
            along += step * chance.between(0.8, 1.4)
    for _ in range({"town": 1, "suburb": 6, "country": 7}[side.kind]):
        along = chance.between(4, 75)
        offset = side.end + chance.between(0.8, 3.0) if side.kind != "town" else side.front - 0.6
        if side.free(along, 1.5):
            plants.bush(side.place(parts, along, offset, chance() * 6), chance, chance.between(0.7, 1.2), novel)
    if side.kind != "town":
        for _ in range(7 if side.kind == "suburb" else 12):
            along, offset = chance.between(8, REACH), side.front + chance.between(8, 40)
            plants.tree(side.place(parts, along, offset, chance() * 6), chance, chance.between(0.9, 1.5), novel, 4)


def add_boundary(parts: Parts, side: Roadside, chance: Chance, novel: float) -> None:
    """Fences, walls or hedges between the pavement and what is behind it."""
    share = {"town": 0.12, "suburb": 0.8, "country": 0.35}[side.kind]
    along = chance.between(-3, 6)
    kind = chance.pick(("fence", "wall", "hedge", "fence"))
    while along < 90:
        length = chance.between(7, 16)
        if chance.hit(share) and side.free(along + length / 2, length / 2):
            offset = side.end + 0.4 if side.kind != "country" else side.end + 2.0
            offset = min(offset, side.front - 0.3)
            spot = side.place(parts, along + length / 2, offset, 0.0 if side.side > 0 else math.pi)
            if kind == "fence":
                buildings.fence(spot, chance, length, novel)
            elif kind == "wall":
                buildings.wall(spot, chance, length)
            else:
                plants.hedge(spot, chance, length)
        along += length + (1.2 if chance.hit(0.6) else 4.0)
        kind = kind if chance.hit(0.75) else chance.pick(("fence", "wall", "hedge"))


def add_lamps(parts: Parts, side: Roadside, chance: Chance, lamps: list[Vector]) -> None:
    """Street lamps and bare poles near the kerb."""
    if side.kind == "country" and chance.hit(0.6):
        return
    along, step = chance.between(7, 22), chance.between(18, 30)
    while along < 95:
        if side.free(along):
            reach, height = furniture.lamp(side.place(parts, along, side.kerb + 0.45), chance, -side.side)
            x, z, _ = side.ground.point(along, side.side * (side.kerb + 0.45) + reach)
            lamps.append((x, height, z))
        along += step
    for _ in range(chance.number(1, 4)):
        along = chance.between(6, 50)
        if side.free(along):
            furniture.pole(side.place(parts, along, side.kerb + 0.5), chance, chance.between(2.6, 7.5))


def add_signs(parts: Parts, side: Roadside, chance: Chance, novel: float) -> None:
    """Signs for those who come along, and traffic lights where a road crosses."""
    for _ in range(chance.number(1, 4)):
        along = chance.between(7, 45)
        if side.free(along):
            facing = chance.between(-0.15, 0.15) + (0.0 if side.near or chance.hit(0.5) else math.pi)
            furniture.sign(side.place(parts, along, side.kerb + 0.6, facing), chance, novel)
    if not math.isinf(side.ground.crossing) and side.kind != "country" and chance.hit(0.9):
        near = side.ground.crossing - side.ground.crossing_half_width
        arm = -side.side * (side.kerb - 1.5) if side.near and chance.hit(0.5) else 0.0
        furniture.traffic_light(side.place(parts, near - 0.8, side.kerb + 0.5), chance, arm, chance.number(0, 2))
        far = side.ground.crossing + side.ground.crossing_half_width
        furniture.traffic_light(side.place(parts, far + 0.8, side.kerb + 0.5), chance, 0.0, chance.number(0, 2))
    for _ in range(chance.number(0, 3) if chance() < novel else 0):
        along = chance.between(6, 35)
        if side.free(along):
            furniture.bin_or_cone(side.place(parts, along, side.kerb + chance.between(-0.6, 1.2)), chance)
    if side.kind == "town" and chance.hit(0.25):
        for number in range(8):
            if side.free(8 + 2.2 * number):
                furniture.bollard(side.place(parts, 8 + 2.2 * number, side.kerb + 0.3), chance)


def add_people(parts: Parts, side: Roadside, chance: Chance, novel: float) -> None:
    """People on the pavement and at the zebra; bicycles that lean at houses."""
    for _ in range(int(side.people * chance.between(2, 8) + chance())):
        along = 6 + 46 * chance() ** 1.4
        offset = chance.between(side.begin + 0.4, max(side.begin + 0.8, side.end - 0.4))
        turn = chance.pick((0.0, math.pi, math.pi / 2, -math.pi / 2)) + chance.between(-0.4, 0.4)
        if side.free(along, -CLEAR):
            people.pedestrian(side.place(parts, along, offset, turn), chance, novel)
    if not math.isinf(side.ground.crossing) and side.near and side.people > 0.1:
        near = side.ground.crossing - side.ground.crossing_half_width
        for _ in range(chance.number(0, 3)):
            offset = chance.between(-side.kerb, side.kerb)
            x, z, angle = side.ground.point(near - chance.between(1.3, 3.9), offset)
            turn = angle + math.pi / 2 * chance.pick((1, -1))
            people.pedestrian(parts.at(x, z, turn), chance, novel)
    for _ in range(chance.number(0, 4) if side.kind != "country" else 0):
        along = 5 + 27 * chance() ** 1.5
        turn = chance.pick((0.0, math.pi, math.pi / 2)) + chance.between(-0.2, 0.2)
        two_wheeler = vehicles.bicycle if chance.hit(0.7) else vehicles.motorcycle
        if side.free(along, 1):
            two_wheeler(side.place(parts, along, side.begin + chance.between(0.5, 1.2), turn), chance, False, novel)


def add_backdrop(parts: Parts, side: Roadside, chance: Chance, novel: float) -> None:
    """Houses and woods beyond, so that the street does not end in the void."""
    turn = side.ground.curvature * REACH
    for number in range(5):
        x, z, _ = side.ground.point(REACH + chance.between(8, 25), side.side * (9 + 24 * number))
        if side.kind == "town":
            buildings.house(parts.at(x, z, turn - math.pi / 2), chance, 24, 14, chance.between(8, 20), novel)
        else:
            plants.woods(parts.at(x, z, turn), chance, 30, chance.between(7, 13))
    if not math.isinf(side.ground.crossing):  # where one looks into the road that crosses
        for number, distance in enumerate((48.0, 75.0)):
            spot = side.place(
                parts, side.ground.crossing + 9 * number - 4, side.kerb + distance, 0.0 if side.side > 0 else math.pi
            )
            buildings.house(spot, chance, 34, 12, chance.between(8, 14), novel)
        for bank in (-1, 1):
            edge = side.ground.crossing + bank * (side.ground.crossing_half_width + 9.5)
            spot = side.place(parts, edge, side.front + 30, 0.0 if side.side > 0 else math.pi)
            if side.kind == "town":
                buildings.house(spot, chance, 12, 14, chance.between(*side.houses), novel)
    if side.near and chance() < 0.3 * novel:
        along = chance.between(28, 70)
        x, z, angle = side.ground.point(along, 0.0)
        buildings.bridge(parts.at(x, z, angle), chance, side.end)
    if side.kind == "country":
        plants.woods(side.place(parts, 70, side.front + 45, math.pi / 2), chance, 90, chance.between(8, 14))
