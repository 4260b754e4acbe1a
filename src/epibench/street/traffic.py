"""What drives, and what is parked: one vehicle after another in each lane."""

from __future__ import annotations

import math
from dataclasses import dataclass

from epibench.street import vehicles
from epibench.street.arrays import Chance
from epibench.street.ground import Ground
from epibench.street.parts import Parts

REACH = 90.0


@dataclass(frozen=True)
class Lanes:
    """The lanes of a road: width, number per direction, width of parking lanes, side one drives on, traffic."""

    ground: Ground
    width: float
    number: int
    parking: float
    side: int
    traffic: float

    def place(self, parts: Parts, along: float, offset: float, turn: float) -> Parts:
        """Begin a vehicle there; turn 0 faces along the road."""
        x, z, angle = self.ground.point(along, offset)
        return parts.at(x, z, angle + turn)


def fill_lanes(parts: Parts, lanes: Lanes, chance: Chance, novel: float) -> None:
    """Traffic in both directions, two-wheelers at the edge, parked cars, rarely a train in the street."""
    along = chance.between(24, 55)
    has_train = chance.hit(0.08 + 0.04 * novel) and abs(along - lanes.ground.crossing) > 40
    for direction in (1, -1):
        # A train takes the outermost lane of those who come towards the camera.
        free = lanes.number - (1 if has_train and direction < 0 else 0)
        for lane in range(1, free + 1):
            offset = direction * lanes.side * lanes.width * (lane - 0.5)
            fill_lane(parts, lanes, chance, offset, direction, novel)
        if free == lanes.number:
            add_two_wheelers(parts, lanes, chance, direction, novel)
    if lanes.parking:
        for side in (-1, 1):
            park_cars(parts, lanes, chance, side, novel)
    if has_train:
        spot = lanes.place(parts, along, -lanes.side * lanes.width * (lanes.number - 0.5), 0.0)
        vehicles.train(spot, chance, novel)


def fill_lane(parts: Parts, lanes: Lanes, chance: Chance, offset: float, direction: int, novel: float) -> None:
    """Vehicles one after another, with gaps that traffic makes shorter."""
    along = chance.between(9, 22) / min(lanes.traffic + 0.2, 1.5) + 2
    while along < REACH:
        kind, turn = chance(), chance.between(-0.03, 0.03) + (0.0 if direction > 0 else math.pi)
        length = 4.8 if kind < 0.86 else 12.0
        spot = lanes.place(parts, along + length / 2, offset + chance.between(-0.25, 0.25), turn)
        if kind < 0.86:
            vehicles.car(spot, chance, novel)
        elif kind < 0.94:
            vehicles.lorry(spot, chance, novel)
        else:
            vehicles.bus(spot, chance, novel)
        along += length + chance.between(5, 30) / lanes.traffic


def add_two_wheelers(parts: Parts, lanes: Lanes, chance: Chance, direction: int, novel: float) -> None:
    """Up to two bicycles or motorcycles with riders, at the edge of the outermost lane."""
    for _ in range(chance.number(1, 2) if chance.hit(min(0.8 * lanes.traffic, 0.9)) else 0):
        offset = direction * lanes.side * (lanes.width * lanes.number - 0.45)
        along, turn = 6 + 28 * chance() ** 1.4, chance.between(-0.12, 0.12) + (0.0 if direction > 0 else math.pi)
        two_wheeler = vehicles.bicycle if chance.hit(0.62) else vehicles.motorcycle
        two_wheeler(lanes.place(parts, along, offset, turn), chance, True, novel)


def park_cars(parts: Parts, lanes: Lanes, chance: Chance, side: int, novel: float) -> None:
    """Cars one behind the other at the kerb, as people drive on that side."""
    ground = lanes.ground
    offset = side * (lanes.width * lanes.number + lanes.parking / 2 + 0.1)
    turn = 0.0 if side == lanes.side else math.pi
    along, full = chance.between(3.5, 9), chance.between(0.35, 0.85)
    while along < 80:
        if chance.hit(full) and abs(along - ground.crossing) > ground.crossing_half_width + 8:
            spot = lanes.place(parts, along, offset, turn + chance.between(-0.04, 0.04))
            (vehicles.car if chance.hit(0.96) else vehicles.lorry)(spot, chance, novel)
        along += chance.between(5.6, 7.5)
