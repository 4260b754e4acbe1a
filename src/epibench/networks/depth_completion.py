"""Depth completion from an image and sparse depth (Ma, Cavalheiro, Karaman 2018), with a Gaussian head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from epibench.errors import InputError
from epibench.networks.channels import ChannelGroup, Channels, Features
from epibench.networks.resnet import BasicBlock, block_channels, make_stage
from epibench.networks.stages import State, Step

SLOPE = 0.2  # of the leaky ReLUs
DEEPEST = 16  # the encoder's coarsest resolution is 1/16
MEAN_SCALE = 100.0
PUBLISHED_STD = 1e-3
LUMA = (299, 587, 114)  # thousandths: integers are rounded equally on every device
SQUARES = 6  # sizes of the squares over which sparse depth is spread: 2, 4 … 64 pixels
FADING = 0.1  # weight of a size relative to the size before
# Places of MC-dropout: the last three outputs of the encoder, and the first four concatenations or up-convolutions.
DEEP = ("encoder.2", "encoder.3", "encoder.4")
PLACES = {
    "concatenations": (*DEEP, *(f"joined.{number}" for number in range(4))),
    "decoder": (*DEEP, *(f"decoder.{number}" for number in range(4))),
}


class DepthCompletion(nn.Module):
    """Encoder and decoder with skip connections, at full resolution from the first layer to the last.

    Args:
        width: Channels of the stems; 32 in the published network.
        blocks: Blocks of the stages; (3, 4, 6, 3) in the published network, as in a ResNet34.
        grey: Whether the input is an 8-bit grey image, as published.
        init_std: Standard deviation of initial weights, published 10⁻³; None: He's initialisation.
        anchored: Whether the input includes sparse depth that is spread over the picture, which the mean corrects. The
            published network must learn to pass depth on, which takes long.
        image_max: Largest level of the image; 255 in the published network.
        dropout_places: MC-dropout drops the last three outputs of the encoder, also in the skips, and, as published,
            the first four concatenations of the decoder with its skips; with `decoder`, only the decoder's part of
            these; or modules by their names.
    """

    stage_modules: ClassVar = {"depth_stem": ("image_stem", "depth_stem"), "log_variance": ("mean", "log_variance")}
    last_layers = ("mean", "log_variance")
    luma: Tensor

    def __init__(
        self,
        width: int = 32,
        blocks: tuple[int, int, int, int] = (3, 4, 6, 3),
        grey: bool = False,
        init_std: float | None = PUBLISHED_STD,
        anchored: bool = False,
        image_max: float = 1.0,
        dropout_places: str | Sequence[str] = "concatenations",
    ):
        super().__init__()
        if isinstance(dropout_places, str) and dropout_places not in PLACES:
            raise InputError(f"dropout_places of DepthCompletion: choose one of {', '.join(PLACES)}, or give modules")
        named = PLACES[dropout_places] if isinstance(dropout_places, str) else dropout_places
        self.dropout_places = tuple(named)
        self.grey, self.anchored, self.levels = grey, anchored, 255 / image_max
        # Not in the state dict: it is not a weight. A buffer is on the device, so that no pass waits for a copy.
        self.register_buffer("luma", torch.tensor(LUMA, dtype=torch.int32).view(1, 3, 1, 1), persistent=False)
        sizes = (2 * width, 2 * width, 4 * width, 8 * width, 16 * width, 16 * width)  # stem, four stages, deepest layer
        self.image_stem = conv_layer(1 if grey else 3, width)
        self.depth_stem = conv_layer(2 if anchored else 1, width)
        stages = [
            make_stage(BasicBlock, before, after, number, stride)
            for before, after, number, stride in zip(sizes[:4], sizes[1:5], blocks, (1, 2, 2, 2), strict=True)
        ]
        self.encoder = nn.ModuleList([*stages, conv_layer(sizes[4], sizes[5], 2)])
        outputs = (8 * width, 4 * width, 2 * width, 2 * width, 2 * width)
        inputs = (sizes[5], *(up + skip for up, skip in zip(outputs, sizes[4::-1], strict=True)))
        self.decoder = nn.ModuleList(map(up_layer, inputs, outputs, (2, 2, 2, 2, 1)))
        self.joined = nn.ModuleList(Concatenation() for _ in outputs)
        self.mean = nn.Conv2d(outputs[-1] + sizes[0], 1, 1)
        self.log_variance = nn.Conv2d(outputs[-1] + sizes[0], 1, 1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
                initialise(module, init_std)
        for head in (self.mean, self.log_variance):  # large initial depths take long to decrease
            initialise(head, PUBLISHED_STD)

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return mean in metres and log variance of every pixel, (image, 2, height, width).

        inputs: `image`, (image, 3, height, width) uint8, and `sparse_depth`, (image, 1, height, width) in metres.
        """
        state = self._stems(inputs)
        for layer in self.encoder:
            state = _encoded(layer, state)
        for layer, join in zip(self.decoder, self.joined, strict=True):
            state = _joined(join, _decoded(layer, state))
        return self._heads(state)

    def stages(self) -> dict[str, Step]:
        """Return the stems, the layers of encoder and decoder, the joints, and the heads (`networks.stages`)."""
        steps: dict[str, Step] = {"depth_stem": self._stems}
        for number, layer in enumerate(self.encoder):
            steps[f"encoder.{number}"] = partial(_encoded, layer)
        for number, (layer, join) in enumerate(zip(self.decoder, self.joined, strict=True)):
            steps |= {f"decoder.{number}": partial(_decoded, layer), f"joined.{number}": partial(_joined, join)}
        return {**steps, "log_variance": self._heads}

    def channel_groups(self) -> list[ChannelGroup]:
        """Return all channels except the channels of inputs and outputs (`networks.channels`)."""
        channels = Channels(self)
        skips: list[Features] = [(*channels.layer(self.image_stem), *channels.layer(self.depth_stem))]
        *stages, deepest = self.encoder
        for stage in stages:
            features = skips[-1]
            for block in stage.children():
                features = block_channels(channels, block, features)
            skips.append(features)
        features = channels.layer(deepest, skips[-1])
        for layer in self.decoder:
            features = (*channels.layer(layer, features), *skips.pop())
        for head in (self.mean, self.log_variance):
            channels.read(head, features)
        return channels.groups

    def _stems(self, inputs: Mapping[str, Tensor]) -> State:
        """Return sparse depth, anchors of an anchored network, and features."""
        image, sparse = inputs["image"], inputs["sparse_depth"]
        if self.grey:
            image = (image * self.luma).sum(1, keepdim=True, dtype=torch.int32)
            image = (image + 500) // 1000  # 8-bit grey
        image, filled = (_filled(each) for each in (image.to(self.mean.weight.dtype) / self.levels, sparse))
        anchors = (spread(filled),) if self.anchored else ()
        features = torch.cat((self.image_stem(image), self.depth_stem(torch.cat((filled, *anchors), 1))), 1)
        return (sparse, *anchors, features)

    def _heads(self, state: State) -> Tensor:
        (height, width), features = state[0].shape[-2:], state[-1]
        with torch.autocast(features.device.type, enabled=False):  # 8 bits of a mean of 60 m are steps of 25 cm
            features = features.float()
            mean = MEAN_SCALE * self.mean(features)
            raw = torch.cat((state[1] + mean if self.anchored else mean, self.log_variance(features)), 1)
        return raw[..., :height, :width]


def _encoded(layer: nn.Module, state: State) -> State:
    """Return the state with the layer's output; former outputs stay for the decoder."""
    return (*state, layer(state[-1]))


def _decoded(layer: nn.Module, state: State) -> State:
    return (*state[:-1], layer(state[-1]))


def _joined(join: nn.Module, state: State) -> State:
    """Join the last features with the skip before them."""
    return (*state[:-2], join(state[-1], state[-2]))


class Concatenation(nn.Module):
    """The concatenated channels of two maps: a module, so that dropout can follow it by name."""

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """(image, channels of both, height, width)."""
        return torch.cat((first, second), 1)


def initialise(module: nn.Conv2d | nn.ConvTranspose2d, std: float | None) -> None:
    """Weights ~ N(0, std²), or He's for leaky ReLUs; biases 0."""
    if std is None:
        nn.init.kaiming_normal_(module.weight, SLOPE)
    else:
        nn.init.normal_(module.weight, std=std)
    if module.bias is not None:
        nn.init.zeros_(module.bias)


def conv_layer(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    """A 3×3 convolution with batch norm and leaky ReLU."""
    conv = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.LeakyReLU(SLOPE, inplace=True))


def up_layer(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    """A transposed 3×3 convolution that multiplies the size by the stride, with batch norm and leaky ReLU."""
    conv = nn.ConvTranspose2d(inputs, outputs, 3, stride, padding=1, output_padding=stride - 1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.LeakyReLU(SLOPE, inplace=True))


def spread(sparse: Tensor) -> Tensor:
    """Spread sparse depth over every pixel, (image, 1, height, width) float32; 0 for an image without points.

    The value is the geometric mean of the points in the pixel, in the squares around it, and in the whole image. Each
    size has a tenth of the weight of the size before, so that the nearest points dominate.
    """
    height, width = sparse.shape[-2:]
    known = (sparse > 0).float()
    level = torch.cat((known * sparse.float().clamp(min=1e-3).log(), known), 1)
    level = functional.pad(level, (0, -width % 2**SQUARES, 0, -height % 2**SQUARES))
    size, summed = level.shape[-2:], level
    for square in range(1, SQUARES + 1):
        level = functional.avg_pool2d(level, 2)
        summed = summed + FADING**square * functional.interpolate(level, size, mode="bilinear", align_corners=False)
    summed = summed + FADING ** (SQUARES + 1) * level.mean((-2, -1), keepdim=True)
    logs, weight = summed[:, :1, :height, :width], summed[:, 1:, :height, :width]
    return torch.where(weight > 0, torch.exp(logs / weight.clamp(min=1e-30)), 0)


def _filled(image: Tensor) -> Tensor:
    """Pad with zeros on the right and at the bottom, to a multiple of the coarsest resolution."""
    height, width = image.shape[-2:]
    return functional.pad(image, (0, -width % DEEPEST, 0, -height % DEEPEST))
