"""The camera as a sensor: exposure, lens, motion, noise, colours, compression; from light to 8 bits."""

from __future__ import annotations

import io
import math

import numpy as np
from PIL import Image

from epibench.street.arrays import Array
from epibench.street.domains import Conditions


def take_picture(
    light: Array, surface: Array, daylight: float, conditions: Conditions, rng: np.random.Generator
) -> Array:
    """Return the image, (height, width, 3) uint8, from linear light and the numbers of the surfaces.

    daylight: the light outside relative to a clear day. The exposure compensates for a part of the missing light.
    """
    light = smooth_edges(light, surface)
    light = bloom(light, conditions["night"])
    light = lens_blur(light, conditions["blur"])
    light = motion_blur(light, conditions["blur"], conditions.toss["blur"])
    light = expose(light, daylight, conditions)
    light = add_noise(light, conditions["noise"], conditions["night"], rng)
    # The square root approximates the usual gamma; unlike powers it is the same on every machine.
    image = np.sqrt(np.clip(light, 0, 1))
    image = cast_colour(image, conditions["colour"], conditions.toss["colour"], rng)
    bits = (np.clip(image, 0, 1) * 255 + 0.5).astype(np.uint8)
    return compress(bits, conditions["compression"])


def smooth_edges(light: Array, surface: Array) -> Array:
    """Mix a pixel with its neighbours where surfaces meet: a pixel is an area, not a point."""
    edge = np.zeros(surface.shape, bool)
    across, down = surface[:, 1:] != surface[:, :-1], surface[1:] != surface[:-1]
    for beside, differs in ((edge[:, 1:], across), (edge[:, :-1], across), (edge[1:], down), (edge[:-1], down)):
        beside |= differs
    row, column = np.nonzero(edge)
    height, width = surface.shape
    # The sun in a window must not outshine all its neighbours.
    limited = np.minimum(light, 1.5)
    mean = 4 * limited[row, column]
    for step_down, step_right in ((0, 1), (0, -1), (1, 0), (-1, 0)):
        mean += limited[np.clip(row + step_down, 0, height - 1), np.clip(column + step_right, 0, width - 1)]
    smooth = light.copy()
    smooth[row, column] = mean / 8
    return smooth


def blur_axis(image: Array, radius: float, axis: int) -> Array:
    """A triangle-shaped blur of that radius in pixels along an axis, as two running means."""
    whole = int(radius)
    for _ in range(2):
        weights = [1.0] * (whole + 1) + [radius - whole]
        total = np.float32(2 * sum(weights) - 1)
        padding = [(whole + 1, whole + 1) if each == axis else (0, 0) for each in range(3)]
        padded = np.moveaxis(np.pad(image, padding, mode="edge"), axis, 0)
        mean = np.zeros_like(image)
        for step in range(-whole - 1, whole + 2):
            weight = np.float32(weights[abs(step)])
            if weight:
                window = padded[whole + 1 + step : whole + 1 + step + image.shape[axis]]
                mean += weight * np.moveaxis(window, 0, axis)
        image = mean / total
    return image


def lens_blur(light: Array, blur: float) -> Array:
    """A lens out of focus: a standard deviation of up to 0.15 % of the image's width."""
    variance = (0.0015 * blur * light.shape[1]) ** 2 / 2  # of each of two passes
    # The variance of weights (r, 1, r) is 2r/(1 + 2r); of 2r + 1 equal weights it is r(r + 1)/3.
    radius = variance / (2 - 2 * variance) if variance < 2 / 3 else (math.sqrt(1 + 12 * variance) - 1) / 2
    return blur_axis(blur_axis(light, radius, 0), radius, 1) if radius > 0 else light


def motion_blur(light: Array, blur: float, toss: float) -> Array:
    """Blur by a rotation of the camera during exposure, in half of the scenes."""
    radius = 2.2 * blur * max(toss - 0.5, 0) * light.shape[1] / 512
    return blur_axis(light, radius, 1) if radius > 0.05 else light


def bloom(light: Array, night: float) -> Array:
    """Add a glow around pixels that are brighter than the sensor's range."""
    if not night:
        return light
    bright = np.maximum(light[::4, ::4] - np.float32(0.9), 0)
    radius = max(1.0, light.shape[1] / 160)
    glow = blur_axis(blur_axis(bright, radius, 0), radius, 1)
    large = glow.repeat(4, 0).repeat(4, 1)[: light.shape[0], : light.shape[1]]
    return light + np.float32(0.5 * night) * large


def expose(light: Array, daylight: float, conditions: Conditions) -> Array:
    """Exposure in stops, contrast around the middle, and corners that get less light."""
    exposure = conditions["exposure"]
    stops = exposure * (2.2 * conditions.toss["exposure"] - 1.1)
    light = light * np.float32(0.85 * 2**stops * min(daylight**-0.7, 5.0))
    if not exposure:
        return light
    height, width = light.shape[:2]
    rows, columns = np.linspace(-1, 1, height, dtype=np.float32), np.linspace(-1, 1, width, dtype=np.float32)
    corner = 1 - np.float32(0.22 * exposure) * (rows[:, None] ** 2 + columns**2)
    light, contrast = light * corner[..., None], np.float32(0.4 * exposure)
    return light * (1 - contrast) + contrast * np.float32(1.6) * light * light / (light + np.float32(0.35))


def add_noise(light: Array, noise: float, night: float, rng: np.random.Generator) -> Array:
    """Noise of the light itself (variance grows with it), of reading, and of whole rows."""
    if not noise:
        return light
    gain = np.float32(noise * (1 + night))
    spread = gain * np.sqrt(np.float32(0.0009) * np.maximum(light, 0) + np.float32(0.00005))
    light = light + spread * rng.standard_normal(light.shape, np.float32)
    noisy: Array = light + gain * np.float32(0.002) * rng.standard_normal((light.shape[0], 1, 1), np.float32)
    return noisy


def cast_colour(image: Array, colour: float, toss: float, rng: np.random.Generator) -> Array:
    """Warm or cold light, a tint of green or magenta, and more or less saturation."""
    if not colour:
        return image
    warm, tint = (2 * toss - 1) * 0.12 * colour, rng.uniform(-0.05, 0.05) * colour
    gains = np.array([1 + warm, 1 + tint, 1 - warm], np.float32)
    grey = ((image[..., 0] + image[..., 1] + image[..., 2]) / 3)[..., None]
    saturation = np.float32(1 + colour * rng.uniform(-0.6, 0.35))
    tinted: Array = (grey + (image - grey) * saturation) * gains
    return tinted


def compress(image: Array, compression: float) -> Array:
    """JPEG, from hardly visible to blocks."""
    if not compression:
        return image
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, "JPEG", quality=round(92 - 40 * compression), subsampling=2)
    with Image.open(stream) as picture:
        return np.asarray(picture)
