"""How far apart two sets of frames are, by a plain statistic of their patches.

A patch has a descriptor: mean and spread of its colours, how much neighbouring pixels differ, and the shares of groups
of classes. Each set is summarised by the mean m and covariance C of its descriptors, and two sets by the Fréchet
distance of these Gaussians: |m₁ − m₂|² + tr(C₁ + C₂ − 2(C₁^½ C₂ C₁^½)^½), in units of the first set's spread.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from epibench.data.cityscapes_classes import TRAIN_IDS
from epibench.street.arrays import Array
from epibench.street.frames import Frame

PATCH = 16
GROUPS = (
    ("road",),
    ("sidewalk", "terrain"),
    ("building", "wall", "fence"),
    ("vegetation",),
    ("sky",),
    ("car", "truck", "bus", "train", "motorcycle", "bicycle"),
    ("person", "rider"),
    ("pole", "traffic sign", "traffic light"),
)


def patch_descriptors(frames: Iterable[Frame]) -> Array:
    """One row per patch of every frame, (patch, feature) float64."""
    return np.concatenate([frame_descriptors(frame) for frame in frames])


def frame_descriptors(frame: Frame) -> Array:
    """Descriptors of the patches of one frame; pixels beyond the last whole patch are left out."""
    image = _patches(frame.image.astype(np.float64) / 255)
    labels = _patches(frame.labels[..., None])[..., 0]
    grey = image.mean(-1)
    across, down = np.abs(np.diff(grey, axis=2)).mean((1, 2)), np.abs(np.diff(grey, axis=1)).mean((1, 2))
    shares = [np.isin(labels, [TRAIN_IDS[name] for name in group]).mean((1, 2)) for group in GROUPS]
    features = [*image.mean((1, 2)).T, *image.std((1, 2)).T, across, down, *shares]
    return np.stack(features, -1)


def frechet_distance(reference: Array, other: Array) -> float:
    """The Fréchet distance of two sets of descriptors, each in units of the reference's standard deviation."""
    scale = reference.std(0) + 1e-6
    means = [part.mean(0) / scale for part in (reference, other)]
    covariances = [np.cov(part / scale, rowvar=False) for part in (reference, other)]
    root = _root(covariances[0])
    cross = _root(root @ covariances[1] @ root)
    difference = means[0] - means[1]
    return float(difference @ difference + np.trace(covariances[0] + covariances[1] - 2 * cross))


def _root(matrix: Array) -> Array:
    values, vectors = np.linalg.eigh(matrix)
    root: Array = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    return root


def _patches(picture: Array) -> Array:
    """(patch, PATCH, PATCH, channel)."""
    rows, columns = (length // PATCH for length in picture.shape[:2])
    cut = picture[: rows * PATCH, : columns * PATCH].reshape(rows, PATCH, columns, PATCH, -1)
    return cut.transpose(0, 2, 1, 3, 4).reshape(rows * columns, PATCH, PATCH, -1)
