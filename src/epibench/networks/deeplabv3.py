"""DeepLabv3 (Chen et al. 2017): classes of pixels, from features at several distances."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from epibench.errors import InputError
from epibench.networks.batch_norm import AbsoluteBatchNorm2d
from epibench.networks.channels import ChannelGroup, Channels
from epibench.networks.resnet import NARROWEST, FarConv2d, ResNet, initialise, load_backbone
from epibench.networks.stages import State, Step

# Normalisation of published weights: mean and standard deviation of the channels, for images from 0 to 1 or from 0
# to 255.
IMAGE_MEAN, IMAGE_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# Gustafsson et al. (2020) subtract the means of blue, green and red from red, green and blue.
GUSTAFSSON2020_MEAN = (102.9801, 115.9465, 122.7717)
NORMALISATIONS = ("imagenet", "gustafsson2020", "none")
LOGITS_STD = 0.01
LEAK = 0.01  # the slope of the leaky ReLUs
LAST_BLOCKS = 4  # number of residual blocks of the places "blocks"


class DeepLabV3(nn.Module):
    """A ResNet, the pyramid of dilated convolutions, and a 1×1 convolution to logits at 1 / output_stride.

    The network of Gustafsson et al. (2020) has the default sizes, and normalisation="gustafsson2020", ceil_mode, leaky,
    absolute_scale and head_init="default".

    Args:
        num_classes: Number of classes.
        depth: Depth of the ResNet.
        output_stride: Ratio of the image's size to the logits' size.
        width: Width of the ResNet.
        head_width: Channels of the pyramid.
        rates: Dilations of the pyramid, in pixels of the features. Chen et al. halve them at output stride 16.
        stem: Stem of the ResNet.
        head_dropout: Dropout rate of the head in training.
        backbone_weights: File with weights of the ResNet (`load_backbone`); None starts from He's initialisation.
        normalisation: Of the image: ImageNet's mean and standard deviation, the means of Gustafsson et al., or none
            (levels from 0 to 255).
        ceil_mode: Whether the maximum in the stem rounds sizes up, so that 512 pixels become 65 logits and not 64.
        leaky: Whether the head has leaky ReLUs.
        absolute_scale: Whether every batch norm has the scale |weight| + 1e-5.
        head_init: He's initialisation of the head with small logits, or PyTorch's default.
        dropout_places: Where MC-dropout drops: the output of each of the four stages, as published, of the last four
            residual `blocks`, or of modules by their names.
    """

    last_layers = ("logits",)
    image_mean: Tensor
    image_std: Tensor

    def __init__(
        self,
        num_classes: int,
        depth: int = 101,
        output_stride: int = 8,
        width: int = 64,
        head_width: int = 512,
        rates: Sequence[int] = (12, 24, 36),
        stem: str = "triple",
        head_dropout: float = 0.1,
        backbone_weights: str | Path | None = None,
        normalisation: str = "imagenet",
        ceil_mode: bool = False,
        leaky: bool = False,
        absolute_scale: bool = False,
        head_init: str = "he",
        dropout_places: str | Sequence[str] = "stages",
    ):
        super().__init__()
        check_head(num_classes, head_width, rates, head_dropout)
        he = one_of("head_init", head_init, ("he", "default")) == "he"
        self.backbone = ResNet(depth, width, output_stride, stem, ceil_mode)
        self.pyramid = Pyramid(self.backbone.channels, head_width, tuple(rates), head_dropout, leaky, he)
        self.logits = nn.Conv2d(head_width, num_classes, 1)
        if he:
            nn.init.normal_(self.logits.weight, std=LOGITS_STD)  # begins with nearly equal probabilities
            nn.init.zeros_(cast(Tensor, self.logits.bias))
        if absolute_scale:
            for module in self.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.__class__ = AbsoluteBatchNorm2d  # same parameters and buffers
        mean, std = torch.zeros(3), torch.ones(3)
        if one_of("normalisation", normalisation, NORMALISATIONS) == "imagenet":
            mean, std = 255 * torch.tensor(IMAGE_MEAN), 255 * torch.tensor(IMAGE_STD)
        elif normalisation == "gustafsson2020":
            mean = torch.tensor(GUSTAFSSON2020_MEAN)
        # Not in the state dict: they are not weights.
        self.register_buffer("image_mean", mean.view(1, 3, 1, 1), persistent=False)
        self.register_buffer("image_std", std.view(1, 3, 1, 1), persistent=False)
        self.dropout_places = self._named_places(dropout_places)
        if backbone_weights is not None:
            load_backbone(self.backbone, backbone_weights)

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return logits, (image, class, ⌈height / output stride⌉, ⌈width / output stride⌉) float32.

        With ceil_mode, sizes may be one larger. inputs: `image`, (image, 3, height, width) uint8.
        """
        logits: Tensor = self.logits(self.pyramid(self.backbone(self._normalised(inputs))))
        return logits.float()

    def stages(self) -> dict[str, Step]:
        """Return the stem, every residual block, the pyramid, and the logits (`networks.stages`)."""
        modules = {name: self.get_submodule(name) for name in map("backbone.{}".format, self.backbone.block_names())}
        return {
            "backbone.stem": lambda inputs: (self.backbone.stem(self._normalised(inputs)),),
            **{name: partial(_applied, module) for name, module in modules.items()},
            "pyramid": partial(_applied, self.pyramid),
            "logits": lambda state: self.logits(state[-1]).float(),
        }

    def channel_groups(self) -> list[ChannelGroup]:
        """Return all channels except the channels of the image and the logits (`networks.channels`)."""
        channels, pyramid = Channels(self), self.pyramid
        features = self.backbone.note_channels(channels)
        beside = [channels.layer(layer, features) for layer in (*pyramid.branches, pyramid.mean)]
        channels.read(self.logits, channels.layer(pyramid.project, [*itertools.chain(*beside)]))
        return channels.groups

    def _normalised(self, inputs: Mapping[str, Tensor]) -> Tensor:
        return (inputs["image"].to(self.image_mean.dtype) - self.image_mean) / self.image_std

    def _named_places(self, places: str | Sequence[str]) -> tuple[str, ...]:
        """Return the modules before dropout. Names of the user are checked when dropout is inserted."""
        if not isinstance(places, str):
            return tuple(places)
        blocks = self.backbone.block_names()
        known = {"stages": [f"stages.{stage}" for stage in range(4)], "blocks": blocks[-LAST_BLOCKS:]}
        return tuple(f"backbone.{name}" for name in known[one_of("dropout_places", places, known)])


def _applied(module: nn.Module, state: State) -> State:
    return (module(state[-1]),)


class Pyramid(nn.Module):
    """Features at several distances: a 1×1 convolution, dilated 3×3 convolutions, and the image's mean.

    Each has `outputs` channels with batch norm and ReLU, leaky or not. A projection reduces all of them to `outputs`
    channels.
    """

    def __init__(self, inputs: int, outputs: int, rates: tuple[int, ...], dropout: float, leaky: bool, he: bool):
        super().__init__()
        near = nn.Conv2d(inputs, outputs, 1, bias=False)
        far = [FarConv2d(inputs, outputs, rate) for rate in rates]
        self.branches = nn.ModuleList([normalised(conv, leaky, he) for conv in (near, *far)])
        self.mean = normalised(nn.Conv2d(inputs, outputs, 1, bias=False), leaky, he)
        self.project = normalised(nn.Conv2d((len(rates) + 2) * outputs, outputs, 1, bias=False), leaky, he)
        self.dropout = nn.Dropout2d(dropout)

    def forward(self, features: Tensor) -> Tensor:
        """(image, outputs, height, width)."""
        if self.training and len(features) == 1:
            raise InputError(
                "DeepLabV3 cannot train on a batch of one image: the mean of an image is one value for each channel, "
                "which batch norm cannot normalise; set batch_size to 2 or more"
            )
        mean = self.mean(features.mean((2, 3), keepdim=True)).expand(-1, -1, *features.shape[2:])
        together = torch.cat([*(branch(features) for branch in self.branches), mean], 1)
        dropped: Tensor = self.dropout(self.project(together))
        return dropped


def normalised(conv: nn.Conv2d, leaky: bool, he: bool) -> nn.Sequential:
    """Return a convolution with batch norm and ReLU, with He's initialisation or PyTorch's."""
    if he:
        initialise(conv)
    activation = nn.LeakyReLU(LEAK, inplace=True) if leaky else nn.ReLU(inplace=True)
    return nn.Sequential(conv, nn.BatchNorm2d(conv.out_channels), activation)


def one_of(option: str, value: str, choices: Iterable[str]) -> str:
    """Return the value; raise an InputError if it is none of the choices."""
    if value not in choices:
        raise InputError(f"{option} of DeepLabV3: choose one of {', '.join(choices)}, not {value}")
    return value


def check_head(num_classes: int, head_width: int, rates: Sequence[int], dropout: float) -> None:
    """Raise an InputError unless a head of this shape is possible."""
    if num_classes < 2:
        raise InputError(f"num_classes of DeepLabV3: at least 2, not {num_classes}")
    if head_width < NARROWEST:
        raise InputError(f"head_width of DeepLabV3: at least {NARROWEST}, not {head_width}")
    if not all(rate >= 1 for rate in rates):
        raise InputError(f"rates of DeepLabV3: dilations of 1 or more, not {list(rates)}")
    if not 0 <= dropout < 1:
        raise InputError(f"head_dropout of DeepLabV3: from 0 to below 1, not {dropout}")
