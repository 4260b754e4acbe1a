"""The pixels of one material: where they are in the world and on their part."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from epibench.street.arrays import Array
from epibench.street.geometry import FACES, FRONT, REAR
from epibench.street.parts import PartTable

EYE = 1.65  # about the height of the camera


@dataclass(frozen=True)
class Pixels:
    """place: (3, pixel), in the world; surface, depth, footprint (size of a pixel there, in metres): (pixel,)."""

    parts: PartTable
    surface: Array
    place: Array
    depth: Array
    footprint: Array

    @cached_property
    def part(self) -> Array:
        """Row in the table of parts."""
        part: Array = self.surface // FACES
        return part

    @cached_property
    def face(self) -> Array:
        """Face of the part."""
        face: Array = self.surface - self.part * FACES
        return face

    @cached_property
    def colour(self) -> Array:
        """The part's colour, (pixel, 3) float32."""
        return self.parts.colour.astype(np.float32)[self.part]

    @cached_property
    def half(self) -> Array:
        """Half of the part's size, (3, pixel) float32."""
        return self.parts.half.astype(np.float32).T[:, self.part]

    @cached_property
    def taper(self) -> Array:
        """How the part tapers, (3, pixel) float32."""
        return self.parts.taper.astype(np.float32).T[:, self.part]

    @cached_property
    def style(self) -> Array:
        """The part's style, (4, pixel) float32."""
        return self.parts.style.astype(np.float32).T[:, self.part]

    @cached_property
    def local(self) -> Array:
        """Place in the part's own axes, from its centre, in metres, (3, pixel) float32."""
        away = self.place - self.parts.centre.astype(np.float32).T[:, self.part]
        axes = self.parts.axes.astype(np.float32)[self.part]
        return np.stack([sum(axes[:, row, k] * away[k] for k in range(3)) for row in range(3)])

    @cached_property
    def on_end(self) -> Array:
        """Whether the face is the front or the rear of a box."""
        ends: Array = (self.face == FRONT) | (self.face == REAR)
        return ends

    @cached_property
    def level(self) -> Array:
        """Height on the part: 0 at its foot, 1 at its top."""
        level: Array = (self.local[1] / self.half[1] + 1) / 2
        return level

    @cached_property
    def sideways(self) -> tuple[Array, Array]:
        """Place along an upright face, in metres from its middle, and half the face's width there."""
        side, front, rear = self.taper * self.level
        along = np.where(self.on_end, self.local[0], self.local[2])
        ends = np.where(self.local[2] > 0, 1 - front, 1 - rear)
        return along, np.where(self.on_end, self.half[0] * (1 - side), self.half[2] * ends)

    def sharpness(self, size: Array | float) -> Array:
        """1 where a pattern of that size is resolved by the pixels, falling to 0 where it is not."""
        return np.clip(size / self.footprint / 2 - 0.75, 0, 1).astype(np.float32)

    def flattened(self) -> Pixels:
        """The same with the footprint on the ground, where pixels far away are long: depth / camera height times."""
        longer = self.footprint * np.maximum(self.depth / np.float32(EYE), 1)
        return dataclasses.replace(self, footprint=longer)
