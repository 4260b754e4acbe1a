"""Recipes of street-scene segmentation."""

from __future__ import annotations

from epibench.data.sets.cityscapes import CityscapesSource
from epibench.data.sets.folder import FolderSource
from epibench.data.sets.street import StreetSource
from epibench.data.sets.synscapes import SynscapesSource
from epibench.data.source import Size
from epibench.methods.ensemble import Ensemble
from epibench.methods.mc_dropout import MCDropout
from epibench.recipes.dense import (
    ColourOptions,
    DataOptions,
    DenseRecipe,
    EvaluationOptions,
    TrainingOptions,
    other_methods,
)
from epibench.recipes.networks import SegmentationNetwork


def severities(num_images: int, size: Size) -> dict[str, StreetSource]:
    """Clean scenes, and wild ones at every severity, none of which is trained on."""
    wild = {
        f"wild-{severity}": StreetSource(domain="wild", severity=severity, num_images=num_images, seed=1, size=size)
        for severity in range(1, 6)
    }
    return {"clean": StreetSource(num_images=num_images, seed=1, size=size), **wild}


def street_segmentation() -> DenseRecipe:
    """Clean to wild on two cores: narrow networks on small scenes."""
    trained = {"num_epochs": 10, "batch_size": 4, "learning_rate": 1e-2, "decay": "poly", "diverged": "drop"}
    size = (128, 256)
    return DenseRecipe(
        name="street-segmentation",
        problem="segmentation",
        about="Segmentation, trained on clean street scenes: ensembling and MC-dropout on clean and wild ones",
        minutes=6,
        methods=("ensemble", "mc_dropout"),
        draws=8,
        network=SegmentationNetwork(depth=18, width=16, head_width=32, rates=(1, 2, 4), stem="single"),
        training=TrainingOptions(epoch_steps=50, crop=(64, 128)),
        data=DataOptions(train=StreetSource(num_images=256, size=size), domains=severities(16, size)),
        evaluation=EvaluationOptions(batch_size=4),
        ensemble=Ensemble(num_members=10, sets="random", **trained),
        mc_dropout=MCDropout(num_networks=4, num_passes=8, rate=0.2, **trained),
        **other_methods(trained, 8),
    )


def street_segmentation_large() -> DenseRecipe:
    """The same question with networks that have learnt the task, on a GPU."""
    trained = {"num_epochs": 20, "batch_size": 8, "learning_rate": 2e-3, "decay": "poly", "diverged": "drop"}
    size = (256, 512)
    return DenseRecipe(
        name="street-segmentation-large",
        problem="segmentation",
        about="Segmentation, clean to wild at every severity, with larger networks and more members",
        minutes=25,
        machine="a GPU",
        methods=("ensemble", "mc_dropout"),
        members=(1, 2, 4, 8, 16),
        network=SegmentationNetwork(depth=18, width=64, head_width=128, rates=(3, 6, 12), stem="single"),
        training=TrainingOptions(epoch_steps=100, crop=(192, 384), scale=(0.75, 1.5)),
        data=DataOptions(train=StreetSource(num_images=2000, size=size), domains=severities(100, size)),
        evaluation=EvaluationOptions(batch_size=8),
        ensemble=Ensemble(num_members=20, sets="random", **trained),
        mc_dropout=MCDropout(num_networks=8, num_passes=16, rate=0.5, **trained),
        **other_methods(trained, 16),
    )


# How much a pixel counts by its class, as published with ERFNet and used since.
CITYSCAPES_WEIGHTS = (
    *(0.8373, 0.918, 0.866, 1.0345, 1.0166, 0.9969, 0.9754, 1.0489, 0.8786, 1.0023),
    *(0.9539, 0.9843, 1.1116, 0.9037, 1.0865, 1.0955, 1.0865, 1.1529, 1.0507),
)


def cityscapes_segmentation() -> DenseRecipe:
    """Section 4.3 and Appendix D: Synscapes to Cityscapes. The backbone starts from a file that the user names."""
    trained = {"batch_size": 8, "learning_rate": 0.01, "optimiser": "momentum", "decay": "poly", "diverged": "drop"}
    longer = {"num_epochs": 60, **trained}
    trained = {"num_epochs": 40, **trained}
    return DenseRecipe(
        name="cityscapes-segmentation",
        problem="segmentation",
        about="The paper's segmentation: trained on Synscapes, tested on Cityscapes (Section 4.3)",
        minutes=1860,
        machine="a GPU",
        methods=("ensemble", "mc_dropout"),
        members=(1, 2, 4, 8, 16),
        draws=8,
        network=SegmentationNetwork(),
        training=TrainingOptions(
            epoch_steps=1000,
            crop=(512, 512),
            scale=(0.5, 2.1),
            scale_step=0.1,
            pad=True,
            weight_decay=5e-4,
            class_weights=CITYSCAPES_WEIGHTS,
        ),
        data=DataOptions(
            train=SynscapesSource(),
            domains={"synscapes": SynscapesSource(split="val"), "cityscapes": CityscapesSource()},
        ),
        ensemble=Ensemble(num_members=26, sets="random", **trained),
        mc_dropout=MCDropout(num_networks=8, num_passes=16, rate=0.5, **longer),
        **other_methods(trained, 16),
    )


def folder_segmentation() -> DenseRecipe:
    """Any two folders of images and label images: trained on one, tested on its validation part and on the other.

    Colours are changed far: a network that knows how one camera sees the world knows little else.
    """
    trained = {
        **{"num_epochs": 15, "batch_size": 16, "optimiser": "adamw", "learning_rate": 1e-3, "decay": "poly"},
        "diverged": "drop",
    }
    classes = "cityscapes"
    return DenseRecipe(
        name="folder-segmentation",
        problem="segmentation",
        about="Segmentation on folders of your own: trained on one, tested in its domain and shifted",
        minutes=20,
        machine="a GPU",
        methods=("ensemble", "mc_dropout"),
        members=(1, 2, 4, 8, 16),
        network=SegmentationNetwork(depth=34, head_width=256, rates=(6, 12, 18)),
        training=TrainingOptions(
            epoch_steps=100,
            crop=(256, 256),
            scale=(1.0, 2.0),
            pad=True,
            colours=ColourOptions(strength=0.8, grey=0.1, blur=0.3, noise=0.3),
            weight_decay=0.05,
            class_weights="rare",
        ),
        data=DataOptions(
            train=FolderSource(images="train/images", labels="train/labels", classes=classes),
            domains={
                "in-domain": FolderSource(images="val/images", labels="val/labels", classes=classes),
                "shifted": FolderSource(images="shifted/images", labels="shifted/labels", classes=classes),
            },
        ),
        evaluation=EvaluationOptions(batch_size=4, pictures=3),
        ensemble=Ensemble(num_members=18, sets="random", **trained),
        mc_dropout=MCDropout(num_networks=4, num_passes=16, rate=0.2, **trained),
        **other_methods(trained, 16),
    )
