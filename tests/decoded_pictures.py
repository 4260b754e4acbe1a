"""Pictures of results as arrays of numbers."""

import io
import json
from pathlib import Path

import numpy as np
from PIL import Image

from by_name import by_name
from epibench.results import Grid, PictureFile, ShownPicture


def shown_pictures(run: Path, domain: str) -> list[ShownPicture]:
    """Return the pictures that the results of a run have of a domain."""
    results = by_name(json.loads((run / "results.json").read_text(encoding="utf-8")))
    return [ShownPicture.model_validate(each, context=run) for each in results["pictures"][domain]]


def decoded(file: PictureFile) -> np.ndarray:
    """Return the pixels of a picture."""
    return np.asarray(Image.open(io.BytesIO(file.read())))


def numbers(grid: Grid) -> np.ndarray:
    """Return the numbers that a picture stands for."""
    return decoded(grid.png) * grid.scale + grid.offset
