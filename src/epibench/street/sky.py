"""The sky: a gradient, clouds, a glow around the sun; grey in rain, dark at night."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from epibench.street.arrays import Array, smooth_noise
from epibench.street.domains import Conditions
from epibench.street.materials import tinted
from epibench.street.scene import Scene


@dataclass(frozen=True)
class Sky:
    """Colours of the light of the sun, from above and at the horizon, (3,); clouds: how much of it they cover."""

    sun: Array
    zenith: Array
    horizon: Array
    clouds: float
    night: float

    @property
    def daylight(self) -> float:
        """Light from above as a share of that of a clear day."""
        return float(0.5 * self.sun[1] + 0.55 * self.zenith[1] + 0.45 * self.horizon[1]) / 1.43


def make_sky(conditions: Conditions) -> Sky:
    """The sky of a scene: rain and haze take the sun's share away, night takes nearly all."""
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
