"""Networks as options of a recipe: ours by kind, and one of one's own as `package.module:name`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from epibench.errors import InputError
from epibench.imported import error_in_words, load_object, signature_error
from epibench.recipes.experiment import Options

if TYPE_CHECKING:
    from torch import nn

Count = Annotated[int, Field(ge=1)]


class DepthNetwork(Options):
    """The depth network: width 32 and blocks (3, 4, 6, 3) are the published one.

    Width is at least 8: with fewer channels, the CPU's convolutions (oneDNN with AVX-512, in PyTorch 2.13) write
    outside of their memory.
    """

    smallest_batch: ClassVar[int] = 1

    kind: Literal["depth_completion"] = "depth_completion"
    width: int = Field(32, ge=8, le=4096)
    blocks: tuple[Count, Count, Count, Count] = (3, 4, 6, 3)
    grey: bool = False
    init_std: float | None = Field(1e-3, gt=0, le=1e3)
    anchored: bool = False

    def build(self, num_classes: int | None, pretrained: bool = False) -> nn.Module:
        """A network with random weights."""
        from epibench.networks.depth_completion import DepthCompletion

        return DepthCompletion(self.width, self.blocks, self.grey, self.init_std, self.anchored)


class SegmentationNetwork(Options):
    """DeepLabv3: the defaults are the published one. backbone_weights: a file with weights from ImageNet."""

    smallest_batch: ClassVar[int] = 2  # batch norm of an image's mean

    kind: Literal["deeplabv3"] = "deeplabv3"
    depth: Literal[18, 34, 50, 101, 152] = 101
    output_stride: Literal[8, 16, 32] = 8
    width: int = Field(64, ge=8, le=4096)
    head_width: int = Field(512, ge=8, le=4096)
    rates: tuple[Count, ...] = Field((12, 24, 36), min_length=1)
    stem: Literal["single", "triple"] = "triple"
    head_dropout: float = Field(0.1, ge=0, lt=1)
    backbone_weights: str | None = Field(None, min_length=1)

    def build(self, num_classes: int | None, pretrained: bool = False) -> nn.Module:
        """A network with random weights; pretrained: with a backbone from the file, if there is one."""
        from epibench.networks.deeplabv3 import DeepLabV3

        if num_classes is None:
            raise InputError("network.kind: deeplabv3 predicts classes, and the training data has none")
        shape = self.model_dump(exclude={"kind", "backbone_weights"})
        return DeepLabV3(num_classes, **shape, backbone_weights=self.backbone_weights if pretrained else None)


class OwnNetwork(Options):
    """A network of the user's: what makes it, as `package.module:name`, and what it is called with.

    It is called with `options`, and with `num_classes` where classes are predicted.
    """

    smallest_batch: ClassVar[int] = 1

    kind: Literal["own"] = "own"
    name: str
    options: dict[str, Any] = Field({})

    def build(self, num_classes: int | None, pretrained: bool = False) -> nn.Module:
        """The network."""
        from torch import nn

        make = load_object(self.name, "a network")
        given = {**self.options} if num_classes is None else {"num_classes": num_classes, **self.options}
        if problem := signature_error(make, given):
            raise InputError(f"network.options: {self.name} cannot be called with {', '.join(given)} ({problem})")
        try:
            network = make(**given)
        except Exception as error:
            raise InputError(f"network.name: {self.name} cannot be made: {error_in_words(error)}") from None
        if not isinstance(network, nn.Module):
            raise InputError(f"network.name: {self.name} gives {type(network).__name__}; a network is an nn.Module")
        return network


def _with_kind(given: Any) -> Any:
    """`package.module:name` stands for a network of one's own; a recipe without a kind is one of depth completion."""
    if isinstance(given, str):
        return {"kind": "own", "name": given}
    return {"kind": "depth_completion", **given} if isinstance(given, dict) else given


Network = Annotated[
    DepthNetwork | SegmentationNetwork | OwnNetwork, Field(discriminator="kind"), BeforeValidator(_with_kind)
]
