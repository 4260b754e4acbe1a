"""What stands where: a street of some kind, its houses and plants, its traffic, and the camera in its lane.

`Plan` holds the numbers that differ between clean and wild: at level L of the layout factor each lies between its
range in clean (L = 0) and in wild (L = 1). Everything is placed along the road, by arc length and offset.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from epibench.street.arrays import Chance, Vector, generator
from epibench.street.camera import Camera
from epibench.street.domains import Conditions
from epibench.street.ground import Band, Ground
from epibench.street.parts import Material, Parts
from epibench.street.roadside import Roadside, fill_roadside
from epibench.street.scene import Markings, Scene
from epibench.street.traffic import Lanes, fill_lanes

Range = tuple[float, float]


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
    """A number from a range between that of clean and that of wild."""
    return chance.between(*(a + level * (b - a) for a, b in zip(clean, wild, strict=True)))


def draw_plan(chance: Chance, level: float, toss: float) -> Plan:
    """A street of some kind."""
    kind = chance()
    kind_name = "town" if kind < 0.55 + 0.1 * level else "suburb" if kind < 0.85 - 0.08 * level else "country"
    town, country = kind_name == "town", kind_name == "country"
    bend = mixed(chance, level, (1 / 400, 1 / 150), (1 / 220, 1 / 70)) * (1 if chance.hit(0.5) else -1)
    return Plan(
        kind=kind_name,
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
    ground, sides = make_ground(plan, chance)
    parts, lamps = Parts(), list[Vector]()
    novel = conditions["objects"]
    for side in (-1, 1):
        roadside = Roadside(ground, side, *sides[side], plan.kind, plan.houses, plan.people, plan.side == side)
        fill_roadside(parts, roadside, Chance(generator(seed, index, f"side {side}")), novel, lamps)
    lanes = Lanes(ground, plan.lane, plan.lanes, plan.parking, plan.side, plan.traffic)
    fill_lanes(parts, lanes, Chance(generator(seed, index, "traffic")), novel)
    return Scene(
        parts=parts.table(),
        ground=ground,
        markings=make_markings(plan, ground, chance, level),
        camera=make_camera(plan, chance, level, size),
        sun=make_sun(chance, level),
        lamps=tuple(lamps),
        seed=int(chance() * 2**20),
    )


def make_ground(plan: Plan, chance: Chance) -> tuple[Ground, dict[int, tuple[float, float, float, float]]]:
    """The ground, and for each side where its kerb, verge, pavement and house fronts are, counted from the middle."""
    half = plan.lane * plan.lanes + plan.parking
    bands = [Band(plan.verge, Material.GRASS)] if plan.verge else []
    edge = plan.verge + plan.pavement
    bands.append(Band(edge, Material.PAVING))
    paved = plan.kind == "town" and plan.setback < 1.5
    bands.append(Band(math.inf, Material.PAVING if paved else Material.GRASS))
    crossing = chance.between(14.0, 45.0) if plan.crossing else math.inf
    ground = Ground(
        curvature=plan.curvature,
        left=-half,
        right=half,
        kerb=0.12 if plan.kind != "country" else 0.04,
        left_bands=tuple(bands),
        right_bands=tuple(bands),
        crossing=crossing,
        crossing_half_width=chance.between(3.0, 5.0),
    )
    side = (half, half + plan.verge, half + edge, half + edge + plan.setback)
    return ground, {-1: side, 1: side}


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
    # On a bend, people look into it.
    ahead = plan.curvature * 8.0
    return Camera(
        size=size,
        x=plan.side * plan.lane * (lane - 0.5) + chance.between(-0.3, 0.3),
        height=mixed(chance, level, (1.55, 1.70), (1.20, 2.30)),
        yaw=ahead + degree * chance.between(-2.5, 2.5),
        pitch=degree * mixed(chance, level, (-1.2, 0.8), (-3.0, 2.0)),
        roll=degree * mixed(chance, level, (-0.6, 0.6), (-2.0, 2.0)),
    )


def make_sun(chance: Chance, level: float) -> Vector:
    """The direction towards the sun."""
    height = math.pi / 180 * mixed(chance, level, (38, 58), (16, 68))
    azimuth = 2 * math.pi * chance()
    return math.cos(height) * math.sin(azimuth), math.sin(height), math.cos(height) * math.cos(azimuth)
