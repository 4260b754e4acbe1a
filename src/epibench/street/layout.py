"""The layout of a scene: street, houses, plants, traffic, and the camera in its lane.

`Plan` holds the numbers that differ between clean and wild: at level L of the layout factor each lies between its
range in clean (L = 0) and in wild (L = 1). Everything is placed along the road, by arc length and offset.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from epibench.street import surroundings
from epibench.street.arrays import Chance, Vector, generator
from epibench.street.camera import Camera
from epibench.street.domains import Conditions
from epibench.street.parts import Material, Parts
from epibench.street.road_users import bicycle, bus, car, lorry, motorcycle, pedestrian, train
from epibench.street.scene import Ground, Markings, Scene

Range = tuple[float, float]
REACH = 125.0  # metres along the road with objects
CLEAR = 2.0  # metres at a crossing that stay free
TRAFFIC_REACH = 90.0


@dataclass(frozen=True)
class Plan:
    """The kind of street and its measures, in metres and radians."""

    kind: str
    lane: float
    lanes: int
    parking: float
    pavement: float
    verge: float
    curvature: float
    crossing: bool
    houses: Range
    setback: float
    traffic: float
    people: float
    side: int


def mixed(chance: Chance, level: float, clean: Range, wild: Range) -> float:
    """Return a number from a range between clean's range and wild's."""
    return chance.between(*(a + level * (b - a) for a, b in zip(clean, wild, strict=True)))


def draw_plan(chance: Chance, level: float, toss: float) -> Plan:
    """A street of some kind."""
    number = chance()
    kind = "town" if number < 0.55 + 0.1 * level else "suburb" if number < 0.85 - 0.08 * level else "country"
    town, country = kind == "town", kind == "country"
    bend = mixed(chance, level, (1 / 400, 1 / 150), (1 / 220, 1 / 70)) * (1 if chance.hit(0.5) else -1)
    return Plan(
        kind=kind,
        lane=mixed(chance, level, (3.3, 3.7), (2.6, 4.2)),
        lanes=2 if chance.hit(0.35 + 0.15 * level) and not country else 1,
        parking=2.2 if chance.hit(0.0 if country else 0.75) else 0.0,
        pavement=0.0 if country and chance.hit(0.8) else mixed(chance, level, (1.8, 3.4), (1.0, 6.0)),
        verge=chance.between(1.2, 2.2) if chance.hit(0.25 if town else 0.7) else 0.0,
        curvature=bend if chance.hit(0.5) else 0.0,
        crossing=chance.hit(0.1 if country else 0.45),
        houses=(9 - 4 * level, 17 + 15 * level) if town else (4.5, 8.0 + 4 * level),
        setback=mixed(chance, level, (0.0, 1.0), (0.0, 4.0)) if town else chance.between(3.5, 7.0),
        traffic=mixed(chance, level, (0.5, 1.0), (0.3, 2.0)) * (0.5 if country else 1.0),
        people=mixed(chance, level, (0.5, 1.2), (0.2, 2.0)) * (0.15 if country else 1.0 if town else 0.5),
        side=-1 if toss < 0.4 * level else 1,
    )


def make_scene(conditions: Conditions, seed: int, index: int, size: tuple[int, int]) -> Scene:
    """The scene of that number."""
    chance = Chance(generator(seed, index, "layout"))
    level = conditions["layout"]
    plan = draw_plan(chance, level, conditions.toss["layout"])
    ground = make_ground(plan, chance)
    parts, lamps = Parts(), list[Vector]()
    novel = conditions["objects"]
    for side in (-1, 1):
        fill_roadside(parts, Roadside(ground, plan, side), Chance(generator(seed, index, f"side {side}")), novel, lamps)
    fill_lanes(parts, ground, plan, Chance(generator(seed, index, "traffic")), novel)
    return Scene(
        parts=parts.table(),
        ground=ground,
        markings=make_markings(plan, ground, chance, level),
        camera=make_camera(plan, chance, level, size),
        sun=make_sun(chance, level),
        lamps=tuple(lamps),
        seed=int(chance() * 2**20),
    )


def make_ground(plan: Plan, chance: Chance) -> Ground:
    """Return the road, and beside it a verge, the pavement, and the ground behind it."""
    verge = [(plan.verge, Material.GRASS)] if plan.verge else []
    paved = plan.kind == "town" and plan.setback < 1.5
    behind = (math.inf, Material.PAVING if paved else Material.GRASS)
    return Ground(
        curvature=plan.curvature,
        half_width=plan.lane * plan.lanes + plan.parking,
        kerb=0.12 if plan.kind != "country" else 0.04,
        bands=(*verge, (plan.verge + plan.pavement, Material.PAVING), behind),
        crossing=chance.between(14.0, 45.0) if plan.crossing else math.inf,
        crossing_half_width=chance.between(3.0, 5.0),
    )


def make_markings(plan: Plan, ground: Ground, chance: Chance, level: float) -> Markings:
    """Edge lines, lines between lanes, and at a crossing a zebra and a line to stop at."""
    lines = [(0.0, 0.0 if chance.hit(0.3) else 6.0)]
    for lane in range(1, plan.lanes):
        lines += [(side * lane * plan.lane, 6.0) for side in (-1, 1)]
    if plan.parking or plan.kind == "country":
        lines += [(side * (plan.lane * plan.lanes - 0.1), 0.0) for side in (-1, 1)]
    yellow, wear = chance() < 0.5 * level, level * chance.between(0.2, 0.8)
    if math.isinf(ground.crossing):
        return Markings(tuple(lines), yellow=yellow, wear=wear)
    near = ground.crossing - ground.crossing_half_width
    zebra = (near - 4.2, near - 1.0) if chance.hit(0.7) else (math.inf, math.inf)
    return Markings(tuple(lines), zebra, near - 5.6, yellow, wear)


def make_camera(plan: Plan, chance: Chance, level: float, size: tuple[int, int]) -> Camera:
    """The camera in its lane, looking roughly along the road."""
    lane = chance.number(1, plan.lanes)
    degree = math.pi / 180
    return Camera(
        size=size,
        x=plan.side * plan.lane * (lane - 0.5) + chance.between(-0.3, 0.3),
        height=mixed(chance, level, (1.55, 1.70), (1.20, 2.30)),
        yaw=plan.curvature * 8.0 + degree * chance.between(-2.5, 2.5),  # on a bend, people look into it
        pitch=degree * mixed(chance, level, (-1.2, 0.8), (-3.0, 2.0)),
        roll=degree * mixed(chance, level, (-0.6, 0.6), (-2.0, 2.0)),
    )


def make_sun(chance: Chance, level: float) -> Vector:
    """The direction towards the sun."""
    height = math.pi / 180 * mixed(chance, level, (38, 58), (16, 68))
    azimuth = 2 * math.pi * chance()
    return math.cos(height) * math.sin(azimuth), math.sin(height), math.cos(height) * math.cos(azimuth)


class Roadside:
    """One side of the road. Distances from its middle: kerb, start and end of the pavement, house fronts.

    side: −1 or 1; near: traffic drives on this side in the camera's direction; inward: rotation of objects that face
    the road.
    """

    def __init__(self, ground: Ground, plan: Plan, side: int):
        self.ground, self.plan, self.kind, self.side = ground, plan, plan.kind, side
        self.kerb, self.begin = ground.half_width, ground.half_width + plan.verge
        self.end = ground.half_width + (plan.verge + plan.pavement)
        self.front = self.end + plan.setback
        self.near, self.inward = plan.side == side, 0.0 if side > 0 else math.pi

    def free(self, along: float, half: float = 0.0) -> bool:
        """Return whether a place is not on the crossing road."""
        return abs(along - self.ground.crossing) > self.ground.crossing_half_width + half + CLEAR

    def place(self, parts: Parts, along: float, offset: float, turn: float = 0.0) -> Parts:
        """Start an object at the height of the pavement or road; turn 0 faces along the road."""
        height = self.ground.kerb if offset >= self.kerb else 0.0
        return place(parts, self.ground, along, self.side * offset, turn, height)


def place(parts: Parts, ground: Ground, along: float, offset: float, turn: float = 0.0, height: float = 0.0) -> Parts:
    """Start an object at a place; turn 0 faces along the road."""
    x, z, angle = ground.point(along, offset)
    return parts.at(x, z, angle + turn, height)


def fill_roadside(parts: Parts, side: Roadside, chance: Chance, novel: float, lamps: list[Vector]) -> None:
    """Everything on one side of the road."""
    for add in (add_houses, add_plants, add_boundary):
        add(parts, side, chance, novel)
    add_lamps(parts, side, chance, lamps)
    for add in (add_signs, add_people, add_backdrop):
        add(parts, side, chance, novel)


def add_houses(parts: Parts, side: Roadside, chance: Chance, novel: float) -> None:
    """Rows of houses in town, single houses in a suburb, hardly any in the country."""
    town = side.kind == "town"
    along = chance.between(-6, 3)
    height = chance.between(*side.plan.houses)
    while along < REACH:
        width, depth = (chance.between(9, 22), 12.0) if town else (chance.between(8, 14), chance.between(8, 11))
        height = chance.between(*side.plan.houses) if chance.hit(0.7) else height
        width, along = fit_to_crossing(side, along, width)
        if side.kind != "country" or chance.hit(0.12):
            offset = side.front + (0.0 if town else chance.between(0, 2.5))
            spot = side.place(parts, along + width / 2, offset, side.inward)
            surroundings.house(spot, chance, width, depth, height, novel)
        gap = (0.0 if chance.hit(0.8) else chance.between(2, 6)) if town else chance.between(4, 14)
        along += width + gap


def fit_to_crossing(side: Roadside, along: float, width: float) -> tuple[float, float]:
    """Return width and start of a house beside a crossing road.

    A house in its way ends at the corner if at least 6 m remain, else it starts behind the crossing road.
    """
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
                surroundings.tree(spot, chance, chance.between(0.75, 1.0), novel, clumps)
            along += step * chance.between(0.8, 1.4)
    for _ in range({"town": 1, "suburb": 6, "country": 7}[side.kind]):
        along = chance.between(4, 75)
        offset = side.end + chance.between(0.8, 3.0) if side.kind != "town" else side.front - 0.6
        if side.free(along, 1.5):
            spot = side.place(parts, along, offset, chance() * 6)
            surroundings.bush(spot, chance, chance.between(0.7, 1.2), novel)
    if side.kind != "town":
        for _ in range(7 if side.kind == "suburb" else 12):
            along, offset = chance.between(8, REACH), side.front + chance.between(8, 40)
            spot = side.place(parts, along, offset, chance() * 6)
            surroundings.tree(spot, chance, chance.between(0.9, 1.5), novel, 4)


def add_boundary(parts: Parts, side: Roadside, chance: Chance, novel: float) -> None:
    """Add fences, walls or hedges behind the pavement."""
    share = {"town": 0.12, "suburb": 0.8, "country": 0.35}[side.kind]
    along = chance.between(-3, 6)
    kind = chance.pick(("fence", "wall", "hedge", "fence"))
    while along < 90:
        length = chance.between(7, 16)
        if chance.hit(share) and side.free(along + length / 2, length / 2):
            offset = min(side.end + (0.4 if side.kind != "country" else 2.0), side.front - 0.3)
            spot = side.place(parts, along + length / 2, offset, side.inward)
            if kind == "fence":
                surroundings.fence(spot, chance, length, novel)
            else:
                (surroundings.wall if kind == "wall" else surroundings.hedge)(spot, chance, length)
        along += length + (1.2 if chance.hit(0.6) else 4.0)
        kind = kind if chance.hit(0.75) else chance.pick(("fence", "wall", "hedge"))


def add_lamps(parts: Parts, side: Roadside, chance: Chance, lamps: list[Vector]) -> None:
    """Street lamps and bare poles near the kerb."""
    if side.kind == "country" and chance.hit(0.6):
        return
    along, step = chance.between(7, 22), chance.between(18, 30)
    while along < 95:
        if side.free(along):
            reach, height = surroundings.lamp(side.place(parts, along, side.kerb + 0.45), chance, -side.side)
            x, z, _ = side.ground.point(along, side.side * (side.kerb + 0.45) + reach)
            lamps.append((x, height, z))
        along += step
    for _ in range(chance.number(1, 4)):
        along = chance.between(6, 50)
        if side.free(along):
            surroundings.pole(side.place(parts, along, side.kerb + 0.5), chance, chance.between(2.6, 7.5))


def add_signs(parts: Parts, side: Roadside, chance: Chance, novel: float) -> None:
    """Add signs facing the traffic, and traffic lights at a crossing."""
    for _ in range(chance.number(1, 4)):
        along = chance.between(7, 45)
        if side.free(along):
            facing = chance.between(-0.15, 0.15) + (0.0 if side.near or chance.hit(0.5) else math.pi)
            surroundings.sign(side.place(parts, along, side.kerb + 0.6, facing), chance, novel)
    if not math.isinf(side.ground.crossing) and side.kind != "country" and chance.hit(0.9):
        near = side.ground.crossing - side.ground.crossing_half_width
        arm = -side.side * (side.kerb - 1.5) if side.near and chance.hit(0.5) else 0.0
        far = side.ground.crossing + side.ground.crossing_half_width
        for along, reach in ((near - 0.8, arm), (far + 0.8, 0.0)):
            spot = side.place(parts, along, side.kerb + 0.5)
            surroundings.traffic_light(spot, chance, reach, chance.number(0, 2))
    for _ in range(chance.number(0, 3) if chance() < novel else 0):
        along = chance.between(6, 35)
        if side.free(along):
            surroundings.bin_or_cone(side.place(parts, along, side.kerb + chance.between(-0.6, 1.2)), chance)
    if side.kind == "town" and chance.hit(0.25):
        for along in (8 + 2.2 * number for number in range(8)):
            if side.free(along):
                surroundings.bollard(side.place(parts, along, side.kerb + 0.3), chance)


def add_people(parts: Parts, side: Roadside, chance: Chance, novel: float) -> None:
    """People on the pavement and at the zebra; bicycles that lean at houses."""
    for _ in range(int(side.plan.people * chance.between(2, 8) + chance())):
        along = 6 + 46 * chance() ** 1.4
        offset = chance.between(side.begin + 0.4, max(side.begin + 0.8, side.end - 0.4))
        turn = chance.pick((0.0, math.pi, math.pi / 2, -math.pi / 2)) + chance.between(-0.4, 0.4)
        if side.free(along, -CLEAR):
            pedestrian(side.place(parts, along, offset, turn), chance, novel)
    if not math.isinf(side.ground.crossing) and side.near and side.plan.people > 0.1:
        near = side.ground.crossing - side.ground.crossing_half_width
        for _ in range(chance.number(0, 3)):
            offset = chance.between(-side.kerb, side.kerb)
            along, turn = near - chance.between(1.3, 3.9), math.pi / 2 * chance.pick((1, -1))
            pedestrian(place(parts, side.ground, along, offset, turn), chance, novel)
    for _ in range(chance.number(0, 4) if side.kind != "country" else 0):
        along = 5 + 27 * chance() ** 1.5
        turn = chance.pick((0.0, math.pi, math.pi / 2)) + chance.between(-0.2, 0.2)
        two_wheeler = bicycle if chance.hit(0.7) else motorcycle
        if side.free(along, 1):
            two_wheeler(side.place(parts, along, side.begin + chance.between(0.5, 1.2), turn), chance, False, novel)


def add_backdrop(parts: Parts, side: Roadside, chance: Chance, novel: float) -> None:
    """Add distant houses and woods, so that the street has a background."""
    turn = side.ground.curvature * REACH
    for number in range(5):
        x, z, _ = side.ground.point(REACH + chance.between(8, 25), side.side * (9 + 24 * number))
        if side.kind == "town":
            surroundings.house(parts.at(x, z, turn - math.pi / 2), chance, 24, 14, chance.between(8, 20), novel)
        else:
            surroundings.woods(parts.at(x, z, turn), chance, 30, chance.between(7, 13))
    if not math.isinf(side.ground.crossing):  # with a view into the crossing road
        for number, distance in enumerate((48.0, 75.0)):
            along = side.ground.crossing + 9 * number - 4
            spot = side.place(parts, along, side.kerb + distance, side.inward)
            surroundings.house(spot, chance, 34, 12, chance.between(8, 14), novel)
        for bank in (-1, 1) if side.kind == "town" else ():
            edge = side.ground.crossing + bank * (side.ground.crossing_half_width + 9.5)
            spot = side.place(parts, edge, side.front + 30, side.inward)
            surroundings.house(spot, chance, 12, 14, chance.between(*side.plan.houses), novel)
    if side.near and chance() < 0.3 * novel:
        surroundings.bridge(place(parts, side.ground, chance.between(28, 70), 0.0), chance, side.end)
    if side.kind == "country":
        spot = side.place(parts, 70, side.front + 45, math.pi / 2)
        surroundings.woods(spot, chance, 90, chance.between(8, 14))


def fill_lanes(parts: Parts, ground: Ground, plan: Plan, chance: Chance, novel: float) -> None:
    """Traffic in both directions, two-wheelers at the edge, parked cars, rarely a train in the street."""
    along = chance.between(24, 55)
    has_train = chance.hit(0.08 + 0.04 * novel) and abs(along - ground.crossing) > 40
    for direction in (1, -1):
        # A train takes the outermost lane of the oncoming traffic.
        free = plan.lanes - (1 if has_train and direction < 0 else 0)
        for lane in range(1, free + 1):
            offset = direction * plan.side * plan.lane * (lane - 0.5)
            fill_lane(parts, ground, plan, chance, offset, direction, novel)
        if free == plan.lanes:
            add_two_wheelers(parts, ground, plan, chance, direction, novel)
    if plan.parking:
        for side in (-1, 1):
            park_cars(parts, ground, plan, chance, side, novel)
    if has_train:
        train(place(parts, ground, along, -plan.side * plan.lane * (plan.lanes - 0.5)), chance, novel)


def fill_lane(
    parts: Parts, ground: Ground, plan: Plan, chance: Chance, offset: float, direction: int, novel: float
) -> None:
    """Vehicles one after another, with gaps that traffic makes shorter."""
    along = chance.between(9, 22) / min(plan.traffic + 0.2, 1.5) + 2
    while along < TRAFFIC_REACH:
        kind, turn = chance(), chance.between(-0.03, 0.03) + (0.0 if direction > 0 else math.pi)
        length = 4.8 if kind < 0.86 else 12.0
        spot = place(parts, ground, along + length / 2, offset + chance.between(-0.25, 0.25), turn)
        vehicle = car if kind < 0.86 else lorry if kind < 0.94 else bus
        vehicle(spot, chance, novel)
        along += length + chance.between(5, 30) / plan.traffic


def add_two_wheelers(parts: Parts, ground: Ground, plan: Plan, chance: Chance, direction: int, novel: float) -> None:
    """Up to two bicycles or motorcycles with riders, at the edge of the outermost lane."""
    for _ in range(chance.number(1, 2) if chance.hit(min(0.8 * plan.traffic, 0.9)) else 0):
        offset = direction * plan.side * (plan.lane * plan.lanes - 0.45)
        along, turn = 6 + 28 * chance() ** 1.4, chance.between(-0.12, 0.12) + (0.0 if direction > 0 else math.pi)
        two_wheeler = bicycle if chance.hit(0.62) else motorcycle
        two_wheeler(place(parts, ground, along, offset, turn), chance, True, novel)


def park_cars(parts: Parts, ground: Ground, plan: Plan, chance: Chance, side: int, novel: float) -> None:
    """Cars one behind the other at the kerb, as people drive on that side."""
    offset = side * (plan.lane * plan.lanes + plan.parking / 2 + 0.1)
    turn = 0.0 if side == plan.side else math.pi
    along, full = chance.between(3.5, 9), chance.between(0.35, 0.85)
    while along < 80:
        if chance.hit(full) and abs(along - ground.crossing) > ground.crossing_half_width + 8:
            spot = place(parts, ground, along, offset, turn + chance.between(-0.04, 0.04))
            (car if chance.hit(0.96) else lorry)(spot, chance, novel)
        along += chance.between(5.6, 7.5)
