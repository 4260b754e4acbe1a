"""Pictures of results as arrays of numbers."""

import base64
import io

import numpy as np
from PIL import Image

from epibench.results import Grid


def decoded(text: str) -> np.ndarray:
    """Return the pixels of a picture."""
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(text))))


def numbers(grid: Grid) -> np.ndarray:
    """Return the numbers that a picture stands for."""
    return decoded(grid.png) * grid.scale + grid.offset
