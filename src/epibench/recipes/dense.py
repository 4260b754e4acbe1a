"""Recipes of dense problems: a network trained on one domain of images and evaluated on several."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from torch import nn

from epibench.evaluation.suite import check_uncertainty
from epibench.methods.cyclical import Cyclical
from epibench.methods.ensemble import Ensemble
from epibench.methods.map import MAP
from epibench.methods.mc_dropout import MCDropout
from epibench.methods.ml import MaximumLikelihood
from epibench.methods.sghmc import SGHMC
from epibench.methods.sgld import SGLD
from epibench.metrics import Convention
from epibench.networks.depth_completion import PUBLISHED_STD, DepthCompletion
from epibench.recipes.experiment import NAME, Options, Recipe
from epibench.recipes.sources import (
    KittiSource,
    Places,
    Size,
    Source,
    StreetSource,
    Task,
    VirtualKittiSource,
    default_cache,
)

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, le=1)]
Factor = Annotated[float, Field(gt=0, le=10)]


class NetworkOptions(Options):
    """The depth network: width 32 and blocks (3, 4, 6, 3) are the published one.

    Width is at least 8: with fewer channels, the CPU's convolutions (oneDNN with AVX-512, in PyTorch 2.13) write
    outside of their memory.
    """

    width: int = Field(32, ge=8, le=4096)
    blocks: tuple[Count, Count, Count, Count] = (3, 4, 6, 3)
    grey: bool = False
    init_std: float | None = Field(PUBLISHED_STD, gt=0, le=1e3)
    anchored: bool = False

    def build(self) -> nn.Module:
        """A network with random weights."""
        return DepthCompletion(self.width, self.blocks, self.grey, self.init_std, self.anchored)


class TrainingOptions(Options):
    """How networks are trained, whatever the method; its own options say for how many epochs, and how they move.

    epoch_steps: steps of an epoch. thin: smallest and largest share of the sparse points that is kept. weight_decay: of
    U/N, whose loss has the Gaussian's ½: half of a published one. devices: a batch is shared among so many.
    """

    epoch_steps: int = Field(1000, ge=1, le=10**9)
    crop: Size | None = None
    flip: bool = True
    scale: tuple[Factor, Factor] = (1.0, 1.0)
    thin: tuple[Share, Share] = (1.0, 1.0)
    weight_decay: float = Field(0.0, ge=0, le=1e3)
    clip: float | None = Field(None, gt=0, le=1e9)
    precision: Literal["auto", "32-true", "bf16-mixed"] = "auto"
    compile: bool = False
    log: Literal["csv", "tensorboard", "none"] = "csv"
    devices: int = Field(1, ge=1, le=1024)

    @model_validator(mode="after")
    def _ascending(self) -> TrainingOptions:
        for name in ("scale", "thin"):
            low, high = getattr(self, name)
            if low > high:
                raise ValueError(f"{name}: give the smaller number first, not ({low:g}, {high:g})")
        return self


class DataOptions(Options):
    """Training data, and the domains to evaluate on. cache: where scenes that are drawn are kept."""

    root: str | None = Field(None, min_length=1)
    cache: str | None = Field(None, min_length=1)
    train: Source
    domains: dict[str, Source]

    @property
    def places(self) -> Places:
        """Where everything lies."""
        cache = default_cache() if self.cache is None else Path(self.cache).expanduser()
        return Places(None if self.root is None else Path(self.root).expanduser(), cache)


class EvaluationOptions(Options):
    """How members are evaluated. store: also write all predictions; pictures: images of each domain that are drawn."""

    batch_size: int = Field(1, ge=1, le=4096)
    convention: Convention = "pooled"
    uncertainty: str | None = None
    precision: Literal["32-true", "bf16-mixed"] = "32-true"
    store: bool = False
    pictures: int = Field(2, ge=0)


class DenseRecipe(Recipe):
    """All that an experiment with images fixes."""

    problem: Literal["depth-completion"]
    members: tuple[int, ...] = (1, 2, 4, 8)
    network: NetworkOptions = NetworkOptions()
    training: TrainingOptions = TrainingOptions()
    data: DataOptions
    evaluation: EvaluationOptions = EvaluationOptions()

    @property
    def task(self) -> Task:
        """What the data sets are asked for."""
        return "depth"

    @property
    def likelihood(self) -> str:
        """The kind of prediction."""
        return "gaussian"

    @property
    def unit(self) -> str | None:
        """The unit of predictions and errors."""
        return "m"

    @model_validator(mode="after")
    def _domains(self) -> DenseRecipe:
        if not self.data.domains:
            raise ValueError("data.domains: give at least one domain to evaluate on")
        for name in self.data.domains:
            if not NAME.fullmatch(name):
                raise ValueError(f"data.domains: '{name}' cannot be a name: give letters, digits, '-' and '_'")
        check_uncertainty(self.likelihood, self.evaluation.uncertainty)
        for name, source in self.data.domains.items():
            if self.evaluation.store and isinstance(source, KittiSource) and source.crop is None:
                raise ValueError(
                    f"evaluation.store: images of KITTI differ in size, which a store of '{name}' cannot hold; "
                    f"give data.domains.{name}.crop"
                )
        return self

    @property
    def builder(self) -> partial[nn.Module]:
        """What makes a network; it can be sent to another process."""
        return partial(NetworkOptions.build, self.network)


def wild(severity: float, num_images: int, size: Size) -> StreetSource:
    """Wild scenes with exact, complete targets: the same question as in clean, so that errors can be compared."""
    return StreetSource(domain="wild", severity=severity, without=("target",), num_images=num_images, seed=1, size=size)


def other_methods(trained: dict[str, Any], num_snapshots: int) -> dict[str, Any]:
    """Point estimates and chains beside the methods that are compared: chains are trained four times as long.

    Their rates are what the small street recipe was tried with; none has been tuned.
    """
    chains = {
        "num_chains": 4,
        "num_epochs": 4 * trained["num_epochs"],
        "batch_size": trained["batch_size"],
        "num_snapshots": num_snapshots,
        "diverged": "drop",
    }
    return {
        "map": MAP(num_restarts=4, **trained),
        "ml": MaximumLikelihood(num_restarts=4, **trained),
        "sgld": SGLD(learning_rate=1e-4, burn_in=0.5, **chains),
        "sghmc": SGHMC(learning_rate=1e-4, burn_in=0.5, **chains),
        "cyclical": Cyclical(learning_rate=1e-4, num_cycles=4, **chains),
    }


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
        network=NetworkOptions(width=8, blocks=(1, 1, 1, 1), init_std=None),
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
        network=NetworkOptions(width=16, blocks=(2, 2, 2, 2), init_std=None),
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
        network=NetworkOptions(width=16, blocks=(2, 2, 2, 2), init_std=None, anchored=True),
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
        network=NetworkOptions(grey=True),
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
