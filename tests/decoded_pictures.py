"""Pictures of results as arrays of numbers."""

import io

import numpy as np
from PIL import Image

from epibench.picture_files import PictureFile
from epibench.results import Grid


def decoded(file: PictureFile) -> np.ndarray:
    """Return the pixels of a picture."""
    return np.asarray(Image.open(io.BytesIO(file.read())))


def numbers(grid: Grid) -> np.ndarray:
    """Return the numbers that a picture stands for."""
    return decoded(grid.png) * grid.scale + grid.offset
