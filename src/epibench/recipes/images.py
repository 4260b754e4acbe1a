"""The recipes of dense problems: depth completion and street-scene segmentation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from epibench.data.sets.cityscapes import CityscapesSource
from epibench.data.sets.folder import FolderSource
from epibench.data.sets.kitti import KittiSource
from epibench.data.sets.street import StreetSource
from epibench.data.sets.synscapes import SynscapesSource
from epibench.data.sets.virtual_kitti import VirtualKittiSource
from epibench.data.source import Size
from epibench.methods.batch_ensemble import BatchEnsemble
from epibench.methods.cyclical import Cyclical
from epibench.methods.ensemble import Ensemble
from epibench.methods.laplace import Laplace
from epibench.methods.map import MAP, MaximumLikelihood
from epibench.methods.mc_dropout import MCDropout
from epibench.methods.pruned import Pruned
from epibench.methods.sghmc import SGHMC
from epibench.methods.sgld import SGLD
from epibench.methods.shared_trunk import SharedTrunk
from epibench.methods.snapshot import Snapshot
from epibench.methods.swag import SWA, SWAG, MultiSWAG
from epibench.methods.tta import TTA
from epibench.recipes import dense
from epibench.recipes.dense import DataOptions, DenseRecipe, EvaluationOptions, TrainingOptions
from epibench.results import QUICK
from epibench.training.rules import POWER

# Targets in the wild stay exact and complete, so that errors on clean and wild can be compared.
EXACT = ("target",)
# Weights of classes in the loss, published with ERFNet and in common use.
CITYSCAPES_WEIGHTS = (
    *(0.8373, 0.918, 0.866, 1.0345, 1.0166, 0.9969, 0.9754, 1.0489, 0.8786, 1.0023),
    *(0.9539, 0.9843, 1.1116, 0.9037, 1.0865, 1.0955, 1.0865, 1.1529, 1.0507),
)


# Of chains. With few images and many parameters, the posterior at 1 contains almost no information from the data.
TEMPERATURE = 1e-4
# Share of a training that pruned networks take.
FINE_TUNED = 0.2
# Ends of shared trunks: the encoder of the depth network, and the third of DeepLabv3's four stages.
ENCODER, THREE_STAGES = "encoder.4", "backbone.stages.2"


def compared(
    trained: Mapping[str, Any],
    num_members: int,
    num_networks: int,
    num_passes: int,
    rate: float,
    shared: int | str = THREE_STAGES,
    sampled: Mapping[str, Any] | None = None,
    **dropout: Any,
) -> dict[str, Any]:
    """Return options of ensembling and MC-dropout, and of point estimates, chains and all other methods.

    A chain takes as many steps as four networks. Half of them, a quarter with cycles, are its warm-up. Only SGHMC on
    street-depth and street-segmentation was tuned (docs/results/sgmcmc.md). SGLD has ten times its rate: with friction
    0.1, SGHMC moves as far in a step. In other recipes SGLD has a tenth of Adam's rate. A network of SWA, SWAG or a
    snapshot ensemble takes as many steps as a network of the ensemble. Pruned networks repeat the last fifth of their
    training (learning rate rewinding, Renda et al. 2020).

    Args:
        trained: Options of training.
        num_members: Number of networks in the ensemble.
        num_networks: Number of networks of other methods.
        num_passes: Number of passes, samples or snapshots of a network.
        rate: Dropout rate.
        shared: End of the shared trunk.
        sampled: Tuned options of chains.
        dropout: Other options of MC-dropout.
    """
    networks = {"decay": "poly", "diverged": "drop", **trained}
    adam = trained["learning_rate"] if trained.get("optimiser", "adam").startswith("adam") else 1e-3
    chains = {
        **{"num_chains": 4, "num_epochs": 4 * trained["num_epochs"], "batch_size": trained["batch_size"]},
        **{"warm_up_epochs": 2 * trained["num_epochs"], "warm_up_rate": adam, "preconditioned": True},
        **{"learning_rate": adam / 10, "power": 0, "temperature": TEMPERATURE},
        **{"num_snapshots": num_passes, "refresh_batches": 16, "diverged": "drop", **(sampled or {})},
    }
    cycles = {name: option for name, option in networks.items() if name != "decay"}
    rewound = {
        "num_epochs": max(1, round(FINE_TUNED * trained["num_epochs"])),
        "learning_rate": trained["learning_rate"] * (FINE_TUNED**POWER if networks["decay"] == "poly" else 1),
    }
    passes = {"num_networks": num_networks, "num_passes": num_passes, "rate": rate}
    samples = {"num_networks": min(num_networks, num_members), "num_samples": num_passes}
    return {
        "methods": ("ensemble", "mc_dropout"),
        "ensemble": Ensemble(num_members=num_members, sets="random", **networks),
        "mc_dropout": MCDropout(**{**networks, **passes, **dropout}),
        "map": MAP(num_restarts=4, **networks),
        "ml": MaximumLikelihood(num_restarts=4, **networks),
        "sgld": SGLD(burn_in=0.2, **chains),
        "sghmc": SGHMC(burn_in=0.2, **{**chains, "learning_rate": chains["learning_rate"] / 10}),
        "pruned": Pruned(num_members=num_members, sets="random", **{**networks, **rewound}),
        "cyclical": Cyclical(num_cycles=2, exploration=0.3, **{**chains, "warm_up_epochs": trained["num_epochs"]}),
        "snapshot": Snapshot(num_networks=num_networks, num_cycles=min(num_passes, trained["num_epochs"]), **cycles),
        "swa": SWA(num_networks=num_networks, **networks),
        "swag": SWAG(num_networks=num_networks, num_samples=num_passes, **networks),
        "multi_swag": MultiSWAG(num_networks=num_networks, num_samples=num_passes, **networks),
        "shared_trunk": SharedTrunk(num_trunks=num_networks, num_heads=num_passes, shared=shared, **networks),
        "batch_ensemble": BatchEnsemble(num_networks=num_networks, num_members=4, **networks),
        "tta": TTA(num_networks=num_networks, batch_size=trained["batch_size"], diverged="drop"),
        "laplace": Laplace(batch_size=trained["batch_size"], diverged="drop", precision="validation", **samples),
    }


def clean_to_wild(
    num_train: int, num_images: int, size: Size, severities: Iterable[int] = range(1, 6), without: tuple[str, ...] = ()
) -> DataOptions:
    """Training on clean scenes; domains are clean scenes and wild scenes of each severity."""
    tested: dict[str, Any] = {"num_images": num_images, "seed": 1, "size": size}
    domains = {"clean": StreetSource(**tested)}
    for severity in severities:
        domains[f"wild-{severity}"] = StreetSource(domain="wild", severity=severity, without=without, **tested)
    return DataOptions(train=StreetSource(num_images=num_train, size=size), domains=domains)


def street_depth() -> DenseRecipe:
    """Clean to wild on two cores: narrow networks on small scenes."""
    trained = {"num_epochs": 5, "batch_size": 4, "learning_rate": 4e-3}
    return DenseRecipe(
        name="street-depth",
        problem="depth-completion",
        about="Depth completion, trained on clean street scenes: ensembling and MC-dropout on clean and wild ones",
        minutes=6,
        network=dense.DepthNetwork(width=8, blocks=(1, 1, 1, 1), init_std=None),
        training=TrainingOptions(epoch_steps=50, crop=(64, 128), prior_scale=3.0),
        data=clean_to_wild(256, 16, (128, 256), severities=(2, 5), without=EXACT),
        evaluation=EvaluationOptions(batch_size=4),
        **compared(
            trained,
            num_members=10,
            num_networks=4,
            num_passes=8,
            rate=0.2,
            shared=ENCODER,
            sampled={"learning_rate": 1e-3},
        ),
    )


def street_depth_large() -> DenseRecipe:
    """Depth from clean to wild on a GPU, with larger networks."""
    trained = {"num_epochs": 20, "batch_size": 8, "learning_rate": 2e-3}
    return DenseRecipe(
        name="street-depth-large",
        problem="depth-completion",
        about="Depth completion, clean to wild at every severity, with larger networks and more members",
        minutes=25,
        machine="a GPU",
        members=(1, 2, 4, 8, 16),
        network=dense.DepthNetwork(width=16, blocks=(2, 2, 2, 2), init_std=None),
        training=TrainingOptions(epoch_steps=100, crop=(192, 384)),
        data=clean_to_wild(2000, 100, (256, 512), without=EXACT),
        evaluation=EvaluationOptions(batch_size=8),
        **compared(trained, num_members=20, num_networks=8, num_passes=16, rate=0.2, shared=ENCODER),
    )


def street_to_kitti() -> DenseRecipe:
    """From street scenes to real frames: scans like KITTI's LiDAR, and exact targets."""
    trained = {"num_epochs": 25, "batch_size": 8, "learning_rate": 1e-3}
    street = StreetSource(domain="wild", without=("target", "night", "haze", "rain"), num_images=800, size=(352, 1216))
    tested = street.model_copy(update={"num_images": 20, "seed": 1})
    return DenseRecipe(
        name="street-to-kitti",
        problem="depth-completion",
        about="Depth completion, trained on street scenes alone, tested on real KITTI frames",
        minutes=10,
        machine="a GPU",
        network=dense.DepthNetwork(width=16, blocks=(2, 2, 2, 2), init_std=None, anchored=True),
        training=TrainingOptions(epoch_steps=100, crop=(192, 384), thin=(0.4, 1.0), clip=1.0),
        data=DataOptions(train=street, domains={"street": tested, "kitti": KittiSource()}),
        evaluation=EvaluationOptions(batch_size=4, pictures=3),
        **compared(trained, num_members=10, num_networks=4, num_passes=8, rate=0.2, shared=ENCODER),
    )


def kitti_depth() -> DenseRecipe:
    """Section 4.2 and Appendix C: Virtual KITTI to KITTI."""
    trained = {"num_epochs": 40, "batch_size": 4, "learning_rate": 1e-5, "decay": "none"}
    frames = VirtualKittiSource(crop=(352, 1216))
    tested = {"virtual-kitti": frames.model_copy(update={"split": "val"}), "kitti": KittiSource()}
    methods = compared(trained, num_members=33, num_networks=16, num_passes=32, rate=0.5, shared=ENCODER)
    methods["ensemble"] = methods["ensemble"].model_copy(update={"num_sets": {1: 32, 32: 4}})
    return DenseRecipe(
        name="kitti-depth",
        problem="depth-completion",
        about="The paper's depth completion: trained on Virtual KITTI, tested on KITTI (Section 4.2)",
        minutes=1380,
        machine="a GPU",
        members=(1, 2, 4, 8, 16, 32),
        draws=16,
        network=dense.DepthNetwork(**dense.DepthNetwork.published),
        # The published loss has no ½, so that its weight decay of 5e-4 is 2.5e-4 of ours.
        training=TrainingOptions(
            crop=(352, 352), sparse_share=0.05, weight_decay=2.5e-4, decay_all=True, precision="32-true"
        ),
        data=DataOptions(train=frames, domains=tested),
        evaluation=EvaluationOptions(batch_size=4),
        **methods,
    )


def kitti_in_domain() -> DenseRecipe:
    """The networks of kitti-depth, trained on KITTI, to measure the shift from synthetic data."""
    shifted = kitti_depth()
    return shifted.changed(
        {
            "training": {"sparse_share": None},
            "data": {"train": KittiSource(split="train"), "domains": {"kitti": KittiSource()}},
        },
        name="kitti-in-domain",
        minutes=None,
        about="The networks of kitti-depth, trained and tested on KITTI: without the shift",
    )


def street_segmentation() -> DenseRecipe:
    """Clean to wild on two cores: narrow networks on small scenes."""
    trained = {"num_epochs": 10, "batch_size": 4, "learning_rate": 1e-2}
    return DenseRecipe(
        name="street-segmentation",
        problem="segmentation",
        about="Segmentation, trained on clean street scenes: ensembling and MC-dropout on clean and wild ones",
        minutes=6,
        draws=8,
        network=dense.SegmentationNetwork(depth=18, width=16, head_width=32, rates=(1, 2, 4), stem="single"),
        training=TrainingOptions(epoch_steps=50, crop=(64, 128), prior_scale=3.0),
        data=clean_to_wild(256, 16, (128, 256)),
        evaluation=EvaluationOptions(batch_size=4),
        **compared(trained, num_members=10, num_networks=4, num_passes=8, rate=0.2, sampled={"learning_rate": 1e-3}),
    )


def street_segmentation_large() -> DenseRecipe:
    """Segmentation from clean to wild on a GPU, with larger networks."""
    trained = {"num_epochs": 20, "batch_size": 8, "learning_rate": 2e-3}
    return DenseRecipe(
        name="street-segmentation-large",
        problem="segmentation",
        about="Segmentation, clean to wild at every severity, with larger networks and more members",
        minutes=25,
        machine="a GPU",
        members=(1, 2, 4, 8, 16),
        network=dense.SegmentationNetwork(depth=18, width=64, head_width=128, rates=(3, 6, 12), stem="single"),
        training=TrainingOptions(epoch_steps=100, crop=(192, 384), scale=(0.75, 1.5)),
        data=clean_to_wild(2000, 100, (256, 512)),
        evaluation=EvaluationOptions(batch_size=8),
        **compared(trained, num_members=20, num_networks=8, num_passes=16, rate=0.5),
    )


def cityscapes_segmentation() -> DenseRecipe:
    """Section 4.3 and Appendix D: Synscapes to Cityscapes. The backbone starts from a file that the user names."""
    trained = {"num_epochs": 40, "batch_size": 8, "learning_rate": 0.01, "optimiser": "momentum"}
    scenes = SynscapesSource(absent="replace", scale_rule="opencv")
    tested = {"synscapes": scenes.model_copy(update={"split": "val"}), "cityscapes": CityscapesSource()}
    scales = {"scale": (0.5, 2.1), "scale_step": 0.1, "scale_rule": "opencv"}
    decay = {"weight_decay": 5e-4, "decay_all": True}
    weighted = {"class_weights": CITYSCAPES_WEIGHTS, "loss_parts": 2}  # one part for each of two GPUs
    return DenseRecipe(
        name="cityscapes-segmentation",
        problem="segmentation",
        about="The paper's segmentation: trained on Synscapes, tested on Cityscapes (Section 4.3)",
        minutes=5340,
        machine="a GPU",
        members=(1, 2, 4, 8, 16),
        draws=8,
        network=dense.SegmentationNetwork(**dense.SegmentationNetwork.published, backbone_weights=dense.TO_BE_GIVEN),
        training=TrainingOptions(crop=(512, 512), precision="32-true", **scales, **decay, **weighted),
        data=DataOptions(train=scenes, domains=tested),
        **compared(trained, num_members=26, num_networks=8, num_passes=16, rate=0.5, num_epochs=60),
    )


def cityscapes_in_domain() -> DenseRecipe:
    """The networks of cityscapes-segmentation, trained on Cityscapes (published: 76.04 % mIoU for one network)."""
    return cityscapes_segmentation().changed(
        {"data": {"train": CityscapesSource(split="train"), "domains": {"cityscapes": CityscapesSource()}}},
        name="cityscapes-in-domain",
        minutes=None,
        about="The networks of cityscapes-segmentation, trained and tested on Cityscapes: without the shift",
    )


def folder_segmentation() -> DenseRecipe:
    """Two folders of images and label images, one for training.

    Domains are the first folder's validation part and the second folder. Colour changes are large, because a network
    overfits to the colours of one camera.
    """
    trained = {"num_epochs": 15, "batch_size": 16, "optimiser": "adamw", "learning_rate": 1e-3}
    train, val, shifted = (
        FolderSource(images=f"{name}/images", labels=f"{name}/labels", classes="cityscapes")
        for name in ("train", "val", "shifted")
    )
    return DenseRecipe(
        name="folder-segmentation",
        problem="segmentation",
        about="Segmentation on folders of your own: trained on one, tested in its domain and shifted",
        minutes=20,
        machine="a GPU",
        members=(1, 2, 4, 8, 16),
        network=dense.SegmentationNetwork(depth=34, head_width=256, rates=(6, 12, 18)),
        training=TrainingOptions(
            epoch_steps=100,
            crop=(256, 256),
            scale=(1.0, 2.0),
            pad=True,
            colours=dense.ColourOptions(strength=0.8, grey=0.1, blur=0.3, noise=0.3),
            weight_decay=0.05,
            class_weights="rare",
        ),
        data=DataOptions(train=train, domains={"in-domain": val, "shifted": shifted}),
        evaluation=EvaluationOptions(batch_size=4, pictures=3),
        **compared(trained, num_members=18, num_networks=4, num_passes=16, rate=0.2),
    )


def quick(recipe: DenseRecipe, num_images: int = 8) -> DenseRecipe:
    """A quick variant for two cores: half the networks, half the images, three minutes."""
    domains = {name: each.model_copy(update={"num_images": num_images}) for name, each in recipe.data.domains.items()}
    return recipe.changed(
        {
            "ensemble": {"num_members": 5},
            "pruned": {"num_members": 5},
            "mc_dropout": {"num_networks": 2, "num_passes": 4},
            "shared_trunk": {"num_trunks": 2, "num_heads": 4},
            "data": {"domains": domains},
        },
        name=recipe.name + QUICK,
        about=f"{recipe.about}; quick",
        minutes=3,
        members=(1, 2, 4),
        draws=5,
    )
