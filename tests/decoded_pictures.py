"""Pictures of results as arrays of numbers."""

import base64
import io
import json
from pathlib import Path

import numpy as np
from PIL import Image

from by_name import by_name
from epibench.results import Grid, ShownPicture


def shown_pictures(run: Path, domain: str) -> list[ShownPicture]:
    """Return the pictures that the results of a run have of a domain."""
    results = by_name(json.loads((run / "results.json").read_text(encoding="utf-8")))
    return [ShownPicture.model_validate(each) for each in results["pictures"][domain]]


def decoded(text: str) -> np.ndarray:
    """Return the pixels of a picture."""
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(text))))


def numbers(grid: Grid) -> np.ndarray:
    """Return the numbers that a picture stands for."""
    return decoded(grid.png) * grid.scale + grid.offset
