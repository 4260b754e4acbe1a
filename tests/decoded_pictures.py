"""Pictures of results as arrays of numbers."""

import io
from pathlib import Path

import numpy as np
from PIL import Image

from epibench.results import Grid, PictureFile, ShownPicture, load_results


def shown_pictures(run: Path, domain: str) -> list[ShownPicture]:
    """Return the pictures that the results of a run have of a domain."""
    results = load_results(run)
    scores = [score for score in results.latest() if score.domain == domain]
    return [
        ShownPicture(**dict(shown), methods={s.method: p for s in scores for p in s.pictures if p.image == shown.image})
        for shown in results.domains[domain].pictures
    ]


def decoded(file: PictureFile) -> np.ndarray:
    """Return the pixels of a picture."""
    return np.asarray(Image.open(io.BytesIO(file.read())))


def numbers(grid: Grid) -> np.ndarray:
    """Return the numbers that a picture stands for."""
    return decoded(grid.png) * grid.scale + grid.offset
