"""Recipes of dense problems: networks are trained on one image domain and evaluated on several."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from epibench.conventions import Convention, check_uncertainty
from epibench.data.images import ScaleRule
from epibench.data.sets import AnySource
from epibench.data.source import Folders, Size, Task, default_cache
from epibench.errors import InputError
from epibench.files import NAME
from epibench.recipes.experiment import Options, Recipe
from epibench.recipes.settings import describe

if TYPE_CHECKING:
    from torch import nn

# Settings of a source that do not change training: its place, its names, and its use by other networks.
NOT_FOR_TRAINING = {"root", "raw_root", "title", "distribution", "mapping"}
# Settings of training that change no network. On a GPU, augmentation is equal up to rounding.
NOT_DECIDING = {"log", "augment", "cache"}
Share = Annotated[float, Field(gt=0, le=1)]
Factor = Annotated[float, Field(gt=0, le=10)]
Weight = Annotated[float, Field(ge=0, le=1e6)]
Count = Annotated[int, Field(ge=1)]
Modules = tuple[str, ...]
TO_BE_GIVEN = "to be given"  # stands for a file that the user must name
PAPER = "paper:"  # before the file of a published checkpoint
LOGS = ("csv", "tensorboard", "wandb", "mlflow", "none")
InFull = BeforeValidator(lambda given: {"bf16": "bf16-mixed", "32": "32-true"}.get(str(given), given))


def places(*known: str, example: str) -> BeforeValidator:
    """Return a validator for dropout places: a known choice or a list of modules."""

    def check(given: Any) -> Any:
        if given not in known and not (isinstance(given, list | tuple) and given):
            choices = " or ".join(known)
            raise ValueError(f'give {choices}, or names of modules as ["{example}"], not {given!r}')
        return given

    return BeforeValidator(check)


class PublishableNetwork(Options):
    """A network that the authors published in one form.

    Args:
        weights: `paper:FILE`, a published checkpoint to start training from; null for none.
    """

    published: ClassVar[Mapping[str, Any]]  # published options that differ from the defaults
    free: ClassVar[frozenset[str]] = frozenset({"weights", "dropout_places"})  # may differ from the published ones

    weights: str | None = None

    @model_validator(mode="after")
    def _fits_weights(self) -> Self:
        if self.weights is None:
            return self
        if not self.weights.startswith(PAPER):
            raise ValueError(f"weights: {self.weights!r} is no checkpoint of the authors; give {PAPER}FILE")
        wrong = [
            f"{name}={json.dumps(expected)}"
            for name, field in type(self).model_fields.items()
            if name not in self.free and getattr(self, name) != (expected := self.published.get(name, field.default))
        ]
        if wrong:
            raise ValueError(f"weights: the published network has {', '.join(wrong)}; set this as well")
        if getattr(self, "backbone_weights", None) not in (None, TO_BE_GIVEN):
            raise ValueError("weights: hold the backbone, too; leave backbone_weights out")
        return self

    def load_weights(self, network: nn.Module, task: Task) -> None:
        """Load the checkpoint if the options name one."""
        if self.weights is not None:
            from epibench.published.checkpoints import load_checkpoint

            load_checkpoint(network, Path(self.weights.removeprefix(PAPER)).expanduser(), task)


class DepthNetwork(PublishableNetwork):
    """The depth network. Published: width 32, blocks (3, 4, 6, 3), grey and image_max 255.

    Width is at least 8: with fewer channels, the CPU's convolutions (oneDNN with AVX-512, in PyTorch 2.13) write
    outside of their memory.

    Args:
        dropout_places: Where MC-dropout drops, besides the deep outputs of the encoder: the first four `concatenations`
            of the decoder with its skips, as published; only the `decoder`'s part of them; or names of modules.
    """

    smallest_batch: ClassVar[int] = 1
    published: ClassVar[Mapping[str, Any]] = {"grey": True, "image_max": 255}
    free: ClassVar[frozenset[str]] = PublishableNetwork.free | {"init_std"}

    kind: Literal["depth_completion"] = "depth_completion"
    width: int = Field(32, ge=8, le=4096)
    blocks: tuple[Count, Count, Count, Count] = (3, 4, 6, 3)
    grey: bool = False
    init_std: float | None = Field(1e-3, gt=0, le=1e3)
    anchored: bool = False
    image_max: float = Field(1.0, gt=0, le=1e6)
    dropout_places: Annotated[
        Literal["concatenations", "decoder"] | Modules, places("concatenations", "decoder", example="encoder.4")
    ] = "concatenations"

    def build(self, num_classes: int | None, pretrained: bool = False) -> nn.Module:
        """Return a network with random weights, or with the checkpoint if `pretrained`."""
        from epibench.networks.depth_completion import DepthCompletion

        network = DepthCompletion(**self.model_dump(exclude={"kind", "weights"}))
        if pretrained:
            self.load_weights(network, "depth")
        return network


class SegmentationNetwork(PublishableNetwork):
    """DeepLabv3 with published default sizes. The recipe cityscapes-segmentation sets all published options.

    Args:
        backbone_weights: File with weights from ImageNet, or null for random ones. "to be given" is refused, so that
            random weights are a deliberate choice.
        dropout_places: Where MC-dropout drops: the output of each of the four `stages`, as published; the output of the
            last four residual `blocks`; or names of modules.
    """

    smallest_batch: ClassVar[int] = 2  # batch norm of an image's mean
    published: ClassVar[Mapping[str, Any]] = {
        "normalisation": "gustafsson2020",
        "absolute_scale": True,
        "ceil_mode": True,
        "leaky": True,
        "head_init": "default",
    }
    free: ClassVar[frozenset[str]] = PublishableNetwork.free | {"backbone_weights", "head_dropout", "head_init"}

    kind: Literal["deeplabv3"] = "deeplabv3"
    depth: Literal[18, 34, 50, 101, 152] = 101
    output_stride: Literal[8, 16, 32] = 8
    width: int = Field(64, ge=8, le=4096)
    head_width: int = Field(512, ge=8, le=4096)
    rates: tuple[Count, ...] = Field((12, 24, 36), min_length=1)
    stem: Literal["single", "triple"] = "triple"
    head_dropout: float = Field(0.1, ge=0, lt=1)
    backbone_weights: str | None = Field(None, min_length=1)
    normalisation: Literal["imagenet", "gustafsson2020", "none"] = "imagenet"
    ceil_mode: bool = False
    leaky: bool = False
    absolute_scale: bool = False
    head_init: Literal["he", "default"] = "he"
    dropout_places: Annotated[
        Literal["stages", "blocks"] | Modules, places("stages", "blocks", example="backbone.stages.3")
    ] = "stages"

    def build(self, num_classes: int | None, pretrained: bool = False) -> nn.Module:
        """Return a network with random weights, or with the checkpoint or backbone if `pretrained`."""
        from epibench.networks.deeplabv3 import DeepLabV3

        if num_classes is None:
            raise InputError("network.kind: deeplabv3 predicts classes, and the training data has none")
        backbone = self.backbone_weights if pretrained and self.weights is None else None
        if backbone == TO_BE_GIVEN:
            raise InputError(
                "network.backbone_weights: this recipe starts from weights of ImageNet; give the file with "
                "--set network.backbone_weights=FILE (docs/networks.md says which, and where to get it), or null for "
                "random weights"
            )
        shape = self.model_dump(exclude={"kind", "weights", "backbone_weights"})
        network = DeepLabV3(num_classes, **shape, backbone_weights=backbone)
        if pretrained:
            self.load_weights(network, "segmentation")
        return network


class OwnNetwork(Options):
    """A user's network, named as `package.module:name`.

    It is called with `options`, and with `num_classes` if classes are predicted.
    """

    smallest_batch: ClassVar[int] = 1

    kind: Literal["own"] = "own"
    name: str
    options: dict[str, Any] = Field({})

    def build(self, num_classes: int | None, pretrained: bool = False) -> nn.Module:
        """Return the network."""
        from epibench.networks.own import make_network

        given = {**self.options} if num_classes is None else {"num_classes": num_classes, **self.options}
        return make_network(self.name, given, f"network.name: {self.name}", f"network.options: {self.name}")


def _with_kind(given: Any) -> Any:
    """`package.module:name` stands for a user's network; a recipe without a kind is depth completion."""
    if isinstance(given, str):
        return {"kind": "own", "name": given}
    return {"kind": "depth_completion", **given} if isinstance(given, dict) else given


Network = Annotated[
    DepthNetwork | SegmentationNetwork | OwnNetwork, Field(discriminator="kind"), BeforeValidator(_with_kind)
]


class ColourOptions(Options):
    """Colour changes of training images: their strength, and the probabilities of grey, blur and noise."""

    strength: float = Field(0.0, ge=0, le=1)
    grey: float = Field(0.0, ge=0, le=1)
    blur: float = Field(0.0, ge=0, le=1)
    noise: float = Field(0.0, ge=0, le=1)


class TrainingOptions(Options):
    """Training options of all methods. A method's own options are its epochs and its update rule.

    Args:
        epoch_steps: Steps of an epoch.
        scale_rule: `centre` takes classes from the nearest centre and averages pixels of images that become smaller;
            `opencv` scales as OpenCV does, bit for bit.
        pad: Whether images that are smaller than the crop are surrounded with uncounted pixels of their mean colour.
        thin: Smallest and largest share of the sparse points that is kept.
        sparse_share: Probability of a target's pixel to be a sparse point, chosen again at every visit.
        weight_decay: Decay of U/N, whose loss has the Gaussian's ½: half of a published decay for depth.
        decay_all: Whether the decay acts on scales and biases, too.
        prior_scale: Chains have the prior N(0, prior_scale²) on every parameter, and no weight decay.
        class_weights: Weight of a pixel by its class; `rare`: 1 / √share of its class in the training data.
        loss_parts: Number of equal parts of a batch. The loss is the mean over parts of their weighted means of pixels.
        augment: `cpu`: loading processes augment samples one by one; `device`: the device augments whole batches;
            `auto`: `device` on a GPU.
        cache: GiB of memory for decoded samples beside a GPU; `auto`: a quarter of the free memory.
    """

    epoch_steps: int = Field(1000, ge=1, le=10**9)
    crop: Size | None = None
    flip: bool = True
    scale: tuple[Factor, Factor] = (1.0, 1.0)
    scale_step: float | None = Field(None, gt=0, le=10)
    scale_rule: ScaleRule = "centre"
    pad: bool = False
    colours: ColourOptions = ColourOptions()
    thin: tuple[Share, Share] = (1.0, 1.0)
    sparse_share: Share | None = None
    weight_decay: float = Field(0.0, ge=0, le=1e3)
    decay_all: bool = False
    prior_scale: float = Field(1.0, gt=0, le=1e6)
    clip: float | None = Field(None, gt=0, le=1e9)
    class_weights: tuple[Weight, ...] | Literal["rare"] | None = None
    loss_parts: int = Field(1, ge=1, le=4096)
    precision: Annotated[Literal["auto", "32-true", "bf16-mixed"], InFull] = "auto"
    compile: bool = False
    log: str = "csv"
    augment: Literal["auto", "cpu", "device"] = "auto"
    cache: Annotated[float, Field(ge=0, le=2**20)] | Literal["auto"] = "auto"

    @field_validator("log")
    @classmethod
    def _known_log(cls, log: str) -> str:
        if log not in LOGS and ":" not in log:
            raise ValueError(f"Input should be {', '.join(map(repr, LOGS))} or a logger as package.module:name")
        return log

    @model_validator(mode="after")
    def _ascending(self) -> TrainingOptions:
        for name in ("scale", "thin"):
            low, high = getattr(self, name)
            if low > high:
                raise ValueError(f"{name}: give the smaller number first, not ({low:g}, {high:g})")
        return self


class DataOptions(Options):
    """Training data and evaluation domains. `cache` is the folder of rendered scenes."""

    root: str | None = Field(None, min_length=1)
    cache: str | None = Field(None, min_length=1)
    train: AnySource
    domains: dict[str, AnySource]

    @property
    def folders(self) -> Folders:
        """The folders of data sets and rendered scenes."""
        cache = default_cache() if self.cache is None else Path(self.cache).expanduser()
        return Folders(None if self.root is None else Path(self.root).expanduser(), cache)

    @property
    def in_files(self) -> bool:
        """Whether a domain lies in files, whose content may change under the same settings."""
        return any(getattr(source, "root", None) is not None for source in self.domains.values())

    @property
    def versions(self) -> dict[str, str]:
        """The versions of the training data and of every domain. They change when the same settings give other data."""
        return {"train": self.train.version, **{name: source.version for name, source in self.domains.items()}}


class EvaluationOptions(Options):
    """Options of the evaluation of members.

    Args:
        store: Whether to write all predictions.
        pictures: Number of images of each domain on the page.
        window: Size of the windows that networks see one at a time; None: the whole image.
        overlap: Share of a window that its neighbour also covers.
        compile: Whether torch.compile compiles a network once for all members.
        cuda_graphs: Whether a GPU records and replays passes; no effect on a CPU. With either option the first image
            is also predicted without it and compared (docs/performance.md).
    """

    batch_size: int = Field(1, ge=1, le=4096)
    convention: Convention = "pooled"
    uncertainty: str | None = None
    precision: Annotated[Literal["auto", "32-true", "bf16-mixed"], InFull] = "32-true"
    compile: bool = False
    cuda_graphs: bool = False
    store: bool = False
    pictures: int = Field(2, ge=0)
    window: Size | None = None
    overlap: float = Field(1 / 3, ge=0, lt=1)


@dataclass(frozen=True)
class Problem:
    """A kind of problem: its task, its likelihood and its networks. `unit`: of predictions and errors."""

    task: Task
    likelihood: str
    networks: tuple[str, ...]
    unit: str | None = None


PROBLEMS = {
    "depth-completion": Problem("depth", "gaussian", ("depth_completion", "own"), "m"),
    "segmentation": Problem("segmentation", "categorical", ("deeplabv3", "own")),
}


class DenseRecipe(Recipe):
    """A recipe of an experiment with images."""

    on_images: ClassVar[bool] = True

    problem: Literal["depth-completion", "segmentation"]
    members: tuple[int, ...] = (1, 2, 4, 8)
    network: Network
    training: TrainingOptions = TrainingOptions()
    data: DataOptions
    evaluation: EvaluationOptions = EvaluationOptions()

    @property
    def task(self) -> Task:
        """The task of the data sets."""
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
        if self.training.sparse_share is not None and self.task != "depth":
            raise ValueError(f"training.sparse_share: {self.problem} has no sparse depth; leave it out")
        weights = self.training.class_weights
        if weights is not None and self.likelihood != "categorical":
            raise ValueError(f"training.class_weights: {self.problem} has no classes; leave it out")
        if isinstance(weights, tuple) and not sum(weights):
            raise ValueError("training.class_weights: all are 0; give at least one class a weight")
        if not self.data.domains:
            raise ValueError("data.domains: give at least one domain to evaluate on")
        for name in self.data.domains:
            if not NAME.fullmatch(name):
                raise ValueError(f"data.domains: '{name}' cannot be a name: give letters, digits, '-' and '_'")
        check_uncertainty(self.likelihood, self.evaluation.uncertainty)
        for name in self.methods:
            if self.method(name).batch_size % self.training.loss_parts:
                raise ValueError(
                    f"{self.setting(name, 'batch_size')}: {self.method(name).batch_size} images have no "
                    f"{self.training.loss_parts} equal parts; give a multiple of training.loss_parts"
                )
            scaled = [str(view) for view in self.method(name).member_views if view.scale != 1]
            if scaled and self.task == "depth":
                raise ValueError(
                    f"{self.setting(name, 'views')}: '{scaled[0]}' is for classes alone, a scene seen at another scale "
                    f"has other depths; leave it out"
                )
            network = self.network_of(name)
            if any(self.network_of(source) != network for source in self.sources(name)):
                raise ValueError(
                    f"{self.setting(name, 'of')}: {name} has other networks than those it starts from; give the "
                    f"variants of both the same network"
                )
        return self

    def network_of(self, name: str) -> DepthNetwork | SegmentationNetwork | OwnNetwork:
        """Return the network of a method: the recipe's, with the changes of its variant."""
        changed = self.variants[name].network if name in self.variants else {}
        if not changed:
            return self.network
        if isinstance(self.network, OwnNetwork) and isinstance(options := changed.get("options"), dict):
            changed = {**changed, "options": {**self.network.options, **options}}
        try:
            return type(self.network).model_validate({**self.network.model_dump(), **changed})
        except ValidationError as error:
            raise ValueError(f"variants.{name}.network.{describe(error)}") from None

    def training_settings(self, name: str) -> dict[str, Any]:
        """Return the settings that decide a method's trained networks, by their keys."""
        # Samplers have the prior, other methods weight decay. Networks may start from networks of either kind.
        samplers = {self.method(each).samples for each in (name, *self.sources(name))}
        left_out = {*NOT_DECIDING}
        left_out |= set() if False in samplers else {"weight_decay", "decay_all"}
        left_out |= set() if True in samplers else {"prior_scale"}
        return {
            **super().training_settings(name),
            "network": self.network_of(name).model_dump(mode="json"),
            "training": self.training.model_dump(mode="json", exclude=left_out),
            "data": {"train": self.data.train.model_dump(mode="json", exclude=NOT_FOR_TRAINING)},
        }

    def training_steps(self, name: str) -> int:
        """Return the steps of a method's training, up to the last kept weights."""
        return self.method(name).keep[-1] * self.training.epoch_steps

    def builder(
        self, num_classes: int | None, pretrained: bool = False, method: str | None = None
    ) -> Callable[[], nn.Module]:
        """Return a picklable function that builds a network for prediction, of the recipe or of a method."""
        network = self.network if method is None else self.network_of(method)
        return partial(network.build, num_classes, pretrained)
