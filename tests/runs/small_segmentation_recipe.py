"""A recipe of segmentation that runs in a few seconds: tiny street scenes, tiny networks, few steps."""

from pathlib import Path

import numpy as np
from PIL import Image
from small_dense_recipe import SIZE, small_data

from epibench.recipes import DenseRecipe, apply_settings
from epibench.street import StreetDataset


def small_segmentation(cache: Path, *settings: str) -> DenseRecipe:
    """Return three networks of an ensemble and two of MC-dropout on clean and wild scenes; `cache` keeps scenes."""
    optimised = {"num_epochs": 2, "batch_size": 2, "learning_rate": 1e-3}
    recipe = {
        "name": "small-segmentation",
        "problem": "segmentation",
        "methods": ("ensemble", "mc_dropout"),
        "members": (1, 2),
        "draws": 3,
        "network": {"kind": "deeplabv3", "depth": 18, "width": 8, "head_width": 8, "rates": (1, 2), "stem": "single"},
        "training": {"epoch_steps": 3, "crop": (16, 32)},
        "data": small_data(cache),
        "evaluation": {"batch_size": 2, "pictures": 1},
        "ensemble": {**optimised, "num_members": 3, "sets": "random"},
        "mc_dropout": {**optimised, "num_networks": 2, "num_passes": 2, "rate": 0.5},
    }
    return apply_settings(DenseRecipe.model_validate(recipe), settings)


def write_scenes(folder: Path, num_images: int = 3, domain: str = "clean", coarse: bool = True) -> None:
    """Write street scenes as images and labels; coarse: of the classes ground, vehicle and thing."""
    ids = np.arange(256, dtype=np.uint8)
    if coarse:
        ids[:] = 2
        ids[[0, 1, 9]] = 0
        ids[13:19] = 1
        ids[[10, 255]] = 255
    samples = StreetDataset("segmentation", domain, num_images, 1, SIZE)
    for name in ("images", "labels"):
        (folder / name).mkdir(parents=True)
    for index in range(num_images):
        sample = samples[index]
        Image.fromarray(sample.inputs["image"].movedim(0, -1).numpy()).save(folder / "images" / f"{index}.png")
        Image.fromarray(ids[sample.target.numpy()]).save(folder / "labels" / f"{index}.png")
