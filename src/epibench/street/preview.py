"""A sheet of scenes: image, classes, depth, sparse depth and target side by side."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from PIL import Image

from epibench.data.cityscapes_classes import colours
from epibench.street.arrays import Array
from epibench.street.frames import Frame
from epibench.street.lidar import MAX_DEPTH

GAP = 4
NEAREST = 2.0
# Near to far: warm to cold, as in most pictures of depth.
STOPS = (
    (0.64, 0.07, 0.03),
    (0.96, 0.45, 0.15),
    (0.90, 0.86, 0.22),
    (0.30, 0.86, 0.55),
    (0.16, 0.50, 0.90),
    (0.19, 0.12, 0.35),
)


def depth_colours(depth: Array) -> Array:
    """Depth on a logarithmic scale from 2 to 80 m as colours, black where there is none, (height, width, 3) uint8."""
    share = np.log(np.maximum(depth, NEAREST) / NEAREST) / np.log(MAX_DEPTH / NEAREST)
    stops = np.linspace(0, 1, len(STOPS))
    picture = np.stack([np.interp(share, stops, [stop[part] for stop in STOPS]) for part in range(3)], -1)
    return (picture * (depth > 0)[..., None] * 255).astype(np.uint8)


def thickened(depth: Array) -> Array:
    """Single pixels made larger, so that they can be seen."""
    thick: Array = depth.copy()
    for here, before in ((thick[1:], depth[:-1]), (thick[:, 1:], depth[:, :-1])):
        np.copyto(here, before, where=here == 0)
    return thick


def frame_strip(frame: Frame) -> Array:
    """One frame: image, classes, exact depth, sparse depth, target."""
    tiles = [
        frame.image,
        colours()[frame.labels],
        depth_colours(frame.depth),
        depth_colours(thickened(frame.sparse_depth)),
        depth_colours(frame.target_depth),
    ]
    gap = np.full((frame.image.shape[0], GAP, 3), 255, np.uint8)
    return np.concatenate([part for tile in tiles for part in (tile, gap)][:-1], 1)


def make_sheet(frames: Iterable[Frame]) -> Image.Image:
    """All frames below each other."""
    strips = [frame_strip(frame) for frame in frames]
    gap = np.full((GAP, strips[0].shape[1], 3), 255, np.uint8)
    return Image.fromarray(np.concatenate([part for strip in strips for part in (strip, gap)][:-1]))
