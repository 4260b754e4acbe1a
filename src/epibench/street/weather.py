"""What lies between surfaces and lens: haze and rain."""

from __future__ import annotations

import numpy as np

from epibench.street.arrays import Array
from epibench.street.camera import KITTI_WIDTH
from epibench.street.sky import Sky

SKY_DISTANCE = 400.0


def add_haze(light: Array, depth: Array, haze: float, sky: Sky) -> Array:
    """Light from far away fades into the haze's: exp(−β·depth), here (1 + β·depth/16)⁻¹⁶ by multiplications."""
    if not haze:
        return light
    density = np.float32(0.035 * haze)
    distance = np.where(depth > 0, np.minimum(depth, np.float32(SKY_DISTANCE)), np.float32(SKY_DISTANCE))
    passed = 1 + distance * density / 16
    for _ in range(4):
        passed = passed * passed
    passed = (1 / passed)[..., None]
    veil = sky.horizon * np.float32(0.97)
    return light * passed + veil * (1 - passed)


def add_rain(light: Array, rain: float, rng: np.random.Generator) -> Array:
    """Bright streaks that slant, some near and long, many far and short."""
    if not rain:
        return light
    height, width = light.shape[:2]
    scale = width / KITTI_WIDTH
    streaks = np.zeros((height, width), np.float32)
    slant = rng.uniform(-0.35, 0.35)
    for share, length, strength in ((0.0035, 26, 0.10), (0.0009, 70, 0.16)):
        steps = max(3, round(length * scale * 2))
        drops = rng.random((height, width), dtype=np.float32) < share * rain * 1.6 / max(scale, 0.3)
        row, column = np.nonzero(drops)
        for step in range(steps):
            down, right = row + step, column + round(slant * step)
            inside = (down < height) & (right >= 0) & (right < width)
            streaks[down[inside], right[inside]] += np.float32(strength)
    veil = light.mean() * np.float32(1.5)
    wet: Array = light + np.minimum(streaks, 0.3)[..., None] * (veil - 0.3 * light)
    return wet
