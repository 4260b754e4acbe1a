"""A dense recipe that runs in a few seconds: tiny street scenes, tiny networks, few steps."""

from pathlib import Path
from typing import Any

from epibench.recipes import DenseRecipe, apply_settings

SIZE = (32, 64)


def small_data(cache: Path) -> dict[str, Any]:
    """Return clean scenes to train on, clean and wild scenes to evaluate on; `cache` keeps them."""
    scenes = {"kind": "street", "size": SIZE}
    return {
        "cache": str(cache),
        "train": {**scenes, "num_images": 5},
        "domains": {
            "clean": {**scenes, "num_images": 5, "seed": 1},
            "wild": {**scenes, "domain": "wild", "num_images": 4, "seed": 1},
        },
    }


def small_dense(cache: Path, *settings: str) -> DenseRecipe:
    """Return three networks of an ensemble and two of MC-dropout on clean and wild scenes; `cache` keeps scenes."""
    optimised = {"num_epochs": 2, "batch_size": 2, "learning_rate": 1e-3}
    sampled = {"num_chains": 2, "num_epochs": 4, "batch_size": 2, "num_snapshots": 2, "learning_rate": 1e-5}
    fitted = {**optimised, "num_networks": 2, "num_epochs": 3, "refresh_batches": 2}
    recipe = {
        "name": "small-dense",
        "problem": "depth-completion",
        "methods": ("ensemble", "mc_dropout"),
        "members": (1, 2),
        "draws": 3,
        "network": {"kind": "depth_completion", "width": 8, "blocks": (1, 1, 1, 1), "init_std": None},
        "training": {"epoch_steps": 3, "crop": (16, 32), "weight_decay": 1e-4},
        "data": small_data(cache),
        "evaluation": {"batch_size": 2, "pictures": 1},
        "map": {**optimised, "num_restarts": 2},
        "ensemble": {**optimised, "num_members": 3, "sets": "random"},
        "mc_dropout": {**optimised, "num_networks": 2, "num_passes": 2, "rate": 0.2},
        "shared_trunk": {**optimised, "num_trunks": 2, "num_heads": 3, "shared": "encoder.4"},
        "sgld": sampled,
        "sghmc": sampled,
        "cyclical": {**sampled, "num_cycles": 2},
        "snapshot": {**optimised, "num_networks": 2, "num_cycles": 2},
        "swa": fitted,
        "swag": {**fitted, "num_samples": 2},
        "multi_swag": {**fitted, "num_samples": 2},
        "pruned": {**optimised, "num_members": 3, "sets": "random"},
        "laplace": {"num_networks": 2, "num_samples": 2, "batch_size": 2},
    }
    return apply_settings(DenseRecipe.model_validate(recipe), settings)
