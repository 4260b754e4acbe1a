"""Recipes of dense problems: a network trained on one domain of images and evaluated on several."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from epibench.conventions import Convention, check_uncertainty
from epibench.data.sets import AnySource
from epibench.data.source import Folders, Size, Task, default_cache
from epibench.methods.cyclical import Cyclical
from epibench.methods.map import MAP, MaximumLikelihood
from epibench.methods.sghmc import SGHMC
from epibench.methods.sgld import SGLD
from epibench.recipes.experiment import NAME, Options, Recipe
from epibench.recipes.networks import Network
from epibench.results import QUICK

if TYPE_CHECKING:
    from torch import nn

# Where training data lies and what it is called, and what it is to other networks.
NOT_FOR_TRAINING = {"root", "raw_root", "title", "distribution", "mapping"}
Share = Annotated[float, Field(gt=0, le=1)]
Factor = Annotated[float, Field(gt=0, le=10)]
Weight = Annotated[float, Field(ge=0, le=1e6)]
InFull = BeforeValidator(lambda given: {"bf16": "bf16-mixed", "32": "32-true"}.get(str(given), given))


class ColourOptions(Options):
    """How far the colours of training images are changed, and how likely one is turned grey, blurred or made noisy."""

    strength: float = Field(0.0, ge=0, le=1)
    grey: float = Field(0.0, ge=0, le=1)
    blur: float = Field(0.0, ge=0, le=1)
    noise: float = Field(0.0, ge=0, le=1)


class TrainingOptions(Options):
    """How networks are trained, whatever the method; its own options say for how many epochs, and how they move.

    epoch_steps: steps of an epoch. pad: images that are smaller than the crop are surrounded with pixels that do not
    count. thin: smallest and largest share of the sparse points that is kept. weight_decay: of U/N, whose loss has the
    Gaussian's ½: half of a published one for depth. class_weights: how much a pixel counts, by its class; `rare`:
    1 / √share of its class in the training data. devices: a batch is shared among so many.
    """

    epoch_steps: int = Field(1000, ge=1, le=10**9)
    crop: Size | None = None
    flip: bool = True
    scale: tuple[Factor, Factor] = (1.0, 1.0)
    scale_step: float | None = Field(None, gt=0, le=10)
    pad: bool = False
    colours: ColourOptions = ColourOptions()
    thin: tuple[Share, Share] = (1.0, 1.0)
    weight_decay: float = Field(0.0, ge=0, le=1e3)
    clip: float | None = Field(None, gt=0, le=1e9)
    class_weights: tuple[Weight, ...] | Literal["rare"] | None = None
    precision: Annotated[Literal["auto", "32-true", "bf16-mixed"], InFull] = "auto"
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
    train: AnySource
    domains: dict[str, AnySource]

    @property
    def folders(self) -> Folders:
        """Where data sets and drawn scenes lie."""
        cache = default_cache() if self.cache is None else Path(self.cache).expanduser()
        return Folders(None if self.root is None else Path(self.root).expanduser(), cache)

    @property
    def versions(self) -> dict[str, str]:
        """What changes when the same settings give other data: of the training data, and of every domain."""
        return {"train": self.train.version, **{name: source.version for name, source in self.domains.items()}}


class EvaluationOptions(Options):
    """How members are evaluated. store: also write all predictions; pictures: images of each domain that are drawn.

    window: networks see parts of that size one at a time, of which neighbours share `overlap`; None: the whole image.
    """

    batch_size: int = Field(1, ge=1, le=4096)
    convention: Convention = "pooled"
    uncertainty: str | None = None
    precision: Annotated[Literal["32-true", "bf16-mixed"], InFull] = "32-true"
    store: bool = False
    pictures: int = Field(2, ge=0)
    window: Size | None = None
    overlap: float = Field(1 / 3, ge=0, lt=1)


@dataclass(frozen=True)
class Problem:
    """What a problem asks of its data, and what networks predict. unit: of predictions and errors."""

    task: Task
    likelihood: str
    networks: tuple[str, ...]
    unit: str | None = None


PROBLEMS = {
    "depth-completion": Problem("depth", "gaussian", ("depth_completion", "own"), "m"),
    "segmentation": Problem("segmentation", "categorical", ("deeplabv3", "own")),
}


class DenseRecipe(Recipe):
    """All that an experiment with images fixes."""

    problem: Literal["depth-completion", "segmentation"]
    members: tuple[int, ...] = (1, 2, 4, 8)
    network: Network
    training: TrainingOptions = TrainingOptions()
    data: DataOptions
    evaluation: EvaluationOptions = EvaluationOptions()

    @property
    def task(self) -> Task:
        """What the data sets are asked for."""
        return PROBLEMS[self.problem].task

    @property
    def likelihood(self) -> str:
        """The kind of prediction."""
        return PROBLEMS[self.problem].likelihood

    @property
    def unit(self) -> str | None:
        """The unit of predictions and errors."""
        return PROBLEMS[self.problem].unit

    @model_validator(mode="after")
    def _fits(self) -> DenseRecipe:
        known = PROBLEMS[self.problem].networks
        if self.network.kind not in known:
            raise ValueError(
                f"network.kind: '{self.network.kind}' is no network for {self.problem}; take {' or '.join(known)}"
            )
        weights = self.training.class_weights
        if weights is not None and self.likelihood != "categorical":
            raise ValueError(f"training.class_weights: {self.problem} has no classes; leave it out")
        if isinstance(weights, tuple) and not sum(weights):
            raise ValueError("training.class_weights: all are 0; give at least one class a weight")
        return self

    @model_validator(mode="after")
    def _domains(self) -> DenseRecipe:
        if not self.data.domains:
            raise ValueError("data.domains: give at least one domain to evaluate on")
        for name in self.data.domains:
            if not NAME.fullmatch(name):
                raise ValueError(f"data.domains: '{name}' cannot be a name: give letters, digits, '-' and '_'")
        check_uncertainty(self.likelihood, self.evaluation.uncertainty)
        return self

    def training_settings(self, name: str) -> dict[str, Any]:
        """The settings that decide the trained networks of a method, by their keys."""
        return {
            **super().training_settings(name),
            "network": self.network.model_dump(mode="json"),
            "training": self.training.model_dump(mode="json", exclude={"log"}),
            "data": {"train": self.data.train.model_dump(mode="json", exclude=NOT_FOR_TRAINING)},
        }

    def training_steps(self, name: str) -> int:
        """Steps of a training of a method: until the last network that is kept."""
        return self.method(name).keep[-1] * self.training.epoch_steps

    @property
    def trained_at_once(self) -> int | None:
        """One, where several devices share it; otherwise as many as the machine takes."""
        return 1 if self.training.devices > 1 else None

    def builder(self, num_classes: int | None, pretrained: bool = False) -> Callable[[], nn.Module]:
        """What makes a network; it can be sent to another process."""
        return partial(self.network.build, num_classes, pretrained)


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


def quick(recipe: DenseRecipe, num_images: int = 8) -> DenseRecipe:
    """The same experiment in two or three minutes on two cores: half as many networks, and half as many images."""
    domains = {name: each.model_copy(update={"num_images": num_images}) for name, each in recipe.data.domains.items()}
    return recipe.model_copy(
        update={
            "name": recipe.name + QUICK,
            "about": f"{recipe.about}; quick",
            "minutes": 3,
            "members": (1, 2, 4),
            "draws": 5,
            "data": recipe.data.model_copy(update={"domains": domains}),
            "ensemble": recipe.ensemble.model_copy(update={"num_members": 5}),
            "mc_dropout": recipe.mc_dropout.model_copy(update={"num_networks": 2, "num_passes": 4}),
        }
    )
