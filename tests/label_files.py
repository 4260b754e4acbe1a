"""Small folders of images and label images."""

import numpy as np
from PIL import Image

SIZE = (12, 16)


def save(path, pixels, **options):
    """Write a picture, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(pixels, np.uint8)).save(path, **options)
    return path


def save_image(path, size=SIZE, seed=0):
    return save(path, np.random.default_rng(seed).integers(0, 256, (*size, 3)))


def random_values(values, size=SIZE, seed=0):
    """Some of the values in every pixel."""
    return np.asarray(list(values), np.uint8)[np.random.default_rng(seed).integers(0, len(values), size)]
