"""Light: the sky, the light from surfaces to the camera, and the effects of haze and rain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from epibench.data.cityscapes_classes import TRAIN_IDS
from epibench.street.arrays import Array, smooth_noise
from epibench.street.camera import KITTI_WIDTH, camera_rays
from epibench.street.domains import Conditions
from epibench.street.materials import MATERIALS, Pixels, Setting, tinted
from epibench.street.parts import Material, Shape
from epibench.street.rendering import FACES, Surfaces, cast_shadows, ground_material
from epibench.street.scene import Scene

VEHICLES = tuple(TRAIN_IDS[name] for name in ("car", "truck", "bus", "motorcycle", "bicycle"))
LAMPS_SEEN = 5
BESIDE = 0.35  # metres around a vehicle that it shades
WEAK_SUN = 0.15  # shadows of a weaker sun are invisible
SKY_DISTANCE = 400.0  # metres of haze before it


@dataclass(frozen=True)
class Sky:
    """Colours of the light of the sun, from above and at the horizon, (3,); clouds: the covered share."""

    sun: Array
    zenith: Array
    horizon: Array
    clouds: float
    night: float

    @property
    def daylight(self) -> float:
        """Light from above relative to a clear day."""
        return float(0.5 * self.sun[1] + 0.55 * self.zenith[1] + 0.45 * self.horizon[1]) / 1.43


def make_sky(conditions: Conditions) -> Sky:
    """Return the sky of a scene: rain and haze reduce the sun's light, night removes almost all."""
    night, rain, haze = conditions["night"], conditions["rain"], conditions["haze"]
    dull = min(1.0, rain + 0.8 * haze)
    low_sun = 4 * night * max(0.0, 1 - night) * (night < 1)  # dusk lies between day and night
    day = max(0.0, 1 - 1.45 * night)
    sun = np.float32(1.9 * (1 - 0.92 * dull) * day) * tinted((1.0, 0.96 - 0.25 * low_sun, 0.88 - 0.45 * low_sun))[0]
    dark = np.float32(max(0.012, (1 - night) ** 2))
    zenith = tinted((0.15, 0.35, 0.76))[0] * np.float32(1 - dull) + tinted((0.46, 0.48, 0.51))[0] * np.float32(dull)
    horizon = tinted((0.66, 0.78, 0.90))[0] * np.float32(1 - dull) + tinted((0.60, 0.62, 0.64))[0] * np.float32(dull)
    horizon = horizon * dark + np.float32(0.22 * low_sun) * tinted((1.0, 0.45, 0.2))[0]
    glow = np.float32(0.025 * night) * tinted((1.0, 0.7, 0.4))[0]  # a town's light on its haze
    return Sky(sun, zenith * dark + glow * 0.4, horizon + glow, max(0.75 * conditions["texture"], 0.9 * rain), night)


def paint_sky(sky: Sky, scene: Scene, x: Array, y: Array, z: Array) -> Array:
    """The colour in each direction, (pixel, 3)."""
    length = np.sqrt(x * x + y * y + z * z)
    height = np.clip(y / length, 0, 1)
    share = np.sqrt(height * np.float32(1.2)).clip(0, 1)[:, None]
    colour: Array = sky.horizon * (1 - share) + sky.zenith * share
    towards = np.clip((x * scene.sun[0] + y * scene.sun[1] + z * scene.sun[2]) / length, 0, 1)
    for _ in range(4):
        towards = towards * towards  # the 16th power
    colour = colour + (np.float32(0.18) * towards)[:, None].astype(np.float32) * sky.sun
    if sky.clouds:
        u, v = (axis / length / (height + np.float32(0.12)) for axis in (x, z))
        cover = sum(smooth_noise(u * scale, v * scale, scene.seed + 20) / scale for scale in (1.3, 2.9, 6.1))
        cover = np.clip((cover / 1.28 - 0.42) * 4, 0, 1)[:, None] * np.float32(sky.clouds)
        bright = (sky.horizon * np.float32(0.75) + sky.sun * np.float32(0.14)) * np.float32(1.12)
        colour = colour * (1 - cover) + bright * cover
    return colour.astype(np.float32)


@dataclass(frozen=True)
class View:
    """All pixels in one row. position: (3, pixel), none in the sky; direction: per metre of depth, (3, pixel)."""

    position: Array
    direction: Array
    depth: Array
    surface: Array
    material: Array
    normal: Array


def illuminate(scene: Scene, surfaces: Surfaces, sky: Sky, conditions: Conditions) -> tuple[Array, Array]:
    """Return linear light, (height, width, 3), and the reflected share of a laser's light, of every pixel."""
    view = make_view(scene, surfaces)
    setting = Setting(scene, conditions["texture"], conditions["night"], conditions["rain"])
    gloss = np.zeros(len(view.depth), np.float32)
    colour, light = np.zeros((2, len(gloss), 3), np.float32)
    # Sorting small integers is cheaper than a search for each of them.
    order = np.argsort(view.material, kind="stable")
    bounds = np.searchsorted(view.material[order], np.arange(len(Material) + 1))
    for material, shade in MATERIALS.items():
        chosen = order[bounds[material] : bounds[material + 1]]
        if len(chosen):
            footprint = view.depth[chosen] / np.float32(scene.camera.focal)
            pixels = Pixels(scene.parts, view.surface[chosen], view.position[:, chosen], view.depth[chosen], footprint)
            seen = shade(pixels, setting)
            colour[chosen], light[chosen], gloss[chosen] = seen.colour, seen.light, seen.gloss
    returned = (colour[:, 0] + colour[:, 1] + colour[:, 2]) / 3 * (1 - gloss) ** 2
    light += colour * light_arriving(scene, surfaces, view, sky, conditions)
    light += reflection(view, sky, gloss)
    above = order[bounds[Material.SKY] : bounds[Material.SKY + 1]]
    light[above] = paint_sky(sky, scene, *view.direction[:, above])
    return light.reshape(*surfaces.depth.shape, 3), returned.reshape(surfaces.depth.shape)


def make_view(scene: Scene, surfaces: Surfaces) -> View:
    """Positions, normals and materials of all pixels."""
    rays = camera_rays(scene.camera)
    right, down, forward = rays.direction[..., None]
    by_row = down * rays.rows + forward
    direction = (by_row[:, :, None] + (right * rays.columns)[:, None]).astype(np.float32).reshape(3, -1)
    depth, surface = surfaces.depth.ravel(), surfaces.surface.ravel()
    position = rays.origin[2].astype(np.float32)[:, None] + direction * depth
    solid = surface >= 0
    part = np.where(solid, surface // FACES, 0)
    material = np.where(solid, scene.parts.material[part], ground_material(surface)).astype(np.uint8)
    flat = surfaces.planes.normal.reshape(-1, 3).astype(np.float32).T[:, np.where(solid, surface, 0)]
    normal = np.where(solid, flat, np.array([[0], [1], [0]], np.float32))
    kerb = np.flatnonzero(material == Material.KERB)
    normal[:, kerb] = -direction[:, kerb] * np.array([[0.9], [0.0], [0.9]], np.float32)
    shape = scene.parts.shape[part]
    bulging = np.flatnonzero(solid & ((shape == Shape.ELLIPSOID) | (shape == Shape.LEAVES)))
    away = position[:, bulging] - scene.parts.centre.astype(np.float32).T[:, part[bulging]]
    outward = away / scene.parts.half.astype(np.float32).T[:, part[bulging]] ** 2
    normal[:, bulging] = outward / np.sqrt((outward**2).sum(0))
    panel = np.flatnonzero(solid & (shape >= Shape.RING))
    normal[:, panel] = scene.parts.axes[:, 1].astype(np.float32).T[:, part[panel]]
    return View(position, direction, depth, surface, material, normal)


def light_arriving(scene: Scene, surfaces: Surfaces, view: View, sky: Sky, conditions: Conditions) -> Array:
    """Light from the sun, from the sky and, at night, from lamps and head lights, (pixel, 3)."""
    sun = sum(view.normal[k] * np.float32(scene.sun[k]) for k in range(3))
    flat = scene.parts.shape[np.maximum(view.surface, 0) // FACES] >= Shape.RING
    sun = np.where(flat & (view.surface >= 0), np.abs(sun), np.maximum(sun, 0))
    if conditions["shadows"] and sky.sun[0] > WEAK_SUN:
        lit = cast_shadows(scene, surfaces).lit(view.position, view.normal)
        sun *= 1 - np.float32(min(1.0, 1.2 * conditions["shadows"])) * (1 - lit)
    near = contact(scene, view)
    sun *= near
    dome = (np.float32(0.62) + np.float32(0.38) * view.normal[1]) * near
    ambient = sky.zenith * np.float32(0.55) + sky.horizon * np.float32(0.45)
    arriving: Array = sun[:, None] * sky.sun + dome[:, None] * ambient
    if sky.night:
        arriving += lamp_light(scene, view) * np.float32(sky.night)
    return arriving


def contact(scene: Scene, view: View) -> Array:
    """The share of the light that reaches the ground under and beside vehicles."""
    parts, (height, width) = scene.parts, scene.camera.size
    reached = np.ones(len(view.depth), np.float32)
    on_ground = (view.surface < 0).reshape(height, width)
    for part, top, bottom, left, right in footprints(scene):
        pixels = np.arange(top, bottom)[:, None] * width + np.arange(left, right)
        ground = pixels[on_ground[top:bottom, left:right]]
        away = view.position[:, ground] - parts.centre[part].astype(np.float32)[:, None]
        axes, half = parts.axes[part].astype(np.float32), parts.half[part] + BESIDE
        inside = [half[k] - np.abs(axes[k, 0] * away[0] + axes[k, 1] * away[1] + axes[k, 2] * away[2]) for k in (0, 2)]
        cover = np.clip(np.minimum(*inside) / 0.5, 0, 1)
        reached[ground] *= 1 - np.float32(0.65) * cover.astype(np.float32)
    return reached


def footprints(scene: Scene) -> list[tuple[int, int, int, int, int]]:
    """Return the lowest parts of near vehicles: (part, top, bottom, left, right).

    The part covers the ground in these rows and columns of the picture.
    """
    parts, camera = scene.parts, scene.camera
    low = np.isin(parts.label, VEHICLES) & (parts.centre[:, 1] - parts.half[:, 1] < 0.5) & (parts.half[:, 2] > 0.6)
    chosen = np.flatnonzero(low & (parts.shape == Shape.BOX))
    reach = parts.half[chosen] + BESIDE
    across = (reach[:, 0, None] * parts.axes[chosen, 0])[:, None] * np.array([-1, -1, 1, 1])[:, None]
    ahead = (reach[:, 2, None] * parts.axes[chosen, 2])[:, None] * np.array([-1, 1, -1, 1])[:, None]
    feet = parts.centre[chosen, None] + across + ahead
    feet[..., 1] = 0
    seen = camera.project(feet)
    low_corner, high_corner = seen.min(1), seen.max(1)
    left, right = np.searchsorted(camera.columns, (low_corner[:, 0], high_corner[:, 0]))
    top, bottom = np.searchsorted(camera.rows, (low_corner[:, 1], high_corner[:, 1]))
    near = (low_corner[:, 2] > 0.5) & (low_corner[:, 2] < 45) & (right > left) & (bottom > top)
    table = np.stack((chosen, top, bottom, left, right), -1)[near]
    return [(part, *edges) for part, *edges in table.tolist()]


def lamp_light(scene: Scene, view: View) -> Array:
    """Return light of the nearest street lamps, and of the camera's head lights, which reach some 40 m."""
    light = np.zeros((len(view.depth), 3), np.float32)
    for lamp in sorted(scene.lamps, key=lambda lamp: lamp[2] ** 2 + lamp[0] ** 2)[:LAMPS_SEEN]:
        away = [np.float32(lamp[k]) - view.position[k] for k in range(3)]
        square = away[0] ** 2 + away[1] ** 2 + away[2] ** 2 + np.float32(1)
        facing = np.clip(sum(view.normal[k] * away[k] for k in range(3)) / np.sqrt(square), 0, 1)
        light += (np.float32(26) * facing / square)[:, None] * tinted((1.0, 0.70, 0.38))
    u, v = view.direction[0] / view.direction[2], view.direction[1] / view.direction[2]
    beam = np.clip(1.15 - np.abs(u) * 1.3, 0, 1) * np.clip(0.6 - 6 * v, 0, 1)
    facing = np.clip(-sum(view.normal[k] * view.direction[k] for k in range(3)), 0.15, 1)
    reach = beam * facing / (1 + (view.depth / np.float32(11)) ** 2)
    light += (np.float32(2.2) * reach)[:, None].astype(np.float32) * tinted((1.0, 0.95, 0.85))
    return light


def reflection(view: View, sky: Sky, gloss: Array) -> Array:
    """The sky in polished surfaces and wet roads: more at grazing angles, as (1 − cos)⁵ has it."""
    shiny = np.flatnonzero(gloss)
    light = np.zeros((len(gloss), 3), np.float32)
    direction, normal = view.direction[:, shiny], view.normal[:, shiny]
    direction = direction / np.sqrt((direction**2).sum(0))
    cosine = np.clip(-(direction * normal).sum(0), 0, 1)
    upward = direction[1] + 2 * cosine * normal[1]
    grazing = (1 - cosine) ** 2
    share = gloss[shiny] * (0.12 + 0.88 * grazing * grazing * (1 - cosine))
    above = np.clip(upward * 2.5 + 0.35, 0, 1)[:, None]
    bright = sky.horizon * np.float32(0.6) + sky.zenith * np.float32(0.4)
    light[shiny] = share[:, None] * (above * bright + (1 - above) * np.float32(0.08) * sky.horizon)
    return light


def add_haze(light: Array, depth: Array, haze: float, sky: Sky) -> Array:
    """Fade light from far away into the haze's: exp(−β·depth), here (1 + β·depth/16)⁻¹⁶ by multiplications."""
    if not haze:
        return light
    density = np.float32(0.035 * haze)
    distance = np.where(depth > 0, np.minimum(depth, np.float32(SKY_DISTANCE)), np.float32(SKY_DISTANCE))
    passed = 1 + distance * density / 16
    for _ in range(4):
        passed = passed * passed
    passed = (1 / passed)[..., None]
    return light * passed + sky.horizon * np.float32(0.97) * (1 - passed)


def add_rain(light: Array, rain: float, rng: np.random.Generator) -> Array:
    """Bright streaks that slant, some near and long, many far and short."""
    if not rain:
        return light
    height, width = light.shape[:2]
    scale = width / KITTI_WIDTH
    streaks = np.zeros((height, width), np.float32)
    slant = rng.uniform(-0.35, 0.35)
    for share, length, strength in ((0.0035, 26, 0.10), (0.0009, 70, 0.16)):
        drops = rng.random((height, width), dtype=np.float32) < share * rain * 1.6 / max(scale, 0.3)
        row, column = np.nonzero(drops)
        for step in range(max(3, round(length * scale * 2))):
            down, right = row + step, column + round(slant * step)
            inside = (down < height) & (right >= 0) & (right < width)
            streaks[down[inside], right[inside]] += np.float32(strength)
    veil = light.mean() * np.float32(1.5)
    wet: Array = light + np.minimum(streaks, 0.3)[..., None] * (veil - 0.3 * light)
    return wet
