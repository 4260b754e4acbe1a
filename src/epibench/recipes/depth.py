"""Recipes of depth completion."""

from __future__ import annotations

from epibench.data.sets.kitti import KittiSource
from epibench.data.sets.street import StreetSource
from epibench.data.sets.virtual_kitti import VirtualKittiSource
from epibench.data.source import Size
from epibench.methods.ensemble import Ensemble
from epibench.methods.mc_dropout import MCDropout
from epibench.recipes.dense import DataOptions, DenseRecipe, EvaluationOptions, TrainingOptions, other_methods
from epibench.recipes.networks import DepthNetwork


def wild(severity: float, num_images: int, size: Size) -> StreetSource:
    """Wild scenes with exact, complete targets: the same question as in clean, so that errors can be compared."""
    return StreetSource(domain="wild", severity=severity, without=("target",), num_images=num_images, seed=1, size=size)


def street_depth() -> DenseRecipe:
    """Clean to wild on two cores: narrow networks on small scenes."""
    trained = {"num_epochs": 5, "batch_size": 4, "learning_rate": 4e-3, "decay": "poly", "diverged": "drop"}
    size = (128, 256)
    return DenseRecipe(
        name="street-depth",
        problem="depth-completion",
        about="Depth completion, trained on clean street scenes: ensembling and MC-dropout on clean and wild ones",
        minutes=6,
        methods=("ensemble", "mc_dropout"),
        network=DepthNetwork(width=8, blocks=(1, 1, 1, 1), init_std=None),
        training=TrainingOptions(epoch_steps=50, crop=(64, 128)),
        data=DataOptions(
            train=StreetSource(num_images=256, size=size),
            domains={
                "clean": StreetSource(num_images=16, seed=1, size=size),
                "wild-2": wild(2, num_images=16, size=size),
                "wild-5": wild(5, num_images=16, size=size),
            },
        ),
        evaluation=EvaluationOptions(batch_size=4),
        ensemble=Ensemble(num_members=10, sets="random", **trained),
        mc_dropout=MCDropout(num_networks=4, num_passes=8, rate=0.2, **trained),
        **other_methods(trained, 8),
    )


def street_depth_large() -> DenseRecipe:
    """The same question with networks that have learnt the task, on a GPU."""
    trained = {"num_epochs": 20, "batch_size": 8, "learning_rate": 2e-3, "decay": "poly", "diverged": "drop"}
    size = (256, 512)
    shifted = {f"wild-{severity}": wild(severity, num_images=100, size=size) for severity in range(1, 6)}
    return DenseRecipe(
        name="street-depth-large",
        problem="depth-completion",
        about="Depth completion, clean to wild at every severity, with larger networks and more members",
        minutes=25,
        machine="a GPU",
        methods=("ensemble", "mc_dropout"),
        members=(1, 2, 4, 8, 16),
        network=DepthNetwork(width=16, blocks=(2, 2, 2, 2), init_std=None),
        training=TrainingOptions(epoch_steps=100, crop=(192, 384)),
        data=DataOptions(
            train=StreetSource(num_images=2000, size=size),
            domains={"clean": StreetSource(num_images=100, seed=1, size=size), **shifted},
        ),
        evaluation=EvaluationOptions(batch_size=8),
        ensemble=Ensemble(num_members=20, sets="random", **trained),
        mc_dropout=MCDropout(num_networks=8, num_passes=16, rate=0.2, **trained),
        **other_methods(trained, 16),
    )


def street_to_kitti() -> DenseRecipe:
    """From street scenes alone to real frames: scans like those of KITTI's LiDAR, targets that are exact."""
    trained = {"num_epochs": 25, "batch_size": 8, "learning_rate": 1e-3, "decay": "poly", "diverged": "drop"}
    size, dry = (352, 1216), ("target", "night", "haze", "rain")
    return DenseRecipe(
        name="street-to-kitti",
        problem="depth-completion",
        about="Depth completion, trained on street scenes alone, tested on real KITTI frames",
        minutes=10,
        machine="a GPU",
        methods=("ensemble", "mc_dropout"),
        network=DepthNetwork(width=16, blocks=(2, 2, 2, 2), init_std=None, anchored=True),
        training=TrainingOptions(epoch_steps=100, crop=(192, 384), thin=(0.4, 1.0), clip=1.0),
        data=DataOptions(
            train=StreetSource(domain="wild", without=dry, num_images=800, size=size),
            domains={
                "street": StreetSource(domain="wild", without=dry, num_images=20, seed=1, size=size),
                "kitti": KittiSource(),
            },
        ),
        evaluation=EvaluationOptions(batch_size=4, pictures=3),
        ensemble=Ensemble(num_members=10, sets="random", **trained),
        mc_dropout=MCDropout(num_networks=4, num_passes=8, rate=0.2, **trained),
        **other_methods(trained, 8),
    )


def kitti_depth() -> DenseRecipe:
    """Section 4.2 and Appendix C: Virtual KITTI to KITTI.

    Unlike in the published runs, the sparse points of a frame are drawn once, and scales and biases do not decay.
    """
    trained = {"num_epochs": 40, "batch_size": 4, "learning_rate": 1e-5, "diverged": "drop"}
    return DenseRecipe(
        name="kitti-depth",
        problem="depth-completion",
        about="The paper's depth completion: trained on Virtual KITTI, tested on KITTI (Section 4.2)",
        minutes=1080,
        machine="a GPU",
        methods=("ensemble", "mc_dropout"),
        members=(1, 2, 4, 8, 16, 32),
        draws=16,
        network=DepthNetwork(grey=True),
        # The published loss has no ½, so that its weight decay of 5e-4 is 2.5e-4 of ours.
        training=TrainingOptions(epoch_steps=1000, crop=(352, 352), weight_decay=2.5e-4),
        data=DataOptions(
            train=VirtualKittiSource(),
            domains={
                "virtual-kitti": VirtualKittiSource(split="val", crop=(352, 1216)),
                "kitti": KittiSource(),
            },
        ),
        evaluation=EvaluationOptions(batch_size=4),
        ensemble=Ensemble(num_members=33, sets="random", num_sets={1: 32, 32: 4}, **trained),
        mc_dropout=MCDropout(num_networks=16, num_passes=32, rate=0.5, **trained),
        **other_methods(trained, 32),
    )
