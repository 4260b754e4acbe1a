"""Depth completion from an image and sparse depth (Ma, Cavalheiro, Karaman 2018), with a Gaussian head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from epibench.networks.resnet import basic_stage

SLOPE = 0.2  # of the leaky ReLUs
DEEPEST = 16  # the encoder's coarsest resolution is 1/16
MEAN_SCALE = 100.0
PUBLISHED_STD = 1e-3
LUMA = (0.299, 0.587, 0.114)


class DepthCompletion(nn.Module):
    """Encoder and decoder with skip connections, at full resolution from the first layer to the last.

    `width` 32 and `blocks` (3, 4, 6, 3), those of a ResNet34, are the published network; a narrow and shallow one has
    the same shape. grey: the published runs saw a grey image. `init_std`: None starts from He's initialisation instead
    of the published N(0, 10⁻³).
    """

    dropout_places: ClassVar[tuple[str, ...]] = (
        "encoder.2",
        "encoder.3",
        "encoder.4",
        "decoder.0",
        "decoder.1",
        "decoder.2",
        "decoder.3",
    )

    def __init__(
        self,
        width: int = 32,
        blocks: tuple[int, int, int, int] = (3, 4, 6, 3),
        grey: bool = False,
        init_std: float | None = PUBLISHED_STD,
    ):
        super().__init__()
        self.grey = grey
        sizes = (2 * width, 2 * width, 4 * width, 8 * width, 16 * width, 16 * width)  # stem, four stages, the deepest
        self.image_stem = conv_layer(1 if grey else 3, width)
        self.depth_stem = conv_layer(1, width)
        stages = [
            basic_stage(before, after, number, 1 if place == 0 else 2)
            for place, (before, after, number) in enumerate(zip(sizes[:4], sizes[1:5], blocks, strict=True))
        ]
        self.encoder = nn.ModuleList([*stages, conv_layer(sizes[4], sizes[5], 2)])
        outputs = (8 * width, 4 * width, 2 * width, 2 * width, 2 * width)
        skipped = sizes[4::-1]
        inputs = (sizes[5], *(up + skip for up, skip in zip(outputs, skipped, strict=False)))
        self.decoder = nn.ModuleList(
            [
                up_layer(before, after, 1 if place == 4 else 2)
                for place, (before, after) in enumerate(zip(inputs, outputs, strict=False))
            ]
        )
        self.mean = nn.Conv2d(outputs[-1] + sizes[0], 1, 1)
        self.log_variance = nn.Conv2d(outputs[-1] + sizes[0], 1, 1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
                initialise(module, init_std)
        for head in (self.mean, self.log_variance):  # what starts at depths of hundreds of metres takes long to return
            initialise(head, PUBLISHED_STD)

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Mean in metres and log variance of every pixel, (image, 2, height, width).

        inputs: `image`, (image, 3, height, width) uint8, and `sparse_depth`, (image, 1, height, width) in metres.
        """
        image, sparse = inputs["image"].to(self.mean.weight.dtype) / 255, inputs["sparse_depth"]
        if self.grey:
            image = (image * image.new_tensor(LUMA).view(1, 3, 1, 1)).sum(1, keepdim=True)
        height, width = image.shape[-2:]
        image, sparse = (_filled(each) for each in (image, sparse))
        features = torch.cat((self.image_stem(image), self.depth_stem(sparse)), 1)
        kept = [features]
        for layer in self.encoder:
            kept.append(layer(kept[-1]))
        features = kept.pop()
        for layer in self.decoder:
            features = torch.cat((layer(features), kept.pop()), 1)
        with torch.autocast(features.device.type, enabled=False):  # 8 bits of a mean of 60 m are steps of 25 cm
            features = features.float()
            raw = torch.cat((MEAN_SCALE * self.mean(features), self.log_variance(features)), 1)
        return raw[..., :height, :width]


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


def _filled(image: Tensor) -> Tensor:
    """Zeros on the right and at the bottom, up to a multiple of the coarsest resolution."""
    height, width = image.shape[-2:]
    return functional.pad(image, (0, -width % DEEPEST, 0, -height % DEEPEST))
