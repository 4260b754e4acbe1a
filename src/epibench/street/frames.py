"""A frame: what camera and LiDAR record of a scene, with the truth beside it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from epibench.data.cityscapes_classes import TRAIN_IDS
from epibench.data.classes import IGNORE
from epibench.parallel import keep_freed_memory
from epibench.street.arrays import Array, check_whole, generator
from epibench.street.camera import Camera, check_size
from epibench.street.domains import Conditions, Domain, draw_conditions
from epibench.street.geometry import FACES
from epibench.street.layout import make_scene
from epibench.street.lidar import sparse_depth, target_depth
from epibench.street.lighting import illuminate
from epibench.street.optics import take_picture
from epibench.street.parts import Material
from epibench.street.rendering import Surfaces, ground_material, render
from epibench.street.scene import Scene
from epibench.street.sky import make_sky
from epibench.street.weather import add_haze, add_rain

VERSION = 4  # grows with every change that changes a frame
GROUND_LABELS = {
    Material.SKY: TRAIN_IDS["sky"],
    Material.ROAD: TRAIN_IDS["road"],
    Material.PAVING: TRAIN_IDS["sidewalk"],
    Material.GRASS: TRAIN_IDS["terrain"],
    Material.KERB: TRAIN_IDS["sidewalk"],
}


@dataclass(frozen=True)
class Frame:
    """image: (height, width, 3) uint8; labels: train ids, (height, width) uint8; depth in metres, 0: none, float32.

    depth is exact and complete; sparse_depth is what a network gets; target_depth what it is compared with.
    """

    image: Array
    labels: Array
    depth: Array
    sparse_depth: Array
    target_depth: Array
    camera: Camera


def render_frame(domain: Domain, seed: int, index: int, size: tuple[int, int] = (256, 512)) -> Frame:
    """The frame of that number: the same for the same arguments, whoever asks, and in whatever order."""
    keep_freed_memory()
    seed, index = check_whole("seed", seed), check_whole("index", index)
    conditions = draw_conditions(domain, seed, index)
    scene = make_scene(conditions, seed, index, check_size(size))
    surfaces = render(scene.parts, scene.ground, scene.camera)
    return record(scene, surfaces, conditions, seed, index)


def record(scene: Scene, surfaces: Surfaces, conditions: Conditions, seed: int, index: int) -> Frame:
    """What the sensors make of the surfaces that are seen."""
    radiance = illuminate(scene, surfaces, conditions)
    sky = make_sky(conditions)
    light = add_haze(radiance.colour, surfaces.depth, conditions["haze"], sky)
    light = add_rain(light, conditions["rain"], generator(seed, index, "rain"))
    image = take_picture(light, surfaces.surface, sky.daylight, conditions, generator(seed, index, "camera"))
    sensed = (surfaces.depth, radiance.returned, scene.camera, conditions)
    return Frame(
        image=image,
        labels=surface_labels(scene, surfaces),
        depth=surfaces.depth,
        sparse_depth=sparse_depth(*sensed, generator(seed, index, "lidar")),
        target_depth=target_depth(*sensed, generator(seed, index, "target")),
        camera=scene.camera,
    )


def surface_labels(scene: Scene, surfaces: Surfaces) -> Array:
    """The train id of every pixel, uint8."""
    table = np.full(len(Material), IGNORE, np.uint8)
    for material, label in GROUND_LABELS.items():
        table[material] = label
    solid = surfaces.surface >= 0
    of_part = scene.parts.label[np.where(solid, surfaces.surface // FACES, 0)]
    of_ground = table[np.where(solid, 0, ground_material(surfaces.surface))]
    return np.where(solid, of_part, of_ground).astype(np.uint8)
